"""Review and promotion: what waits for a person, what the person said, and what follows from it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from rtscv_mlops import registry
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import NotAssessed, ReviewError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.pipeline import baseline
from rtscv_mlops.pipeline.stages import is_assessed, read_facts
from rtscv_mlops.registry import MlflowClient, VersionSummary, WindowRun
from rtscv_mlops.review import ReviewStatus
from rtscv_mlops.sources import read_window
from rtscv_mlops.window import Interval


@dataclass(frozen=True, slots=True)
class Question:
    """A challenger, and the facts that a reviewer decides on."""

    version: VersionSummary
    facts: WindowFacts
    description: str


def list_challengers(monitor: Monitor) -> list[VersionSummary]:
    """Return all challengers of a model, the latest first."""
    client = registry.connect(monitor.model)
    found = registry.find_versions(client, monitor.model.name)
    return sorted(found, key=lambda version: -int(version.version))


def show_challenger(monitor: Monitor, version: str | None = None) -> Question:
    """Return what a reviewer has to see of one version, or of the one that waits."""
    client = registry.connect(monitor.model)
    summary = _pick(list_challengers(monitor), monitor, version)
    facts = read_facts(WindowRun(client, summary.run_id))
    text = registry.read_description(client, monitor.model.name, summary.version)
    return Question(summary, facts, text)


def _pick(versions: list[VersionSummary], monitor: Monitor, version: str | None) -> VersionSummary:
    if version is None:
        wanted = [one for one in versions if one.review == ReviewStatus.PENDING]
    else:
        wanted = [one for one in versions if one.version == version]
    if wanted:
        return wanted[0]
    known = ", ".join(one.version for one in versions) or "none"
    what = "No challenger waits for review" if version is None else f"No challenger {version}"
    raise ReviewError(
        f"{what} of model {monitor.model.name!r}; its challengers are: {known}.", code="no_review"
    )


def review_challenger(
    monitor: Monitor, version: str | None, *, approve: bool, reviewer: str, reason: str
) -> VersionSummary:
    """Record a person's decision on exactly what that person saw; promote if it is a yes."""
    client, model, alias = registry.connect(monitor.model), monitor.model.name, monitor.model.alias
    seen = _pick(list_challengers(monitor), monitor, version)
    _check_age(monitor, client, seen)
    if approve:
        _check_files(client, model, seen)
    registry.record_decision(
        client,
        model,
        seen.version,
        approve,
        reviewer,
        reason,
        seen_champion=seen.champion_version,
        seen_report=seen.report_sha256,
        seen_model=seen.model_sha256,
        alias=alias,
    )
    if approve:
        registry.promote(client, model, seen.version, alias=alias)
    return registry.find_version(client, model, seen.version)


def _check_age(monitor: Monitor, client: MlflowClient, seen: VersionSummary) -> None:
    """Close a review that nobody answered in time: silence means no."""
    patience = monitor.review.expires
    if seen.review == ReviewStatus.PENDING and datetime.now(UTC) - seen.created > patience:
        reason = f"Nobody answered within {patience}."
        registry.expire_review(client, monitor.model.name, seen.version, reason)


def _check_files(client: MlflowClient, model: str, seen: VersionSummary) -> None:
    """Refuse to promote files other than those that were compared and reviewed."""
    now = registry.model_digest(client, f"models:/{model}/{seen.version}")
    if now != seen.model_sha256:
        raise ReviewError(
            f"The files of version {seen.version} of {model!r} have the digest {now[:12]}, not "
            f"{seen.model_sha256[:12]} as when they were offered: somebody changed them. Do not "
            "use this version; run its window again.",
            code="digest_mismatch",
        )


def roll_back(monitor: Monitor, reviewer: str, reason: str) -> str:
    """Restore the champion before the present one; return its version."""
    client, settings = registry.connect(monitor.model), monitor.model
    return registry.roll_back(client, settings.name, reviewer, reason, alias=settings.alias).version


def approve_as_baseline(monitor: Monitor, interval: Interval) -> str:
    """Take a person's word that a window was clean: it joins the baseline; return its run."""
    client = registry.connect(monitor.model)
    champion = registry.load_champion(client, monitor.model)
    runs = registry.find_runs(client, monitor.model.name, monitor=monitor.name, window=interval.id)
    judged = [run for run in runs if run.champion_version == champion.version and is_assessed(run)]
    if not judged:
        raise NotAssessed(
            "no_verdict",
            f"Window {interval} was not judged with champion {champion.version}, so nobody can "
            "know that it is clean. Run it first: rtscv-mlops run.",
        )
    window = read_window(
        monitor.source,
        interval,
        champion.columns,
        max_rows=baseline.KEPT_ROWS,
        seed=monitor.rectify.seed,
    )
    run = WindowRun(client, judged[-1].run_id)
    baseline.keep_for_baseline(run, window, baseline.APPROVED, monitor.rectify.seed)
    return run.run_id
