"""Windows tile the time line: through clock changes, leap days, and rows that come late."""

import json
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from benchmarks.deployments import NEW, leaves
from rtscv_mlops.airflow.monitors import interval_of
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import NotAssessed, WindowError
from rtscv_mlops.review.answers import promote_challenger, review_challenger
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.tracking.registry import read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Column, Interval
from tests.deployments import deployed
from tests.monitors import MINIMAL, write_monitor

CHANGES = {
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Europe/Zurich": ("2026-03-29", "2026-10-25"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),
}
"""Days on which clocks go forward, and back: by an hour, by half an hour, and at midnight."""

SCHEDULES = {
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "nightly": "0 2 * * *",  # the default; in three zones a time that one night does not have
    "weekly": "30 2 * * 0",
}
CASES = [
    (zone, day, often) for zone, days in CHANGES.items() for day in days for often in SCHEDULES
]

ASK = """
import json, sys
from datetime import datetime, timedelta
from pathlib import Path
from unittest import mock
import pendulum
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables import interval as module
from airflow.timetables.base import TimeRestriction
from rtscv_mlops.airflow.dags import build_dag
from rtscv_mlops.config.loading import load_monitor

def windows(timetable, start, stop, catchup):
    # The scheduler asks for the next run as soon as it has made one.
    now, last, found = start, None, []
    restriction = TimeRestriction(start if catchup else start.subtract(days=9), None, catchup)
    with mock.patch.object(module, "utcnow", lambda: now):
        while not found or found[-1][1] < stop.isoformat():
            run = timetable.next_dagrun_info(
                last_automated_data_interval=last, restriction=restriction
            )
            last = run.data_interval
            found.append((last.start.isoformat(), last.end.isoformat()))
            now = max(now, run.run_after).add(seconds=5)
    return found

answers = {}
for name, (file, day) in json.loads(sys.argv[1]).items():
    dag = build_dag(load_monitor(Path(file)), Path(file))
    timetable = coerce_to_core_timetable(dag.timetable)
    span = 9 if "weekly" in name else 2
    change = pendulum.parse(day)
    bounds = change.subtract(days=span), change.add(days=span)
    answers[name] = {
        "catchup": windows(timetable, *bounds, True),
        "latest": windows(timetable, *bounds, False),
        "manual": [
            tuple(bound.isoformat() for bound in timetable.infer_manual_data_interval(run_after=at))
            for at in (change.add(hours=hour, minutes=30) for hour in range(-12, 36, 3))
        ],
    }
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory):
    """The windows that Airflow's scheduler makes of each monitor's DAG around each change."""
    folder = tmp_path_factory.mktemp("monitors")
    asked = {}
    for zone, day, often in CASES:
        name = f"{zone.rpartition('/')[2].lower()}-{often}"
        more = f"airflow:\n  schedule: {SCHEDULES[often]}\n  timezone: {zone}\n"
        file = write_monitor(folder, MINIMAL + more, f"{name}.yaml")
        asked[f"{zone} {day} {often}"] = (str(file), day)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASK, json.dumps(asked)],
        env={**os.environ, "AIRFLOW_HOME": str(folder / "airflow")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def intervals(bounds):
    """Return windows as the tasks make them of data intervals."""
    return [Interval(*(datetime.fromisoformat(bound) for bound in pair)) for pair in bounds]


def check_tiles(windows, change):
    """Half-open, in UTC, one begins where another ends, and the change is amid them."""
    assert all(one.end == other.start for one, other in pairwise(windows))
    assert all(one.start < one.end and one.start.tzinfo == UTC for one in windows)
    assert windows[0].start < change < windows[-1].end
    assert len({one.id for one in windows}) == len(windows)


# -- schedules


@pytest.mark.parametrize("kind", ["catchup", "latest"])
@pytest.mark.parametrize(("zone", "day", "often"), CASES)
def test_scheduled_windows_tile(scheduled, zone, day, often, kind):
    """Whatever clocks do, Airflow makes windows without a gap and without an overlap."""
    windows = intervals(scheduled[f"{zone} {day} {often}"][kind])

    check_tiles(windows, datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(hours=12))

    lengths = {window.end - window.start for window in windows}
    usual = {"hourly": 1, "daily": 24, "nightly": 24, "weekly": 24 * 7}[often]
    assert lengths <= {timedelta(hours=usual + extra) for extra in (-1, -0.5, 0, 0.5, 1)}
    if often == "hourly":
        assert lengths == {timedelta(hours=1)}


@pytest.mark.parametrize(("zone", "day", "often"), CASES)
def test_a_manual_run_has_a_window_or_says_why_not(scheduled, zone, day, often):
    """At a time that a change leaves out, Airflow gives no length: that is a named outcome."""
    for start, end in scheduled[f"{zone} {day} {often}"]["manual"]:
        if start == end:
            with pytest.raises(NotAssessed, match="has no length") as caught:
                intervals([(start, end)])
            assert caught.value.code == "empty_interval"
        else:
            assert intervals([(start, end)])[0].start.tzinfo == UTC


def test_some_manual_run_has_no_length(scheduled):
    """The case above exists: at the default schedule, in the night that has no two o'clock."""
    manual = scheduled["Europe/Zurich 2026-03-29 nightly"]["manual"]

    assert any(start == end for start, end in manual)


