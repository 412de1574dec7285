"""Runs the stages of a window: all of them here, or one by the id of the window's MLflow run.

One stage by id may be a process of its own, on any machine: what it needs is in the run. Every
function may be called again, also at the same time, and leaves one effect. `stages.py` is imported
when it is needed: an alert or a question should not take seconds to load a learner.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from rtscv_mlops.alerts import sending
from rtscv_mlops.alerts.channels import Channel
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, InputError, ModelError, NotAssessed, RtscvError, ServiceError
from rtscv_mlops.facts import UNUSABLE, Finding, FindingCode, WindowFacts
from rtscv_mlops.models.load import find_champion
from rtscv_mlops.models.save import verify_version
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.review.question import describe, one_line
from rtscv_mlops.tracking import registry, tags
from rtscv_mlops.tracking.ledger import single_attempt
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval

if TYPE_CHECKING:
    from rtscv_mlops.pipeline.stages import WindowContext

VERSION_TAGS = (
    tags.MONITOR,
    tags.WINDOW,
    tags.WINDOW_START,
    tags.WINDOW_END,
    tags.CHAMPION_VERSION,
    tags.REPORT_SHA256,
    tags.MODEL_SHA256,
)
"""Tags that a version copies from its window's run."""

PATIENCE = 600.0
"""Seconds to wait for another process that has taken over the same window."""

NO_REPORT = Finding(
    FindingCode.REPORT_MISSING,
    "There is no report: the stage write_report failed. See its log for the reason.",
)

Tell = Callable[[str], None]
"""Receives the name of each stage as it begins, and the progress of reading."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


# -- all stages here


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a window.

    Attributes
    ----------
    facts : WindowFacts
        What the window showed, or why it was not assessed.
    run_id : str
        The MLflow run that holds facts, report and rows.
    version : str or None
        The challenger that was registered, if any.
    alert : str
        Whether an alert was sent, and why.
    repeated : bool
        Whether the window had been finished before, and was only read back.
    """

    facts: WindowFacts
    run_id: str
    version: str | None
    alert: str
    repeated: bool = False


def run_window(monitor: Monitor, interval: Interval, tell: Tell | None = None) -> Outcome:
    """Take a window through all stages; a window that was finished before is read back.

    A window that cannot be judged is recorded with the reason. If a service fails, or an
    unexpected error occurs, that is recorded too, and the error is raised.

    Parameters
    ----------
    monitor : Monitor
        The monitor whose champion the window is compared with.
    interval : Interval
        The window, `[start, end)` in UTC. It must be over.
    tell : callable, optional
        Called with the name of each stage as it begins, and with the progress of reading.

    Returns
    -------
    Outcome
        Facts, run, version and alert of the window.
    """
    tell = tell or (lambda stage: None)

    def finish(context: "WindowContext") -> Outcome:
        try:
            return _run_stages(context, tell)
        except ServiceError as error:
            if error.code == Code.TAKEN_OVER and _wait_for_other(context.run):
                return _read_back(context)
            raise

    def give_up(run: WindowRun, facts: WindowFacts) -> Outcome:
        alert = sending.raise_alert(monitor, run, facts)
        return Outcome(facts, run.run_id, None, alert.why)

    tell("take_window")
    return _judge(
        monitor,
        interval,
        finish,
        _read_back,
        give_up,
        progress=lambda rows: tell(f"take_window: {rows:,} rows read"),
    )


