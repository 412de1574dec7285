"""Words out of `bench`: the table that a team decides from, and what it comes to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rtscv_mlops.cli.output import console, words

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from rtscv_mlops.pipeline.bench import Bench, Row

COLUMNS = ("finds it", "quiet", "recall", "precision", "known lost", "AUROC", "F", "CPU s")

NO_LIMIT = 10_000

CAPTION = (
    "finds it: the monitor by its own verdict; the others have no test of a window, so by a rule "
    "of ours: they flag more of it than of other known rows (Fisher's exact test, p < 0.01). "
    "quiet: no such alarm on a window of known rows only. "
    "recall: hidden rows flagged. precision: flagged rows that are hidden. "
    "known lost: known rows flagged. F: mean over the known classes and the hidden one."
)


def print_bench(done: "Bench") -> None:
    """Print the table, what kept detectors from running, and the conclusion."""
    out = console()
    _print_whole(_table(done))
    out.print(words(CAPTION, "dim"))
    for row in done.rows:
        if row.problem:
            out.print(words(f"{row.title} cannot run {_where(row)}: {row.problem}", "yellow"))
    for note in done.notes:
        out.print(words(note, "yellow"))
    out.print()
    for sentence in done.sentences:
        out.print(words(sentence))


def _print_whole(table: "Table") -> None:
    """Print a table as wide as it is: in a narrow terminal or a pipe Rich would drop columns."""
    out = console()
    boundless = out.options.update(max_width=NO_LIMIT)
    out.width = max(out.width, out.measure(table, options=boundless).maximum)
    out.print(table)


def _where(row: "Row") -> str:
    return f"on {row.failed} of {row.judged + row.failed} cases" if row.judged else "on this data"


def _table(done: "Bench") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = words(_title(done), "bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("detector")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in done.rows:
        is_ours = row.detector == "monitor"
        table.add_row(
            words(f"{row.title}{' *' if is_ours else ''}"),
            *_cells(row),
            style="bold green" if is_ours else "",
        )
    return table


def _title(done: "Bench") -> str:
    from rtscv_mlops.review import percent

    case = done.cases[0]
    if len(done.cases) > 1:
        about = "" if " to " in done.window_rows else "about "
        what = f"{len(done.cases)} cases, windows of {about}{done.window_rows} rows"
    else:
        what = f"{case.name} hidden, a window of {len(case.truth)} rows"
    return f"{done.what}: {what}, {percent(done.rate)} of them hidden"


def _cells(row: "Row") -> "list[Text]":
    if not row.judged:
        return [words("cannot run")]
    cells = [
        _count(row.found, row.judged),
        _count(row.quiet, row.judged),
        *map(_share, (row.recall, row.precision, row.known_lost, row.auroc, row.macro_f)),
        "-" if row.seconds is None else f"{row.seconds:.1f}",
    ]
    return [words(cell) for cell in cells]


def _count(times: int, asked: int) -> str:
    if asked == 1:
        return "yes" if times else "no"
    return f"{times} of {asked}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int], Callable[[str], None]]]:
    """Show how many steps are done, on standard error; called with their number when it is known.

    What that returns is called before each step, with a word for it.
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
