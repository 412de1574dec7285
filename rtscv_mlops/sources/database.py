"""Tables and queries of any database that SQLAlchemy reaches, read in batches.

Knows SQL and connections; knows nothing of windows and samples. Bounds travel as parameters,
names are checked against the catalogue, and no address or password is ever part of a message.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    NoSuchTableError,
    OperationalError,
    SQLAlchemyError,
)

from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.errors import Code, ConfigError, ServiceError, WindowError
from rtscv_mlops.sources.parquet import batch_rows
from rtscv_mlops.sources.times import Span, is_written_clearly
from rtscv_mlops.text import nearest, shown

SELECT = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
MISSING = re.compile(r"no such (table|column)|does not exist|undefined", re.IGNORECASE)
# What drivers quote of an address: its user and password, or one of its parameters.
LOGIN = re.compile(r"(?<=://)[^/\s]*@|(?<=password=)\S+", re.IGNORECASE)

PATIENCE = {
    name: {"connect_timeout": 30}
    for name in ("postgresql", "postgresql+psycopg2", "postgresql+psycopg", "mysql+pymysql")
}
"""Drivers that otherwise wait for ever for a server that takes the call and says nothing."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or query that was found, its columns, and how messages call it."""

    name: str
    columns: dict[str, str]
    rows: sa.FromClause
    engine: sa.Engine


@contextmanager
def open_relation(settings: TableSettings, span: Span | None = None) -> Iterator[Relation]:
    """Find a table or query; the connection pool is closed at the end."""
    engine = _engine(settings)
    name = f"the table {settings.table}" if settings.table else "the result of `query:`"
    try:
        with reaching_database(name):
            if settings.table:
                yield _table(engine, settings.table, name)
            else:
                yield _query(engine, settings.query or "", name, span)
    finally:
        engine.dispose()


@contextmanager
def reaching_database(name: str) -> Iterator[None]:
    """Name the failures of a database, without its address."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        if MISSING.search(str(error.orig)):
            raise _refused(name, error) from None
        raise ServiceError(
            f"The database did not answer while {name} was read ({type(error.orig).__name__}). "
            "Check that it runs and that the user may connect; trying again may help."
        ) from None  # the driver's own text may hold the address
    except DBAPIError as error:
        if error.connection_invalidated:
            raise ServiceError(
                f"The connection to the database broke while {name} was read. Try again."
            ) from None
        raise _refused(name, error) from None
    except SQLAlchemyError as error:
        raise WindowError(
            f"Reading {name} failed with {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


def relation_batches(
    relation: Relation, names: Sequence[str], span: Span | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows as they arrive; those outside the span are left out as far as is safe."""
    statement = sa.select(*(relation.rows.c[name] for name in names))
    size = batch_rows(len(names))
    options = {"stream_results": True, "yield_per": size}
    with reaching_database(relation.name), relation.engine.connect() as connection:
        reader = _read_only(connection)
        if span is not None:
            statement = statement.where(*_bounds(reader, relation, span))
        result = reader.execute(statement, execution_options=options)
        for rows in result.partitions(size):
            yield _batch(names, rows)


def _engine(settings: TableSettings) -> sa.Engine:
    address = settings.url
    if settings.url_env:
        address = os.environ.get(settings.url_env)
        if not address:
            raise ConfigError(
                f"The environment variable {settings.url_env} of `url_env:` is not set."
            )
    try:
        drivername = sa.make_url(address or "").drivername
        return sa.create_engine(address or "", connect_args=PATIENCE.get(drivername, {}))
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"The driver of the database is not installed ({error}). Install it."
        ) from None
    except (ArgumentError, ValueError):
        raise ConfigError(
            "The database address cannot be read. Write it like "
            "postgresql+psycopg2://user@host/database."
        ) from None


