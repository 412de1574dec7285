"""Runs the stages of a window: all of them here, or one by the id of the window's MLflow run.

One stage by id may be a process of its own, on any machine: what it needs is in the run. Every
function may be called again, also at the same time, and leaves one effect. `stages.py` is imported
when it is needed: an alert or a question should not take seconds to load a learner.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
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
from rtscv_mlops.review.answers import collect_answered
from rtscv_mlops.review.question import describe, one_line
from rtscv_mlops.tracking import registry, tags
from rtscv_mlops.tracking.ledger import single_attempt
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.tracking.seals import Seal
from rtscv_mlops.window import Interval

if TYPE_CHECKING:
    from rtscv_mlops.pipeline.stages import WindowContext

MOST_JUDGEMENTS = 3
"""How often a window is judged at once, if the champion moves each time meanwhile."""

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
            offered, run = _run_stages(context, tell), context.run
            tell("raise_alert")
            alert = sending.raise_alert(monitor, run, offered.facts)
            if offered.facts.unusable:
                # Not finished for good: the next try may find the challenger usable.
                run.fail(Code.CHALLENGER_UNUSABLE, offered.facts.unusable)
            else:
                run.finish()
            return replace(offered, alert=alert.why)
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

    If the window cannot be judged, that is recorded and `give_up` makes the result. If only the
    champion has moved meanwhile, it is then judged again, against the new one. Any other error is
    recorded as far as the services allow, and raised.
    """
    for judgement in range(1, MOST_JUDGEMENTS + 1):
        try:
            return _judge_once(monitor, interval, go_on, read_back, progress)
        except _Unjudged as unjudged:
            if unjudged.code != Code.STALE or judgement == MOST_JUDGEMENTS:
                return give_up(unjudged.run, unjudged.facts)
            log.warning("run_window: %s is judged again: the champion has moved", interval)
    raise AssertionError("the last judgement returns")


class _Unjudged(Exception):
    """A window that could not be judged, after that was recorded."""

    def __init__(self, run: WindowRun, facts: WindowFacts, code: Code) -> None:
        super().__init__(facts.headline)
        self.run, self.facts, self.code = run, facts, code


def _judge_once(
    monitor: Monitor,
    interval: Interval,
    go_on: "Callable[[WindowContext], Result]",
    read_back: "Callable[[WindowContext], Result]",
    progress: Callable[[int], None] | None,
) -> Result:
    from rtscv_mlops.pipeline import stages

    context = None
    try:
        context = stages.take_window(monitor, interval, progress)
        if not (context.run.is_complete and context.registry.find_seal(context.run.run_id)):
            return go_on(context)
    except (InputError, NotAssessed) as error:
        if context is None:
            raise _Unjudged(*_record_untaken(monitor, interval, error), error.code) from error
        facts = write_unassessed(context.run, context.facts, error)
        raise _Unjudged(context.run, facts, error.code) from error
    except Exception as error:
        failure = _as_failure(error)
        # MLflow itself may be what failed, and was waited for already.
        with suppress(ServiceError), single_attempt():
            if context is not None:
                write_unassessed(context.run, context.facts, failure)
            elif not _has_verdict(monitor, interval):
                _record_untaken(monitor, interval, failure)
        raise
    try:
        return read_back(context)
    except ServiceError as error:
        if error.code == Code.DIGEST_MISMATCH:
            _give_up_run(context.run, error)
        raise


def _give_up_run(run: WindowRun, error: ServiceError) -> None:
    """Close a run whose files were changed since they were sealed; the next try opens another."""
    verdict = Verdict.unassessed(error.code)
    run = run.take_over()
    run.set_tags({tags.KEY: f"given up {run.run_id}", tags.VERDICT: verdict})
    run.set_tags({tags.STATE: f"{tags.FAILED}:{error.code}", tags.ERROR: str(error)})


