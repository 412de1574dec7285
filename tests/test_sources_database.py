"""Windows in a database: SQLite and a real PostgreSQL."""

import sqlite3

import pandas as pd
import pytest
import sqlalchemy as sa

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import ConfigError, NotAssessed, ServiceError, WindowError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
from tests.services import COLUMNS, DAY, postgres_address, traffic

__all__ = ["postgres_address"]  # a fixture

CANARY = "canary-password"


def read(columns=COLUMNS, interval=DAY, max_rows=1_000, **settings):
    """Read a window with the settings that most tests need."""
    source = SourceSettings(**{"timestamp": "served_at", **settings})
    return read_window(source, interval, columns, max_rows=max_rows, seed=0)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path, monkeypatch):
    """An empty database, named by the environment variable `SERVED_URL`."""
    address = f"sqlite:///{tmp_path}/served.db"
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_address")
    monkeypatch.setenv("SERVED_URL", address)
    engine = sa.create_engine(address)
    yield engine
    metadata = sa.MetaData()
    metadata.reflect(engine)
    metadata.drop_all(engine)
    engine.dispose()


def put(rows, table, database):
    """Write rows to a table; SQLite has no type for moments, and keeps them as ISO text."""
    if database.dialect.name == "sqlite":
        rows = rows.assign(served_at=rows["served_at"].map(str))
    rows.to_sql(table, database, index=False)


def expected(tmp_path, rows, **settings):
    """The window of the same rows in a Parquet file."""
    rows.to_parquet(tmp_path / "expected.parquet")
    return read(path=str(tmp_path / "expected.parquet"), **settings)


def test_a_table_is_a_window(database, tmp_path):
    """A table gives what a file of the same rows gives, digest and sample alike."""
    rows = traffic(1_000, every="3min")
    put(rows, "served", database)

    window = read(table="served", url_env="SERVED_URL", key="request", label="class", max_rows=90)

    alike = expected(tmp_path, rows, key="request", label="class", max_rows=90)
    assert (window.rows, window.digest) == (480, alike.digest)
    pd.testing.assert_frame_equal(window.sample, alike.sample)
    pd.testing.assert_series_equal(window.keys, alike.keys)
    pd.testing.assert_series_equal(window.labels, alike.labels)


def test_gaps_arrive_as_gaps(database, tmp_path):
    """Missing values of every kind mean the same in a database and in a file."""
    rows = traffic(100).astype({"visits": "Int64", "member": "boolean"})
    for name in ("amount", "visits", "country", "member"):
        rows.loc[rows["request"] % 7 == len(name) % 7, name] = None
    put(rows, "served", database)

    window = read(table="served", url_env="SERVED_URL")

    assert window.digest == expected(tmp_path, rows).digest
    assert window.sample.isna().sum().gt(0).all()


def test_times_without_a_zone(database, tmp_path):
    """Local times are read with `timezone:`, and refused without."""
    rows = traffic(400)
    local = rows.assign(
        served_at=rows["served_at"].dt.tz_convert("Europe/Zurich").dt.tz_localize(None)
    )
    put(local, "served", database)
    place = {"table": "served", "url_env": "SERVED_URL"}

    with pytest.raises(WindowError, match="Set `timezone:`"):
        read(**place)
    window = read(**place, timezone="Europe/Zurich")

    assert (window.rows, window.digest) == (360, expected(tmp_path, rows).digest)


def test_a_query_is_a_window(database):
    """A SELECT statement is read like a table, with the bounds as parameters if it asks."""
    rows = traffic(800)
    put(rows, "served", database)
    place = {"url_env": "SERVED_URL", "key": "request"}
    table = read(table="served", **place)

    for query in (
        "SELECT * FROM served",
        "SELECT served_at, request, amount, visits, country, member FROM served "
        "WHERE served_at >= :start AND served_at < :end;",
        "WITH recent AS (SELECT * FROM served) SELECT * FROM recent",
    ):
        assert read(query=query, **place).digest == table.digest


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM served",
        "SELECT 1; DELETE FROM served",
        "DROP TABLE served",
        "WITH gone AS (DELETE FROM served RETURNING *) SELECT * FROM gone",
    ],
)
def test_a_query_only_reads(database, query):
    """No statement of the monitor can change the source."""
    put(traffic(10), "served", database)

    with pytest.raises((ConfigError, WindowError, ServiceError)):
        read(query=query, url_env="SERVED_URL")

    with database.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM served")).scalar() == 10


@pytest.mark.parametrize(
    "name", ["served; DROP TABLE served", 'served" --', "served' OR '1'='1", "ser\u2019ved"]
)
def test_names_are_looked_up_not_pasted(database, name):
    """A hostile table or column name is a name that does not exist."""
    put(traffic(10), "served", database)

    with pytest.raises(WindowError, match="has no table"):
        read(table=name, url_env="SERVED_URL")
    with pytest.raises(WindowError, match="lacks 1 column"):
        read([Column(name, "float")], table="served", url_env="SERVED_URL")
    with pytest.raises(WindowError, match="lacks 1 column"):
        read(table="served", url_env="SERVED_URL", timestamp=name)
    assert read(table="served", url_env="SERVED_URL").rows == 10


