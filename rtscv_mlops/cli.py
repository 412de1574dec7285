"""The same stages by hand: `rtscv-mlops`. No logic here, only words in and words out.

Heavy imports happen inside the commands, so that `--help` answers at once.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtscv_mlops.errors import RtscvError, WindowError

if TYPE_CHECKING:
    from rich.console import Console

    from rtscv_mlops.config import Monitor
    from rtscv_mlops.facts import WindowFacts
    from rtscv_mlops.pipeline import Outcome
    from rtscv_mlops.window import Interval

EXIT_CODES = {
    "no_change": 0,
    "drift": 10,
    "unknowns": 11,
    "unknowns_and_drift": 11,
    "not_assessed": 20,
}
"""What `run` ends with; 1 is an error, 2 a wrong command line."""

COLORS = {
    "no_change": "green",
    "drift": "yellow",
    "unknowns": "bold red",
    "unknowns_and_drift": "bold red",
    "not_assessed": "bold magenta",
}

app = typer.Typer(
    help="Tell whether traffic holds something that a deployed classifier was never taught.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
review = typer.Typer(help="Challengers that wait for a person.", no_args_is_help=True)
app.add_typer(review, name="review")

MonitorFile = Annotated[
    Path, typer.Argument(metavar="MONITOR", help="The monitor's YAML file.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Day = Annotated[
    str | None, typer.Option("--window", metavar="DAY", help="One day, such as 2026-01-05.")
]
Start = Annotated[str | None, typer.Option(metavar="TIME", help="Start of the window, ISO 8601.")]
End = Annotated[str | None, typer.Option(metavar="TIME", help="Its end, not included.")]
Version = Annotated[str | None, typer.Option(help="Version. [default: the one that waits]")]
SeenVersion = Annotated[
    str, typer.Option("--version", help="Version that you looked at.", show_default=False)
]
Reviewer = Annotated[str | None, typer.Option(help="Who decides. [default: the user name]")]
Reason = Annotated[str, typer.Option(help="Why.")]


def main() -> None:
    """Run a command; an error of ours becomes one sentence, a bug keeps its traceback."""
    # MLflow and Evidently report usage to their makers unless told not to.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    try:
        app()
    except RtscvError as error:
        _console(stderr=True).print(f"[bold red]{error.code}[/]: ", end="")
        _console(stderr=True).print(str(error), markup=False, highlight=False)
        raise SystemExit(1) from error


@app.callback()
def _set_up(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell each stage.")] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("rtscv_mlops").setLevel(logging.INFO if verbose else logging.ERROR)
    if not verbose:
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("demo"),
) -> None:
    """Watch a fortnight of handwritten digits: quiet days, drift, then digits never taught."""
    from rtscv_mlops.demo import run_demo

    run_demo(folder, _console())


@app.command()
def init(
    model: Annotated[str, typer.Argument(help="Registered model.", show_default=False)],
    file: Annotated[Path | None, typer.Option(help="File to write. [default: MODEL.yaml]")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow, if not in the environment.")
    ] = None,
) -> None:
    """Write a commented monitor file from a registered model's signature."""
    from rtscv_mlops.pipeline import write_monitor

    path = write_monitor(model, file or Path(f"{model}.yaml"), tracking_uri)
    _console().print(f"Wrote {path}. Edit it, then: rtscv-mlops check {path}", highlight=False)


@app.command()
def check(monitor: MonitorFile, as_json: AsJson = False) -> None:
    """Tell whether everything that a run needs is there, and what to fix."""
    from rtscv_mlops.pipeline import check_monitor

    found = list(check_monitor(_load(monitor)))
    if as_json:
        _print_json([{"what": c.what, "state": c.state, "found": c.found} for c in found])
    else:
        _print_checks(found)
    if any(one.state == "problem" for one in found):
        raise typer.Exit(1)


