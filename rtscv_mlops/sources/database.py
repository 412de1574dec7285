"""Tables and queries of any database that SQLAlchemy reaches, read in batches.

Bounds travel as parameters, and names are checked against the catalogue. No message shows the
address of a server or a password.
"""

import os
import re
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, ServiceError, WindowError
from rtscv_mlops.sources.stream import Batches, Budget, RowStream, batch_rows
from rtscv_mlops.sources.times import Span, sorts_by_time
from rtscv_mlops.text import nearest, redact, shown

QUERY = "the result of `query:`"
SELECT = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
MISSING = re.compile(r"no such (table|column)|does not exist|undefined", re.IGNORECASE)
DAY_PATTERN = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
# By default these drivers wait forever for a server that accepts connections but never answers.
CONNECT_ARGS = {
    name: {"connect_timeout": 30}
    for name in ("postgresql", "postgresql+psycopg2", "postgresql+psycopg", "mysql+pymysql")
}


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or query in an open database: its columns with types, and its name in messages."""

    name: str
    columns: dict[str, str]
    rows: sa.FromClause
    engine: sa.Engine

    @classmethod
    def of_table(cls, engine: sa.Engine, table: str) -> Self:
        """Find a table in the catalogue."""
        schema, _, bare = table.rpartition(".")
        try:
            catalogued = sa.Table(bare, sa.MetaData(), schema=schema or None, autoload_with=engine)
        except exc.NoSuchTableError as error:
            inspector = sa.inspect(engine)
            others = [*inspector.get_table_names(schema or None)]
            others += inspector.get_view_names(schema or None)
            near = nearest(bare, others)
            hint = f"Did you mean {shown(near)}?" if near else f"It has {len(others)} other tables."
            raise WindowError(
                f"The database has no table {shown(table)}. {hint} Correct `table:`.",
                code=Code.MISSING_TABLE,
            ) from error
        columns = {column.name: str(column.type) for column in catalogued.columns}
        # Untyped columns: SQLAlchemy's own types would refuse ISO text in a DATETIME of SQLite.
        untyped = sa.table(bare, *(sa.column(name) for name in columns), schema=schema or None)
        return cls(f"the table {table}", columns, untyped, engine)

    @classmethod
    def of_query(cls, engine: sa.Engine, query: str, span: Span | None) -> Self:
        """Ask the database for the columns of a query."""
        statement = query.strip().removesuffix(";")
        if not SELECT.match(statement) or ";" in statement:
            raise ConfigError("`query:` must be a single SELECT statement.")
        text = sa.text(statement)
        for bound in ("start", "end"):
            if bound in text.compile().params:
                if span is None:
                    raise ConfigError("`query:` uses :start or :end, but is not read by time.")
                # As the column stores times: local if it has no zone, text in SQLite.
                time: datetime = getattr(span.interval, bound)
                if span.zone is not None:
                    time = time.astimezone(ZoneInfo(span.zone)).replace(tzinfo=None)
                is_sqlite = engine.dialect.name == "sqlite"
                text = text.bindparams(**{bound: time.isoformat(" ") if is_sqlite else time})
        with engine.connect() as connection:
            rows = text.columns().subquery("rows")
            probe = sa.select(sa.text("*")).select_from(rows).limit(0)
            columns = list(_read_only(connection).execute(probe).keys())
        named = text.columns(*(sa.column(column) for column in columns)).subquery("rows")
        return cls(QUERY, dict.fromkeys(columns, "unknown"), named, engine)

    def indexed_bounds(self, column: str) -> tuple[Any, Any]:
        """Return the smallest and largest value of a column if an index can answer at once."""
        if not isinstance(self.rows, sa.TableClause):
            return None, None
        indexes = sa.inspect(self.engine).get_indexes(self.rows.name, self.rows.schema)
        if all(index["column_names"][:1] != [column] for index in indexes):
            return None, None
        values = self.rows.c[column]
        with self.engine.connect() as connection:
            smallest, largest = connection.execute(
                sa.select(sa.func.min(values), sa.func.max(values))
            ).one()
        return smallest, largest

    def stream(self, span: Span | None, budget: Budget) -> RowStream:
        """Return the rows as a stream, whose types are known only when rows arrive."""

        def read(columns: Sequence[str]) -> Batches:
            return budget.meter(self._read_batches(columns, span))

        types = dict.fromkeys(self.columns, pa.null())
        return RowStream(self.name, list(self.columns), types, read)

    def _read_batches(self, columns: Sequence[str], span: Span | None) -> Batches:
        statement = sa.select(*(self.rows.c[name] for name in columns))
        size = batch_rows(len(columns))
        options = {"stream_results": True, "yield_per": size}
        with reaching_database(self.name), self.engine.connect() as connection:
            reader = _read_only(connection)
            if span is not None:
                statement = statement.where(*self._conditions(reader, span))
            for rows in reader.execute(statement, execution_options=options).partitions(size):
                arrays = [_to_array(values) for values in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _conditions(
        self, connection: sa.Connection, span: Span
    ) -> tuple[sa.ColumnElement[bool], ...]:
        """Return conditions that may pass too many rows, never too few.

        They compare in the type that the column's values have, so that an index can help.
        """
        column = self.rows.c[span.column]
        some = sa.select(column).where(column.is_not(None)).limit(3)
        examples = [row[0] for row in connection.execute(some)]
        if not examples:
            return (sa.false(),)
        if all(isinstance(value, str) and sorts_by_time(value) for value in examples):
            first, last = span.text_bounds()
            near = sa.and_(column >= first, column < last)
            odd = sa.not_(_starts_with_day(column, connection.dialect.name))
            # Text of another form sorts anywhere. Such rows are read, to be refused and shown.
            if connection.execute(sa.select(column).where(odd).limit(1)).first() is not None:
                return (sa.or_(near, odd),)
            return (near,)
        if not all(isinstance(value, date) for value in examples):
            return ()  # Reading all rows ends in an error that shows these values.
        with_time = isinstance(examples[0], datetime)
        if with_time and examples[0].tzinfo is not None:
            return column >= span.interval.start, column < span.interval.end
        span.require_zone(self.name)
        start, end = span.local_bounds()
        if with_time:
            return column >= start, column <= end
        return column >= start.date(), column <= end.date()


def _starts_with_day(column: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition that a text starts with a day in ISO 8601, and so sorts by time.

    It costs one pass over the column, in functions that every database has.
    """
    if dialect == "sqlite":  # Ten times as fast there. Bytes sort after letters.
        return sa.and_(column.op("GLOB")(DAY_PATTERN), column < "A")
    rest = sa.func.substr(column, 1, len("2026-01-05"))
    for digit in string.digits:
        rest = sa.func.replace(rest, digit, "")
    return sa.and_(column.like("____-__-__%"), rest == "--")