def test_odd_names_that_exist_are_read(database):
    """Quotes, blanks and capitals in names are quoted by the dialect."""
    odd = 'Am"ount; --'
    put(traffic(10).rename(columns={"amount": odd}), "Served Rows", database)

    window = read([Column(odd, "float")], table="Served Rows", url_env="SERVED_URL")

    assert list(window.sample) == [odd]


def test_missing_names_offer_the_nearest(database):
    """A misspelt table or column is an error that offers what was meant."""
    put(traffic(10), "served", database)

    with pytest.raises(WindowError, match="Did you mean 'served'") as refusal:
        read(table="serverd", url_env="SERVED_URL")
    assert refusal.value.code == "missing_table"
    with pytest.raises(WindowError, match="'amount' looks like 'Amount'"):
        read([Column("Amount", "float")], table="served", url_env="SERVED_URL")
    with pytest.raises(WindowError, match="refused to read the result of `query:`"):
        read(query="SELECT * FROM absent", url_env="SERVED_URL")


def test_an_empty_table_or_window_is_an_outcome(database):
    """No rows at all, or none in the window, is named and not judged."""
    put(traffic(0), "idle", database)
    put(traffic(10), "served", database)

    for table, day in (("idle", "2026-01-05"), ("served", "2026-02-01")):
        with pytest.raises(NotAssessed, match="no rows") as outcome:
            read(table=table, url_env="SERVED_URL", interval=Interval.day(day))
        assert outcome.value.code == "empty_window"


def test_epoch_numbers_are_refused(database):
    """Numbers do not say whether they are seconds; examples are shown."""
    for table, epoch in (("numbers", 1_767_571_200), ("texts", "1767571200")):
        traffic(10).assign(served_at=epoch).to_sql(table, database, index=False)

        with pytest.raises(WindowError, match=r"10 values of type .* like '?1767571200"):
            read(table=table, url_env="SERVED_URL")


