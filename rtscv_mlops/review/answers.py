"""Review and promotion: which challengers wait, what a reviewer answered, and what follows."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed, ReviewError, ServiceError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.trust import model_digest
from rtscv_mlops.outcomes import REASON_TAG, Answer, ReviewChannel, ReviewStatus
from rtscv_mlops.review.question import ask, describe
from rtscv_mlops.text import plain
from rtscv_mlops.tracking.client import has_server, server_time
from rtscv_mlops.tracking.journal import REPAIRED, Checkpoint, Entry, is_valid_claim
from rtscv_mlops.tracking.promotion import History
from rtscv_mlops.tracking.registry import ModelRegistry, find_links, is_assessed
from rtscv_mlops.tracking.versions import UNNAMED, Versions, VersionSummary
from rtscv_mlops.window import Interval

Warn = Callable[[str], object]
"""Takes a sentence that a person should read, such as the warning method of a logger."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChallengerDetails:
    """A challenger, its facts, and the description that a reviewer decides on, in Markdown."""

    version: VersionSummary
    facts: WindowFacts
    description: str


@dataclass(frozen=True, slots=True)
class ReviewQuestion:
    """A question to a reviewer, in Markdown; `id` binds an answer to what was read."""

    id: str
    subject: str
    body: str


def ignore(sentence: str) -> None:
    """Drop a warning."""


def list_challengers(monitor: Monitor) -> list[VersionSummary]:
    """Return all challengers of a model, the latest first.

    Parameters
    ----------
    monitor : Monitor
        The monitor of the model.

    Returns
    -------
    list of VersionSummary
        A summary of each registered version that was made from a window.
    """
    versions = ModelRegistry.connect(monitor.model).versions.all()
    return sorted(versions, key=lambda version: -int(version.version))


def show_challenger(
    monitor: Monitor, version: str | None = None, file: str = ""
) -> ChallengerDetails:
    """Return what a reviewer has to see of one version, or of the one that waits.

    `file` is the path of the monitor's file, for the commands in the description.
    """
    registry = ModelRegistry.connect(monitor.model)
    summary = _pick(list_challengers(monitor), monitor, version)
    run, facts = registry.run(summary.run_id), registry.read_facts(summary.run_id)
    links = find_links(run, registry.model, summary.version).labelled()
    return ChallengerDetails(summary, facts, describe(facts, links, summary.version, file))


def _pick(versions: list[VersionSummary], monitor: Monitor, version: str | None) -> VersionSummary:
    """Return the challenger that is asked for; without a version, the one that waits."""
    for one in versions:
        if one.version == version or (version is None and one.is_pending):
            return one
    known = ", ".join(f"{one.version} ({one.review or 'unfinished'})" for one in versions)
    what = "No challenger waits for review" if version is None else f"No challenger {version}"
    hint = " To see one of them, add --version." if version is None and versions else ""
    raise ReviewError(
        f"{what} of model {monitor.model.name!r}; its challengers are: {known or 'none'}.{hint}",
        code=Code.NO_REVIEW,
    )


def review_challenger(
    monitor: Monitor,
    version: str | None,
    *,
    approve: bool,
    reviewer: str,
    reason: str,
    question: str | None = None,
    channel: ReviewChannel = ReviewChannel.PYTHON,
) -> VersionSummary:
    """Record a reviewer's decision on exactly what the reviewer saw; nothing is promoted yet.

    Parameters
    ----------
    monitor : Monitor
        The monitor of the model.
    version : str or None
        The version that was reviewed; None for the one that waits.
    approve : bool
        Whether the version may become the champion.
    reviewer : str
        Who decided.
    reason : str
        Why, for the record.
    question : str or None
        The `question_id` of what the reviewer was shown. Without it, the version as it is now
        counts as seen.
    channel : ReviewChannel
        How the decision came. `review.channels` says which ones may decide.

    Returns
    -------
    VersionSummary
        The version with its decision.

    Raises
    ------
    ReviewError
        If the version does not wait for review, is not what the reviewer saw, if decisions may
        not come this way, or if a required reason is missing. An answer to an offered version
        that is refused is kept in the record.
    """
    registry = ModelRegistry.connect(monitor.model)
    if sentence := find_closed(monitor, channel):
        raise ReviewError(f"{sentence} Nothing was changed.", code=Code.CHANNEL_CLOSED)
    seen = _pick(list_challengers(monitor), monitor, version)
    try:
        check_reason(monitor, reason)
        _decide(monitor, registry, seen, approve, reviewer, reason, question, channel)
    except ReviewError as error:
        # Who answers a command without a reason is told so at once, and has not answered yet.
        is_answer = error.code != Code.NO_REASON or question is not None
        if is_answer and seen.review and ReviewStatus(seen.review).is_asked:
            how = channel.identity()
            registry.decisions.keep_refused(seen, approve, reviewer, reason, error, how)
        raise
    decided = registry.versions.get(seen.version)
    log.info("review_challenger: version %s is %s by %s", decided.version, decided.review, reviewer)
    return decided


