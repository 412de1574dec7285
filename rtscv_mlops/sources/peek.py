"""A first look at a source for `check`: what is there, without reading the rows.

Knows footers, headers and catalogues; what would cost a pass over the data is left unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from rtscv_mlops.config import SourceSettings
from rtscv_mlops.sources.budget import Budget
from rtscv_mlops.sources.columns import present
from rtscv_mlops.sources.database import Relation, open_relation
from rtscv_mlops.sources.files import File, find_files
from rtscv_mlops.sources.parquet import parquet_metadata
from rtscv_mlops.sources.pieces import Piece, open_file, open_rows
from rtscv_mlops.sources.times import Span, place_rows
from rtscv_mlops.sources.windows import source_fields
from rtscv_mlops.window import Column, Interval

# Footers that are read: half of them from the first files by name, half from the last.
MOST_FOOTERS = 20
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Peek:
    """What a source holds, as far as that is known without reading its rows.

    `columns` are names and types as the source calls them. `rows` is estimated where `exact` is
    false. `first` and `last` are those of the files looked at, as they are written. Each is None
    where knowing it would mean reading everything.
    """

    place: str
    columns: dict[str, str]
    files: tuple[str, ...] = ()
    size: int | None = None
    rows: int | None = None
    exact: bool = False
    first: date | str | None = None
    last: date | str | None = None
    findings: tuple[str, ...] = ()


def peek(source: SourceSettings, columns: Sequence[Column] = ()) -> Peek:
    """Look at a source; what would stop a run, such as a missing column, is an error here too."""
    if source.path is not None:
        return _peek_files(source, columns)
    with open_relation(source, _span(source)) as relation:
        _check(open_rows(relation, None, Budget()), source, columns)
        first, last = _indexed_bounds(relation, source)
        return Peek(relation.name, relation.columns, first=first, last=last)


def _peek_files(source: SourceSettings, columns: Sequence[Column]) -> Peek:
    found = find_files(source)
    piece = open_file(found.files[0], source, None, Budget())
    _check(piece, source, columns)
    seen = Peek(
        place=source.path or "",
        columns={name: str(kind) for name, kind in piece.types.items()},
        files=tuple(file.path for file in found.files),
        size=sum(file.size for file in found.files),
        findings=found.findings,
    )
    return _with_footers(seen, found.files, source) if found.files[0].format == "parquet" else seen


def _span(source: SourceSettings) -> Span:
    some = Interval(LONG_AGO, LONG_AGO + timedelta(days=1))
    return Span(source.timestamp, source.timezone, some)


def _check(piece: Piece, source: SourceSettings, columns: Sequence[Column]) -> None:
    """Find the columns, and read one batch of timestamps as a run would."""
    present(source_fields(source, columns), piece.types, piece.place, piece.hint)
    if source.timestamp in piece.constants:
        return
    batches = piece.read([source.timestamp])
    batch = next(batches, None)
    if batch is not None:
        place_rows(batch.column(source.timestamp), _span(source), piece.place)


def _with_footers(seen: Peek, files: Sequence[File], source: SourceSettings) -> Peek:
    half = MOST_FOOTERS // 2
    some = files if len(files) <= MOST_FOOTERS else [*files[:half], *files[-half:]]
    footers = [parquet_metadata(file) for file in some]
    rows = sum(footer.num_rows for footer in footers)
    share = sum(file.size for file in some) / max(1, seen.size or 0)
    bounds = [bound for footer in footers for bound in _bounds(footer, source.timestamp)]
    return replace(
        seen,
        rows=round(rows / share),
        exact=len(some) == len(files),
        first=min(bounds, default=None),
        last=max(bounds, default=None),
    )


def _bounds(footer: Any, name: str) -> Iterator[Any]:
    names = footer.schema.to_arrow_schema().names
    if name not in names:
        return
    for group in range(footer.num_row_groups):
        statistics = _statistics(footer.row_group(group), name)
        if statistics is not None and statistics.has_min_max:
            yield from (statistics.min, statistics.max)


def _statistics(group: Any, name: str) -> Any:
    chunks = (group.column(at) for at in range(group.num_columns))
    return next((chunk.statistics for chunk in chunks if chunk.path_in_schema == name), None)


def _indexed_bounds(relation: Relation, source: SourceSettings) -> tuple[Any, Any]:
    """Ask for the first and last timestamp only where an index answers at once."""
    if source.table is None:
        return None, None
    schema, _, bare = source.table.rpartition(".")
    indexes = sa.inspect(relation.engine).get_indexes(bare, schema or None)
    if all(index["column_names"][:1] != [source.timestamp] for index in indexes):
        return None, None
    column = relation.rows.c[source.timestamp]
    with relation.engine.connect() as connection:
        first, last = connection.execute(sa.select(sa.func.min(column), sa.func.max(column))).one()
    return first, last
