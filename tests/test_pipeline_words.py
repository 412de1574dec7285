"""How a result was obtained: numbers by class, and whether a fit can be repeated."""

import numpy as np
import pandas as pd
import pytest

from rtscv_mlops.config.monitor import RectifySettings
from rtscv_mlops.judging.judge import check_repeatable
from rtscv_mlops.window import LabelledRows
from tests.report_example import not_assessed


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, ""),
        (dict.fromkeys("abcdefgh", 0), ""),
        ({**dict.fromkeys("abcdefgh", 0), "i": 2, "j": 31}, "j 31, i 2"),
        (dict.fromkeys("abcdef", 1), "a 1, b 1, c 1, d 1, e 1, f 1"),
        (dict.fromkeys("abcdefg", 1), "a 1, b 1, c 1, d 1, e 1, f 1, …"),
    ],
)
def test_numbers_by_class_are_shown_without_zeros(numbers, words):
    """The largest are shown under the title that people read; dots stand for no zero."""
    facts = not_assessed(settings={"cv": 3, "looks_like": numbers})

    assert facts.shown_settings() == {"folds (k)": 3, "unknown rows look like": words}


def two_fits(learner):
    """Fit a learner twice on the same rows, and return the findings."""
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    rows = pd.DataFrame(rng.normal(size=(90, 2)).astype(np.float32), columns=["a", "b"])
    known = LabelledRows(
        rows, labels, as_rows=lambda table: table.to_numpy(dtype=np.float32, copy=True)
    )
    return check_repeatable(learner, known, rows, RectifySettings(seed=0))


def test_a_network_is_repeatable_by_the_monitor_s_seed():
    """skorch has no seed of its own, and needs none."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_network

    assert two_fits(make_network(grows=True)) == ()


def test_a_network_is_not_asked_for_a_random_state():
    """One that draws from elsewhere is told what a network can do about it."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_restless_network

    (finding,) = two_fits(make_restless_network())

    assert "cannot be repeated exactly. A network has no random_state" in finding
    assert "skorch callback" in finding
