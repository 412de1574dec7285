"""One registered model in MLflow, and what is kept of each window in its run."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings, Monitor
from rtscv_mlops.config.values import CHAMPION
from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.facts import Finding, WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import markdown
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import connect, open_client
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.promotion import Decisions
from rtscv_mlops.tracking.runs import RunLinks, Runs, RunSummary, WindowRun
from rtscv_mlops.tracking.versions import Versions
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """A registered model: its versions, the decisions about them, and the runs of its windows."""

    client: MlflowClient
    model: str
    alias: str = CHAMPION

    @classmethod
    def connect(cls, settings: ModelSettings) -> Self:
        """Open the registry, and point MLflow's fluent functions at the same server."""
        return cls.of(connect(settings), settings)

    @classmethod
    def open(cls, settings: ModelSettings) -> Self:
        """Open the registry and leave global state alone, for threads that read several servers."""
        return cls.of(open_client(settings), settings)

    @classmethod
    def of(cls, client: MlflowClient, settings: ModelSettings) -> Self:
        """Return the registry behind a client that is open already."""
        return cls(client, settings.name, settings.alias)

    @property
    def versions(self) -> Versions:
        return Versions(self.client, self.model, self.alias)

    @property
    def decisions(self) -> Decisions:
        return Decisions(self.versions)

    @property
    def runs(self) -> Runs:
        return Runs(self.client, self.model)

    def run(self, run_id: str) -> WindowRun:
        """Return a run by its id."""
        return WindowRun(self.client, run_id)

    def claim(self, name: str, value: str) -> str:
        """Claim a name for a value in the model's ledger; return the value that holds."""
        return Ledger.open(self.client, self.model).claim(name, value)


VERDICT, CLUSTERS, REPORT, PLOTS = "verdict.json", "clusters.json", "report.html", "plots"


def first_facts(
    monitor: Monitor,
    interval: Interval,
    key: str,
    champion_version: str = "",
    window: Window | None = None,
) -> WindowFacts:
    """Return the facts of a window that is not judged yet, and may not have been read."""
    return WindowFacts(
        key=key,
        monitor=monitor.name,
        model=monitor.model.name,
        champion_version=champion_version,
        window_start=interval.start,
        window_end=interval.end,
        verdict=Verdict.unassessed(Code.UNFINISHED),
        headline="This window was not judged to the end.",
        rows=window.rows if window else 0,
        sampled=len(window.sample) if window else 0,
        copies=window.copies if window else 0,
        digest=window.digest if window else "",
    )


def is_assessed(run: RunSummary) -> bool:
    """Return whether a run came to a verdict on its window."""
    return Verdict.of(run.verdict).is_assessed


def open_window_run(
    registry: ModelRegistry, monitor: Monitor, interval: Interval, facts: WindowFacts
) -> WindowRun:
    """Open the run of a window: the one it has, or one more that names the run before it.

    A window that could not be assessed keeps its run when it is tried again. Rows that came late,
    another champion or other settings make another run, which points at the one before.
    """
    runs = registry.runs.find(monitor=monitor.name, window=interval.id)
    unassessed = [run for run in runs if not is_assessed(run)]
    if unassessed and facts.key not in [run.key for run in runs]:
        again = registry.run(unassessed[0].run_id)
        again.set_tags({tags.KEY: facts.key})
        # An alert that the window could not be judged does not say what it holds.
        again.drop_tags(tags.OF_ALERTS)
    before = [run for run in runs if is_assessed(run) and run.key != facts.key]
    named = {
        "mlflow.runName": f"{monitor.name} {interval}",
        tags.MONITOR: monitor.name,
        tags.WINDOW: interval.id,
        tags.WINDOW_START: interval.start.isoformat(),
        tags.WINDOW_END: interval.end.isoformat(),
        tags.CHAMPION_VERSION: facts.champion_version,
    }
    if before:
        latest = max(before, key=lambda run: run.ended.timestamp() if run.ended else 0.0)
        named[tags.RERUN_OF] = latest.run_id
    run = registry.runs.open(facts.key, named)
    # A run that is tried again may have been created before there was a champion. A process that
    # was held up in between may find that another one has completed it.
    for begin in (partial(run.set_tags, named), run.reopen):
        if run.is_complete:
            return run
        begin()
    # Last, so that of two processes that open it at once the one that took over last goes on.
    return run if run.is_complete else run.take_over()


def write_facts(run: WindowRun, facts: WindowFacts) -> None:
    """Write the facts as metrics, as tags, and as the file that they are read back from."""
    run.log_metrics(facts.metrics())
    run.write_json(VERDICT, facts.model_dump(mode="json"))
    if facts.clusters:
        run.write_json(CLUSTERS, [card.model_dump(mode="json") for card in facts.clusters])
    # MLflow shows a tag of this name as the run's description.
    run.set_tags(
        {"mlflow.note.content": markdown(facts.headline, 400), tags.VERDICT: facts.verdict}
    )


def read_facts(run: WindowRun) -> WindowFacts:
    """Read the facts of a run back."""
    stored = run.read_json(VERDICT)
    if stored is None:
        raise ServiceError(
            f"The run {run.run_id} has no {VERDICT}, so what its window showed is lost. Restore "
            "the run's artifacts, or run the window again.",
            code=Code.ARTIFACT_MISSING,
        )
    return WindowFacts.model_validate(stored)


def add_finding(run: WindowRun, facts: WindowFacts, finding: Finding) -> WindowFacts:
    """Write a finding that came up after the verdict, unless the facts have it already."""
    if finding in facts.findings:
        return facts
    facts = facts.with_findings(after=[finding])
    write_facts(run, facts)
    return facts


def find_report(monitor: Monitor, run_id: str) -> str:
    """Return the report of a run: a web address, or a path; empty if there is none."""
    run = ModelRegistry.connect(monitor.model).run(run_id)
    return find_links(run).report if run.has(REPORT) else ""


def find_links(run: WindowRun, model: str = "", version: str | None = None) -> RunLinks:
    """Return where a run, its report and its version are; without a server, the report's path."""
    links = run.links(model, version)
    return links if links.run else RunLinks(report=run.address(REPORT).removeprefix("file://"))


def save_report(monitor: Monitor, run_id: str, folder: Path) -> Path:
    """Download the report of a run into a local folder.

    Parameters
    ----------
    monitor : Monitor
        The monitor that judged the window.
    run_id : str
        The window's MLflow run, as in `Outcome.run_id`.
    folder : Path
        Where to write the file; must exist.

    Returns
    -------
    Path
        The HTML file.
    """
    return ModelRegistry.connect(monitor.model).run(run_id).download(REPORT, folder)
