"""A window of deployment data is the same, wherever and however its rows lie."""

import sqlite3
from datetime import timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import OneHotEncoder

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import ConfigError, NotAssessed
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
from tests.services import COLUMNS, DAY, traffic


def read(path, columns=COLUMNS, interval=DAY, *, max_rows=1_000, seed=0, progress=None, **settings):
    """Read a window of files with the settings that most tests need."""
    source = SourceSettings(path=str(path), **{"timestamp": "served_at", **settings})
    return read_window(source, interval, columns, max_rows=max_rows, seed=seed, progress=progress)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows sorted by their values."""
    return frame.sort_values(list(frame.columns), ignore_index=True)


def test_the_sample_is_the_window_as_the_model_wants_it(tmp_path):
    """All rows of a small window arrive, with the model's columns in its order and types."""
    rows = traffic()
    rows.sample(frac=1, random_state=0)[rows.columns[::-1]].to_parquet(tmp_path / "a.parquet")

    window = read(tmp_path / "a.parquet", key="request", label="class")

    names = [column.name for column in COLUMNS]
    assert window.rows == len(window.sample) == 300
    pd.testing.assert_frame_equal(in_order(window.sample), in_order(rows[names]))
    by_request = rows.set_index("request").loc[window.keys]
    assert (by_request["amount"].to_numpy() == window.sample["amount"].to_numpy()).all()
    assert (by_request["class"].to_numpy() == window.labels.to_numpy()).all()
    assert (window.keys.name, window.labels.name) == ("request", "class")


def write_parts(rows, folder):
    for part in range(3):
        rows.iloc[part::3].to_parquet(folder / f"{part}.parquet", index=False)
    return {"path": str(folder)}


def write_row_groups(rows, folder):
    rows[::-1].to_parquet(folder / "a.parquet", index=False, row_group_size=17)
    return {"path": str(folder / "a.parquet")}


def write_csv(rows, folder):
    rows.to_csv(folder / "a.csv", index=False)
    return {"path": f"{folder}/*.csv"}


def write_packed_csv(rows, folder):
    rows.to_csv(folder / "a.csv.gz", index=False, sep=";", decimal=",")
    return {"path": str(folder), "csv": {"delimiter": ";", "decimal": ","}}


def write_partitions(rows, folder):
    table = pa.Table.from_pandas(rows, preserve_index=False)
    pq.write_to_dataset(table, folder, partition_cols=["country"])
    return {"path": str(folder)}


def write_sqlite(rows, folder):
    with sqlite3.connect(folder / "served.db") as connection:
        rows.to_sql("served", connection, index=False)
    return {"table": "served", "url": f"sqlite:///{folder}/served.db"}