def check_reason(monitor: Monitor, reason: str) -> None:
    """Refuse a decision without the reason that the monitor asks for."""
    if monitor.review.reason == "required" and not reason.strip():
        raise ReviewError(
            "A decision needs a reason, for the record. Say why in a few words: --reason on the "
            "command line, the tag rtscv.reason in MLflow. To allow decisions without one, set "
            "review.reason to optional in the monitor.",
            code=Code.NO_REASON,
        )


def _decide(
    monitor: Monitor,
    registry: ModelRegistry,
    seen: VersionSummary,
    approve: bool,
    reviewer: str,
    reason: str,
    question: str | None,
    channel: ReviewChannel,
) -> None:
    """Record a decision after all checks."""
    if seen.is_pending and (expiry := _find_expiry(monitor, registry.versions, seen)):
        registry.versions.close_review(seen.version, ReviewStatus(expiry.status), expiry.reason)
    if approve:
        _check_files(registry, seen)
    if question is not None and question != question_id(seen):
        raise ReviewError(
            f"Version {seen.version} of {registry.model!r} is not what was reviewed: the answer "
            f"was for {question!r}, but the question is now {question_id(seen)!r}. Nothing was "
            "changed. Review it again.",
            code=Code.STALE,
        )
    registry.decisions.record(
        seen.version,
        approve,
        reviewer,
        reason,
        seen_champion=seen.champion_version,
        seen_seal=seen.seal.digest if seen.seal else "",
        how=channel.identity(),
    )


def question_id(version: VersionSummary) -> str:
    """Return what identifies a decision: version, champion, and the seal of what was judged."""
    seal = version.seal.digest[:24] if version.seal else "none"
    return f"version-{version.version}.champion-{version.champion_version}.{seal}"


def find_closed(monitor: Monitor, channel: ReviewChannel) -> str:
    """Return a sentence if decisions may not come this way; empty if they may."""
    allowed = monitor.open_channels
    if channel in allowed:
        return ""
    ways = ", ".join(each.label for each in allowed) or "no way at all"
    why = "review.channels lists the ways"
    if monitor.review.channels is None:
        why = "airflow.reviewers names who may decide, and only Airflow proves who someone is"
    return f"Decisions by {channel.label} are closed here: {why}. Decide by {ways}."


def promote_challenger(monitor: Monitor, version: str) -> VersionSummary:
    """Make an approved version the champion; doing it again changes nothing.

    Parameters
    ----------
    monitor : Monitor
        The monitor of the model, which names the alias to move.
    version : str
        The approved version.

    Returns
    -------
    VersionSummary
        The version that serves now.

    Raises
    ------
    ReviewError
        If the version was not approved, if the champion moved since the approval, or if the files
        of the version were changed.
    """
    registry = ModelRegistry.connect(monitor.model)
    approved = registry.versions.get(version)
    serves = registry.versions.champion() == approved.version
    if approved.is_approved and not serves:
        # Again, since days may have passed since the approval, and the files decide what serves.
        _check_files(registry, approved)
    registry.decisions.promote(version)
    log.info("promote_challenger: version %s of %s is the champion", version, registry.model)
    return registry.versions.get(version)


def ask_reviewer(monitor: Monitor, version: str) -> ReviewQuestion:
    """Return the question about a version that waits for review."""
    registry = ModelRegistry.connect(monitor.model)
    asked = _pick(list_challengers(monitor), monitor, version)
    run, facts = registry.run(asked.run_id), registry.read_facts(asked.run_id)
    links = find_links(run, registry.model, asked.version).labelled()
    subject = f"May version {asked.version} of {plain(registry.model, 100)} serve?"
    return ReviewQuestion(question_id(asked), subject, ask(facts, links, question_id(asked)))