@app.command()
def run(
    monitor: MonitorFile,
    window: Day = None,
    start: Start = None,
    end: End = None,
    as_json: AsJson = False,
) -> None:
    """Judge one window. Exit code: 0 no change, 10 drift, 11 unknowns, 20 not assessed."""
    from rtscv_mlops.pipeline import find_report, run_window

    settings = _load(monitor)
    interval = _interval(window, start, end)
    with _progress(f"{settings.name} {interval}") as tell:
        outcome = run_window(settings, interval, tell)
    facts, report = outcome.facts, find_report(settings, outcome.run_id)
    if as_json:
        extra = {"run_id": outcome.run_id, "version": outcome.version, "alert": outcome.alert}
        _print_json({**facts.model_dump(mode="json"), **extra, "report": report})
    else:
        _print_outcome(outcome, monitor, report)
    raise typer.Exit(EXIT_CODES[facts.verdict.partition(":")[0]])


@app.command()
def score(
    monitor: MonitorFile,
    window: Day = None,
    start: Start = None,
    end: End = None,
    as_json: AsJson = False,
) -> None:
    """Join labels that arrived later, and log how right an earlier verdict was."""
    from rtscv_mlops.pipeline import score_window

    settings = _load(monitor)
    result = score_window(settings, _interval(window, start, end))
    if as_json:
        _print_json({"run_id": result.run_id, "labelled": result.labelled, **result.figures})
        return
    rows = [[name.replace("_", " "), f"{value:.3f}"] for name, value in result.figures.items()]
    title = f"{result.labelled} of {result.sampled} rows have a label"
    _print_table(title, ["figure", "value"], rows)


