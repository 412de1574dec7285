"""False alarms: a few windows without anything new, and that an alarm would be counted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.faults import false_alarms
from benchmarks.faults.false_alarms import CONDITIONS, EACH, POOLED, Judged, Source
from rtscv_mlops import RTSCVClassifier


@pytest.fixture
def digits(monkeypatch):
    """Handwritten digits as the only data set, with fewer rows a window."""
    X, y = load_digits(return_X_y=True)
    source = Source(X, y, KNeighborsClassifier())
    monkeypatch.setattr(false_alarms, "SOURCES", {"digits": lambda: source})
    monkeypatch.setattr(false_alarms, "TRAINING_ROWS", 900)
    monkeypatch.setattr(false_alarms, "WINDOW_ROWS", 400)
    return source


def judged(alarms, windows=400, said="unknowns", condition=false_alarms.NOTHING, source="digits"):
    """Return what was said of windows of which some raised an alarm."""
    return [
        Judged(source, condition, seed, dict.fromkeys((EACH, POOLED), verdict))
        for seed, verdict in enumerate([said] * alarms + ["no_change"] * (windows - alarms))
    ]


@pytest.mark.parametrize(
    "condition", [name for name in CONDITIONS if not name.startswith("mild drift")]
)
def test_windows_without_anything_new_raise_no_alarm(digits, condition):
    """At the level that monitors have, eight null windows are quiet; also with copies."""
    seen = [false_alarms.judge("digits", condition, seed) for seed in range(8)]

    assert sum(one.alarm(POOLED) for one in seen) <= 1
    assert {one.verdicts[EACH] for one in seen} <= {"no_change", "drift", "unknowns"}


def test_a_test_that_always_fires_is_seen(digits, monkeypatch):
    """A monitor that cries wolf fails its level in every row of the table."""
    monkeypatch.setattr(false_alarms, "decide", lambda *_: "unknowns")

    seen = [false_alarms.judge("digits", name, seed) for name in CONDITIONS for seed in range(2)]

    for row in false_alarms.tallies(seen):
        assert row.failures == row.trials == 2
        assert "NOT" in row.told


def test_one_search_serves_both_levels(digits, monkeypatch):
    """The verdict read off at the stricter level is the one that a monitor of that level gives."""
    monkeypatch.setattr(false_alarms, "MILD", 0.5)
    X, y, window = false_alarms.draw(digits, false_alarms.OFFSET, 3)
    strict = RTSCVClassifier(digits.learner, alpha=POOLED, random_state=3)

    seen = false_alarms.judge("digits", false_alarms.OFFSET, 3)

    assert seen.verdicts[EACH] != "no_change"  # else there is nothing to compare
    assert seen.verdicts[POOLED] == strict.fit(X, y, deployment=window).assessment_.verdict


def test_a_level_holds_in_rate_and_limit():
    """20 of 400 are 5 %; 21 are more; 3 of 60 are 5 % with a limit that shows nothing."""
    assert false_alarms.holds(20, 400, 0.05)
    assert not false_alarms.holds(21, 400, 0.05)
    assert not false_alarms.holds(3, 60, 0.05)


def test_only_unknowns_are_alarms():
    """Drift is counted apart; a window that could not be judged is counted and told."""
    drift = false_alarms.tally(judged(30, said="drift"), EACH)
    failed = false_alarms.tally(judged(1, said="failed: ValueError: no rows"), EACH)
    both = false_alarms.tally(judged(25, said="unknowns_and_drift"), EACH)

    assert (drift.trials, drift.failures) == (400, 0)
    assert "called drift: 30" in drift.told
    assert failed.failures == 1
    assert "failed: ValueError: no rows" in failed.told
    assert both.failures == 25


def test_each_data_set_is_judged_by_itself():
    """A quiet data set does not hide a loud one."""
    seen = judged(0) + judged(30, source="letter")

    told = false_alarms.tally(seen, EACH).told

    assert "holds on 1 of 2 data sets (400 windows each): digits 0, letter 30 (NOT)" in told


def test_a_window_is_what_its_condition_says(digits):
    """No window shares a row with its training data; copies and offsets are as many as said."""
    X, _, copied = false_alarms.draw(digits, false_alarms.COPIES, 0)
    _, _, plain = false_alarms.draw(digits, false_alarms.NOTHING, 0)
    known, _, moved = false_alarms.draw(digits, false_alarms.OFFSET, 0)

    assert len(np.unique(copied, axis=0)) == len(copied) - len(copied) // 20
    assert len(np.unique(plain, axis=0)) == len(plain)
    assert pd.DataFrame(copied).merge(pd.DataFrame(X)).empty
    shifted = (moved % 1 != 0).any(axis=0)
    assert 0 < shifted.sum() <= known.shape[1] // 4
    assert np.ptp(moved[:, shifted] % 1, axis=0).max() == pytest.approx(0, abs=1e-9)