# -- named days


@pytest.mark.parametrize("zone", CHANGES)
def test_days_of_a_zone_tile_a_leap_year(tmp_path, zone):
    """366 calendar days of a zone follow each other; two of them are shorter or longer."""
    more = f"airflow:\n  timezone: {zone}\n"
    monitor = load_monitor(write_monitor(tmp_path, MINIMAL + more))
    first = date(2028, 1, 1)

    days = [
        interval_of(monitor, str(first + timedelta(days=ahead)), None, None) for ahead in range(366)
    ]

    check_tiles(days, datetime(2028, 2, 29, 12, tzinfo=UTC))
    assert days == [Interval.day(str(first + timedelta(days=n)), zone) for n in range(366)]
    local = [day.end.astimezone(ZoneInfo(zone)) for day in days]
    assert local[-1].date() == date(2029, 1, 1)
    lengths = sorted((day.end - day.start).total_seconds() / 3_600 for day in days)
    step = 0.5 if zone == "Australia/Lord_Howe" else 1.0
    assert (lengths[0], lengths[-1]) == (24 - step, 24 + step)
    assert lengths[1:-1] == [24] * 364


def test_a_leap_day_is_a_day_in_leap_years_only():
    """29 February is a window of 24 hours in 2028, and no day in 2027."""
    leap = Interval.day("2028-02-29")

    assert leap.end == datetime(2028, 3, 1, tzinfo=UTC)
    assert leap.end - leap.start == timedelta(days=1)
    with pytest.raises(WindowError, match="'2027-02-29' is not a valid day"):
        Interval.day("2027-02-29")


# -- rows


def write_rows(folder, times, kind):
    """Write rows with these times as a source of a kind; return its settings."""
    if kind == "parquet":
        pd.DataFrame({"n": range(len(times)), "at": times}).to_parquet(folder / "rows.parquet")
        return {"path": str(folder / "rows.parquet")}
    texts = [time.isoformat() for time in times]
    if kind == "csv":
        pd.DataFrame({"n": range(len(times)), "at": texts}).to_csv(folder / "a.csv", index=False)
        return {"path": str(folder / "a.csv")}
    with sqlite3.connect(folder / "rows.db") as database:
        database.execute("CREATE TABLE rows (n INTEGER, at TEXT)")
        database.executemany("INSERT INTO rows VALUES (?, ?)", enumerate(texts))
    return {"table": "rows", "url": f"sqlite:///{folder}/rows.db"}


@pytest.mark.parametrize("kind", ["parquet", "csv", "table"])
@pytest.mark.parametrize(
    ("zone", "day"), [("Europe/Zurich", 0), ("Europe/Zurich", 1), ("Australia/Lord_Howe", 1)]
)
def test_each_row_is_in_one_window(tmp_path, zone, day, kind):
    """Rows every ten minutes, at and beside each boundary, in local time with its offset."""
    middle = datetime.fromisoformat(CHANGES[zone][day]).replace(tzinfo=UTC)
    start = middle - timedelta(hours=10)  # changes are at 1:00 or the evening before, in UTC
    hours = [start + timedelta(hours=ahead) for ahead in range(13)]
    beside = timedelta(microseconds=1)
    times = [at + timedelta(minutes=10 * n) for at in hours[:-1] for n in range(6)]
    times += [at - beside for at in hours[1:]] + [at + beside for at in hours[:-1]]
    place = write_rows(tmp_path, [at.astimezone(ZoneInfo(zone)) for at in times], kind)
    source = SourceSettings.model_validate({**place, "timestamp": "at"})

    seen = []
    for bounds in pairwise(hours):
        window = read_window(
            source, Interval(*bounds), [Column("n", "integer")], max_rows=1_000, seed=0
        )
        assert all(bounds[0] <= times[n] < bounds[1] for n in window.sample["n"])
        assert window.times.between(*bounds, inclusive="left").all()
        seen += window.sample["n"].tolist()

    assert sorted(seen) == list(range(len(times)))


# -- late rows


def test_rows_that_come_after_an_approval_change_nothing_silently(tmp_path):
    """They make another run that names the first; what was approved stays, word for word."""
    deployment = deployed(tmp_path)
    first = deployment.run(NEW)
    monitor = deployment.monitor()
    review_challenger(monitor, first.version, approve=True, reviewer="ada", reason="figs")
    promote_challenger(monitor, first.version)
    facts, champion = first.facts, deployment.aliases()["champion"]
    decided = deployment.versions(NEW)
    deployment.write_day(NEW, *leaves(8, {"oak": 30}), part="late")

    later = deployment.run(NEW)

    assert later.run_id != first.run_id
    run = WindowRun(deployment.client, later.run_id)
    assert run.tags()["rtscv.rerun_of"] == first.run_id
    assert later.facts.rows == facts.rows + 30
    assert later.facts.champion_version == champion == first.version
    assert read_facts(WindowRun(deployment.client, first.run_id)) == facts
    assert deployment.aliases()["champion"] == champion
    before = {version.version: version.review for version in decided}
    after = {version.version: version.review for version in deployment.versions(NEW)}
    assert {name: after[name] for name in before} == before
