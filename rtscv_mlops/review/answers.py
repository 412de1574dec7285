"""Review and promotion: what waits for a person, what the person said, and what follows from it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed, ReviewError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.trust import model_digest
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.review.question import ask
from rtscv_mlops.text import plain
from rtscv_mlops.tracking.promotion import History
from rtscv_mlops.tracking.record import find_links, is_assessed, read_facts
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.versions import VersionSummary
from rtscv_mlops.window import Interval

OURSELVES = "rtscv-mlops"
SOMEBODY = "somebody in the MLflow registry"
"""Who answered by tag and did not say who."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A challenger, and the facts that a reviewer decides on."""

    version: VersionSummary
    facts: WindowFacts
    description: str


def list_challengers(monitor: Monitor) -> list[VersionSummary]:
    """Return all challengers of a model, the latest first."""
    found = ModelRegistry.connect(monitor.model).versions.all()
    return sorted(found, key=lambda version: -int(version.version))


def show_challenger(monitor: Monitor, version: str | None = None) -> Question:
    """Return what a reviewer has to see of one version, or of the one that waits."""
    registry = ModelRegistry.connect(monitor.model)
    summary = _pick(list_challengers(monitor), monitor, version)
    facts = read_facts(registry.run(summary.run_id))
    text = registry.versions.description(summary.version)
    return Question(summary, facts, text)


def _pick(versions: list[VersionSummary], monitor: Monitor, version: str | None) -> VersionSummary:
    if version is None:
        wanted = [one for one in versions if one.review == ReviewStatus.PENDING]
    else:
        wanted = [one for one in versions if one.version == version]
    if wanted:
        return wanted[0]
    known = ", ".join(f"{one.version} ({one.review or 'unfinished'})" for one in versions)
    what = "No challenger waits for review" if version is None else f"No challenger {version}"
    look = " To look at one, say which: --version." if version is None and versions else ""
    raise ReviewError(
        f"{what} of model {monitor.model.name!r}; its challengers are: {known or 'none'}.{look}",
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
) -> VersionSummary:
    """Record a person's decision on exactly what that person saw; nothing is promoted yet.

    `question` is the `question_id` of what the person was shown; without it, the version as it is
    now counts as seen.
    """
    registry = ModelRegistry.connect(monitor.model)
    seen = _pick(list_challengers(monitor), monitor, version)
    _check_age(monitor, registry, seen)
    if approve:
        _check_files(registry, seen)
    if question is not None and question != question_id(seen):
        raise ReviewError(
            f"Version {seen.version} of {registry.model!r} is not what was reviewed: the answer "
            f"is to {question!r}, and the question is {question_id(seen)!r} now. Nothing was "
            "changed. Review it again.",
            code=Code.STALE,
        )
    registry.decisions.record(
        seen.version,
        approve,
        reviewer,
        reason,
        seen_champion=seen.champion_version,
        seen_report=seen.report_sha256,
        seen_model=seen.model_sha256,
    )
    decided = registry.versions.get(seen.version)
    log.info("review_challenger: version %s is %s by %s", decided.version, decided.review, reviewer)
    return decided


def question_id(version: VersionSummary) -> str:
    """Return one word for all that a reviewer decides on: version, champion, report and model."""
    digests = (version.report_sha256[:12] or "none", version.model_sha256[:12] or "none")
    return f"version-{version.version}.champion-{version.champion_version}.{'.'.join(digests)}"


def promote_challenger(monitor: Monitor, version: str) -> VersionSummary:
    """Make an approved version the champion; done again it changes nothing."""
    registry = ModelRegistry.connect(monitor.model)
    approved = registry.versions.get(version)
    serves = registry.versions.champion() == approved.version
    if approved.review == ReviewStatus.APPROVED and not serves:
        # Also here: days may lie between an approval and this, and the files decide what serves.
        _check_files(registry, approved)
    registry.decisions.promote(version)
    log.info("promote_challenger: version %s of %s is the champion", version, registry.model)
    return registry.versions.get(version)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as people read it, in Markdown; `id` binds an answer to what was read."""

    id: str
    subject: str
    body: str


def ask_reviewer(monitor: Monitor, version: str) -> Asked:
    """Return the question about a version that waits for review."""
    registry = ModelRegistry.connect(monitor.model)
    asked = _pick(list_challengers(monitor), monitor, version)
    run = registry.run(asked.run_id)
    facts, links = read_facts(run), find_links(run, registry.model, asked.version).labelled()
    subject = f"May version {asked.version} of {plain(registry.model, 100)} serve?"
    return Asked(question_id(asked), subject, ask(facts, links, question_id(asked)))


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a review no longer waits: a decision, in the record or as a tag, or what ended it."""

    status: str
    who: str = ""
    reason: str = ""
    recorded: bool = True


Tell = Callable[[str], object]
"""What a sentence is handed to that somebody should read."""


def ignore(sentence: str) -> None:
    """Tell nobody."""


