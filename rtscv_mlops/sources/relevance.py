"""Files that cannot be used: whether they matter to an interval, and what is told of them.

Knows pieces and moments; knows nothing of what is wrong with a file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config import TableSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.budget import Budget
from rtscv_mlops.sources.files import File
from rtscv_mlops.sources.pieces import Piece, open_file
from rtscv_mlops.sources.times import Span, place_rows
from rtscv_mlops.sources.wording import count, listed


@dataclass(slots=True)
class LeftOut:
    """Files left out: `skipped` though they may have rows, or without rows, `beside` the window."""

    skipped: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    first: WindowError | None = None

    def add(self, file: File, error: WindowError, *, matters: bool) -> None:
        """Note a file and, of the first that matters most, why it cannot be used."""
        if self.first is None or (matters and not self.skipped):
            self.first = error
        (self.skipped if matters else self.beside).append(file.below)

    def findings(self, files: int, *, empty: bool) -> Iterator[str]:
        """Tell what was left out, of so many files; nothing but that is an error."""
        if self.first and not self.skipped and len(self.beside) == files:
            raise self.first  # what all files lack is no fault of a file
        if self.skipped and (empty or len(self.skipped) == files):
            raise WindowError(  # this must not look like a quiet day
                f"No file can be read, of {len(self.skipped)} that may have rows: "
                f"{listed(self.skipped, 3)}. The first error: {self.first}"
            )
        if self.skipped:
            yield (
                f"Skipped {count(len(self.skipped), 'file')} of {files} "
                f"({len(self.skipped) / files:.0%}) that cannot be read: {listed(self.skipped, 3)}."
            )
        if self.beside:
            yield (
                f"Went on without {count(len(self.beside), 'file')}, unusable but without "
                f"rows in this window: {listed(self.beside, 3)}."
            )


def may_matter(file: File, settings: TableSettings, span: Span) -> bool:
    """Tell whether a file may hold rows of the interval; it may unless all its times are read."""
    try:
        piece = open_file(file, settings, span, Budget(settings.max_bytes))
        if [*piece.names, *piece.constants].count(span.column) != 1:
            return True
        placed = (place_rows(times, span, piece.place) for times in _times(piece, span.column))
        return any(pc.any(rows.inside).as_py() for rows in placed)
    except WindowError:
        return True


def _times(piece: Piece, name: str) -> Iterator[pa.Array]:
    if name in piece.constants:
        yield pa.array([piece.constants[name]], pa.string())
        return
    for batch in piece.read([name]):
        yield batch.column(name)
