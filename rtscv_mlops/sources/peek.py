"""A first look at a source for `check`: what is there, without reading the rows.

Knows footers, headers and catalogues; what would cost a pass over the data is left unknown.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.columns import check_alike
from rtscv_mlops.sources.database import Relation, open_relation
from rtscv_mlops.sources.files import Budget, File, find_files
from rtscv_mlops.sources.parquet import check_statistics, parquet_metadata
from rtscv_mlops.sources.read import source_fields
from rtscv_mlops.sources.stream import Piece, open_file, open_rows
from rtscv_mlops.sources.times import Span, place_rows
from rtscv_mlops.text import shown
from rtscv_mlops.window import Column, Interval

# Headers or footers that are read: half of them of the first files by name, half of the last.
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
    """Look at a source; what would stop a run, such as a missing column, is an error here too.

    Of several files, that is so for the last by name; others that cannot be used are findings.
    """
    if source.path is not None:
        return _peek_files(source, columns)
    with open_relation(source, _span(source)) as relation:
        piece = open_rows(relation, None, Budget())
        piece.fields(source_fields(source, columns))
        _check_times(piece, source)
        first, last = _indexed_bounds(relation, source)
        told = tuple(_absent_label(source, relation.columns))
        return Peek(relation.name, relation.columns, first=first, last=last, findings=told)


def _peek_files(source: SourceSettings, columns: Sequence[Column]) -> Peek:
    found = find_files(source)
    newest = open_file(found.files[-1], source, None, Budget())
    newest.fields(source_fields(source, columns))
    _check_times(newest, source)
    faults = [(file, _fault(file, newest, source, columns)) for file in _some(found.files)]
    told = [f"{shown(file.below)} cannot be used: {fault}" for file, fault in faults if fault]
    seen = Peek(
        place=source.path or "",
        columns={name: str(kind) for name, kind in newest.types.items()},
        files=tuple(file.path for file in found.files),
        size=sum(file.size for file in found.files),
        findings=(*found.findings, *told, *_absent_label(source, newest.types)),
    )
    good = [file for file, fault in faults if fault is None]
    return _with_footers(seen, good, source) if good[0].format == "parquet" else seen


def _absent_label(source: SourceSettings, names: Container[str]) -> Iterator[str]:
    """A run does without labels, so that nobody would hear of a misspelt one until `score`."""
    if source.label is not None and source.label not in names:
        yield (
            f"There is no column {shown(source.label)}, which source.label names. Correct it if it "
            "is misspelt; without it `score` has no labels."
        )


def _some(files: Sequence[File]) -> Sequence[File]:
    half = MOST_FOOTERS // 2
    return files if len(files) <= MOST_FOOTERS else [*files[:half], *files[-half:]]


def _span(source: SourceSettings) -> Span:
    some = Interval(LONG_AGO, LONG_AGO + timedelta(days=1))
    return Span(source.timestamp, source.timezone, some)


def _fault(
    file: File, newest: Piece, source: SourceSettings, columns: Sequence[Column]
) -> WindowError | None:
    """Return what a file's header or footer says against using it."""
    needed = [field for field in source_fields(source, columns) if not field.optional]
    try:
        piece = open_file(file, source, None, Budget())
        names = [field.name for field in piece.fields(needed)]
        check_alike(newest.types, piece.types, names, (newest.place, piece.place))
        if file.format == "parquet" and source.timestamp in piece.names:
            check_statistics(file, source.timestamp)
    except WindowError as error:
        return error
    return None


def _check_times(piece: Piece, source: SourceSettings) -> None:
    """Read one batch of timestamps as a run would."""
    if source.timestamp in piece.constants:
        return
    batches = piece.read([source.timestamp])
    batch = next(batches, None)
    if batch is not None:
        place_rows(batch.column(source.timestamp), _span(source), piece.place)


def _with_footers(seen: Peek, files: Sequence[File], source: SourceSettings) -> Peek:
    footers = [parquet_metadata(file) for file in files]
    rows = sum(footer.num_rows for footer in footers)
    share = sum(file.size for file in files) / max(1, seen.size or 0)
    bounds = [bound for footer in footers for bound in _bounds(footer, source.timestamp)]
    return replace(
        seen,
        rows=round(rows / share),
        exact=len(files) == len(seen.files),
        first=min(bounds, default=None),
        last=max(bounds, default=None),
    )


def _bounds(footer: Any, name: str) -> Iterator[Any]:
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    if name not in paths:
        return
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(paths.index(name)).statistics
        if statistics is not None and statistics.has_min_max:
            with suppress(OverflowError):  # Python's years end with 9999; a run refuses such a row
                yield from (statistics.min, statistics.max)


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