def _run_stages(context: "WindowContext", tell: Tell) -> Outcome:
    """Judge a window and offer its challenger; the alert is not sent yet."""
    from rtscv_mlops.pipeline import stages

    monitor, run, version = context.monitor, context.run, None
    seal = context.registry.find_seal(run.run_id)
    if seal is not None:  # An earlier try was stopped after it had judged the window.
        facts = context.registry.read_facts(run.run_id)
    else:
        tell("rectify_window")
        done = stages.rectify_window(context)
        tell("write_report")
        try:
            facts, report = stages.write_report(monitor, run, done.facts, done.evidence)
        except ServiceError:
            raise  # It passes, and the next try writes the report.
        except Exception as error:  # Evidently raises anything, and the verdict does not need it.
            log.exception("write_report failed; the verdict stands without a report")
            text = f"The report could not be written: {type(error).__name__}: {error}"
            finding, report = Finding(FindingCode.REPORT_MISSING, text), ""
            facts = registry.add_finding(run, done.facts, finding)
        seal = context.registry.seal(run, facts, report)
    if facts.model_id:
        tell("register_challenger")
        try:
            version = offer_challenger(monitor, run, facts, seal)
        except ModelError as error:
            facts = _set_unusable(run, facts, error)
    return Outcome(facts, run.run_id, version, "")


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
    run, facts = context.run, context.registry.read_facts(context.run.run_id)
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
    facts_sha256: str = ""
    """What later stages must find in the run: files and tags there can be changed by others."""

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
        has_challenger = facts.assessed and bool(facts.model_id)
        digest = registry.facts_digest(facts) if facts.assessed else ""
        return TaskResult(run.run_id, facts.verdict, one_line(facts), has_challenger, digest)

    def read_back(context: stages.WindowContext) -> TaskResult:
        log.info("rectify_window: %s was judged before", interval)
        return result(context.run, context.registry.read_facts(context.run.run_id))

    def rectify(context: stages.WindowContext) -> TaskResult:
        if context.registry.find_seal(context.run.run_id) is not None:
            return read_back(context)
        done = stages.rectify_window(context)
        hand_over(context.run, done.evidence)
        return result(context.run, done.facts)

    return _judge(monitor, interval, rectify, read_back, result)


def write_report(monitor: Monitor, run_id: str, facts_sha256: str) -> str:
    """Draw the report of a window from what was handed over, and seal it; return the seal's digest.

    `facts_sha256` is what `rectify_window` returned: the facts in the run must have that digest.
    """
    from rtscv_mlops.judging.evidence import delete_handed_over, take_over
    from rtscv_mlops.pipeline import stages

    model, run = _open(monitor, run_id)
    seal = model.find_seal(run_id)
    if seal is None:
        evidence = take_over(run)
        if evidence is None:
            raise ServiceError(
                f"The run {run.run_id} has no report, and no rows to draw one from. Clear "
                "rectify_window, so that the window is judged again.",
                code=Code.ARTIFACT_MISSING,
            )
        run = run.take_over()
        facts = registry.read_facts(run, (facts_sha256,))
        seal = model.seal(run, *stages.write_report(monitor, run, facts, evidence))
    delete_handed_over(run)
    return seal.digest


def register_challenger(monitor: Monitor, run_id: str, facts_sha256: str) -> str:
    """Register the rectified model of a window, and offer it for review; return its version.

    `facts_sha256` is what `rectify_window` returned, for a window whose report failed.
    """
    model, run = _open(monitor, run_id)
    version = run.tags().get(tags.VERSION)
    if run.is_complete and version is not None:
        log.info("register_challenger: version %s was registered before", version)
        return version
    run = run.take_over()
    facts, seal = _sealed_facts(model, run, facts_sha256)
    if not facts.assessed:
        # An earlier try recorded this, and was killed before the window was judged again.
        raise NotAssessed(Code(Verdict.reason(facts.verdict)), facts.headline)
    try:
        return offer_challenger(monitor, run, facts, seal)
    except ModelError as error:
        _set_unusable(run, facts, error)
        raise
    except (InputError, NotAssessed) as error:
        write_unassessed(run, facts, error)
        raise


def judge_again(monitor: Monitor, interval: Interval) -> Outcome:
    """Judge a window whose champion has moved, and offer its challenger; no alert is sent yet."""

    def finish(context: "WindowContext") -> Outcome:
        return _run_stages(context, log.info)

    def give_up(run: WindowRun, facts: WindowFacts) -> Outcome:
        return Outcome(facts, run.run_id, None, "")

    return _judge(monitor, interval, finish, _read_back, give_up)