SPELLINGS = {
    "dd.mm.yyyy": lambda time: f"{time:%d.%m.%Y %H:%M}",
    "epoch text": lambda time: str(int(time.timestamp())),
    "compact ISO": lambda time: f"{time:%Y%m%dT%H%M%SZ}",
    "leading blank": lambda time: f" {time.isoformat()}",
    "month by name": lambda time: f"{time:%b %d %Y %H:%M}",
    "other separators": lambda time: f"{time:%Y/%m/%d %H:%M}",
    "letter for zero": lambda time: time.isoformat().replace("202", "2O2"),
    "other digits": lambda time: time.isoformat().translate({48 + n: 0x660 + n for n in range(10)}),
    "week date": lambda time: f"{time:%G-W%V-%u}",
    "empty": lambda time: "",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("first", [3, 24])
def test_text_times_of_mixed_form_are_refused(database, spelling, first):
    """A table that changes its form of timestamps is refused as files are: no row is lost."""
    rows = traffic(48, every="30min")
    written = [
        time.isoformat() if row < first else spelling(time)
        for row, time in enumerate(rows["served_at"])
    ]
    rows.assign(served_at=written).to_sql("served", database, index=False)

    with pytest.raises(WindowError, match=r"but .* cannot be read as such") as error:
        read(table="served", url_env="SERVED_URL")

    assert error.value.code == "bad_timestamp"


def test_one_odd_text_time_far_away_is_refused(database):
    """One value of another form among many days is noticed, and shown."""
    rows = traffic(2_000, start="2025-12-01", every="1h")
    texts = rows["served_at"].map(lambda time: time.isoformat())
    texts.iloc[1_999] = "05.01.2026 12:00"
    rows.assign(served_at=texts).to_sql("served", database, index=False)

    with pytest.raises(WindowError, match=r"1 value of type string .* like '05.01.2026 12:00'"):
        read(table="served", url_env="SERVED_URL")
    with pytest.raises(WindowError, match=r"like '05.01.2026 12:00'"):
        read(query="SELECT * FROM served", url_env="SERVED_URL")


def test_spellings_of_iso_may_be_mixed(database):
    """Days alone, blanks, fractions and offsets sort by time, and none of their rows is lost."""
    times = [
        *("2026-01-05", "2026-01-05 00:30", "2026-01-05T00:30:00.123456Z"),
        *("2026-01-05T23:30:00-00:30", "2026-01-06T00:30:00+01:00", "2026-01-04T23:30:00-01"),
        *("2026-01-06", "2026-01-04T23:59:59Z", "1999-12-31"),
    ]
    rows = traffic(len(times)).assign(served_at=times)
    rows.to_sql("served", database, index=False)

    assert read(table="served", url_env="SERVED_URL", timezone="UTC").rows == 5


@pytest.mark.parametrize("kind", ["DATETIME", "TEXT", ""])
@pytest.mark.parametrize("odd", [1_767_571_200, 1_767_571_200.5, b"2026-01-05T12:00:00Z"])
def test_sqlite_numbers_and_bytes_among_text_times(tmp_path, kind, odd):
    """SQLite sorts numbers before and bytes after all text; neither is lost."""
    with sqlite3.connect(tmp_path / "served.db") as connection:
        connection.execute(f"CREATE TABLE served (served_at {kind}, amount REAL)")
        times = [*["2026-01-05T00:00:00Z"] * 5, odd]
        connection.executemany("INSERT INTO served VALUES (?, 1.5)", [(time,) for time in times])

    with pytest.raises(WindowError, match=r"should hold timestamps, but . value"):
        read([Column("amount", "float")], table="served", url=f"sqlite:///{tmp_path}/served.db")


def test_a_look_before_reading(database):
    """`check` sees columns and types, and the first and last row only where an index knows."""
    put(traffic(300), "served", database)
    source = SourceSettings(table="served", url_env="SERVED_URL", timestamp="served_at")

    assert peek(source, COLUMNS).first is None
    (told,) = peek(source.model_copy(update={"label": "knid"}), COLUMNS).findings
    assert "no column 'knid'" in told
    with database.begin() as connection:
        connection.execute(sa.text("CREATE INDEX by_time ON served (served_at)"))
    seen = peek(source, COLUMNS)

    assert list(seen.columns) == list(traffic(1))
    assert (str(seen.first)[:16], str(seen.last)[:16]) == ("2026-01-05 00:00", "2026-01-05 19:56")
    with pytest.raises(WindowError, match="lacks 1 column"):
        peek(source, [Column("absent", "float")])


def test_sqlite_values_of_several_types(tmp_path):
    """SQLite keeps what it is given; the odd values are counted and shown."""
    with sqlite3.connect(tmp_path / "served.db") as connection:
        connection.execute("CREATE TABLE served (served_at TEXT, amount REAL)")
        connection.executemany(
            "INSERT INTO served VALUES ('2026-01-05T00:00:00Z', ?)", [(1.5,), ("n/a",), ("five",)]
        )

    with pytest.raises(WindowError, match=r"2 values .* 'n/a', 'five'"):
        read([Column("amount", "float")], table="served", url=f"sqlite:///{tmp_path}/served.db")


def test_postgres_kinds_of_values(postgres_address, monkeypatch):
    """Numeric, uuid, date and enum columns, a view and a schema are read as what they mean."""
    monkeypatch.setenv("SERVED_URL", postgres_address)
    engine = sa.create_engine(postgres_address)
    statements = [
        "CREATE SCHEMA shop",
        "CREATE TYPE shop.size AS ENUM ('small', 'large')",
        "CREATE TABLE shop.served (at timestamptz, id uuid, price numeric(10, 2), size shop.size)",
        "INSERT INTO shop.served VALUES "
        "('2026-01-05 00:30+00', '00000000-0000-0000-0000-000000000007', 1.25, 'small'), "
        "('2026-01-05 00:30-05', '00000000-0000-0000-0000-000000000008', NULL, 'large')",
        "CREATE VIEW shop.latest AS SELECT * FROM shop.served",
    ]
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    columns = [Column("price", "float"), Column("size", "text")]

    window = read(columns, table="shop.latest", url_env="SERVED_URL", timestamp="at", key="id")

    by_key = window.sample.set_index(window.keys.astype(str).str[-1])
    assert by_key.loc["7"].tolist() == [1.25, "small"]
    assert by_key["price"].isna().sum() == 1
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA shop CASCADE"))
    engine.dispose()


def test_a_broken_connection_may_be_tried_again(postgres_address, monkeypatch):
    """A server that ends the connection while rows stream is a service failure, not bad data."""
    monkeypatch.setenv("SERVED_URL", postgres_address)
    engine = sa.create_engine(postgres_address)
    rows = "SELECT timestamptz '2026-01-05 00:00+00' AS at, n::float AS x FROM series"
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE VIEW series AS SELECT generate_series(1, 300000) AS n"))
        connection.execute(sa.text(f"CREATE TABLE long AS {rows}"))
    source = SourceSettings(table="long", url_env="SERVED_URL", timestamp="at")

    def cut(_):
        with engine.connect() as connection:
            connection.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            )

    with pytest.raises(ServiceError, match="the table long"):
        read_window(source, DAY, [Column("x", "float")], max_rows=100, seed=0, progress=cut)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE long; DROP VIEW series"))
    engine.dispose()


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (f"postgresql+psycopg2://u:{CANARY}@127.0.0.1:1/x", ServiceError, "did not answer"),
        (f"nonsense://u:{CANARY}@host/x", ConfigError, "driver of the database is not installed"),
        (f"u:{CANARY}@host", ConfigError, "address cannot be read"),
        ("", ConfigError, "SERVED_URL of `url_env:` is not set"),
    ],
)
def test_secrets_stay_out_of_messages(monkeypatch, address, error, message):
    """Whatever fails, neither the message nor its causes show the address or the password."""
    monkeypatch.setenv("SERVED_URL", address)

    with pytest.raises(error, match=message) as failure:
        read(table="served", url_env="SERVED_URL")

    cause = failure.value
    while cause is not None:
        assert CANARY not in str(cause)
        assert "u:" not in str(cause)
        cause = cause.__cause__