@contextmanager
def open_relation(settings: TableSettings, span: Span | None = None) -> Iterator[Relation]:
    """Open a table or query. The connection pool is closed at the end."""
    engine = _create_engine(settings)
    name = f"the table {settings.table}" if settings.table else QUERY
    try:
        with reaching_database(name):
            if settings.table:
                yield Relation.of_table(engine, settings.table)
            else:
                yield Relation.of_query(engine, settings.query or "", span)
    finally:
        engine.dispose()


@contextmanager
def reaching_database(name: str) -> Iterator[None]:
    """Translate the errors of a database, without its address."""
    try:
        yield
    except exc.DBAPIError as error:
        # `from None`, because the driver's own text may hold the address.
        answered = MISSING.search(str(error.orig))
        if isinstance(error, exc.OperationalError | exc.InterfaceError) and not answered:
            raise ServiceError(
                f"The database did not answer while {name} was read "
                f"({type(error.orig).__name__}). Check that it runs and that the user may "
                "connect; trying again may help."
            ) from None
        if error.connection_invalidated:
            raise ServiceError(
                f"The connection to the database broke while {name} was read. Try again."
            ) from None
        reason = redact(str(error.orig).splitlines()[0], "…")[:200]
        raise WindowError(
            f"The database refused to read {name}: {reason}. Correct the monitor's source."
        ) from None
    except exc.SQLAlchemyError as error:
        raise WindowError(
            f"Reading {name} failed with {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


def _create_engine(settings: TableSettings) -> sa.Engine:
    address = settings.url
    if settings.url_env:
        address = os.environ.get(settings.url_env)
        if not address:
            raise ConfigError(
                f"The environment variable {settings.url_env} of `url_env:` is not set."
            )
    try:
        url = sa.make_url(address or "")
        engine = sa.create_engine(url, connect_args=CONNECT_ARGS.get(url.drivername, {}))
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"The driver of the database is not installed ({error}). Install it."
        ) from None
    except (exc.ArgumentError, ValueError):
        raise ConfigError(
            "The database address cannot be read. Write it like "
            "postgresql+psycopg2://user@host/database."
        ) from None
    # SQLite would create a file that does not exist. Names with a colon are no files.
    file = url.database if engine.dialect.name == "sqlite" else None
    if file and ":" not in file and not Path(file).is_file():
        raise NotAssessed(
            Code.NO_INPUT,
            f"There is no SQLite file {file}. Nothing was created; correct the database's address.",
        )
    return engine


def _read_only(connection: sa.Connection) -> sa.Connection:
    if connection.dialect.name == "postgresql":
        return connection.execution_options(postgresql_readonly=True)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
    return connection


def _to_array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # SQLite allows values of several types in a column. As text, the wrong ones are reported
        # when the column is converted.
        return pa.array([None if value is None else str(value) for value in values], pa.string())
