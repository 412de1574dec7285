"""Rows 1 to 15: the window and its time."""

from datetime import UTC, datetime, timedelta
from itertools import cycle, islice

import pandas as pd

from rtscv_mlops.errors import NotAssessed, WindowError
from rtscv_mlops.pipeline.stages import rectify_window, take_window
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.catalogue.bench import DAY, Bench, Part, error_of, traffic

PART = Part()


def rows_at(*times: object, file: str = "a.csv"):
    """Sixty rows whose timestamps are these, over and over."""

    def put(bench: Bench) -> None:
        bench.put(traffic().assign(served_at=list(islice(cycle(times), 60))), file)

    return put


PART.refused(
    1,
    "empty-window",
    lambda bench: bench.put(traffic(day="2026-02-01")),
    "empty_window",
    "no rows in the window 2026-01-05",
)
PART.refused(
    2,
    "one-row",
    lambda bench: bench.put(traffic(1)),
    "too_few_rows",
    "1 row.* fewer than the 50 that rectify.min_rows asks for. Take longer windows",
)


@PART.row(3, "fewer-rows-than-folds")
def fewer_rows_than_folds(bench):
    # min_rows is never below cv, so the folds are never the first to complain.
    bench.put(traffic(4))
    outcome = bench.refused("too_few_rows", "4 rows, fewer than the 5", rectify=FIVE_FOLDS)
    assert "n_splits" not in outcome.facts.headline


FIVE_FOLDS = {"cv": 5, "min_rows": 5}


@PART.row(4, "window-not-over")
def window_not_over(bench):
    bench.put(traffic())
    now = datetime.now(UTC)
    open_window = Interval(now - timedelta(hours=1), now + timedelta(hours=1))
    bench.refused("window_open", r"not over yet. Run it after \d{4}-.* UTC", open_window)


@PART.row(5, "no-length")
def no_length(bench):
    with error_of(NotAssessed, "empty_interval", "2026-01-05 .* has no length"):
        Interval.parse("2026-01-05T06:00", "2026-01-05T06:00")


@PART.row(5, "reversed")
def reversed_bounds(bench):
    with error_of(WindowError, "bad_window", "start 2026-01-06 .* after its end 2026-01-05"):
        Interval.parse("2026-01-06", "2026-01-05")


@PART.row(6, "short-and-long-day")
def short_and_long_day(bench):
    zone = "Europe/Zurich"
    for day, hours in (("2026-03-29", 23), ("2025-10-26", 25)):
        interval = Interval.day(day, zone)
        times = pd.date_range(interval.start, interval.end, freq="1h", inclusive="left")
        bench.put(traffic(hours).assign(served_at=times), f"{day}.parquet")
        taken = bench.taken(interval=interval, rows=hours, rectify={"min_rows": 20})
        assert str(interval).endswith("UTC")
        assert len(taken.window.sample) == hours


PART.refused(
    7,
    "no-zone",
    rows_at("2026-01-05 10:00:00"),
    "no_timezone",
    r"'served_at' of the file .*a\.csv carry no time zone.* Set `timezone:`",
)
PART.taken(
    8,
    "mixed-offsets",
    rows_at("2026-01-05T10:00:00Z", "2026-01-05T12:00:00+01:00"),
    r"several offsets, all converted to UTC: '\+01:00', 'Z'",
)

# There is no rule to set: a guess about the hour would move rows from one window to another.
for name, local in (("nonexistent", "2026-03-29 02:30:00"), ("ambiguous", "2025-10-26 02:30:00")):
    PART.refused(
        9,
        f"{name}-local-time",
        rows_at(local),
        "unclear_time",
        r"60 timestamps with no unique meaning in Europe/Zurich.*02:30:00.* UTC or with their",
        interval=Interval.day(local[:10], "Europe/Zurich"),
        source={"timezone": "Europe/Zurich"},
    )


@PART.row(10, "future-timestamps")
def future_timestamps(bench):
    # Excluded by the window's end, and judged when their own window is over. They are not counted:
    # the filter is pushed down, and counting would mean reading all that lies outside the window.
    rows = traffic()
    rows.loc[:9, "served_at"] = pd.Timestamp("2031-01-05", tz="UTC")
    bench.put(rows)
    bench.taken(rows=50)


# A column of numbers could be seconds or milliseconds; a guess would be wrong by a thousand.
for name, times in {
    "words": ("yesterday", "05.01.2026", "noon"),
    "epoch-mix": (1767607200, 1767607200000, 1767607200000000),
}.items():
    PART.refused(
        11,
        name,
        rows_at(*times),
        "bad_timestamp",
        r"'served_at' of the file .*60 values.*, like (.+, ){2}.+\. Store timestamps",
    )
PART.refused(
    11,
    "epoch-numbers",
    rows_at(1767607200, file="a.parquet"),
    "bad_timestamp",
    "type int64.*Epoch numbers are ambiguous",
)


@PART.row(12, "absurd-years")
def absurd_years(bench):
    rows = traffic()
    rows.loc[:4, "served_at"] = pd.Timestamp("9999-12-31", tz="UTC").as_unit("us")
    rows.loc[5:9, "served_at"] = pd.Timestamp("1600-01-01", tz="UTC").as_unit("us")
    bench.put(rows)
    bench.taken(rows=50)


@PART.row(13, "late-rows")
def late_rows(bench):
    bench.put(traffic())
    first = bench.judge()
    bench.put(traffic(5, seed=9), "late.parquet")
    bench.runs = 2

    second = bench.judge()

    assert second.run_id != first.run_id
    assert second.facts.rows == 65
    assert WindowRun(bench.client, second.run_id).tags()["rtscv.rerun_of"] == first.run_id
    kept = {run.run_id: run.verdict for run in bench.outcomes(DAY)}
    assert kept[first.run_id] == first.facts.verdict


@PART.row(14, "same-window-twice")
def same_window_twice(bench):
    bench.put(traffic())
    first = bench.judge()

    second = bench.judge()

    assert second.repeated
    assert (second.run_id, second.facts) == (first.run_id, first.facts)


@PART.row(15, "hundred-times-the-rows")
def hundred_times_the_rows(bench):
    for day in (1, 2, 3):
        before = Interval.day(f"2026-01-0{day}")
        tags = {
            "rtscv.monitor": bench.name,
            "rtscv.window": before.id,
            "rtscv.window_end": before.end.isoformat(),
        }
        run = ModelRegistry(bench.client, bench.model).runs.open(f"{bench.name}-{day}", tags)
        run.log_metrics({"window_rows": 60})
    bench.put(traffic(6_000))
    monitor = bench.monitor(rectify={"max_rows": 100})

    taken = take_window(monitor, DAY)
    done = rectify_window(taken)

    assert (done.facts.rows, done.facts.sampled) == (6_000, 100)
    assert "6000 rows; the windows before it had a median of 60" in " ".join(done.facts.findings)
    params = bench.client.get_run(taken.run.run_id).data.params
    assert (params["max_rows"], params["seed"]) == ("100", "0")
    again = take_window(monitor, DAY)
    pd.testing.assert_frame_equal(again.window.sample, taken.window.sample)