def find_answer(monitor: Monitor, version: str, warn: Warn = ignore) -> Answer | None:
    """Return how the review of a version ended, or what a reviewer answered in the registry.

    None means that it still waits. Nothing is written. `warn` is called with a sentence if there
    is an answer that cannot be understood.
    """
    versions = ModelRegistry.open(monitor.model).versions
    asked = versions.get(version)
    if not asked.is_pending:
        why = ReviewStatus.explain(asked.review, asked.reason)
        return Answer(asked.review, asked.reviewer, why)
    champion = versions.champion()
    if champion != asked.champion_version:
        now = f"version {champion}" if champion else "not set"
        why = f"The champion is {now}; it was version {asked.champion_version} when this was asked."
        return Answer.stale(why)
    closed = find_closed(monitor, ReviewChannel.MLFLOW_TAG)
    is_reasoned = monitor.review.reason == "optional" or asked.reason.strip()
    if asked.answered and is_reasoned and not closed:
        return Answer(asked.answered, asked.reviewer or UNNAMED, asked.reason, recorded=False)
    expiry = _find_expiry(monitor, versions, asked)
    if asked.answered and closed and not expiry:
        warn(f"The tag on version {version} was not carried out. {closed}")
        return None
    if asked.invalid_answer and not expiry:
        warn(asked.invalid_answer)
    if asked.answered and not expiry:
        warn(
            f"Version {version} was {asked.answered} by tag and waits for its reason: set the tag "
            f"{REASON_TAG}. Until then nothing is carried out."
        )
    return expiry


def collect_answer(monitor: Monitor, version: str, warn: Warn = ignore) -> Answer | None:
    """Record what `find_answer` finds, after the same checks as for any decision."""
    registry = ModelRegistry.connect(monitor.model)
    registry.versions.keep_late_answers()
    answer = find_answer(monitor, version, warn)
    if answer is None or answer.recorded:
        return answer
    status = ReviewStatus(answer.status)
    if status.is_answer:
        approve, who, why = status.may_promote, answer.who, answer.reason
        decided = review_challenger(
            monitor,
            version,
            approve=approve,
            reviewer=who,
            reason=why,
            channel=ReviewChannel.MLFLOW_TAG,
        )
        return Answer(decided.review, decided.reviewer, decided.reason)
    record = registry.versions.close_review(version, status, answer.reason)
    return Answer(record.kind, record.who, record.reason)


def collect_answered(monitor: Monitor, version: str) -> None:
    """Record a valid answer by tag; one that is refused is kept in the record as such."""
    try:
        collect_answer(monitor, version, log.warning)
    except ReviewError as error:
        log.warning("review_challenger: %s", error)


def carry_out_answer(monitor: Monitor, warn: Warn = ignore) -> tuple[str, Answer] | None:
    """Carry out an answer given in the registry; return the version that waited, and the answer.

    None means that nothing waits, or that there is no answer yet. A waiting Airflow run does the
    same by itself; this is for teams without Airflow.
    """
    waiting = ModelRegistry.connect(monitor.model).versions.pending()
    answer = collect_answer(monitor, waiting.version, warn) if waiting else None
    if waiting is None or answer is None:
        return None
    if ReviewStatus(answer.status).may_promote:
        promote_challenger(monitor, waiting.version)
    return waiting.version, answer


def _find_expiry(monitor: Monitor, versions: Versions, version: VersionSummary) -> Answer | None:
    """Return the end of a review that was not answered in time; None if there is time left.

    A review is closed for good, so the clocks of this machine and of the MLflow server must agree.
    """
    expires = monitor.review.expires
    deadline, now = version.created + expires, datetime.now(UTC)
    if now <= deadline:
        return None
    if has_server(versions.client):
        at_server = server_time(versions.client)
        if at_server is None or at_server <= deadline:
            told = f"{at_server:%Y-%m-%d %H:%M}" if at_server else "not known"
            log.warning(
                "The review of version %s has expired by the clock of this machine (%s UTC), but "
                "not by that of the MLflow server (%s). It stays open; check both clocks.",
                version.version,
                f"{now:%Y-%m-%d %H:%M}",
                told,
            )
            return None
    return Answer.expired(f"There was no answer within {expires}.")


