"""What the pipeline says of how a result came about, without running a window."""

import numpy as np
import pandas as pd
import pytest

from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.judging.describe import Known
from rtscv_mlops.judging.judge import _by_class, _repeatability
from tests.monitors import MINIMAL, write_monitor


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
def test_numbers_by_class_leave_out_nothings(numbers, words):
    """Classes with nothing to show are not shown, and dots stand for none of them."""
    assert _by_class(numbers) == words


def two_fits(tmp_path, learner):
    """What is said of a learner that was fitted twice on the same rows."""
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    rows = pd.DataFrame(rng.normal(size=(90, 2)).astype(np.float32), columns=["a", "b"])
    known = Known(rows, labels, lambda frame: frame.to_numpy(dtype=np.float32, copy=True))
    monitor = load_monitor(write_monitor(tmp_path, MINIMAL))
    return _repeatability(learner, known, rows, monitor)


def test_a_network_is_repeatable_by_the_monitor_s_seed(tmp_path):
    """skorch has no seed of its own, and needs none."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_network

    assert two_fits(tmp_path, make_network(grows=True)) == ()


def test_a_network_is_not_asked_for_a_random_state(tmp_path):
    """One that draws from elsewhere is told what a network can do about it."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_restless_network

    (finding,) = two_fits(tmp_path, make_restless_network())

    assert "cannot be repeated exactly. A network has no random_state" in finding
    assert "skorch callback" in finding
