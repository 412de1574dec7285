"""The table of `make faults`, on the screen and in docs/reliability.md."""

import re
from pathlib import Path

from rich.table import Table

from benchmarks.faults.tally import PROMISES, Tally
from benchmarks.paper import markdown

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BLOCK = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- /faults -->)", flags=re.DOTALL)
HEADER = ("Promise", "Experiment", "Trials", "Failures", "95 % upper bound", "Remarks")


def show(tallies: list[Tally]) -> Table:
    """Return the table for a terminal."""
    table = Table(*HEADER)
    for row in _rows(tallies):
        table.add_row(*row)
    return table


def write(tallies: list[Tally], protocol: str, page: Path = PAGE) -> None:
    """Put the table into the page, between its marks; without a page nothing is done."""
    if not page.exists():
        return
    block = f"{protocol}\n\n{markdown.table(HEADER, _rows(tallies))}\n"
    page.write_text(BLOCK.sub(lambda _: block, page.read_text()))


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
