"""Rows that are read together or not at all: one file, or the result of one statement.

Knows the formats; knows nothing of what the rows are for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.config import TableSettings
from rtscv_mlops.sources.budget import Budget
from rtscv_mlops.sources.columns import Field, Types, check_names, family, present
from rtscv_mlops.sources.database import Relation, relation_batches
from rtscv_mlops.sources.delimited import csv_batches, csv_header, header_hint
from rtscv_mlops.sources.files import File
from rtscv_mlops.sources.parquet import check_statistics, open_parquet, parquet_batches
from rtscv_mlops.sources.times import Span, pushed_filter

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a piece is called and has, and how its columns are read.

    `names` are its columns as they stand there, and may repeat. `constants` are columns that only
    the folder's name holds; an `untyped` piece is all text.
    """

    place: str
    names: Sequence[str]
    types: Types
    read: Callable[[Sequence[str]], Batches]
    constants: Mapping[str, str | None] = field(default_factory=dict)
    hint: str = ""
    untyped: bool = False

    def fields(self, wanted: Sequence[Field]) -> list[Field]:
        """Return the fields that this piece has; doubled, nameless or missing ones are errors."""
        check_names(self.names, self.place)
        return present(wanted, self.types, self.place, self.hint)


def open_file(file: File, settings: TableSettings, span: Span | None, budget: Budget) -> Piece:
    """Return a file as a piece."""
    if file.format == "csv":
        return _open_csv(file, settings, budget)
    return _open_parquet(file, span, budget)


def open_rows(relation: Relation, span: Span | None, budget: Budget) -> Piece:
    """Return a table or query as a piece; its types are known when its rows arrive."""

    def read(names: Sequence[str]) -> Batches:
        return _metered(relation_batches(relation, names, span), budget)

    types = dict.fromkeys(relation.columns, pa.null())
    return Piece(relation.name, list(relation.columns), types, read)


def _open_csv(file: File, settings: TableSettings, budget: Budget) -> Piece:
    header = csv_header(file, settings.csv)

    def read(names: Sequence[str]) -> Batches:
        return csv_batches(file, names, settings.csv, budget)

    types = dict.fromkeys([*file.partitions, *header], pa.string())
    hint = header_hint(header, settings.csv)
    return Piece(file.name, header, types, read, _constants(file, header), hint, untyped=True)


def _open_parquet(file: File, span: Span | None, budget: Budget) -> Piece:
    fragment = open_parquet(file)
    schema = fragment.physical_schema
    names: list[str] = schema.names
    stored = dict(zip(names, schema.types, strict=True))
    timed = span is not None and span.column in stored
    condition = pushed_filter(span, stored[span.column], file.name) if span and timed else None
    if span and condition is not None:
        check_statistics(file, span.column)

    def read(columns: Sequence[str]) -> Batches:
        return _metered(parquet_batches(file, fragment, columns, condition), budget)

    types = {**dict.fromkeys(file.partitions, pa.string()), **stored}
    return Piece(file.name, names, types, read, _constants(file, names))


def _constants(file: File, names: Sequence[str]) -> dict[str, str | None]:
    return {name: value for name, value in file.partitions.items() if name not in names}


def _metered(batches: Batches, budget: Budget) -> Batches:
    for batch in batches:
        budget.spend(sum(_unpacked(column) for column in batch.columns))
        yield batch


def _unpacked(column: pa.Array) -> int:
    """Return the bytes of a column, texts counted as often as a dictionary lets them be named."""
    size: int = column.nbytes
    if kinds.is_dictionary(column.type) and family(column.type) == "text":
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).to_numpy()
        size += int(lengths[column.indices.drop_null().to_numpy()].sum(dtype="int64"))
    return size
