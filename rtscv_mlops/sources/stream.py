"""What every format returns: an open file or query result whose rows stream as Arrow batches."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.sources.columns import SourceColumn, Types, family, infer_types
from rtscv_mlops.text import counted, listed, shown, suggestions

Batches = Generator[pa.RecordBatch, None, None]
"""Rows as they are read. Close it if you do not read it to its end."""
# Values in one batch, over all columns: some 16 MB of numbers.
BATCH_VALUES = 2_000_000


def batch_rows(columns: int) -> int:
    """Return how many rows make a batch of moderate size."""
    return max(1_024, min(32_768, BATCH_VALUES // max(1, columns)))


@dataclass(slots=True)
class Budget:
    """Bytes that a source may unpack to. They are counted as they arrive: headers can lie."""

    allowed: int | None = None
    spent: int = 0

    def spend(self, size: int) -> None:
        """Count bytes; raise an error if they exceed the budget."""
        self.spent += size
        if self.allowed is not None and self.spent > self.allowed:
            raise WindowError(
                f"The rows unpack to more than {self.allowed:,} bytes. If that is right, raise "
                "`max_bytes:`; otherwise look for a damaged or hostile file.",
                code=Code.SIZE_CAP,
            )

    def meter(self, batches: Iterator[pa.RecordBatch]) -> Batches:
        """Pass batches on and count their bytes."""
        for batch in batches:
            self.spend(sum(_unpacked_size(column) for column in batch.columns))
            yield batch


def _unpacked_size(column: pa.Array) -> int:
    """Return the bytes of a column if each row of a dictionary held its own copy of the text."""
    size: int = column.nbytes
    if kinds.is_dictionary(column.type) and family(column.type) == "text":
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).to_numpy()
        size += int(lengths[column.indices.drop_null().to_numpy()].sum(dtype="int64"))
    return size


class Summary(NamedTuple):
    """Row count, and bounds of a column's row groups, from metadata alone."""

    rows: int
    bounds: list[Any]


@dataclass(frozen=True, slots=True)
class RowStream:
    """An open file or query result. Its rows are read together or not at all.

    To add a format, write a function that returns one of these, and add it to `read.FORMATS`.

    Attributes
    ----------
    name
        What messages call it, such as `the file /data/a.csv`.
    columns
        Column names as stored; they may repeat.
    types
        Arrow type by column name, constants included. `pa.null()` if unknown before reading.
    read
        Returns the batches of the named columns.
    constants
        Columns whose only value comes from a folder name such as `date=2026-01-05`.
    hint
        Added to the message about missing columns.
    untyped
        True if every value is text because the format has no types.
    summarize
        Summarizes a column without reading its rows. None if the format has no such metadata.
    """

    name: str
    columns: Sequence[str]
    types: Types
    read: Callable[[Sequence[str]], Batches]
    constants: Mapping[str, str | None] = field(default_factory=dict)
    hint: str = ""
    untyped: bool = False
    summarize: Callable[[str], Summary] | None = None

    def find(self, wanted: Sequence[SourceColumn]) -> list[SourceColumn]:
        """Return the wanted columns that exist here.

        A repeated, nameless or missing column is an error.
        """
        self._check_names()
        missing = [
            column.name
            for column in wanted
            if column.name not in self.types and not column.optional
        ]
        if missing:
            raise WindowError(
                f"{self.name} lacks {counted(len(missing), 'column')} that the monitor needs: "
                f"{listed(missing)}.{suggestions(missing, list(self.types))} It has: "
                f"{listed(self.types)}.{self.hint} Correct the names in the source or in the "
                "monitor.",
                code=Code.MISSING_COLUMNS,
            )
        return [column for column in wanted if column.name in self.types]

    def check_alike(self, other: "RowStream", columns: Iterable[str]) -> None:
        """Refuse another file of the source whose columns have a different meaning."""
        differences = []
        for column in columns:
            if (column in self.types) != (column in other.types):
                verb = "has" if column in other.types else "lacks"
                differences.append(f"{verb} {shown(column)}")
            elif column in self.types:
                expected, actual = family(self.types[column]), family(other.types[column])
                if len({expected, actual} - {"nothing"}) > 1:
                    differences.append(f"{shown(column)} holds {actual}, not {expected}")
        if differences:
            raise WindowError(
                f"{other.name} does not match {self.name}, a file of the same source: it "
                f"{'; '.join(differences[:5])}. Write both in the same way, or narrow the path.",
                code=Code.MIXED_SCHEMAS,
            )

    def read_table(self) -> pd.DataFrame:
        """Return all rows in their order. Types are as stored, or inferred if there are none."""
        self._check_names()
        batches = list(self.read(self.columns))
        if not batches:
            return pd.DataFrame(columns=list(self.columns))
        table = pa.Table.from_batches(batches)
        if self.untyped:
            return infer_types(table)
        # Batches encode all text by dictionaries, but only stored ones are pandas' categories.
        fields = [pa.field(name, self.types[name]) for name in self.columns]
        frame: pd.DataFrame = table.cast(pa.schema(fields, table.schema.metadata)).to_pandas()
        return frame

    def _check_names(self) -> None:
        """Refuse repeated and empty column names."""
        repeated = [column for column, times in Counter(self.columns).items() if times > 1]
        if repeated:
            raise WindowError(
                f"{self.name} has more than one column called {listed(repeated)}, so the name is "
                "ambiguous. Rename them where the data is written."
            )
        nameless = [index for index, column in enumerate(self.columns, 1) if not column.strip()]
        if nameless:
            raise WindowError(
                f"Column {nameless[0]} of {self.name} has no name. If it is an index that pandas "
                "wrote, write with index=False; otherwise name it."
            )
