"""The tables of `make faults`: one on the screen, one for each promise in docs/reliability.md."""

import re
from pathlib import Path

from rich.table import Table

from benchmarks.faults.tally import PROMISES, Tally
from benchmarks.paper import markdown

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BLOCK = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- /faults -->)", flags=re.DOTALL)
HEADER = ("Promise", "Experiment", "Trials", "Failures", "95 % upper bound", "Remarks")
NOTES = {
    "answers": '"Ended with" is a code of the experiment: 0, the window was judged; 4, MLflow '
    "gave no usable response (`mlflow`); 5, files could not be stored (`storage`); 6, MLflow "
    "refused (`mlflow_refused`). The codes in parentheses follow `failed:` in a recorded outcome. "
    "`rtscv-mlops run` itself exits with 1 for each of them."
}
"""What a promise's table needs to be read."""


NOT_MEASURED = "Not measured in full yet."


def show(tallies: list[Tally]) -> Table:
    """Return the table for a terminal."""
    table = Table(*HEADER)
    for row in _rows(tallies):
        table.add_row(*row)
    return table


def write(tallies: list[Tally], protocol: str, page: Path = PAGE) -> None:
    """Put the tables into the page, between its marks; without a page nothing is done."""
    if not page.exists():
        return
    parts = [protocol]
    for promise, title in PROMISES.items():
        found = [tally for tally in tallies if tally.promise == promise]
        parts += [f"**{title}**", _table(found) if found else NOT_MEASURED]
        parts += [NOTES[promise]] if promise in NOTES else []
    block = "\n\n".join(parts) + "\n"
    page.write_text(BLOCK.sub(lambda _: block, page.read_text()))


def _table(tallies: list[Tally]) -> str:
    """Return a promise's table; without remarks their column is left out."""
    columns = slice(1, None if any(tally.told for tally in tallies) else -1)
    return markdown.table(HEADER[columns], [row[columns] for row in _rows(tallies)])


def _rows(tallies: list[Tally]) -> list[tuple[str, ...]]:
    """Return the cells; a promise is told once, beside its first experiment."""
    before = [None, *(tally.promise for tally in tallies)]
    return [
        (
            "" if tally.promise == previous else PROMISES[tally.promise],
            tally.what,
            f"{tally.trials:,}",
            f"{tally.failures:,}",
            f"{tally.upper_bound:.2%}",
            tally.told,
        )
        for tally, previous in zip(tallies, before, strict=False)
    ]