def _check_files(registry: ModelRegistry, seen: VersionSummary) -> None:
    """Refuse to promote what is not what was judged and reviewed: facts, report and model."""
    if seen.seal is None:
        raise ReviewError(
            f"Version {seen.version} of {registry.model!r} has no seal: it was made by an earlier "
            "release. Run its window again.",
            code=Code.DIGEST_MISMATCH,
        )
    try:
        registry.check_sealed(seen.seal)
    except ServiceError as error:
        if error.code not in (Code.DIGEST_MISMATCH, Code.ARTIFACT_MISSING):
            raise
        raise ReviewError(str(error), code=Code.DIGEST_MISMATCH) from error
    now = model_digest(registry.client, f"models:/{registry.model}/{seen.version}")
    if now != seen.model_sha256:
        raise ReviewError(
            f"The files of version {seen.version} of {registry.model!r} have the digest "
            f"{now[:12]}, not {seen.model_sha256[:12]} as when they were offered: they were "
            "changed since. Do not use this version; run its window again.",
            code=Code.DIGEST_MISMATCH,
        )


def undo_roll_back(
    monitor: Monitor, reviewer: str, reason: str, channel: ReviewChannel = ReviewChannel.PYTHON
) -> str:
    """Undo the last rollback; return the version that serves again."""
    check_reason(monitor, reason)
    registry = ModelRegistry.connect(monitor.model)
    taken = registry.decisions.rolled_back_version()
    for one in list_challengers(monitor):
        if one.version == taken and one.seal is not None:
            _check_files(registry, one)
    return registry.decisions.undo_roll_back(reviewer, reason, channel.identity()).version


def roll_back(
    monitor: Monitor, reviewer: str, reason: str, channel: ReviewChannel = ReviewChannel.PYTHON
) -> str:
    """Restore the previous champion. This may come by every channel, since it is an emergency.

    Parameters
    ----------
    monitor : Monitor
        The monitor of the model, which names the alias to move.
    reviewer : str
        Who decided.
    reason : str
        Why, for the record.
    channel : ReviewChannel
        How the decision came.

    Returns
    -------
    str
        The version that serves again.
    """
    check_reason(monitor, reason)
    decisions = ModelRegistry.connect(monitor.model).decisions
    return decisions.roll_back(reviewer, reason, channel.identity()).version


def verify_audit(monitor: Monitor, checkpoint: Checkpoint | None = None) -> History:
    """Return all decisions and alias moves of a model, and what is wrong with their record.

    With a checkpoint, the record must also hold what it held then.
    """
    registry = ModelRegistry.connect(monitor.model)
    history = registry.decisions.history()
    if checkpoint is None:
        return history
    changes = checkpoint.find_changes(registry.model, history.records)
    return replace(history, problems=(*history.problems, *changes))


def take_checkpoint(monitor: Monitor) -> Checkpoint:
    """Return how far the record of decisions goes now, to be kept outside of MLflow."""
    registry = ModelRegistry.connect(monitor.model)
    return Checkpoint.of(registry.model, registry.versions.journal().read())


def repair_audit(monitor: Monitor, who: str, reason: str) -> str:
    """Found a new ledger with what is left of the old one; return what was kept, as a sentence."""
    registry = ModelRegistry.connect(monitor.model)
    kept = registry.ledger.repair(is_valid_claim)
    entry = Entry(REPAIRED, "", "", who, reason, {"claims": str(kept)})
    records = registry.versions.journal().append(lambda records: entry)
    return (
        f"A new ledger of {registry.model!r} was founded with {kept} claims of the old one. Its "
        f"record has {len(records)} entries; the last one says that you repaired it."
    )


def approve_as_baseline(monitor: Monitor, interval: Interval) -> str:
    """Add a window to the baseline, since a reviewer says that it was clean; return its run."""
    from rtscv_mlops.judging import reference  # Other answers need not load what judges rows.
    from rtscv_mlops.sources.read import read_window

    registry = ModelRegistry.connect(monitor.model)
    champion = load_champion(registry.client, monitor.model)
    runs = registry.runs.find(monitor=monitor.name, window=interval.id)
    judged = [run for run in runs if run.champion_version == champion.version and is_assessed(run)]
    if not judged:
        raise NotAssessed(
            Code.NO_VERDICT,
            f"Window {interval} was not judged with champion {champion.version}, so it is not "
            "known to be clean. Run it first: rtscv-mlops run.",
        )
    window = read_window(
        monitor.source,
        interval,
        champion.columns,
        max_rows=reference.KEPT_ROWS,
        seed=monitor.rectify.seed,
    )
    run = registry.run(judged[-1].run_id)
    reference.keep_for_baseline(run, window, reference.APPROVED, monitor.rectify.seed)
    return run.run_id
