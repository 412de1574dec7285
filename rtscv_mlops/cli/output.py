"""Words out: what the commands print. Knows Rich; knows nothing of how results come about."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rtscv_mlops.outcomes import ReviewStatus, Verdict
from rtscv_mlops.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rtscv_mlops.bench.compare import BenchResult
    from rtscv_mlops.facts import WindowFacts
    from rtscv_mlops.pipeline.run import Outcome
    from rtscv_mlops.tracking.promotion import History
    from rtscv_mlops.tracking.registry import VersionSummary


def console(*, stderr: bool = False) -> "Console":
    """Return where words go; square brackets in them are square brackets."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def words(text: str, style: str = "") -> "Text":
    """Return text for Rich; whatever it holds is only shown."""
    from rich.text import Text

    return Text(printable(text), style=style)


class PrintableFormatter(logging.Formatter):
    """Writes log lines that steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def print_error(code: str, sentence: str) -> None:
    """Print why a command ends."""
    line = words(code, "bold red") + words(": ") + words(sentence)
    console(stderr=True).print(line, highlight=False)


def print_json(value: Any) -> None:
    """Print for machines."""
    typer.echo(json.dumps(value, indent=2))


def _window(version: "VersionSummary") -> str:
    from rtscv_mlops.window import Interval

    if version.window_start is None or version.window_end is None:
        return version.window
    return str(Interval(version.window_start, version.window_end))


def print_challengers(found: "list[VersionSummary]", monitor: Path) -> None:
    """Print the challengers of a model."""
    names = ["version", "review", "window", "built from", "decided by", "reason"]
    rows = [
        [
            one.version,
            f"{one.answered} in MLflow, not carried out" if one.answered else one.review,
            _window(one),
            f"version {one.champion_version}",
            one.reviewer,
            ReviewStatus.explain(one.review, one.reason),
        ]
        for one in found
    ]
    print_table("Challengers" if found else "No challengers yet", names, rows)
    for one in found:
        print_answered(one, monitor)


def print_answered(version: "VersionSummary", monitor: Path) -> None:
    """Print what is left to do where somebody answered by tag, and nobody has read it."""
    if version.misspelt:
        console().print(words(version.misspelt, "yellow"), soft_wrap=True)
    if not version.answered:
        return
    by = f" by {version.reviewer}" if version.reviewer else ""
    left = (
        f"Version {version.version} was {version.answered} in MLflow{by}. An Airflow run that "
        f"waits carries that out; where none does: rtscv-mlops review collect {monitor}"
    )
    console().print(words(left), soft_wrap=True)


def print_audit(found: "History") -> None:
    """Print every decision, and whether the record of them can be trusted."""
    from rtscv_mlops.text import counted

    names = ["", "when", "what", "version", "by", "why"]
    rows = [
        [str(one.number), one.at[:16].replace("T", " "), one.what, one.version, one.who, one.reason]
        for one in found.records
    ]
    print_table("Decisions" if rows else "No decisions yet", names, rows)
    for problem in found.problems:
        console().print(words("✘ ", "bold red") + words(problem))
    if not found.problems:
        champion = (
            "the champion is what they say"
            if found.has_moves
            else "none of them moved the champion, so they say nothing about it"
        )
        whole = f"{counted(len(rows), 'record')}, none was changed; {champion}."
        console().print(words("✔ ", "green") + words(whole))


def print_table(title: str, names: list[str], rows: list[list[str]]) -> None:
    """Print rows; text from data stays text."""
    from rich.table import Table

    table = Table(*map(printable, names), title=words(title), title_justify="left")
    for row in rows:
        table.add_row(*map(words, row))
    console().print(table)


def print_checks(found: list[Any]) -> None:
    """Print what the doctor found."""
    marks = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "bold red")}
    for one in found:
        mark, color = marks[one.state]
        console().print(words(f"{mark} {one.what}: ", color) + words(one.found))


def print_outcome(outcome: "Outcome", monitor: Path, report: str) -> None:
    """Print what became of a window, where it is, and what to type next."""
    from rich.panel import Panel
    from rich.text import Text

    from rtscv_mlops.text import verdict_text

    facts, out = outcome.facts, console()
    color = Verdict.of(facts.verdict).traits.style
    body = [words(facts.headline, "bold")]
    if facts.blocked:
        body.append(words(f"Blocked: {facts.blocked}", "bold red"))
    body += [words(f"- {finding}", "dim") for finding in facts.findings]
    title = words(f" {verdict_text(facts.verdict)} ", color)
    out.print(Panel(Text("\n").join(body), title=title, title_align="left", border_style=color))
    told = {
        "compared": _compared(facts),
        "alert": outcome.alert,
        "run": f"{outcome.run_id}{' (finished before)' if outcome.repeated else ''}",
        "report": report,
        # Nobody decides on what is blocked; the same command says why it is.
        "why" if facts.blocked else "next": _next_command(outcome, monitor),
    }
    for name, text in told.items():
        if text:
            # Paths and commands are for copying, so they are never broken into lines.
            out.print(words(f"{name:>9}  ", "dim") + words(text), soft_wrap=True)


def _compared(facts: "WindowFacts") -> str:
    if not facts.assessed:
        return ""
    from rtscv_mlops.text import probability

    return (
        f"{facts.sampled:,} of {facts.rows:,} rows with {facts.null}, {probability(facts.p_value)}"
    )


def _next_command(outcome: "Outcome", monitor: Path) -> str:
    if outcome.version:
        return f"rtscv-mlops review show {monitor} --version {outcome.version}"
    return "" if outcome.facts.assessed else f"rtscv-mlops check {monitor}"


@contextmanager
def progress(what: str) -> Iterator[Any]:
    """Show which stage is at work, on standard error, where a model may print meanwhile, too."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    # Standard output is for the result: LightGBM, for one, would write into the midst of --json.
    with bar, redirect_stdout(sys.stderr):
        task = bar.add_task(what, total=None)
        yield lambda stage: bar.update(task, description=f"{what}  {stage}")


