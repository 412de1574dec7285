"""The stages with only ids between them: each may be a process of its own, on any machine.

What a stage hands to the next is in the window's MLflow run. Every function may be called again,
also at the same time, and leaves one effect. What looks at rows is imported where it is needed: an
alert or a question should not take seconds to load it. Where all stages run in one process,
`run_window` is the shorter way.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from rtscv_mlops.alerts import sending
from rtscv_mlops.alerts.channels import Channel
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, InputError, NotAssessed, ServiceError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.pipeline import registration
from rtscv_mlops.pipeline.run import as_failure, record_failure, record_unassessed, write_unassessed
from rtscv_mlops.review.question import one_line
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.ledger import single_attempt
from rtscv_mlops.tracking.record import add_finding, read_facts
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval

NO_REPORT = "There is no report: the stage write_report failed. Its log says why."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """A window's run and verdict; `sentence` is for people."""

    run_id: str
    verdict: str
    sentence: str
    has_challenger: bool = False

    @property
    def assessed(self) -> bool:
        return Verdict.of(self.verdict).is_assessed

    @property
    def code(self) -> str:
        """Why the window was not assessed, in one word."""
        return self.verdict.partition(":")[2]


def rectify_window(monitor: Monitor, interval: Interval) -> Judged:
    """Take a window and run RTSCV on it; a window that was finished before is read back.

    A window that cannot be judged is recorded as such. A service that failed, or an error that
    nobody foresaw, is recorded too, and then raised.
    """
    from rtscv_mlops.judging.evidence import hand_over
    from rtscv_mlops.pipeline import stages

    try:
        taken = stages.take_window(monitor, interval)
    except (InputError, NotAssessed) as error:
        return _judged(*record_unassessed(monitor, interval, error))
    except Exception as error:
        record_failure(monitor, interval, as_failure(error))
        raise
    if taken.run.is_complete:
        log.info("rectify_window: %s was finished before", interval)
        return _judged(taken.run, read_facts(taken.run))
    try:
        done = stages.rectify_window(taken)
        hand_over(taken.run, done.evidence)
    except (InputError, NotAssessed) as error:
        return _judged(taken.run, write_unassessed(taken.run, taken.facts, error))
    except Exception as error:
        with suppress(ServiceError), single_attempt():
            write_unassessed(taken.run, taken.facts, as_failure(error))
        raise
    return _judged(taken.run, done.facts)


def _judged(run: WindowRun, facts: WindowFacts) -> Judged:
    has_challenger = facts.assessed and tags.MODEL_ID in run.tags()
    return Judged(run.run_id, facts.verdict, one_line(facts), has_challenger)


def write_report(monitor: Monitor, run_id: str) -> str:
    """Draw the report of a window from what was handed over; return its digest."""
    from rtscv_mlops.judging.evidence import forget_rows, take_over
    from rtscv_mlops.pipeline import stages

    run = _run(monitor, run_id)
    evidence = take_over(run)
    if evidence is None:
        return _digest_of_report(run)
    run = run.take_over()
    stages.write_report(monitor, run, read_facts(run), evidence)
    forget_rows(run)
    return _digest_of_report(run)


def _digest_of_report(run: WindowRun) -> str:
    digest = run.tags().get(tags.REPORT_SHA256, "")
    if not digest:
        raise ServiceError(
            f"The run {run.run_id} holds no rows to draw a report from, and has no report. "
            "Clear rectify_window, so that the window is judged again.",
            code=Code.ARTIFACT_MISSING,
        )
    return digest


def register_challenger(monitor: Monitor, run_id: str) -> str:
    """Register the rectified model of a window, and offer it for review; return its version."""
    run = _run(monitor, run_id)
    named = run.tags()
    if run.is_complete and tags.VERSION in named:
        log.info("register_challenger: version %s was registered before", named[tags.VERSION])
        return named[tags.VERSION]
    run = run.take_over()
    facts = _settled_facts(run)
    try:
        return registration.register_challenger(monitor, run, facts)
    except (InputError, NotAssessed) as error:
        write_unassessed(run, facts, error)
        raise


def raise_alert(monitor: Monitor, run_id: str, channels: tuple[Channel, ...] = ()) -> str:
    """Tell somebody where the rule says so, and close the run; return what was done in words."""
    run = _run(monitor, run_id)
    if run.is_complete and not sending.alert_is_owed(run):
        return "Finished before."
    run = run.take_over()
    facts = _settled_facts(run)
    decision = sending.raise_alert(monitor, run, facts, channels)
    if facts.assessed:
        run.finish()
    return decision.why


def _settled_facts(run: WindowRun) -> WindowFacts:
    """Return the facts; where there is no report, they say so."""
    facts = read_facts(run)
    if facts.assessed and tags.REPORT_SHA256 not in run.tags():
        facts = add_finding(run, facts, NO_REPORT)
    return facts


def _run(monitor: Monitor, run_id: str) -> WindowRun:
    return ModelRegistry.connect(monitor.model).run(run_id)
