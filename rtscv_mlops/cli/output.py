"""What the commands print."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rtscv_mlops.errors import Code
from rtscv_mlops.outcomes import ReviewStatus, Verdict
from rtscv_mlops.text import counted, judge_again, printable, probability, verdict_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rtscv_mlops.bench.compare import BenchResult
    from rtscv_mlops.pipeline.run import Outcome
    from rtscv_mlops.tracking.promotion import History
    from rtscv_mlops.tracking.versions import VersionSummary


def console(*, stderr: bool = False) -> "Console":
    """Return a console that prints square brackets as they are."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def styled(text: str, style: str = "") -> "Text":
    """Return text for Rich; control characters and markup in it have no effect."""
    from rich.text import Text

    return Text(printable(text), style=style)


class PrintableFormatter(logging.Formatter):
    """Removes control characters from log lines, which could steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def print_error(code: str, sentence: str) -> None:
    """Print why a command ends."""
    line = styled(code, "bold red") + styled(": ") + styled(sentence)
    console(stderr=True).print(line, highlight=False)


def print_json(value: Any) -> None:
    """Print JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_challengers(challengers: "list[VersionSummary]", monitor: Path) -> None:
    """Print the challengers of a model."""
    from rtscv_mlops.window import Interval

    names = ["version", "review", "window", "built from", "decided by", "reason"]
    rows = []
    for one in challengers:
        window = one.window
        if one.window_start is not None and one.window_end is not None:
            window = str(Interval(one.window_start, one.window_end))
        review = f"{one.answered} in MLflow, not carried out" if one.answered else one.review
        reason = ReviewStatus.explain(one.review, one.reason)
        champion = f"version {one.champion_version}"
        rows.append([one.version, review, window, champion, one.reviewer, reason])
    print_table("Challengers" if challengers else "No challengers yet", names, rows)
    for one in challengers:
        print_answered(one, monitor)


def print_answered(version: "VersionSummary", monitor: Path) -> None:
    """Print what is left to do if an answer by tag was not carried out yet."""
    if version.invalid_answer:
        console().print(styled(version.invalid_answer, "yellow"), soft_wrap=True)
    if not version.answered:
        return
    by = f" by {version.reviewer}" if version.reviewer else ""
    next_step = (
        f"Version {version.version} was {version.answered} in MLflow{by}. A waiting Airflow run "
        f"carries that out; without one: rtscv-mlops review collect {monitor}"
    )
    console().print(styled(next_step), soft_wrap=True)


def print_audit(history: "History") -> None:
    """Print all decisions, and whether their record can be trusted."""
    names = ["", "when", "what", "version", "by", "why"]
    rows = [
        [str(one.number), one.at[:16].replace("T", " "), one.what, one.version, one.who, one.reason]
        for one in history.records
    ]
    print_table("Decisions" if rows else "No decisions yet", names, rows)
    claimed = ", ".join(str(one.number) for one in history.records if one.is_claimed)
    if claimed:
        told = f"No login proved the names in these records, so they are only claimed: {claimed}."
        console().print(styled(told, "dim"))
    for problem in history.problems:
        console().print(styled("✘ ", "bold red") + styled(problem))
    if not history.problems:
        champion = (
            "the champion is the one they name"
            if history.has_moves
            else "none of them moved the champion, so they do not name one"
        )
        intact = f"{counted(len(rows), 'record')}, none was changed; {champion}."
        console().print(styled("✔ ", "green") + styled(intact))


def print_table(title: str, names: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    from rich.table import Table

    table = Table(*map(printable, names), title=styled(title), title_justify="left")
    for row in rows:
        table.add_row(*map(styled, row))
    console().print(table)


def print_checks(checks: list[Any]) -> None:
    """Print the results of `check`."""
    marks = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "bold red")}
    for one in checks:
        mark, color = marks[one.state]
        console().print(styled(f"{mark} {one.what}: ", color) + styled(one.found))


def print_outcome(outcome: "Outcome", monitor: Path, report: str) -> None:
    """Print the result of a window, where it is, and the next command."""
    from rich.panel import Panel
    from rich.text import Text

    facts, out = outcome.facts, console()
    style = Verdict.of(facts.verdict).traits.style
    body = [styled(facts.headline, "bold")]
    if facts.blocked:
        body.append(styled(f"Blocked: {facts.blocked}", "bold red"))
    body += [styled(f"- {finding}", "dim") for finding in facts.findings]
    title = styled(f" {verdict_text(facts.verdict)} ", style)
    out.print(Panel(Text("\n").join(body), title=title, title_align="left", border_style=style))
    compared = ""
    next_step = f"rtscv-mlops check {monitor}"
    if Verdict.reason(facts.verdict) == Code.STALE:
        next_step = judge_again(facts, str(monitor))
    if facts.assessed:
        rows = f"{facts.sampled:,} of {facts.rows:,} rows"
        compared = f"{rows} with {facts.null}, {probability(facts.p_value)}"
        next_step = ""
    if outcome.version:
        next_step = f"rtscv-mlops review show {monitor} --version {outcome.version}"
    lines = {
        "compared": compared,
        "alert": outcome.alert,
        "run": f"{outcome.run_id}{' (finished before)' if outcome.repeated else ''}",
        "report": report,
        # A blocked challenger takes no decision; the same command shows why.
        "why" if facts.blocked else "next": next_step,
    }
    for name, text in lines.items():
        if text:
            # Paths and commands are for copying, so they are never wrapped.
            out.print(styled(f"{name:>9}  ", "dim") + styled(text), soft_wrap=True)


@contextmanager
def progress(what: str) -> Iterator[Any]:
    """Show the current stage on standard error, where output of a model goes as well."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    # Standard output is for the result: LightGBM, for one, would print into the JSON.
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
    out.print(styled(CAPTION, "dim"))
    for one in result.summaries:
        if one.problem:
            cases = f"on {one.failed} of {one.judged + one.failed} cases"
            where = cases if one.judged else "on this data"
            out.print(styled(f"{one.title} cannot run {where}: {one.problem}", "yellow"))
    for note in result.notes:
        out.print(styled(note, "yellow"))
    out.print()
    for sentence in result.sentences:
        out.print(styled(sentence))


def _bench_table(result: "BenchResult") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = styled(result.title, "bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("detector")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.summaries:
        is_ours = one.detector == "monitor"
        cells = [f"{one.title}{' *' if is_ours else ''}"]
        if one.judged:
            figures = (one.recall, one.precision, one.known_lost, one.auroc, one.macro_f)
            for times in (one.found, one.quiet):
                in_one = "yes" if times else "no"
                cells.append(in_one if one.judged == 1 else f"{times} of {one.judged}")
            cells += ["-" if value is None else f"{value:.2f}" for value in figures]
            cells.append("-" if one.seconds is None else f"{one.seconds:.1f}")
        else:
            cells.append("cannot run")
        table.add_row(*map(styled, cells), style="bold green" if is_ours else "")
    return table


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