@app.command()
def register(
    model: Annotated[
        str, typer.Argument(help="Name for the registered model.", show_default=False)
    ],
    training: Annotated[
        Path, typer.Option(help="Training data, Parquet or CSV.", show_default=False)
    ],
    label: Annotated[str, typer.Option(help="Column with the label.", show_default=False)],
    estimator: Annotated[
        str,
        typer.Option(
            help="`package.module:function` that returns the model; it is fitted on the training "
            "data unless it is fitted already.",
            show_default=False,
        ),
    ],
    holdout: Annotated[Path | None, typer.Option(help="Held-out data for comparisons.")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow, if not in the environment.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Move the champion if there is one.")] = False,
    allow_pickle: Annotated[bool, typer.Option(help="Save by pickle where skops cannot.")] = False,
) -> None:
    """Log a model with its training data and signature, as a monitor needs it, as champion."""
    from rtscv_mlops.pipeline import register_champion

    version = register_champion(
        model,
        training,
        label,
        estimator,
        holdout=holdout,
        tracking_uri=tracking_uri,
        replace=replace,
        allow_pickle=allow_pickle,
    )
    _console().print(f"Version {version} of {model} is the champion.", highlight=False)


@review.command("list")
def list_reviews(monitor: MonitorFile, as_json: AsJson = False) -> None:
    """List the challengers of a model, the latest first."""
    from rtscv_mlops.pipeline import list_challengers

    found = list_challengers(_load(monitor))
    shown = ("version", "review", "window", "champion_version", "run_id")
    if as_json:
        _print_json([{name: getattr(one, name) for name in shown} for one in found])
        return
    rows = [[str(getattr(one, name)) for name in shown] for one in found]
    _print_table("Challengers", [name.replace("_", " ") for name in shown], rows)


@review.command("show")
def show_review(monitor: MonitorFile, version: Version = None, as_json: AsJson = False) -> None:
    """Show what a reviewer has to know about a challenger."""
    from rich.markdown import Markdown

    from rtscv_mlops.pipeline import show_challenger

    question = show_challenger(_load(monitor), version)
    if as_json:
        _print_json(question.facts.model_dump(mode="json"))
    else:
        _console().print(Markdown(question.description))


@review.command()
def approve(
    monitor: MonitorFile, version: SeenVersion, reviewer: Reviewer = None, reason: Reason = ""
) -> None:
    """Approve a challenger: it becomes the champion."""
    _decide(monitor, version, True, reviewer, reason)


@review.command()
def reject(
    monitor: MonitorFile, version: SeenVersion, reviewer: Reviewer = None, reason: Reason = ""
) -> None:
    """Reject a challenger: the champion stays."""
    _decide(monitor, version, False, reviewer, reason)


@review.command()
def baseline(
    monitor: MonitorFile, window: Day = None, start: Start = None, end: End = None
) -> None:
    """Say that a window was clean, whatever its verdict: it joins the baseline."""
    from rtscv_mlops.pipeline import approve_as_baseline

    interval = _interval(window, start, end)
    run_id = approve_as_baseline(_load(monitor), interval)
    _console().print(f"Window {interval} (run {run_id}) is part of the baseline.", highlight=False)


@app.command()
def rollback(monitor: MonitorFile, reviewer: Reviewer = None, reason: Reason = "") -> None:
    """Restore the champion before the present one, in one step."""
    from rtscv_mlops.pipeline import roll_back

    version = roll_back(_load(monitor), reviewer or getuser(), reason)
    _console().print(f"Version {version} is the champion again.", highlight=False)


@app.command()
def purge(
    monitor: MonitorFile,
    before: Annotated[str, typer.Option(metavar="TIME", help="Windows that ended by then.")],
    baselines: Annotated[bool, typer.Option(help="Remove baseline rows as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rows, reports and cards that old windows left in MLflow; their numbers stay."""
    from rtscv_mlops.pipeline import purge_windows

    done = purge_windows(_load(monitor), _moment(before), baselines=baselines)
    if as_json:
        _print_json([{"window": one.window, "removed": list(one.removed)} for one in done])
        return
    rows = [[one.window, ", ".join(one.removed) or "nothing was left"] for one in done]
    _print_table("Purged", ["window", "removed"], rows)


# -- words in


def _load(path: Path) -> "Monitor":
    from rtscv_mlops.config import load_monitor

    return load_monitor(path)


def _interval(day: str | None, start: str | None, end: str | None) -> "Interval":
    from rtscv_mlops.window import Interval

    try:
        if day and not (start or end):
            return Interval.day(day)
        if start and end and not day:
            return Interval.parse(start, end)
    except WindowError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.BadParameter("Say which window: --window DAY, or both --start and --end.")


def _moment(text: str) -> datetime:
    from rtscv_mlops.window import moment

    try:
        return moment(text, "UTC")
    except WindowError as error:
        raise typer.BadParameter(str(error)) from error


def _decide(monitor: Path, version: str, approved: bool, reviewer: str | None, reason: str) -> None:
    from rtscv_mlops.pipeline import review_challenger

    decided = review_challenger(
        _load(monitor),
        version,
        approve=approved,
        reviewer=reviewer or getuser(),
        reason=reason,
    )
    what = "is the champion now" if approved else "is rejected; the champion stays"
    _console().print(f"Version {decided.version} {what}.", highlight=False)


# -- words out


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _print_table(title: str, names: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def _print_checks(found: list[Any]) -> None:
    from rich.text import Text

    marks = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "bold red")}
    for one in found:
        mark, color = marks[one.state]
        _console().print(Text(f"{mark} {one.what}: ", style=color) + Text(one.found, style=""))


def _print_outcome(outcome: "Outcome", monitor: Path, report: str) -> None:
    from rich.panel import Panel
    from rich.text import Text

    from rtscv_mlops.review import verdict_words

    facts, console = outcome.facts, _console()
    color = COLORS[facts.verdict.partition(":")[0]]
    body = [Text(facts.headline, style="bold")]
    if facts.blocked:
        body.append(Text(f"Blocked: {facts.blocked}", style="bold red"))
    body += [Text(f"- {finding}", style="dim") for finding in facts.findings]
    title = Text(f" {verdict_words(facts.verdict)} ", style=color)
    console.print(Panel(Text("\n").join(body), title=title, title_align="left", border_style=color))
    told = {
        "compared": _compared(facts),
        "alert": outcome.alert,
        "run": f"{outcome.run_id}{' (finished before)' if outcome.repeated else ''}",
        "report": report,
        "next": _next_command(outcome, monitor),
    }
    for name, text in told.items():
        if text:
            # Paths and commands are for copying, so they are never broken into lines.
            console.print(Text(f"{name:>9}  ", style="dim") + Text(text), soft_wrap=True)


def _compared(facts: "WindowFacts") -> str:
    if not facts.assessed:
        return ""
    from rtscv_mlops.review import probability

    return (
        f"{facts.sampled:,} of {facts.rows:,} rows with {facts.null}, {probability(facts.p_value)}"
    )


def _next_command(outcome: "Outcome", monitor: Path) -> str:
    if outcome.version:
        return f"rtscv-mlops review show {monitor} --version {outcome.version}"
    return "" if outcome.facts.assessed else f"rtscv-mlops check {monitor}"


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda stage: bar.update(task, description=f"{what}  {stage}")