def _table(engine: sa.Engine, table: str, name: str) -> Relation:
    schema, _, bare = table.rpartition(".")
    try:
        found = sa.Table(bare, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except NoSuchTableError as error:
        inspector = sa.inspect(engine)
        others = [*inspector.get_table_names(schema or None)]
        others += inspector.get_view_names(schema or None)
        near = nearest(bare, others)
        hint = f"Did you mean {shown(near)}?" if near else f"It has {len(others)} other tables."
        raise WindowError(
            f"The database has no table {shown(table)}. {hint} Correct `table:`.",
            code=Code.MISSING_TABLE,
        ) from error
    # The driver's own values are wanted: SQLAlchemy would refuse ISO text in a DATETIME of SQLite.
    columns = {column.name: str(column.type) for column in found.columns}
    plain = sa.table(bare, *(sa.column(name) for name in columns), schema=schema or None)
    return Relation(name, columns, plain, engine)


def _query(engine: sa.Engine, query: str, name: str, span: Span | None) -> Relation:
    statement = query.strip().removesuffix(";")
    if not SELECT.match(statement) or ";" in statement:
        raise ConfigError("`query:` must be one SELECT statement; it is only ever read from.")
    text = _with_bounds(sa.text(statement), engine, span)
    with engine.connect() as connection:
        rows = text.columns().subquery("rows")
        probe = sa.select(sa.text("*")).select_from(rows).limit(0)
        columns = list(_read_only(connection).execute(probe).keys())
    named = text.columns(*(sa.column(column) for column in columns)).subquery("rows")
    return Relation(name, dict.fromkeys(columns, "unknown"), named, engine)


def _with_bounds(text: sa.TextClause, engine: sa.Engine, span: Span | None) -> sa.TextClause:
    names = {name for name in ("start", "end") if name in text.compile().params}
    if not names:
        return text
    if span is None:
        raise ConfigError("`query:` uses :start or :end, but is not read by time.")
    return text.bindparams(
        **{name: _written(getattr(span.interval, name), engine, span) for name in names}
    )


def _written(moment: datetime, engine: sa.Engine, span: Span) -> datetime | str:
    """Write a bound as the column is written: local if it has no zone, text in SQLite."""
    if span.zone is not None:
        moment = moment.astimezone(ZoneInfo(span.zone)).replace(tzinfo=None)
    return moment.isoformat(" ") if engine.dialect.name == "sqlite" else moment


def _read_only(connection: sa.Connection) -> sa.Connection:
    if connection.dialect.name == "postgresql":
        return connection.execution_options(postgresql_readonly=True)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
    return connection


def _bounds(
    connection: sa.Connection, relation: Relation, span: Span
) -> tuple[sa.ColumnElement[bool], ...]:
    """Return conditions never narrower than the interval, in the writing that the column has."""
    column = relation.rows.c[span.column]
    some = sa.select(column).where(column.is_not(None)).limit(3)
    examples = [row[0] for row in connection.execute(some)]
    if not examples:
        return (sa.false(),)
    if all(isinstance(value, str) and is_written_clearly(value) for value in examples):
        start, end = span.text_bounds()
        return column >= start, column < end
    if not all(isinstance(value, date) for value in examples):
        return ()  # reading on names these values in its error
    if not isinstance(examples[0], datetime):
        return _local_bounds(column, span, relation.name, as_date=True)
    if examples[0].tzinfo is None:
        return _local_bounds(column, span, relation.name, as_date=False)
    return column >= span.interval.start, column < span.interval.end


def _local_bounds(
    column: sa.ColumnElement[Any], span: Span, name: str, *, as_date: bool
) -> tuple[sa.ColumnElement[bool], ...]:
    span.need_zone(name)
    start, end = span.local_bounds()
    if as_date:
        return column >= start.date(), column <= end.date()
    return column >= start, column <= end


def _batch(names: Sequence[str], rows: Sequence[sa.Row[Any]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    return pa.RecordBatch.from_arrays([_array(values) for values in columns], names=list(names))


def _array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Values of several types, as SQLite allows: as text, the odd ones are named later.
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _refused(name: str, error: DBAPIError) -> WindowError:
    reason = LOGIN.sub("…", str(error.orig).splitlines()[0])[:200]
    return WindowError(
        f"The database refused to read {name}: {reason}. Correct the monitor's source."
    )