WRITERS = [
    write_parts,
    write_row_groups,
    write_csv,
    write_packed_csv,
    write_partitions,
    write_sqlite,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_the_window_does_not_depend_on_where_rows_lie(tmp_path, write):
    """Files, folders, partitions, CSV and a database give the same digest and the same sample."""
    rows = traffic()
    rows.to_parquet(tmp_path / "plain.parquet")
    (tmp_path / "other").mkdir()
    plain = read(tmp_path / "plain.parquet", max_rows=60, key="request", label="class")

    place = write(rows, tmp_path / "other")
    source = SourceSettings(timestamp="served_at", key="request", label="class", **place)
    window = read_window(source, DAY, COLUMNS, max_rows=60, seed=0)

    assert (window.rows, window.digest) == (300, plain.digest)
    pd.testing.assert_frame_equal(window.sample, plain.sample)
    pd.testing.assert_series_equal(window.keys, plain.keys)
    pd.testing.assert_series_equal(window.labels, plain.labels)


def test_seed_and_rows_decide_the_sample(tmp_path):
    """Another seed draws another sample of the same window; another row is another digest."""
    rows = traffic()
    rows.to_parquet(tmp_path / "a.parquet")
    rows.assign(amount=rows["amount"].where(rows["request"] != 7, 0.5)).to_parquet(
        tmp_path / "b.parquet"
    )

    first, again = (read(tmp_path / "a.parquet", max_rows=50) for _ in range(2))
    other_seed = read(tmp_path / "a.parquet", max_rows=50, seed=1)
    other_rows = read(tmp_path / "b.parquet", max_rows=50)

    pd.testing.assert_frame_equal(first.sample, again.sample)
    assert not first.sample.equals(other_seed.sample)
    assert first.digest == again.digest == other_seed.digest != other_rows.digest


def test_bounds_are_half_open(tmp_path):
    """A row at the start belongs to the window, one at the end to the next."""
    rows = traffic(3, "2026-01-05", "1D")
    rows.to_parquet(tmp_path / "a.parquet")

    windows = [read(tmp_path, interval=Interval.day(f"2026-01-0{day}")) for day in (5, 6, 7)]

    assert [window.rows for window in windows] == [1, 1, 1]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_windows_tile(tmp_path, suffix):
    """Neighbouring windows share no row and miss none, in a zone whose clocks change."""
    rows = traffic(24 * 7 * 4, "2026-10-22", "15min")
    rows["served_at"] = rows["served_at"].dt.tz_convert("Europe/Zurich")
    path = tmp_path / f"a.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)
    days = [Interval.day(f"2026-10-{day}", "Europe/Zurich") for day in range(23, 28)]

    windows = [read(path, interval=day, key="request") for day in days]

    assert [window.rows for window in windows] == [96, 96, 100, 96, 96]
    keys = np.concatenate([window.keys for window in windows])
    assert len(np.unique(keys)) == len(keys)


def test_no_rows_is_an_outcome(tmp_path):
    """A window without rows is named, not judged; so is a CSV file with nothing but a header."""
    traffic().to_parquet(tmp_path / "a.parquet")
    traffic(0).to_csv(tmp_path / "a.csv", index=False)

    for name, day in (("a.parquet", "2026-02-01"), ("a.csv", "2026-01-05")):
        with pytest.raises(NotAssessed, match="no rows in the window") as refusal:
            read(tmp_path / name, interval=Interval.day(day))
        assert refusal.value.code == "empty_window"


def test_what_was_odd_is_told(tmp_path):
    """Extra, constant and empty columns, labels and rows without a time are findings."""
    rows = traffic().assign(extra=1, visits=3, amount=np.nan)
    rows.loc[:1, "served_at"] = pd.NaT
    rows.to_parquet(tmp_path / "a.parquet")

    window = read(tmp_path / "a.parquet", label="class")

    assert window.rows == 298
    assert window.findings == (
        "Left out 2 rows without a timestamp.",
        "Ignored 2 columns that the model does not use: 'request', 'extra'.",
        "The label column 'class' is kept apart and is not a feature.",
        "Found 1 column without any value: 'amount'.",
        "Found 1 column with one value only: 'visits'.",
    )


def test_a_label_is_never_a_feature(tmp_path):
    """A model that would be told the answer is refused."""
    traffic().to_parquet(tmp_path / "a.parquet")

    with pytest.raises(ConfigError, match="'country' is also a feature"):
        read(tmp_path / "a.parquet", label="country")


def test_an_absent_label_or_optional_column_is_no_error(tmp_path):
    """Labels may come later; an optional column that is absent is missing in every row."""
    traffic().drop(columns=["class", "visits"]).to_parquet(tmp_path / "a.parquet")
    columns = [Column("visits", "integer", optional=True), Column("amount", "float")]

    window = read(tmp_path / "a.parquet", columns, label="class")

    assert window.labels is None
    assert list(window.sample) == ["visits", "amount"]
    assert window.sample["visits"].isna().all()
    assert "Optional columns are absent and read as missing: 'visits'." in window.findings


def test_progress_is_told(tmp_path):
    """Each batch reports the rows so far, the last one all of them."""
    for part in range(3):
        traffic(100 + part).to_parquet(tmp_path / f"{part}.parquet")
    told = []

    window = read(tmp_path, progress=told.append)

    assert told == sorted(told)
    assert told[-1] == window.rows == 303


def test_copies_are_counted(tmp_path):
    """Rows that repeat another are counted exactly, and estimated where the window is larger."""
    rows = traffic()
    pd.concat([rows, rows[:60]]).to_parquet(tmp_path / "a.parquet")
    pd.concat([rows, rows]).to_parquet(tmp_path / "b.parquet")

    assert read(tmp_path / "a.parquet").copies == 60
    assert read(tmp_path / "b.parquet", max_rows=50).copies == 300
    assert len(read(tmp_path / "b.parquet", max_rows=50).sample) == 50


def test_a_crowd_that_the_sample_misses_is_told(tmp_path):
    """Half of a large window is one row; a key tells its copies apart, and the sample is right."""
    rows = traffic(4_000, every="1s")
    crowd = pd.concat([rows[:1]] * 4_000).assign(request=np.arange(5_000, 9_000))
    pd.concat([rows, crowd]).to_parquet(tmp_path / "a.parquet")

    without, with_key = (read(tmp_path, max_rows=500, key=key) for key in (None, "request"))

    assert any("About 50%" in finding or "About 49%" in finding for finding in without.findings)
    assert not any("repeat" in finding for finding in with_key.findings)
    share = (with_key.sample["amount"] == rows["amount"][0]).mean()
    assert 0.4 < share < 0.6


def test_partition_columns_are_columns(tmp_path):
    """What only a folder's name says is read in the type that the model wants."""
    for month in ("01", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / f"shop=a%2Fb/month={month}"
        folder.mkdir(parents=True)
        traffic(10).to_parquet(folder / "a.parquet")

    window = read(tmp_path, [Column("shop", "text"), Column("month", "integer")])

    assert set(window.sample["shop"]) == {"a/b"}
    assert window.sample["month"].isna().sum() == 10
    assert set(window.sample["month"].dropna()) == {1}


@pytest.mark.parametrize(
    ("folder", "is_read"),
    [
        ("date=2026-01-01", False),
        ("ds=20260101", False),
        ("year=2025", False),
        ("year=2025/month=12", False),
        ("year=2026/month=1/day=3", False),
        ("date=2026-01-04", True),  # the zone of folders is unknown
        ("date=2026-03-01", True),  # rows may land late
        ("year=2026/month=01", True),
        ("birth=1990-01-01", True),
        ("date=unknown", True),
    ],
)
def test_folders_that_are_over_are_not_opened(tmp_path, folder, is_read):
    """A folder dated before the window is left out; one that may hold its rows never is."""
    traffic(5).to_parquet(tmp_path / "good.parquet")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "bad.parquet").write_bytes(b"")

    window = read(tmp_path, on_bad_file="skip")

    assert any("Skipped" in finding for finding in window.findings) == is_read


def test_encoders_take_text_with_gaps(tmp_path):
    """Text looks as pandas reads it from Parquet, so that encoders know the same categories."""
    rows = traffic()
    rows["country"] = rows["country"].mask(rows["visits"] == 0)
    rows.to_parquet(tmp_path / "a.parquet")
    rows.to_csv(tmp_path / "a.csv", index=False)
    taught = pd.read_parquet(tmp_path / "a.parquet")[["country"]]
    encoder = OneHotEncoder(sparse_output=False).fit(taught)

    for name in ("a.parquet", "a.csv"):
        sample = read(tmp_path / name).sample
        assert sample["country"].dtype == taught["country"].dtype
        assert (encoder.transform(sample[["country"]]).sum(axis=1) == 1).all()


def test_bounds_inside_a_second_hold(tmp_path):
    """Bounds inside a second are kept, whatever unit the file stores."""
    start = DAY.start + timedelta(microseconds=500_000)
    for unit in ("s", "ms", "us", "ns"):
        rows = traffic(4, every="1s")
        rows["served_at"] = rows["served_at"].dt.as_unit(unit)
        rows.to_parquet(tmp_path / f"{unit}.parquet")

        window = read(tmp_path / f"{unit}.parquet", interval=Interval(start, DAY.end))

        assert window.rows == 3
