"""What is kept of a window in its MLflow run: the facts, and the report for people."""

from functools import partial
from pathlib import Path

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import markdown
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient, connect, make_links
from rtscv_mlops.tracking.runs import RunSummary, find_runs, open_run
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval

VERDICT, CLUSTERS, REPORT, PLOTS = "verdict.json", "clusters.json", "report.html", "plots"
REPORT_LINK = "Report"


def first_facts(monitor: Monitor, interval: Interval, key: str) -> WindowFacts:
    """Return what is known of a window before it was looked at."""
    return WindowFacts(
        key=key,
        monitor=monitor.name,
        model=monitor.model.name,
        champion_version="",
        window_start=interval.start,
        window_end=interval.end,
        verdict=Verdict.NOT_ASSESSED.because(Code.UNFINISHED),
        headline="This window was not judged to the end.",
    )


def is_assessed(run: RunSummary) -> bool:
    """Return whether a run came to a verdict on its window."""
    return Verdict.of(run.verdict).is_assessed


def open_window_run(
    client: MlflowClient, monitor: Monitor, interval: Interval, facts: WindowFacts
) -> WindowRun:
    """Open the run of a window: the one it has, or one more that names its forerunner.

    A window that could not be assessed keeps its run when it is tried again. Rows that came late,
    another champion or other settings make another run, which points at the one before.
    """
    model = monitor.model.name
    runs = find_runs(client, model, monitor=monitor.name, window=interval.id)
    unassessed = [run for run in runs if not is_assessed(run)]
    if unassessed and facts.key not in [run.key for run in runs]:
        again = WindowRun(client, unassessed[0].run_id)
        again.set_tags({tags.KEY: facts.key})
        # Who heard that the window could not be judged has not heard what it holds.
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
    run = open_run(client, model, facts.key, named)
    # A run that is tried again may have been made before there was a champion. One who was held up
    # in between may find that another one has completed it.
    for begin in (partial(run.set_tags, named), run.reopen):
        if run.is_complete:
            return run
        begin()
    # Last, so that one of two who open it at once goes on: who took over last stops nowhere here.
    return run if run.is_complete else run.take_over()


def write_facts(run: WindowRun, facts: WindowFacts) -> None:
    """Write the facts as metrics, as tags, and as the file that they are read back from."""
    run.log_metrics(facts.metrics())
    run.write_json(VERDICT, facts.model_dump(mode="json"))
    if facts.clusters:
        run.write_json(CLUSTERS, [card.model_dump(mode="json") for card in facts.clusters])
    # MLflow shows a tag of this name as the run's description.
    run.set_tags({"mlflow.note.content": markdown(facts.headline), tags.VERDICT: facts.verdict})


def read_facts(run: WindowRun) -> WindowFacts:
    """Read the facts of a run back."""
    return WindowFacts.model_validate(run.read_json(VERDICT))


def add_finding(run: WindowRun, facts: WindowFacts, finding: str) -> WindowFacts:
    """Write down something odd that came up after the verdict; saying it twice adds nothing."""
    if finding in facts.findings:
        return facts
    facts = facts.model_copy(update={"findings": (*facts.findings, finding)})
    write_facts(run, facts)
    return facts


def find_report(monitor: Monitor, run_id: str) -> str:
    """Return where the report of a run is: a web page, or a file; nothing if there is none."""
    run = WindowRun(connect(monitor.model), run_id)
    return find_links(run)[REPORT_LINK] if run.has(REPORT) else ""


def find_links(run: WindowRun, model: str = "", version: str | None = None) -> dict[str, str]:
    """Return where a run, its report and its version are; without a server, the report's path."""
    found = make_links(run.client, run.run_id, model, version)
    return found or {REPORT_LINK: run.place(REPORT).removeprefix("file://")}


def save_report(monitor: Monitor, run_id: str, folder: Path) -> Path:
    """Bring the report of a run into a local folder."""
    return WindowRun(connect(monitor.model), run_id).download(REPORT, folder)
