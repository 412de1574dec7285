"""What `import rtscv_mlops` gives, and what it costs."""

import subprocess
import sys

import numpy as np
import pytest

import rtscv_mlops
from rtscv_mlops import demo

HEAVY = {"airflow", "evidently", "mlflow", "numpy", "sklearn"}


@pytest.mark.parametrize("name", rtscv_mlops.__all__)
def test_every_public_name_is_there(name):
    """A lazy name that points nowhere fails here, not at the user's."""
    assert getattr(rtscv_mlops, name) is not None


def test_an_unknown_name_is_refused_as_usual():
    """The lazy names do not change what Python says about a name that does not exist."""
    with pytest.raises(AttributeError, match=r"'rtscv_mlops' has no attribute 'RTSVC'"):
        rtscv_mlops.RTSVC  # noqa: B018  # the access is the test


def test_import_is_cheap():
    """Airflow imports us at each parse of a DAG file, so no vendor is loaded by it."""
    program = "import sys, rtscv_mlops; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stdout.split())


def test_what_was_said_of_each_row_can_be_read(tmp_path):
    """After a window is judged, a program gets its answers by key, and they fit the facts."""
    days = [day for day in demo.make_days() if day.story == demo.UNKNOWNS][-1:]
    monitor = demo.prepare(tmp_path, days)
    interval, scans = days[0].interval, days[0].rows["scan"]
    facts = rtscv_mlops.run_window(monitor, interval).facts

    answers = rtscv_mlops.read_answers(monitor, interval)

    assert sorted(answers.index) == sorted(scans)
    assert answers["is_unknown"].sum() == facts.unknowns > 0
    assert answers["unknown_score"].between(0, 1).all()
    assert set(answers["champion_called"]) <= set("12345789")
    hidden = scans[np.isin(days[0].digits, demo.HIDDEN)]
    by_truth = answers["is_unknown"].groupby(answers.index.isin(hidden)).mean()
    assert by_truth[True] > 0.7
    assert by_truth[False] < 0.1


def test_answers_of_a_window_that_was_not_judged_are_refused(tmp_path):
    """Without a verdict there is nothing to read, and the message says what to do."""
    days = list(demo.make_days())[:1]
    monitor = demo.prepare(tmp_path, days)

    with pytest.raises(rtscv_mlops.RtscvError, match=r"has no verdict.*Run it first"):
        rtscv_mlops.read_answers(monitor, days[0].interval)
