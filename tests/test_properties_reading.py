"""What holds of any rows that are read: nothing changes on the way, and time is tiled."""

import csv
import gzip
import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import CronDataIntervalTimetable
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import NotAssessed, WindowError
from rtscv_mlops.pipeline.stages import window_key
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.times import Span, is_past_partition
from rtscv_mlops.window import Column, Interval
from tests.properties import STORABLE, tried
from tests.services import DAY

MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
SECONDS = MOMENTS.map(lambda moment: moment.replace(microsecond=0))
ZONES = st.timezones().map(str)


# Time


@tried()
@given(ZONES, st.dates(datetime(1971, 1, 1).date(), datetime(2037, 1, 1).date()))
def test_days_tile_in_any_zone(zone, day):
    """A day ends where the next begins, and has 22 to 26 hours; one that was skipped has none."""
    days = []
    for ahead in (0, 1):
        try:
            days.append(Interval.day((day + timedelta(days=ahead)).isoformat(), zone))
        except NotAssessed as error:
            days.append(error)
    if all(isinstance(each, Interval) for each in days):
        assert days[0].end == days[1].start
        assert timedelta(hours=22) <= days[0].end - days[0].start <= timedelta(hours=26)
    else:
        assert {each.code for each in days if isinstance(each, NotAssessed)} == {"empty_interval"}


@tried()
@given(st.tuples(SECONDS, SECONDS), st.tuples(SECONDS, SECONDS))
def test_the_name_of_a_window_is_its_own(one, other):
    """Two windows have one name if and only if they are the same, and names sort by time."""
    assume(one[0] < one[1] and other[0] < other[1])
    one, other = Interval(*one), Interval(*other)

    assert (one.id == other.id) == (one == other)
    assert (one.id < other.id) == (one < other)


@tried()
@given(st.tuples(MOMENTS, MOMENTS), ZONES, ZONES)
def test_a_window_is_read_as_it_is_written(bounds, zone, other):
    """Moments with an offset mean the same, whatever zone they are written in."""
    assume(bounds[0] < bounds[1])
    local = [bound.astimezone(ZoneInfo(zone)) for bound in bounds]
    assume(all(moment.utcoffset().total_seconds() % 60 == 0 for moment in local))

    read = Interval.parse(*(moment.isoformat() for moment in local), zone=other)
    assert (read.start, read.end) == bounds


UNITS = st.sampled_from(["s", "ms", "us", "ns"])


@tried(0.5)
@given(st.lists(SECONDS, min_size=2, max_size=8, unique=True), st.data(), UNITS, st.booleans())
def test_every_row_is_in_one_window(bounds, data, unit, as_text):
    """Windows that share bounds share no row and lose none, also for rows on a bound."""
    bounds = sorted(bounds)
    inside = SECONDS.filter(lambda moment: bounds[0] <= moment < bounds[-1])
    moments = data.draw(st.lists(st.sampled_from(bounds[:-1]) | inside, min_size=1, max_size=20))
    column = pa.array(moments, pa.timestamp(unit, "UTC"))
    if as_text:
        column = pa.array([moment.isoformat() for moment in moments])

    found = np.zeros(len(moments), int)
    for start, end in pairwise(bounds):
        span = Span("at", None, Interval(start, end))
        placed = span.read_times(column, "here").inside.to_pylist()
        assert placed == [start <= moment < end for moment in moments]
        found += placed
    assert (found == 1).all()


@tried()
@given(st.tuples(SECONDS, SECONDS), st.floats(0, 1), ZONES, st.integers(0, 400))
def test_no_folder_with_rows_is_left_out(bounds, share, zone, late):
    """A folder named after a row's local day, or a later one, is never taken for over."""
    assume(bounds[0] < bounds[1])
    moment = bounds[0] + (bounds[1] - bounds[0]) * min(share, 0.999)
    day = moment.astimezone(ZoneInfo(zone)).date() + timedelta(days=late)
    interval = Interval(*bounds)

    assert not is_past_partition({"date": day.isoformat()}, interval)
    parts = {"year": str(day.year), "month": f"{day.month:02d}", "day": f"{day.day:02d}"}
    assert not is_past_partition(parts, interval)


