"""Gates score every row with models that have not seen it, and alike for known and window rows."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from rtscv_mlops.estimator import gates, kernel
from rtscv_mlops.estimator.gates import FoldsGate, ForestGate, Layout, margins
from rtscv_mlops.estimator.kernel import KernelGate
from tests.windows import new_blob

GATES = {
    "kernel": KernelGate,
    "forest": lambda: ForestGate(n_trees=30),
    "folds": lambda: FoldsGate(SVC()),
}


def lay_out(seed=0):
    """Known rows, then window rows of which the last belong to a new class."""
    X, y, window, truth = new_blob()
    table = np.concatenate([X, window])
    known, dummy = np.arange(len(X)), np.arange(len(X), len(table))
    folds = np.random.default_rng(seed).permutation(len(table)) % 3
    is_new = np.concatenate([np.zeros(len(X), dtype=bool), truth == truth.max()])
    return table, Layout(known, y, dummy, folds, ratio=0.2), is_new


@pytest.mark.parametrize("name", GATES)
def test_unknowns_lead(name):
    """Rows of the new class have larger margins than the known rows of the window."""
    table, layout, is_new = lay_out()
    gate = GATES[name]().prepare(table, layout.classes, layout.labels, seed=0)

    margin = margins(gate.cross_fit(layout, np.arange(len(table))))

    assert roc_auc_score(is_new[layout.dummy], margin[layout.dummy]) > 0.95
    assert roc_auc_score(is_new, margins(gate.scores(table))) > 0.95


@pytest.mark.parametrize("name", ["kernel", "folds"])
def test_no_row_judges_itself(name):
    """What a row is called does not reach its own score: its models were fitted without it."""
    table, layout, _ = lay_out()
    moved = Layout(layout.classes, layout.labels.copy(), layout.dummy, layout.folds, layout.ratio)
    moved.labels[7] = (moved.labels[7] + 1) % layout.n_classes

    before, after = (
        GATES[name]()
        .prepare(table, layout.classes, layout.labels, seed=0)
        .cross_fit(one, np.arange(len(table)))
        for one in (layout, moved)
    )

    same_fold = layout.folds == layout.folds[7]
    np.testing.assert_allclose(after[same_fold], before[same_fold], rtol=1e-4, atol=1e-5)
    assert not np.allclose(after[~same_fold], before[~same_fold], atol=1e-5)


@pytest.mark.parametrize("name", GATES)
def test_known_and_window_rows_are_exchangeable(name):
    """Without news, the margins of known rows and of window rows have one law."""
    X, y, _, _ = new_blob()
    rng = np.random.default_rng(3)
    areas = []
    for seed in range(8):
        order = rng.permutation(len(X))
        known, dummy = np.split(order, [len(X) // 2])
        layout = Layout(known, y[known], dummy, rng.permutation(len(X)) % 3, ratio=0.2)
        gate = GATES[name]().prepare(X, known, y[known], seed)
        margin = margins(gate.cross_fit(layout, np.arange(len(X))))
        areas.append(roc_auc_score(np.isin(np.arange(len(X)), dummy), margin))

    assert np.mean(areas) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", GATES)
def test_pieces_change_nothing(name, monkeypatch):
    """Rows scored in small pieces, with or without kept features, get the same scores."""
    table, layout, _ = lay_out()

    def scores():
        gate = GATES[name]().prepare(table, layout.classes, layout.labels, seed=0)
        return gate.cross_fit(layout, np.arange(len(table)))

    whole = scores()
    monkeypatch.setattr(gates, "CHUNK", 50)
    monkeypatch.setattr(KernelGate, "MAX_FEATURES", 0)

    np.testing.assert_allclose(scores(), whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("defect", [1.0, 1.05, 3.0])
def test_near_copies_do_not_end_it(defect):
    """Single precision may leave the equations singular or indefinite; they are solved anyway."""
    direction = np.full((20, 1), 20**-0.5)
    prior = np.eye(20) - defect * direction @ direction.T

    solved = kernel._ridge(np.zeros((20, 20)), np.ones((20, 2)), prior, ridge=1.0)

    assert np.isfinite(solved).all()