COLUMNS = ("finds it", "quiet", "recall", "precision", "known lost", "AUROC", "F", "CPU s")

NO_LIMIT = 10_000

CAPTION = (
    "finds it: the monitor by its own verdict; the others have no test of a window, so by a rule "
    "of ours: they flag more of it than of other known rows (Fisher's exact test, p < 0.01). "
    "quiet: no such alarm on a window of known rows only. "
    "recall: hidden rows flagged. precision: flagged rows that are hidden. "
    "known lost: known rows flagged. F: mean over the known classes and the hidden one."
)


def print_bench(result: "BenchResult") -> None:
    """Print the table, why detectors could not run, and the conclusion."""
    out = console()
    table = _bench_table(result)
    # In a narrow terminal or a pipe Rich would drop columns, so the table gets the width it needs.
    wide = console()
    boundless = wide.options.update(max_width=NO_LIMIT)
    wide.width = max(wide.width, wide.measure(table, options=boundless).maximum)
    wide.print(table)
    out.print(words(CAPTION, "dim"))
    for one in result.summaries:
        if one.problem:
            cases = f"on {one.failed} of {one.judged + one.failed} cases"
            where = cases if one.judged else "on this data"
            out.print(words(f"{one.title} cannot run {where}: {one.problem}", "yellow"))
    for note in result.notes:
        out.print(words(note, "yellow"))
    out.print()
    for sentence in result.sentences:
        out.print(words(sentence))


def _bench_table(result: "BenchResult") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = words(result.title, "bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("detector")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.summaries:
        is_ours = one.detector == "monitor"
        cells = [f"{one.title}{' *' if is_ours else ''}"]
        if one.judged:
            figures = (one.recall, one.precision, one.known_lost, one.auroc, one.macro_f)
            cells += [_count(times, one.judged) for times in (one.found, one.quiet)]
            cells += ["-" if value is None else f"{value:.2f}" for value in figures]
            cells.append("-" if one.seconds is None else f"{one.seconds:.1f}")
        else:
            cells.append("cannot run")
        table.add_row(*map(words, cells), style="bold green" if is_ours else "")
    return table


def _count(times: int, cases: int) -> str:
    if cases == 1:
        return "yes" if times else "no"
    return f"{times} of {cases}"


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int], Callable[[str], None]]]:
    """Show on standard error how many steps are done.

    Call what this yields with the number of steps once it is known; call what that returns with a
    description before each step.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    out = console(stderr=True)
    bar = Progress(
        *columns, TimeElapsedColumn(), console=out, transient=True, disable=not out.is_terminal
    )
    with bar:
        task = bar.add_task(what, total=None)

        def begin(steps: int) -> Callable[[str], None]:
            bar.update(task, total=steps, completed=-1)
            return lambda step: bar.update(task, advance=1, description=step)

        yield begin