CRONS = st.one_of(
    st.integers(0, 59).map("{} * * * *".format),
    st.tuples(st.integers(0, 59), st.integers(0, 23)).map(lambda at: f"{at[0]} {at[1]} * * *"),
    st.tuples(st.integers(0, 59), st.integers(0, 23), st.integers(0, 6)).map(
        lambda at: f"{at[0]} {at[1]} * * {at[2]}"
    ),
)


@tried(0.15)
@given(CRONS, ZONES, st.datetimes(datetime(2015, 1, 1), datetime(2035, 1, 1)))
def test_schedules_tile_the_time_line(cron, zone, begin):
    """The windows of hourly, daily and weekly schedules leave no gap, through any clock change."""
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable as Scheduled
    from pendulum import instance

    given_to_airflow = CronDataIntervalTimetable(cron, timezone=zone)
    timetable = Scheduled(given_to_airflow.expression, given_to_airflow.timezone)
    restriction = TimeRestriction(instance(begin, tz="UTC"), None, catchup=True)
    last, windows = None, []
    for _ in range(6):
        last = timetable.next_dagrun_info(
            last_automated_data_interval=last, restriction=restriction
        ).data_interval
        windows.append(Interval(last.start, last.end))

    assert all(one.end == other.start for one, other in pairwise(windows))
    assert len({window.id for window in windows}) == 6


