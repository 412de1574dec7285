"""When a row was served: every clear writing is read as UTC, every unclear one is refused."""

import pandas as pd
import pytest

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import NotAssessed, WindowError
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval

ZURICH = "Europe/Zurich"


def read(path, day="2026-01-05", zone="UTC", timezone=None):
    """Read a day of a zone."""
    source = SourceSettings(path=str(path), timestamp="at", timezone=timezone)
    columns = [Column("x", "integer")]
    return read_window(source, Interval.day(day, zone), columns, max_rows=1_000, seed=0)


def write(folder, moments, suffix="parquet"):
    rows = pd.DataFrame({"at": moments, "x": range(len(moments))})
    path = folder / f"a.{suffix}"
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)
    return path


def local(*texts):
    return pd.Series([pd.Timestamp(text) for text in texts])


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_times_without_a_zone_need_one(tmp_path, suffix):
    """A local time names no moment until the monitor says where."""
    path = write(tmp_path, local("2026-01-04 23:30", "2026-01-05 00:30"), suffix)

    with pytest.raises(WindowError, match="Set `timezone:`") as refusal:
        read(path)
    assert refusal.value.code == "no_timezone"
    assert read(path, timezone="UTC").sample["x"].tolist() == [1]
    assert read(path, "2026-01-04", timezone=ZURICH).rows == 2
    with pytest.raises(NotAssessed, match="no rows"):
        read(path, timezone=ZURICH)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("moment", ["2026-03-29 02:30", "2026-10-25 02:30"])
def test_local_times_that_are_skipped_or_occur_twice(tmp_path, suffix, moment):
    """The hour that is skipped and the hour that occurs twice are errors, on their day only."""
    path = write(tmp_path, local(moment, "2026-01-05 12:00"), suffix)

    with pytest.raises(WindowError, match=f"1 timestamp .* clocks changed then: '{moment}"):
        read(path, moment[:10], ZURICH, ZURICH)
    assert read(path, timezone=ZURICH).rows == 1


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_days_of_23_and_25_hours(tmp_path, day):
    """A local day is as long as its clock says, and its neighbours do not overlap it."""
    hours = pd.date_range(f"{day} 00:00", periods=24, freq="h", tz=ZURICH)
    path = write(tmp_path, hours.append(hours - pd.Timedelta("24h")).as_unit("us"))

    inside = [moment for moment in hours if str(moment.date()) == day]
    assert read(path, day, ZURICH).rows == len(inside) == (23 if day[5:7] == "03" else 24)


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-01-05T00:00:00Z", "2026-01-05T23:59:59.999999999Z"],
        ["2026-01-05 01:00:00+01", "2026-01-06T00:30:00.5+01:00"],
        ["2026-01-04T19:00-05:00", "2026-01-05T18:59:59-0500"],
    ],
)
def test_text_with_an_offset_is_a_moment(tmp_path, texts):
    """ISO 8601 with an offset is read, the first and last moment of the day included."""
    assert read(write(tmp_path, texts)).rows == 2


def test_mixed_offsets_are_told(tmp_path):
    """Offsets may differ between rows; the finding names them."""
    texts = ["2026-01-05T00:00:00Z", "2026-01-05T01:00:00+01:00", "2026-01-05T00:00:00Z"]

    window = read(write(tmp_path, texts, "csv"))

    assert window.rows == 3
    assert (
        "Timestamps have several offsets, all converted to UTC: '+01:00', 'Z'." in window.findings
    )


@pytest.mark.parametrize(
    ("moments", "examples"),
    [
        ([1767571200, 1767571200000], "like 1767571200, 1767571200000"),
        (["1767571200", "2026-01-05T00:00:00Z"], "1 value .* like '1767571200'"),
        (["05/01/2026", "5 Jan 2026", "yesterday", "now"], "4 values .* '05/01/2026', '5 Jan"),
        (["2026-13-05T00:00:00Z"], "like '2026-13-05T00:00:00Z'"),
        ([1.5], "type double"),
        ([True], "type bool"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_other_writings_are_refused_with_examples(tmp_path, moments, examples, suffix):
    """Epoch numbers do not say their unit, and other texts not their order."""
    if suffix == "csv":
        examples = ""
    with pytest.raises(WindowError, match=f"should hold timestamps.*{examples}") as refusal:
        read(write(tmp_path, moments, suffix))

    assert refusal.value.code == "bad_timestamp"


def test_absurd_years_are_outside_every_window(tmp_path):
    """A row of the year 9999 or 1600 is not in the window, and does no harm."""
    moments = pd.Series(["9999-12-31T00:00:00Z", "1600-01-01T00:00:00Z", "2026-01-05T00:00:00Z"])
    for written in (moments, moments.astype("datetime64[us, UTC]")):
        assert read(write(tmp_path, written)).sample["x"].tolist() == [2]
