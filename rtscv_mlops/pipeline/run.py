"""One window from end to end: all stages in order, and exactly one recorded outcome."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from rtscv_mlops import registry
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import InputError, NotAssessed, RtscvError, ServiceError
from rtscv_mlops.facts import NOT_ASSESSED, WindowFacts
from rtscv_mlops.pipeline import baseline
from rtscv_mlops.pipeline.alerting import alert_is_owed, raise_alert
from rtscv_mlops.pipeline.rectification import Rectification
from rtscv_mlops.pipeline.stages import (
    Taken,
    first_facts,
    open_window_run,
    read_facts,
    rectify_window,
    register_challenger,
    take_window,
    write_facts,
    write_report,
)
from rtscv_mlops.registry import MlflowClient, WindowRun, tags
from rtscv_mlops.window import Interval

Tell = Callable[[str], None]

log = logging.getLogger(__name__)


def _nobody(stage: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a window: the facts, where they are, and whether they were there before."""

    facts: WindowFacts
    run_id: str
    version: str | None
    alert: str
    repeated: bool = False


def run_window(monitor: Monitor, interval: Interval, tell: Tell = _nobody) -> Outcome:
    """Take a window through all stages; a window that was finished before is read back.

    `tell` is given the name of each stage as it begins, and how far the reading is. A service that
    failed is recorded too, and then raised: trying again may help.
    """
    tell("take_window")
    try:
        taken = take_window(
            monitor, interval, lambda rows: tell(f"take_window: {rows:,} rows read")
        )
    except (InputError, NotAssessed) as error:
        return record_unassessed(monitor, interval, error)
    except ServiceError as error:
        with suppress(ServiceError):  # MLflow itself may be what failed.
            _write_unassessed(*_open_unassessed(monitor, interval), error)
        raise
    if taken.run.is_complete:
        return _read_back(taken)
    try:
        facts, version = _judge(taken, tell)
    except (InputError, NotAssessed) as error:
        return _finish_unassessed(monitor, taken.client, taken.run, taken.facts, error)
    except ServiceError as error:
        with suppress(ServiceError):
            _write_unassessed(taken.run, taken.facts, error)
        raise
    tell("raise_alert")
    alert = raise_alert(monitor, taken.client, taken.run, facts)
    taken.run.finish()
    return Outcome(facts, taken.run.run_id, version, alert.why)


def _judge(taken: Taken, tell: Tell) -> tuple[WindowFacts, str | None]:
    tell("rectify_window")
    done = rectify_window(taken)
    tell("write_report")
    facts = _reported(taken, done)
    if facts.verdict == "no_change" and _is_wanted_for_baseline(taken):
        baseline.keep_for_baseline(
            taken.run, taken.window, baseline.QUIET, taken.monitor.rectify.seed
        )
    if done.challenger is None:
        return facts, None
    tell("register_challenger")
    return facts, register_challenger(taken, facts)


def _reported(taken: Taken, done: Rectification) -> WindowFacts:
    """Write the report; a page that cannot be drawn must not lose the verdict."""
    try:
        return write_report(taken, done)
    except Exception as error:  # Evidently raises anything, and the verdict does not need it.
        log.exception("write_report failed; the verdict stands without a report")
        absent = f"The report could not be written: {type(error).__name__}: {error}"
        facts = done.facts.model_copy(update={"findings": (*done.facts.findings, absent)})
        write_facts(taken.run, facts)
        return facts


def _is_wanted_for_baseline(taken: Taken) -> bool:
    wanted = baseline.wanted_windows(taken.monitor)
    if not wanted:
        return False
    kept = baseline.kept_runs(taken.monitor, taken.client, taken.champion, taken.window.interval)
    return len(kept) < wanted


def _read_back(taken: Taken) -> Outcome:
    """Return what was found before; all that may be left to do is to tell somebody."""
    run, facts = taken.run, read_facts(taken.run)
    log.info("run_window: %s was finished before", taken.window.interval)
    alert = "Finished before."
    if alert_is_owed(run):
        alert = raise_alert(taken.monitor, taken.client, run, facts).why
    return Outcome(facts, run.run_id, run.tags().get(tags.VERSION), alert, repeated=True)


def record_unassessed(monitor: Monitor, interval: Interval, error: RtscvError) -> Outcome:
    """Write down that a window could not be judged, and why; never that all is well."""
    run, facts = _open_unassessed(monitor, interval)
    return _finish_unassessed(monitor, run.client, run, facts, error)


def _open_unassessed(monitor: Monitor, interval: Interval) -> tuple[WindowRun, WindowFacts]:
    client = registry.connect(monitor.model)
    key = sha256(f"{monitor.name} {monitor.model.name} {interval.id}".encode()).hexdigest()[:32]
    facts = first_facts(monitor, interval, key)
    return open_window_run(client, monitor, interval, facts), facts


def _finish_unassessed(
    monitor: Monitor, client: MlflowClient, run: WindowRun, facts: WindowFacts, error: RtscvError
) -> Outcome:
    facts = _write_unassessed(run, facts, error)
    alert = raise_alert(monitor, client, run, facts)
    return Outcome(facts, run.run_id, None, alert.why)


def _write_unassessed(run: WindowRun, facts: WindowFacts, error: RtscvError) -> WindowFacts:
    facts = facts.model_copy(
        update={"verdict": f"{NOT_ASSESSED}:{error.code}", "headline": str(error)}
    )
    # A rival may have finished the window meanwhile, and its verdict stands.
    if not run.is_complete:
        try:
            write_facts(run, facts)
        finally:  # The place for files may be what failed.
            # Not finished for good: the same window may be tried again, and then keeps this run.
            run.fail(error.code, str(error))
    log.warning("run_window: %s: %s", facts.verdict, error)
    return facts