def _judge(
    monitor: Monitor,
    interval: Interval,
    go_on: "Callable[[WindowContext], Result]",
    read_back: "Callable[[WindowContext], Result]",
    give_up: Callable[[WindowRun, WindowFacts], Result],
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Take a window and go on with it, and record a failure exactly once.

    If the window cannot be judged, that is recorded and `give_up` makes the result. Any other
    error is recorded as far as the services allow, and raised.
    """
    from rtscv_mlops.pipeline import stages

    context = None
    try:
        context = stages.take_window(monitor, interval, progress)
        if not context.run.is_complete:
            return go_on(context)
    except (InputError, NotAssessed) as error:
        if context is None:
            return give_up(*_record_untaken(monitor, interval, error))
        return give_up(context.run, write_unassessed(context.run, context.facts, error))
    except Exception as error:
        failure = _as_failure(error)
        # MLflow itself may be what failed, and was waited for already.
        with suppress(ServiceError), single_attempt():
            if context is not None:
                write_unassessed(context.run, context.facts, failure)
            elif not _has_verdict(monitor, interval):
                _record_untaken(monitor, interval, failure)
        raise
    return read_back(context)


def _run_stages(context: "WindowContext", tell: Tell) -> Outcome:
    from rtscv_mlops.pipeline import stages

    monitor, run, version = context.monitor, context.run, None
    unusable: ModelError | None = None
    tell("rectify_window")
    done = stages.rectify_window(context)
    tell("write_report")
    try:
        facts = stages.write_report(monitor, run, done.facts, done.evidence)
    except ServiceError:
        raise  # It passes, and the next try writes the report.
    except Exception as error:  # Evidently raises anything, and the verdict does not need it.
        log.exception("write_report failed; the verdict stands without a report")
        text = f"The report could not be written: {type(error).__name__}: {error}"
        facts = registry.add_finding(run, done.facts, Finding(FindingCode.REPORT_MISSING, text))
    if done.challenger is not None:
        tell("register_challenger")
        try:
            version = offer_challenger(monitor, run, facts)
        except ModelError as error:
            facts, unusable = _add_unusable(run, facts, error), error
    tell("raise_alert")
    alert = sending.raise_alert(monitor, run, facts)
    if unusable is None:
        run.finish()
    else:  # Not finished for good: the next try may find the challenger usable.
        run.fail(unusable.code, str(unusable))
    return Outcome(facts, run.run_id, version, alert.why)


def _wait_for_other(run: WindowRun) -> bool:
    """Wait while the attempt that took over goes on; return whether it completed the run."""
    patience_ends = time.monotonic() + PATIENCE
    while time.monotonic() < patience_ends:
        state = run.tags().get(tags.STATE, "")
        if state == tags.COMPLETE:
            return True
        if state.startswith(tags.FAILED):
            return False
        time.sleep(1)
    return False


def _read_back(context: "WindowContext") -> Outcome:
    """Return the outcome of an earlier try; send its alert if that is still owed."""
    run, facts = context.run, registry.read_facts(context.run)
    log.info("run_window: %s was finished before", context.window.interval)
    alert = "Finished before."
    if sending.alert_is_owed(run):
        alert = sending.raise_alert(context.monitor, run.take_over(), facts).why
    return Outcome(facts, run.run_id, run.tags().get(tags.VERSION), alert, repeated=True)


# -- one stage by id


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The run and verdict of a window; `sentence` is for people."""

    run_id: str
    verdict: str
    sentence: str
    has_challenger: bool = False

    @property
    def assessed(self) -> bool:
        return Verdict.of(self.verdict).is_assessed

    @property
    def code(self) -> str:
        """Why the window was not assessed, as a code."""
        return self.verdict.partition(":")[2]


def rectify_window(monitor: Monitor, interval: Interval) -> TaskResult:
    """Take a window and run RTSCV on it; failures are recorded as by `run_window`."""
    from rtscv_mlops.judging.evidence import hand_over
    from rtscv_mlops.pipeline import stages

    def result(run: WindowRun, facts: WindowFacts) -> TaskResult:
        has_challenger = facts.assessed and tags.MODEL_ID in run.tags()
        return TaskResult(run.run_id, facts.verdict, one_line(facts), has_challenger)

    def read_back(context: stages.WindowContext) -> TaskResult:
        log.info("rectify_window: %s was finished before", interval)
        return result(context.run, registry.read_facts(context.run))

    def rectify(context: stages.WindowContext) -> TaskResult:
        done = stages.rectify_window(context)
        hand_over(context.run, done.evidence)
        return result(context.run, done.facts)

    return _judge(monitor, interval, rectify, read_back, result)


def write_report(monitor: Monitor, run_id: str) -> str:
    """Draw the report of a window from what was handed over; return its digest."""
    from rtscv_mlops.judging.evidence import delete_handed_over, take_over
    from rtscv_mlops.pipeline import stages

    run = _open(monitor, run_id)
    evidence = take_over(run)
    if evidence is not None:
        run = run.take_over()
        stages.write_report(monitor, run, registry.read_facts(run), evidence)
        delete_handed_over(run)
    digest = run.tags().get(tags.REPORT_SHA256, "")
    if not digest:
        raise ServiceError(
            f"The run {run.run_id} has no report, and no rows to draw one from. Clear "
            "rectify_window, so that the window is judged again.",
            code=Code.ARTIFACT_MISSING,
        )
    return digest


def register_challenger(monitor: Monitor, run_id: str) -> str:
    """Register the rectified model of a window, and offer it for review; return its version."""
    run = _open(monitor, run_id)
    version = run.tags().get(tags.VERSION)
    if run.is_complete and version is not None:
        log.info("register_challenger: version %s was registered before", version)
        return version
    run = run.take_over()
    facts = _settled_facts(run)
    if facts.unusable:
        facts = facts.without_findings(UNUSABLE)
        registry.write_facts(run, facts)
    try:
        return offer_challenger(monitor, run, facts)
    except ModelError as error:
        _add_unusable(run, facts, error)
        raise
    except (InputError, NotAssessed) as error:
        write_unassessed(run, facts, error)
        raise


def raise_alert(monitor: Monitor, run_id: str, channels: tuple[Channel, ...] = ()) -> str:
    """Send an alert if the monitor's rule asks for it, and close the run; return what was done."""
    run = _open(monitor, run_id)
    if run.is_complete and not sending.alert_is_owed(run):
        return "Finished before."
    run = run.take_over()
    facts = _settled_facts(run)
    decision = sending.raise_alert(monitor, run, facts, channels)
    if facts.assessed:
        run.finish()
    return decision.why


def _open(monitor: Monitor, run_id: str) -> WindowRun:
    return registry.ModelRegistry.connect(monitor.model).run(run_id)


def _settled_facts(run: WindowRun) -> WindowFacts:
    """Return the facts, with a finding if there is no report."""
    facts = registry.read_facts(run)
    if facts.assessed and tags.REPORT_SHA256 not in run.tags():
        facts = registry.add_finding(run, facts, NO_REPORT)
    return facts


# -- the challenger


def offer_challenger(monitor: Monitor, run: WindowRun, facts: WindowFacts) -> str:
    """Register the rectified model, verify that it answers, and offer it for review."""
    client, model, run_tags = run.client, monitor.model.name, run.tags()
    versions = registry.ModelRegistry.of(client, monitor.model).versions
    _check_champion(monitor, run, facts.champion_version)
    check = run.check_attempt
    version = versions.register(
        facts.key,
        run.run_id,
        run_tags[tags.MODEL_ID],
        named={name: run_tags[name] for name in VERSION_TAGS if name in run_tags},
        description="",
        check=check,
    )
    # The version may be of an earlier try or another process, which saved the same model as other
    # files.
    sealed = versions.get(version).model_sha256
    run.set_tags({tags.MODEL_SHA256: sealed})
    verify_version(client, f"models:/{model}/{version}", digest=sealed)
    links = registry.find_links(run, model, version).labelled()
    check()
    versions.describe(version, describe(facts, links, version))
    versions.offer(version, blocked=facts.blocked, check=check)
    log.info("register_challenger: version %s of %s", version, model)
    return version


def _add_unusable(run: WindowRun, facts: WindowFacts, error: ModelError) -> WindowFacts:
    """Record why the challenger cannot be used; the verdict on the window stands."""
    log.warning("register_challenger: %s%s", UNUSABLE, error)
    run.drop_tags([tags.VERSION])  # The alert must not ask for its review.
    finding = Finding(FindingCode.CHALLENGER_UNUSABLE, f"{UNUSABLE}{error}")
    return registry.add_finding(run, facts, finding)


def _check_champion(monitor: Monitor, run: WindowRun, compared_with: str) -> None:
    """Stop if the champion is not the one that the window was compared with."""
    try:
        now = str(find_champion(run.client, monitor.model).version)
    except NotAssessed as error:
        raise NotAssessed(
            Code.CHAMPION_GONE,
            f"Version {compared_with}, the champion that this window was compared with, "
            "is gone. Nothing is offered; set a champion and run the window again.",
        ) from error
    if now != compared_with:
        raise NotAssessed(
            Code.STALE,
            f"The champion moved from version {compared_with} to {now} while this window "
            "was judged. Nothing is offered; run the window again to compare with the new one.",
        )


# -- windows that could not be judged


def write_unassessed(run: WindowRun, facts: WindowFacts, error: RtscvError) -> WindowFacts:
    """Write to a window's run why it could not be judged."""
    facts = facts.unassessed(error.code, str(error))
    # If another process has finished the window meanwhile, its verdict stands.
    if not run.is_complete:
        try:
            registry.write_facts(run, facts)
        finally:  # The artifact store may be what failed.
            # Not finished for good: the same window may be tried again, and then keeps this run.
            run.fail(error.code, str(error))
    log.warning("run_window: %s: %s", facts.verdict, error)
    return facts


def _record_untaken(
    monitor: Monitor, interval: Interval, error: RtscvError
) -> tuple[WindowRun, WindowFacts]:
    """Open a run that says why a window could not even be taken."""
    key = sha256(f"{monitor.name} {monitor.model.name} {interval.id}".encode()).hexdigest()[:32]
    facts = registry.first_facts(monitor, interval, key)
    run = registry.open_window_run(
        registry.ModelRegistry.connect(monitor.model), monitor, interval, facts
    )
    return run, write_unassessed(run, facts, error)


def _has_verdict(monitor: Monitor, interval: Interval) -> bool:
    """Return whether an earlier try came to a verdict, which a failed one does not replace."""
    model = registry.ModelRegistry.connect(monitor.model)
    runs = model.runs.find(monitor=monitor.name, window=interval.id)
    return any(registry.is_assessed(run) for run in runs)


def _as_failure(error: Exception) -> ServiceError:
    """Return an unexpected error as one that can be recorded; service errors as they are.

    Its own text stays in the log, because it may contain anything.
    """
    if isinstance(error, ServiceError):
        return error
    cause = error.strerror if isinstance(error, OSError) else None
    return ServiceError(
        f"Unexpected error: {cause or type(error).__name__}. See the log of this try, fix the "
        "cause, and run the window again.",
        code=Code.UNEXPECTED,
    )
