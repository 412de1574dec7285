"""Windows that could not be judged: that is written down too, and never looks like all is well."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from rtscv_mlops.alerts.sending import alert_is_owed, raise_alert
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, InputError, NotAssessed, RtscvError, ServiceError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.judging.judge import Rectification
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.pipeline.registration import register_challenger
from rtscv_mlops.pipeline.stages import Taken, rectify_window, take_window, write_report
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.ledger import single_attempt
from rtscv_mlops.tracking.record import (
    add_finding,
    first_facts,
    is_assessed,
    open_window_run,
    read_facts,
    write_facts,
)
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval

log = logging.getLogger(__name__)


def record_unassessed(
    monitor: Monitor, interval: Interval, error: RtscvError
) -> tuple[WindowRun, WindowFacts]:
    """Write down that a window could not even be taken, and why."""
    registry = ModelRegistry.connect(monitor.model)
    key = sha256(f"{monitor.name} {monitor.model.name} {interval.id}".encode()).hexdigest()[:32]
    facts = first_facts(monitor, interval, key)
    run = open_window_run(registry, monitor, interval, facts)
    return run, write_unassessed(run, facts, error)


def as_failure(error: Exception) -> ServiceError:
    """Return an error that nobody foresaw as one that can be recorded; others as they are.

    Its own words stay in the log: nobody knows what they hold.
    """
    if isinstance(error, ServiceError):
        return error
    words = error.strerror if isinstance(error, OSError) else None
    return ServiceError(
        f"This window stopped at an error that was not foreseen: {words or type(error).__name__}. "
        "The log of this try says where. Mend that and run the window again.",
        code=Code.UNEXPECTED,
    )


def record_failure(monitor: Monitor, interval: Interval, error: ServiceError) -> None:
    """Write down that a service failed before a window was taken, as far as that can be done.

    MLflow itself may be what failed, and was waited for already. A verdict from before stands, and
    needs no run beside it that says no more than that somebody looked again in vain.
    """
    with suppress(ServiceError), single_attempt():
        registry = ModelRegistry.connect(monitor.model)
        runs = registry.runs.find(monitor=monitor.name, window=interval.id)
        if not any(is_assessed(run) for run in runs):
            record_unassessed(monitor, interval, error)


def write_unassessed(run: WindowRun, facts: WindowFacts, error: RtscvError) -> WindowFacts:
    """Write to a window's run why it could not be judged."""
    facts = facts.model_copy(
        update={"verdict": Verdict.NOT_ASSESSED.because(error.code), "headline": str(error)}
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


Tell = Callable[[str], None]

PATIENCE = 600.0
"""Seconds to wait for another process that has taken the same window over."""


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
    failed, or an error that nobody foresaw, is recorded too, and then raised.
    """
    tell("take_window")
    try:
        taken = take_window(
            monitor, interval, lambda rows: tell(f"take_window: {rows:,} rows read")
        )
    except (InputError, NotAssessed) as error:
        return _alerted(monitor, *record_unassessed(monitor, interval, error))
    except Exception as error:
        record_failure(monitor, interval, as_failure(error))
        raise
    if taken.run.is_complete:
        return _read_back(taken)
    try:
        return _finish(taken, tell)
    except (InputError, NotAssessed) as error:
        return _alerted(monitor, taken.run, write_unassessed(taken.run, taken.facts, error))
    except Exception as error:
        failure = as_failure(error)
        if failure.code == Code.TAKEN_OVER and _other_finishes(taken.run):
            return _read_back(taken)
        with suppress(ServiceError), single_attempt():
            write_unassessed(taken.run, taken.facts, failure)
        raise


def _finish(taken: Taken, tell: Tell) -> Outcome:
    facts, version = _judge(taken, tell)
    tell("raise_alert")
    alert = raise_alert(taken.monitor, taken.run, facts)
    taken.run.finish()
    return Outcome(facts, taken.run.run_id, version, alert.why)


def _alerted(monitor: Monitor, run: WindowRun, facts: WindowFacts) -> Outcome:
    alert = raise_alert(monitor, run, facts)
    return Outcome(facts, run.run_id, None, alert.why)


def _judge(taken: Taken, tell: Tell) -> tuple[WindowFacts, str | None]:
    tell("rectify_window")
    done = rectify_window(taken)
    tell("write_report")
    facts = _reported(taken, done)
    if done.challenger is None:
        return facts, None
    tell("register_challenger")
    return facts, register_challenger(taken.monitor, taken.run, facts)


def _reported(taken: Taken, done: Rectification) -> WindowFacts:
    """Write the report; a page that cannot be drawn must not lose the verdict."""
    try:
        return write_report(taken.monitor, taken.run, done.facts, done.evidence)
    except ServiceError:
        raise  # That passes, and the next try writes the report.
    except Exception as error:  # Evidently raises anything, and the verdict does not need it.
        log.exception("write_report failed; the verdict stands without a report")
        absent = f"The report could not be written: {type(error).__name__}: {error}"
        return add_finding(taken.run, done.facts, absent)


def _other_finishes(run: WindowRun) -> bool:
    """Wait while the attempt that took over goes on; tell whether it came to an end."""
    patience_ends = time.monotonic() + PATIENCE
    while time.monotonic() < patience_ends:
        state = run.tags().get(tags.STATE, "")
        if state == tags.COMPLETE:
            return True
        if state.startswith(tags.FAILED):
            return False
        time.sleep(1)
    return False


def _read_back(taken: Taken) -> Outcome:
    """Return what was found before; all that may be left to do is to tell somebody."""
    run, facts = taken.run, read_facts(taken.run)
    log.info("run_window: %s was finished before", taken.window.interval)
    alert = "Finished before."
    if alert_is_owed(run):
        alert = raise_alert(taken.monitor, run.take_over(), facts).why
    return Outcome(facts, run.run_id, run.tags().get(tags.VERSION), alert, repeated=True)
