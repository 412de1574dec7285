"""The gas story on readings made here: what it deals out, what it finds, what it tells."""

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from rich.console import Console

from examples.gas_drift.data import GASES, HIDDEN, PERIODS, Period, load_periods, tell_chapters
from examples.gas_drift.story import run_story
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import InputError
from rtscv_mlops.review.answers import list_challengers

COUNTS = {"ethanol": 160, "ethylene": 160, "ammonia": 160, HIDDEN: 60}
WIDTH = 12


def make_period(name, seed, counts=None, offset=0.0):
    """Readings of some gases; the first columns are off by as much as the sensors aged."""
    rng = np.random.default_rng(seed)
    counts = counts or COUNTS
    gases = rng.permutation(np.repeat(list(counts), list(counts.values())))
    centres = {
        gas: np.random.default_rng(label).normal(0, 4, WIDTH) for label, gas in GASES.items()
    }
    readings = np.array([centres[gas] for gas in gases]) + rng.normal(size=(len(gases), WIDTH))
    readings[:, :4] += offset
    names = [f"f{place}" for place in range(WIDTH)]
    return Period(name, pd.DataFrame(readings, columns=names), gases)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The story of one champion and one later period, what it printed, and its folder."""
    folder, printed = tmp_path_factory.mktemp("gas"), io.StringIO()
    periods = [make_period("months 1-10", 0), make_period("months 22-30", 1, offset=1.0)]
    ((_, judged),) = run_story(folder, Console(file=printed, width=110), periods)
    return judged, printed.getvalue(), folder


def test_each_kind_of_window_is_judged(told):
    """Held-out rows are quiet, the hidden gas is found among them, and aged sensors are drift."""
    judged, _, _ = told

    verdicts = {one.window.story: one.facts.verdict for one in judged}

    assert list(verdicts) == [
        "held out",
        "held out + toluene",
        "months 22-30",
        "months 22-30 + toluene",
    ]
    assert verdicts["held out"] == "no_change"
    assert verdicts["held out + toluene"] == "unknowns"
    assert verdicts["months 22-30"] == "drift"
    assert verdicts["months 22-30 + toluene"] in ("drift", "unknowns_and_drift")


def test_found_rows_are_compared_with_the_truth(told):
    """Precision and recall are those of the labels that arrived later; the interval holds."""
    quiet, found, *_ = told[0]

    low, high = found.facts.unknown_rate_interval
    assert low <= found.window.true_share <= high
    assert found.window.true_share == pytest.approx(60 / 300)
    assert found.precision > 0.8
    assert found.recall > 0.8
    assert quiet.precision is None
    assert quiet.recall is None


def test_the_story_is_told(told):
    """The table has a row per window that fits its width, and says where everything is."""
    judged, printed, folder = told
    lines = printed.splitlines()

    for one in judged:
        (row,) = [line for line in lines if line.startswith(f" {one.window.story}  ")]
        assert one.facts.verdict in row
        assert len(row.rstrip()) <= 110
    assert "Batches 7 and 10 are not in the file" in printed
    assert f"Right verdicts: {sum(one.is_right for one in judged)} of 4" in printed
    assert f"review show {folder}/gas-months-1-10.yaml" in printed
    assert (folder / "gas-months-1-10" / "report.html").is_file()
    assert imread(folder / "story-gas-drift.png").std() > 0.05


def test_a_challenger_waits(told):
    """What was found waits for a person, in the registry that the monitor names."""
    challengers = list_challengers(load_monitor(told[2] / "gas-months-1-10.yaml"))

    assert "pending" in {one.review for one in challengers}


def test_no_window_holds_what_was_taught():
    """No row of a window was taught, no champion knows the hidden gas, and no row is lost."""
    periods = [make_period(name, seed) for seed, name in enumerate(PERIODS)]

    chapters = list(tell_chapters(periods))

    assert [len(chapter.windows) for chapter in chapters] == [8, 6, 4, 4]
    for chapter in chapters:
        taught = {row.tobytes() for row in chapter.champion.X.to_numpy()}
        assert HIDDEN not in chapter.champion.y
        for window in chapter.windows:
            readings = window.rows.filter(regex=r"^f\d+$").to_numpy()
            assert not taught & {row.tobytes() for row in readings}
        half = chapter.champion.y if chapter.baseline is None else chapter.baseline.rows
        assert len(half) + len(chapter.windows[1].rows) == sum(COUNTS.values())


def test_truth_follows_from_time_and_gas():
    """What is true of a window follows from when it was measured and whether it has the gas."""
    without = {gas: number for gas, number in COUNTS.items() if gas != HIDDEN}
    periods = [make_period("months 11-16", 0, without), make_period("months 17-20", 1)]

    first, compared, second = tell_chapters(periods)

    expected = {window.story: window.expected for window in first.windows}
    assert expected == {
        "held out": "no_change",
        "months 17-20": "drift",
        "months 17-20 + toluene": "unknowns_and_drift",
    }
    assert [window.expected for window in second.windows] == ["no_change", "unknowns"]
    assert [window.expected for window in compared.windows] == ["no_change", "unknowns"]
    assert all(window.accuracy > 0.9 for window in first.windows)


def test_a_baseline_is_apart():
    """The baseline is a day of its own, which the monitor names, without rows of a window."""
    periods = [make_period(name, seed) for seed, name in enumerate(PERIODS)]

    (chapter,) = [one for one in tell_chapters(periods) if one.baseline is not None]

    seen = [window.rows.filter(regex=r"^f\d+$").to_numpy() for window in chapter.windows]
    clean = chapter.baseline.rows.filter(regex=r"^f\d+$").to_numpy()
    assert not {row.tobytes() for row in clean} & {row.tobytes() for row in np.concatenate(seen)}
    assert not chapter.baseline.is_new.any()
    assert f"start: {chapter.baseline.interval}" in chapter.champion.settings
    assert chapter.baseline.interval not in [window.interval for window in chapter.windows]
    assert chapter.title == "taught in months 11-16, baseline of months 17-20"


def test_periods_are_read_from_the_file(tmp_path, monkeypatch):
    """The table of the folder that the environment names becomes months, with gases by name."""
    batches = np.repeat([1, 2, 3, 4, 5, 6, 8, 9], 6)
    readings = np.zeros((len(batches), 128), dtype=np.float32)
    table = pd.DataFrame(readings, columns=[f"f{place}" for place in range(128)])
    table = table.assign(label=np.tile(range(1, 7), 8), concentration_ppm=10.0, batch=batches)
    table.to_parquet(tmp_path / "gas_drift_8of10.parquet")
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))

    periods = load_periods()

    assert [period.name for period in periods] == list(PERIODS)
    assert [len(period.gases) for period in periods] == [12, 18, 6, 12]
    assert all(period.readings.shape[1] == 128 for period in periods)
    assert set(periods[0].gases) == set(GASES.values())


def test_missing_data_is_a_sentence(tmp_path, monkeypatch):
    """Without the file, the story says where it comes from and where to put it."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))

    with pytest.raises(InputError, match=r"not exist. Gas Sensor .*UCI repository.*RTSCV_DATA_DIR"):
        run_story(tmp_path, Console(file=io.StringIO()))