def raise_alert(
    monitor: Monitor, run_id: str, facts_sha256: str, channels: tuple[Channel, ...] = ()
) -> str:
    """Send an alert if the monitor's rule asks for it, and close the run; return what was done.

    `facts_sha256` is what `rectify_window` returned; it is empty if that failed.
    """
    model, run = _open(monitor, run_id)
    if run.is_complete and not sending.alert_is_owed(run):
        return "Finished before."
    run = run.take_over()
    if facts_sha256:
        facts, _ = _sealed_facts(model, run, facts_sha256)
    else:
        facts = model.read_facts(run.run_id)
    decision = sending.raise_alert(monitor, run, facts, channels)
    if facts.assessed:
        run.finish()
    return decision.why


def _open(monitor: Monitor, run_id: str) -> tuple[registry.ModelRegistry, WindowRun]:
    model = registry.ModelRegistry.connect(monitor.model)
    return model, model.run(run_id)


def _sealed_facts(
    model: registry.ModelRegistry, run: WindowRun, facts_sha256: str
) -> tuple[WindowFacts, Seal]:
    """Return the facts and their seal; if the report failed, they are sealed without one."""
    seal = model.find_seal(run.run_id)
    if seal is not None:
        return model.read_facts(run.run_id), seal
    facts = _read_unreported(run, facts_sha256)
    return facts, model.seal(run, facts, "")


def _read_unreported(run: WindowRun, facts_sha256: str) -> WindowFacts:
    """Return the facts of a window without a report, with a finding that says so.

    Another task may have added the finding already, or the drift of a report that then failed:
    what the facts were without them must have the digest.
    """
    facts = registry.read_facts(run)
    findings = tuple(finding for finding in facts.findings if finding != NO_REPORT)
    judged = type(facts)(**(dict(facts) | {"drift": None, "findings": findings}))
    if registry.facts_digest(judged) != facts_sha256:
        registry.read_facts(run, (facts_sha256,))  # raises, with the reason
    return registry.add_finding(run, judged, NO_REPORT)


# -- the challenger


def offer_challenger(monitor: Monitor, run: WindowRun, facts: WindowFacts, seal: Seal) -> str:
    """Register the rectified model, verify that it answers, and offer it for review."""
    client, model = run.client, monitor.model.name
    versions = registry.ModelRegistry.of(client, monitor.model).versions
    _check_champion(monitor, run, facts.champion_version)
    run.drop_tags([tags.UNUSABLE])
    check = run.check_attempt
    version = versions.register(seal, check=check)
    uri = f"models:/{model}/{version}"
    verify_version(client, uri, digest=seal.model_sha256, settings=monitor.model)
    links = registry.find_links(run, model, version).labelled()
    check()
    versions.describe(version, describe(facts, links, version))
    versions.offer(
        version,
        blocked=facts.blocked,
        check=check,
        # An answer that a person gave before this challenger goes before it.
        collect=lambda older: collect_answered(monitor, older.version),
    )
    log.info("register_challenger: version %s of %s", version, model)
    return version


def _set_unusable(run: WindowRun, facts: WindowFacts, error: ModelError) -> WindowFacts:
    """Record why the challenger cannot be used; the verdict on the window is sealed and stands."""
    log.warning("register_challenger: %s%s", UNUSABLE, error)
    run.drop_tags([tags.VERSION])  # The alert must not ask for its review.
    run.set_tags({tags.UNUSABLE: f"{UNUSABLE}{error}"})
    finding = Finding(FindingCode.CHALLENGER_UNUSABLE, f"{UNUSABLE}{error}")
    return facts.with_findings(after=[finding])


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
        model = registry.ModelRegistry(run.client, facts.model)
        try:
            if model.find_seal(run.run_id) is None:
                registry.write_facts(run, facts)
            else:  # What was judged is sealed and stays; the tags say what became of it.
                run.set_tags({tags.VERDICT: facts.verdict})
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