def find_answer(monitor: Monitor, version: str, tell: Tell = ignore) -> Answer | None:
    """Tell how the review of a version ended, or what somebody answered in the registry.

    None means that it still waits. Nothing is written. `tell` gets to know of an answer that
    cannot be understood.
    """
    versions = ModelRegistry.open(monitor.model).versions
    asked = versions.get(version)
    if asked.review != ReviewStatus.PENDING:
        superseded = asked.review == ReviewStatus.SUPERSEDED
        why = f"By version {asked.reason}." if superseded else asked.reason
        return Answer(asked.review, asked.reviewer, why)
    champion = versions.champion()
    if champion != asked.champion_version:
        now = f"version {champion}" if champion else "not set"
        why = f"The champion is {now}; it was version {asked.champion_version} when this was asked."
        return Answer(ReviewStatus.STALE, OURSELVES, why, recorded=False)
    if asked.answered:
        return Answer(asked.answered, asked.reviewer or SOMEBODY, asked.reason, recorded=False)
    if _is_late(monitor, asked):
        return Answer(ReviewStatus.EXPIRED, OURSELVES, _late(monitor), recorded=False)
    if asked.invalid_answer:
        tell(asked.invalid_answer)
    return None


def collect_answer(monitor: Monitor, version: str, tell: Tell = ignore) -> Answer | None:
    """Record what `find_answer` finds, after the same checks as for any decision."""
    registry = ModelRegistry.connect(monitor.model)
    found = find_answer(monitor, version, tell)
    if found is None or found.recorded:
        return found
    if found.status in (ReviewStatus.APPROVED, ReviewStatus.REJECTED):
        approve = found.status == ReviewStatus.APPROVED
        decided = review_challenger(
            monitor, version, approve=approve, reviewer=found.who, reason=found.reason
        )
        return Answer(decided.review, decided.reviewer, decided.reason)
    status = ReviewStatus(found.status)
    record = registry.versions.close_review(version, status, found.reason)
    return Answer(record.kind, record.who, record.reason)


def carry_out_answer(monitor: Monitor, tell: Tell = ignore) -> tuple[str, Answer] | None:
    """Do what somebody answered in the registry about the version that waits; return both.

    None means that nothing waits, or that nobody has answered. It is what a waiting Airflow run
    does by itself, for those who have none.
    """
    waiting = ModelRegistry.connect(monitor.model).versions.pending()
    answer = collect_answer(monitor, waiting.version, tell) if waiting else None
    if waiting is None or answer is None:
        return None
    if answer.status == ReviewStatus.APPROVED:
        promote_challenger(monitor, waiting.version)
    return waiting.version, answer


def _check_age(monitor: Monitor, registry: ModelRegistry, seen: VersionSummary) -> None:
    """Close a review that nobody answered in time: silence means no."""
    if seen.review == ReviewStatus.PENDING and _is_late(monitor, seen):
        registry.versions.close_review(seen.version, ReviewStatus.EXPIRED, _late(monitor))


def _is_late(monitor: Monitor, asked: VersionSummary) -> bool:
    return datetime.now(UTC) - asked.created > monitor.review.expires


def _late(monitor: Monitor) -> str:
    return f"Nobody answered within {monitor.review.expires}."


def _check_files(registry: ModelRegistry, seen: VersionSummary) -> None:
    """Refuse to promote files other than those that were compared and reviewed."""
    now = model_digest(registry.client, f"models:/{registry.model}/{seen.version}")
    if now != seen.model_sha256:
        raise ReviewError(
            f"The files of version {seen.version} of {registry.model!r} have the digest "
            f"{now[:12]}, not {seen.model_sha256[:12]} as when they were offered: somebody changed "
            "them. Do not use this version; run its window again.",
            code=Code.DIGEST_MISMATCH,
        )


def undo_roll_back(monitor: Monitor, reviewer: str, reason: str) -> str:
    """Let the version serve again that the last rollback took back; return it."""
    registry = ModelRegistry.connect(monitor.model)
    taken = registry.decisions.rolled_back_version()
    for one in list_challengers(monitor):
        if one.version == taken:
            _check_files(registry, one)
    return registry.decisions.undo_roll_back(reviewer, reason).version


def roll_back(monitor: Monitor, reviewer: str, reason: str) -> str:
    """Restore the champion before the present one; return its version."""
    return ModelRegistry.connect(monitor.model).decisions.roll_back(reviewer, reason).version


def verify_audit(monitor: Monitor) -> History:
    """Return every decision and move of a model, and what is wrong with the record of them."""
    return ModelRegistry.connect(monitor.model).decisions.history()


def approve_as_baseline(monitor: Monitor, interval: Interval) -> str:
    """Take a person's word that a window was clean: it joins the baseline; return its run."""
    from rtscv_mlops.judging import reference  # Other answers need not load what looks at rows.
    from rtscv_mlops.sources.read import read_window

    registry = ModelRegistry.connect(monitor.model)
    champion = load_champion(registry.client, monitor.model)
    runs = registry.runs.find(monitor=monitor.name, window=interval.id)
    judged = [run for run in runs if run.champion_version == champion.version and is_assessed(run)]
    if not judged:
        raise NotAssessed(
            Code.NO_VERDICT,
            f"Window {interval} was not judged with champion {champion.version}, so nobody can "
            "know that it is clean. Run it first: rtscv-mlops run.",
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
