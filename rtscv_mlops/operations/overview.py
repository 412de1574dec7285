"""What a page shows of a monitor and of one of its windows, read from MLflow and never written.

Knows runs, versions and the record of decisions; knows nothing of Airflow, of users or of pages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ServiceError, WindowError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.review.answers import Answer, find_answer, question_id
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.promotion import History
from rtscv_mlops.tracking.record import REPORT, VERDICT, read_facts
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary
from rtscv_mlops.tracking.versions import VersionSummary
from rtscv_mlops.tracking.window_run import RunLinks
from rtscv_mlops.window import Interval


@dataclass(frozen=True, slots=True)
class WindowPoint:
    """One window on a timeline; a number that was not measured is None, never zero."""

    run_id: str
    start: datetime | None
    end: datetime | None
    verdict: str
    """Empty while the window is being judged."""
    version: str
    unknown_rate: float | None = None
    low: float | None = None
    high: float | None = None
    drift_share: float | None = None


@dataclass(frozen=True, slots=True)
class MonitorSummary:
    """A monitor at a glance: its champion, its windows by time, and what waits for a person."""

    name: str
    model: str
    champion_version: str | None
    windows: tuple[WindowPoint, ...]
    pending: VersionSummary | None
    problems: tuple[str, ...]

    @property
    def last(self) -> WindowPoint | None:
        return self.windows[-1] if self.windows else None


@dataclass(frozen=True, slots=True)
class WindowPage:
    """All that a reviewer may want to see of one window.

    `facts` is None while the window is being judged. `question` names what is decided on, and
    `answer` is how the review of `version` ended, or what somebody answered in the registry.
    """

    run: RunSummary
    facts: WindowFacts | None
    version: VersionSummary | None
    question: str
    answer: Answer | None
    history: History
    links: RunLinks
    has_report: bool
    newer_run: str


def summarize_monitor(monitor: Monitor) -> MonitorSummary:
    """Return a monitor at a glance."""
    registry = ModelRegistry.open(monitor.model)
    champion = registry.versions.champion()
    runs = latest_runs(registry.runs.find(monitor=monitor.name))
    return MonitorSummary(
        name=monitor.name,
        model=registry.model,
        champion_version=champion,
        windows=tuple(_point(run) for run in runs),
        pending=_pending(monitor, registry, {run.run_id for run in runs}),
        problems=registry.decisions.history().problems,
    )


def _pending(monitor: Monitor, registry: ModelRegistry, runs: set[str]) -> VersionSummary | None:
    """Return the challenger that waits, if a window of this monitor made it."""
    waiting = registry.versions.pending()
    if waiting is None or waiting.run_id not in runs:
        return None
    return waiting if find_answer(monitor, waiting.version) is None else None


def latest_runs(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Keep one run of each window, the one that ended last, in the order of time."""
    latest: dict[str, RunSummary] = {}
    for run in sorted(runs, key=_age):
        latest[run.window] = run
    return sorted(latest.values(), key=lambda run: (str(run.window_start or ""), run.window))


def _age(run: RunSummary) -> float:
    # One that is under way does not hide what is known already.
    return run.ended.timestamp() if run.ended else 0.0


def _point(run: RunSummary) -> WindowPoint:
    return WindowPoint(
        run_id=run.run_id,
        start=run.window_start,
        end=run.window_end,
        verdict=run.verdict,
        version=run.version,
        unknown_rate=run.unknown_rate,
        low=run.metrics.get("unknown_rate_low"),
        high=run.metrics.get("unknown_rate_high"),
        drift_share=run.metrics.get("drift_share"),
    )


def find_window(monitor: Monitor, interval: Interval) -> str | None:
    """Return the latest run of a window; None if nobody has looked at it yet."""
    registry = ModelRegistry.open(monitor.model)
    registry.versions.aliases()  # raises if there is no such model
    runs = latest_runs(registry.runs.find(monitor=monitor.name, window=interval.id))
    return runs[-1].run_id if runs else None


def show_window(monitor: Monitor, run_id: str) -> WindowPage:
    """Return all that is known of a window."""
    registry = ModelRegistry.open(monitor.model)
    run, newer = _find_run(registry, monitor, run_id)
    held = registry.run(run.run_id)
    files = held.list_artifacts()
    version = _version_of(registry, run)
    return WindowPage(
        run=run,
        facts=read_facts(held) if VERDICT in files else None,
        version=version,
        question=question_id(version) if version else "",
        answer=find_answer(monitor, version.version) if version and version.review else None,
        history=registry.decisions.history(),
        links=held.links(registry.model, run.version or None),
        has_report=REPORT in files,
        newer_run=newer,
    )


def _find_run(registry: ModelRegistry, monitor: Monitor, run_id: str) -> tuple[RunSummary, str]:
    """Return a run of this monitor, and the run of the same window that has replaced it."""
    registry.versions.aliases()  # raises if there is no such model
    runs = registry.runs.find(monitor=monitor.name)
    for run in runs:
        if run.run_id == run_id:
            (latest,) = latest_runs(one for one in runs if one.window == run.window)
            return run, "" if latest.run_id == run_id else latest.run_id
    raise WindowError(
        f"The monitor {monitor.name!r} has no window with the run {run_id!r}: it was deleted, or "
        "belongs to another monitor.",
        code=Code.NO_RUN,
    )


def _version_of(registry: ModelRegistry, run: RunSummary) -> VersionSummary | None:
    """Return the challenger that a window made; None also if somebody has deleted it."""
    return next((one for one in registry.versions.all() if one.run_id == run.run_id), None)


def read_report(monitor: Monitor, run_id: str) -> bytes:
    """Return the report of a run as it was sealed; one that was changed since is refused."""
    registry = ModelRegistry.open(monitor.model)
    run, _ = _find_run(registry, monitor, run_id)
    held = registry.run(run.run_id)
    sealed = held.tags().get(tags.REPORT_SHA256, "")
    with TemporaryDirectory() as folder:
        page = Path(held.download(REPORT, folder)).read_bytes()
    if sealed and sha256(page).hexdigest() != sealed:
        raise ServiceError(
            f"The report of run {run_id} is not the one that was written with the verdict: "
            "somebody changed the file. Do not decide on it; run the window again.",
            code=Code.DIGEST_MISMATCH,
        )
    return page
