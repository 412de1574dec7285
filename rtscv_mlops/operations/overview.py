"""What a page shows of a monitor and of one of its windows; read from MLflow, never written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import inf

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ServiceError, WindowError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import Answer
from rtscv_mlops.review.answers import find_answer, question_id
from rtscv_mlops.tracking.promotion import History
from rtscv_mlops.tracking.registry import (
    REPORT,
    VERDICT,
    ModelRegistry,
    is_assessed,
    read_sealed_report,
)
from rtscv_mlops.tracking.runs import RunLinks, RunSummary
from rtscv_mlops.tracking.versions import VersionSummary
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
    later_verdict: str = ""
    """The verdict of a later judgement, by another champion; empty if there is none."""
    later_champion: str = ""


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

    `facts` is None while the window is being judged. `question` identifies what is decided on, and
    `answer` is how the review of `version` ended, or an answer that was given in the registry.
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
    runs = registry.runs.find(monitor=monitor.name)
    pending = registry.versions.pending()
    if pending is not None:
        is_ours = pending.run_id in {run.run_id for run in runs}
        if not is_ours or find_answer(monitor, pending.version) is not None:
            pending = None
    return MonitorSummary(
        name=monitor.name,
        model=registry.model,
        champion_version=champion,
        windows=tuple(
            WindowPoint(
                run_id=run.run_id,
                start=run.window_start,
                end=run.window_end,
                verdict=run.verdict,
                version=run.version,
                unknown_rate=run.unknown_rate,
                low=run.metrics.get("unknown_rate_low"),
                high=run.metrics.get("unknown_rate_high"),
                drift_share=run.metrics.get("drift_share"),
                later_verdict=later.verdict if later else "",
                later_champion=later.champion_version if later else "",
            )
            for run, later in judgements(runs)
        ),
        pending=pending,
        problems=registry.decisions.history().problems,
    )


def judgements(runs: Iterable[RunSummary]) -> Iterator[tuple[RunSummary, RunSummary | None]]:
    """Yield the judgement of each window that was made at the time, and a later one beside it.

    A window that is judged again by another champion keeps what the first one saw in it. Late rows
    and other settings replace a judgement by the same champion.
    """
    everything = list(runs)
    for latest in latest_runs(everything):
        judged = [run for run in everything if run.window == latest.window and is_assessed(run)]
        by_end = sorted(judged, key=lambda run: run.ended.timestamp() if run.ended else inf)
        if not by_end or by_end[0].champion_version == latest.champion_version:
            yield latest, None
            continue
        first = [run for run in by_end if run.champion_version == by_end[0].champion_version][-1]
        yield first, latest if is_assessed(latest) else None


def latest_runs(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Return one run of each window, the one that was judged last, in the order of time."""
    latest = {run.window: run for run in sorted(runs, key=lambda run: run.age)}
    return sorted(latest.values(), key=lambda run: (str(run.window_start or ""), run.window))


def find_window(monitor: Monitor, interval: Interval) -> str | None:
    """Return the latest run of a window; None if there is none yet."""
    registry = ModelRegistry.open(monitor.model)
    registry.versions.aliases()  # raises if there is no such model
    runs = latest_runs(registry.runs.find(monitor=monitor.name, window=interval.id))
    return runs[-1].run_id if runs else None


def show_window(monitor: Monitor, run_id: str) -> WindowPage:
    """Return all that is known of a window."""
    registry = ModelRegistry.open(monitor.model)
    run, newer = _find_run(registry, monitor, run_id)
    window_run = registry.run(run.run_id)
    files = window_run.list_artifacts()
    # None also if the version was deleted.
    versions = registry.versions.all()
    version = next((each for each in versions if each.run_id == run.run_id), None)
    return WindowPage(
        run=run,
        facts=registry.read_facts(run.run_id) if VERDICT in files else None,
        version=version,
        question=question_id(version) if version else "",
        answer=find_answer(monitor, version.version) if version and version.review else None,
        history=registry.decisions.history(),
        links=window_run.links(registry.model, run.version or None),
        has_report=REPORT in files,
        newer_run=newer,
    )


def _find_run(registry: ModelRegistry, monitor: Monitor, run_id: str) -> tuple[RunSummary, str]:
    """Return a run of this monitor, and the run of the same window that has replaced it."""
    registry.versions.aliases()  # raises if there is no such model
    runs = registry.runs.find(monitor=monitor.name)
    for run in runs:
        if run.run_id == run_id:
            (latest,) = latest_runs(each for each in runs if each.window == run.window)
            return run, "" if latest.run_id == run_id else latest.run_id
    raise WindowError(
        f"The monitor {monitor.name!r} has no window with the run {run_id!r}: it was deleted, or "
        "belongs to another monitor.",
        code=Code.NO_RUN,
    )


def read_report(monitor: Monitor, run_id: str) -> bytes:
    """Return the report of a run; refuse one that was changed since it was written."""
    registry = ModelRegistry.open(monitor.model)
    summary, _ = _find_run(registry, monitor, run_id)
    seal = registry.find_seal(run_id)
    if seal is None or not seal.report_sha256:
        raise ServiceError(
            f"The run {run_id} has no report that was sealed with its verdict. Run the window "
            "again.",
            code=Code.ARTIFACT_MISSING,
        )
    return read_sealed_report(registry.run(summary.run_id), seal)
