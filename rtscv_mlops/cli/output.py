"""Words out: what the commands print. Knows Rich; knows nothing of how results come about."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from rtscv_mlops.facts import WindowFacts
    from rtscv_mlops.pipeline import Outcome
    from rtscv_mlops.registry import VersionSummary

COLORS = {
    "no_change": "green",
    "drift": "yellow",
    "unknowns": "bold red",
    "unknowns_and_drift": "bold red",
    "not_assessed": "bold magenta",
}


def console(*, stderr: bool = False) -> "Console":
    """Return where words go."""
    from rich.console import Console

    return Console(stderr=stderr)


def print_json(value: Any) -> None:
    """Print for machines."""
    typer.echo(json.dumps(value, indent=2))


def _window(version: "VersionSummary") -> str:
    from rtscv_mlops.window import Interval

    if version.window_start is None or version.window_end is None:
        return version.window
    return str(Interval(version.window_start, version.window_end))


def print_challengers(found: "list[VersionSummary]") -> None:
    """Print the challengers of a model."""
    names = ["version", "review", "window", "built from", "decided by", "reason"]
    rows = [
        [
            one.version,
            one.review,
            _window(one),
            f"version {one.champion_version}",
            one.reviewer,
            f"by version {one.reason}" if one.review == "superseded" else one.reason,
        ]
        for one in found
    ]
    print_table("Challengers" if found else "No challengers yet", names, rows)


def print_table(title: str, names: list[str], rows: list[list[str]]) -> None:
    """Print rows; text from data stays text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


def print_checks(found: list[Any]) -> None:
    """Print what the doctor found."""
    from rich.text import Text

    marks = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "bold red")}
    for one in found:
        mark, color = marks[one.state]
        console().print(Text(f"{mark} {one.what}: ", style=color) + Text(one.found, style=""))


def print_outcome(outcome: "Outcome", monitor: Path, report: str) -> None:
    """Print what became of a window, where it is, and what to type next."""
    from rich.panel import Panel
    from rich.text import Text

    from rtscv_mlops.review import verdict_words

    facts, out = outcome.facts, console()
    color = COLORS[facts.verdict.partition(":")[0]]
    body = [Text(facts.headline, style="bold")]
    if facts.blocked:
        body.append(Text(f"Blocked: {facts.blocked}", style="bold red"))
    body += [Text(f"- {finding}", style="dim") for finding in facts.findings]
    title = Text(f" {verdict_words(facts.verdict)} ", style=color)
    out.print(Panel(Text("\n").join(body), title=title, title_align="left", border_style=color))
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
            out.print(Text(f"{name:>9}  ", style="dim") + Text(text), soft_wrap=True)


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
def progress(what: str) -> Iterator[Any]:
    """Show which stage is at work, on standard error."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda stage: bar.update(task, description=f"{what}  {stage}")
