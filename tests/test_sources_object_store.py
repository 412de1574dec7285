"""Windows in an object store, against a real S3 protocol server.

`gs://` and `abfs://` go the same way through fsspec, and are not tested for want of a server.
"""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import ConfigError, NotAssessed, ServiceError, WindowError
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.sources.read import read_window
from tests.services import (
    COLUMNS,
    DAY,
    STORE_OPTIONS,
    STORE_SECRET,
    object_store,
    object_store_address,
    traffic,
)

__all__ = ["object_store", "object_store_address"]  # fixtures


def source(path, **settings):
    """Settings of a source in the store."""
    given = {"storage_options": STORE_OPTIONS, **settings}
    return SourceSettings(path=path, timestamp="served_at", key="request", **given)


def read(path, *, progress=None, **settings):
    """Read the window of `DAY`."""
    return read_window(
        source(path, **settings), DAY, COLUMNS, max_rows=80, seed=0, progress=progress
    )


def upload(store, path, rows):
    with store.open(path, "wb") as stream:
        rows.to_csv(stream, index=False) if ".csv" in path else rows.to_parquet(stream)


@pytest.mark.parametrize(
    "path",
    [
        "s3://served/one/a.parquet",
        "s3://served/parts",
        "s3://served/parts/*.parquet",
        "s3://served/hive",
        "s3://served/text/a.csv",
    ],
)
def test_the_window_is_the_same_as_from_a_local_file(object_store, tmp_path, path):
    """A file, a folder, a glob, partitions and CSV give the rows, digest and sample of a file."""
    rows = traffic()
    upload(object_store, "served/one/a.parquet", rows)
    for part in range(3):
        upload(object_store, f"served/parts/{part}.parquet", rows.iloc[part::3])
    upload(object_store, "served/text/a.csv", rows)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    pq.write_to_dataset(
        table, "served/hive", partition_cols=["country", "member"], filesystem=object_store
    )
    rows.to_parquet(tmp_path / "a.parquet")

    window = read(path)

    local = read(str(tmp_path / "a.parquet"), storage_options={})
    assert (window.rows, window.digest) == (300, local.digest)
    pd.testing.assert_frame_equal(window.sample, local.sample)


def test_a_key_or_bucket_that_is_not_there(object_store):
    """Nothing to read is an outcome that names the address."""
    for path in ("s3://served/absent.parquet", "s3://served/absent/*", "s3://absent/a.parquet"):
        with pytest.raises(NotAssessed, match=path.replace("*", r"\*")) as outcome:
            read(path)
        assert outcome.value.code == "no_input"


def test_a_store_that_does_not_answer(monkeypatch):
    """A silent store is a service failure; its secret is in no message."""
    monkeypatch.setenv("TEST_STORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TEST_STORE_SECRET", STORE_SECRET)
    monkeypatch.setenv("TEST_STORE_KEY", "tester")

    with pytest.raises(ServiceError, match=r"Reading s3://served/a.parquet failed") as failure:
        read("s3://served/a.parquet")

    assert STORE_SECRET not in f"{failure.value} {failure.value.__cause__}"


def test_options_that_name_no_variable(monkeypatch):
    """An option from the environment that is not set is a mistake of the settings."""
    monkeypatch.delenv("TEST_STORE_URL", raising=False)

    with pytest.raises(ConfigError, match="TEST_STORE_URL, which is not set"):
        read("s3://served/a.parquet")


def test_options_that_the_store_does_not_know(object_store):
    """A misspelt option is named as the settings' fault."""
    with pytest.raises((ConfigError, ServiceError), match=r"storage_options|s3://"):
        read("s3://served/a.parquet", storage_options={"endpoint": "http://127.0.0.1:1"})


def test_an_object_that_changes_while_it_is_read(object_store):
    """The tag of an object before and after must be the same."""
    upload(object_store, "served/a.parquet", traffic(10))

    with pytest.raises(ServiceError, match="changed while it was read"):
        read(
            "s3://served/a.parquet",
            progress=lambda _: upload(object_store, "served/a.parquet", traffic(11)),
        )


@pytest.mark.parametrize("path", ["", "/orders", "/orders/data", "/orders/*/*.parquet"])
@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        ("metadata/v1.metadata.json", "Apache Iceberg"),
        (".hoodie/hoodie.properties", "Apache Hudi"),
    ],
)
def test_the_objects_of_a_table_are_not_read_as_loose_files(object_store, path, log, kind):
    """In a store too, no path into or around a table is read."""
    upload(object_store, "served/orders/data/a.parquet", traffic(10))
    object_store.pipe(f"served/orders/{log}", b"{}")

    with pytest.raises(WindowError, match=f"served/orders is a table of {kind}") as refusal:
        read(f"s3://served{path}")

    assert refusal.value.code == "table_format"


def test_a_damaged_object_is_bad_data(object_store):
    """What arrives but cannot be decoded is not blamed on the store."""
    upload(object_store, "served/a.parquet", traffic(100))
    content = bytearray(object_store.cat("served/a.parquet"))
    content[4:300] = b"\xff" * 296
    object_store.pipe("served/a.parquet", bytes(content))

    with pytest.raises(WindowError, match=r"a.parquet cannot be read as Parquet"):
        read("s3://served/a.parquet")


def test_a_look_before_reading(object_store):
    """`check` tells what is in the store from listings and footers."""
    for part in range(3):
        upload(object_store, f"served/parts/{part}.parquet", traffic(100))

    seen = peek(source("s3://served/parts"), COLUMNS)

    assert (len(seen.files), seen.rows, seen.exact) == (3, 300, True)
    assert seen.columns["country"] in {"string", "large_string"}
    assert str(seen.first) == "2026-01-05 00:00:00+00:00"