# Values

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TABLES = st.lists(
    st.tuples(FLOATS | st.none(), INTEGERS, STORABLE | st.none(), st.booleans()),
    min_size=1,
    max_size=6,
)
COLUMNS = (
    Column("amount", "float"),
    Column("visits", "integer"),
    Column("country", "text"),
    Column("member", "boolean"),
)
NAMES = [column.name for column in COLUMNS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose files are written again and again."""
    return tmp_path_factory.mktemp("rows")


def table_of(rows):
    """Rows as a table with a time and a number for each."""
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    served = [DAY.start + timedelta(minutes=at) for at in range(len(rows))]
    kinds = [pa.float64(), pa.int64(), pa.string(), pa.bool_()]
    arrays = {
        name: pa.array(values, kind)
        for (name, values), kind in zip(columns.items(), kinds, strict=True)
    }
    return pa.table({"at": served, "number": range(len(rows)), **arrays})


def read(path):
    """Read the window; return it and its rows by their number."""
    source = SourceSettings(path=str(path), timestamp="at", key="number")
    window = read_window(source, DAY, COLUMNS, max_rows=1_000, seed=0)
    by_number = window.sample.assign(number=window.keys.to_numpy()).sort_values("number")
    return window, list(by_number[NAMES].itertuples(index=False, name=None))


def same(one, other):
    """Tell whether two cells mean the same; a gap is a gap."""
    return (pd.isna(one) and (other is None or pd.isna(other))) or one == other


def check_same(found, rows):
    """Every cell is what was written."""
    assert len(found) == len(rows)
    for one, other in zip(found, rows, strict=True):
        assert all(map(same, one, other)), (one, other)


@tried(0.3)
@given(TABLES)
def test_parquet_is_read_as_it_was_written(folder, rows):
    """Numbers of 64 bits, floats to the last digit, any text, gaps: nothing changes."""
    pq.write_table(table_of(rows), folder / "a.parquet")

    check_same(read(folder / "a.parquet")[1], rows)


def write_csv(path, rows, quoting=csv.QUOTE_NONNUMERIC):
    """Write rows as CSV of Python's own writer."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=quoting)
    writer.writerow(["at", "number", *NAMES])
    for at, row in enumerate(rows):
        moment = (DAY.start + timedelta(minutes=at)).isoformat()
        writer.writerow([moment, at, *("" if cell is None else cell for cell in row)])
    packed = gzip.compress if str(path).endswith(".gz") else bytes
    path.write_bytes(packed(stream.getvalue().encode()))


@tried(0.3)
@given(
    TABLES,
    st.sampled_from(["a.csv", "a.csv.gz"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_csv_is_read_as_it_was_written(folder, rows, name, quoting):
    """Quotes, delimiters, line ends, NA words and any number: read as they stand, or refused."""
    write_csv(folder / name, rows, quoting)
    expected = [(*row[:2], row[2] or None, row[3]) for row in rows]
    try:
        found = read(folder / name)[1]
    except WindowError as error:
        found = error
    if any("\0" in (row[2] or "") for row in rows):
        assert "NUL bytes" in str(found)
    else:
        check_same(found, expected)


@tried(0.3)
@given(st.lists(st.integers(-(2**70), 2**70) | st.none(), min_size=1, max_size=5))
@example([None, -(2**63)])
def test_whole_numbers_are_exact_or_refused(folder, numbers):
    """No whole number is ever rounded, with gaps or without: it arrives, or is refused by name."""
    write_csv(folder / "a.csv", [(0.5, number, "x", True) for number in numbers])
    present = [number for number in numbers if number is not None]
    limit = 2**63 if len(present) == len(numbers) else 2**53
    try:
        found = [row[1] for row in read(folder / "a.csv")[1]]
    except WindowError as error:
        # To be refused is one of two right ends, so that `pytest.raises` cannot say it.
        assert error.code == "bad_values"  # noqa: PT017
        assert "visits" in str(error)  # noqa: PT017
        assert any(abs(number) >= limit for number in present)
        return
    assert all(map(same, found, numbers))
    assert all(-limit <= number <= limit for number in present)


@tried(0.3)
@given(TABLES, st.permutations(NAMES), st.lists(STORABLE, max_size=3, unique=True))
def test_order_of_columns_and_extra_ones_do_not_count(folder, rows, order, extra):
    """The window, its digest and its key are the same, however the file's columns stand."""
    table = table_of(rows)
    assume(not {*extra} & {*table.column_names} and all(name.strip() for name in extra))
    pq.write_table(table, folder / "a.parquet")
    plain, found = read(folder / "a.parquet")
    turned = table.select([*order, "number", "at"])
    for name in extra:
        turned = turned.append_column(name, pa.array([name] * len(rows)))
    pq.write_table(turned, folder / "a.parquet")
    other, again = read(folder / "a.parquet")

    check_same(again, found)
    assert key_of(plain) == key_of(other)


def key_of(window):
    """The key of a window of some monitor and champion."""
    source = {"path": "/served", "timestamp": "at"}
    monitor = Monitor.model_validate({"name": "m", "model": {"name": "a"}, "source": source})
    return window_key(monitor, SimpleNamespace(version="1"), window)


@tried(0.2)
@given(TABLES, st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_key_does_not_depend_on_files(tmp_path_factory, rows, shuffle, parts):
    """Rows in any order in any number of files have one key, at each try; one row more has not."""
    table = table_of(rows)
    order = list(range(len(rows)))
    shuffle.shuffle(order)
    places = [tmp_path_factory.mktemp("key") for _ in range(3)]
    pq.write_table(table, places[0] / "a.parquet")
    for part in range(parts):
        some = table.take(pa.array(order[part::parts], pa.int64()))
        pq.write_table(some, places[1] / f"{part}.parquet")
    changed = table.set_column(1, "number", pa.array([number + 1 for number in range(len(rows))]))
    pq.write_table(changed, places[2] / "a.parquet")

    keys = [key_of(read(place)[0]) for place in (*places, places[0])]
    assert keys[0] == keys[1] == keys[3]
    assert keys[2] != keys[0]


@tried(0.1)
@given(st.integers(5, 40), st.integers(1, 39), st.integers(0, 2**31))
def test_every_row_is_as_likely_to_be_drawn(rows, size, seed):
    """Over many seeds no row is drawn more often than chance lets it be."""
    assume(size < rows)
    batch = pa.record_batch({"number": np.arange(rows)})
    seeds, drawn = 200, np.zeros(rows)
    for at in range(seeds):
        sketch = Sketch(size, seed + at)
        sketch.add(batch)
        drawn[sketch.sample()["number"]] += 1

    share = size / rows
    assert drawn.sum() == seeds * size
    assert np.abs(drawn / seeds - share).max() < 6 * np.sqrt(share * (1 - share) / seeds) + 0.005


@tried()
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 80))
def test_copies_are_counted_exactly_in_small_windows(numbers, size):
    """Where all rows are kept, those that repeat another are counted, none more and none less."""
    assume(size >= len(set(numbers)))
    sketch = Sketch(size, 0)
    sketch.add(pa.record_batch({"number": numbers}))

    assert sketch.copies() == len(numbers) - len(set(numbers))
