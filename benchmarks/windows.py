"""Windows with a known truth, drawn from labelled data: classes hidden, a change applied."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Dataset


@dataclass(frozen=True, slots=True)
class Case:
    """Training rows of the known classes, a window, and what the window really holds.

    Labels are 0 … n_known - 1; `n_known` stands for every hidden class. `baseline` is a second
    window without hidden classes.
    """

    X: NDArray
    y: NDArray
    window: NDArray
    truth: NDArray
    baseline: NDArray
    n_known: int

    @property
    def unknown(self) -> NDArray:
        return self.truth == self.n_known

    @property
    def unknown_rate(self) -> float:
        return float(self.unknown.mean())


def published_case(data: Dataset, n_hidden: int, seed: int) -> tuple[Case, NDArray, NDArray]:
    """Hide classes from the published training part (or a random half) and keep all test rows.

    Also return the hidden classes' training rows and all training labels, for the ceiling.
    """
    rng = np.random.default_rng(seed)
    _, known = _hide(data, n_hidden, rng)
    if data.is_training is None:
        order = rng.permutation(len(data.y))
        training, test = np.split(order, [len(order) // 2])
    else:
        training, test = np.flatnonzero(data.is_training), np.flatnonzero(~data.is_training)
    of_known = np.isin(data.y[training], known)
    case = Case(
        X=data.X[training[of_known]],
        y=_codes(data.y[training[of_known]], known),
        window=data.X[test],
        truth=_codes(data.y[test], known),
        baseline=data.X[:0],
        n_known=len(known),
    )
    return case, data.X[training], _codes(data.y[training], known)


def draw_case(
    data: Dataset,
    *,
    n_hidden: int,
    n_training: int,
    n_window: int,
    unknown_rate: float,
    change: str,
    seed: int,
) -> Case:
    """Draw disjoint training rows, window and baseline, and change the window's known rows."""
    rng = np.random.default_rng(seed)
    hidden, known = _hide(data, n_hidden, rng)
    training, test = _split(data, change, rng)
    training = training[np.isin(data.y[training], known)][:n_training]
    n_unknown = round(unknown_rate * n_window)
    known_rows = test[np.isin(data.y[test], known)]
    if change == "label shift":
        known_rows = _shift_labels(data.y, known_rows, known, n_window - n_unknown, rng)
    in_window = known_rows[: n_window - n_unknown]
    rest = known_rows[len(in_window) :][:n_window]
    rows = np.concatenate([in_window, test[np.isin(data.y[test], hidden)][:n_unknown]])
    rows = rng.permutation(rows)
    window, truth = data.X[rows].astype(float), _codes(data.y[rows], known)
    if change in ("drift", "one class drifts"):
        moved = truth == 0 if change == "one class drifts" else np.ones(len(rows), dtype=bool)
        _move(window, moved, data.X[training].std(axis=0), change, rng)
    return Case(
        X=data.X[training],
        y=_codes(data.y[training], known),
        window=window,
        truth=truth,
        baseline=data.X[rest],
        n_known=len(known),
    )


def _hide(data: Dataset, n_hidden: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    order = rng.permutation(np.unique(data.y))
    return order[:n_hidden], np.sort(order[n_hidden:])


def _codes(labels: NDArray, known: NDArray) -> NDArray:
    position = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[position] == labels, position, len(known))


def _split(data: Dataset, change: str, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Split at random, except for new writers: Pendigits' published test part has others."""
    order = rng.permutation(len(data.y))
    if change == "new writers" and data.is_training is not None:
        return order[data.is_training[order]], order[~data.is_training[order]]
    return order[: len(order) // 2], order[len(order) // 2 :]


def _shift_labels(
    y: NDArray, rows: NDArray, known: NDArray, size: int, rng: np.random.Generator
) -> NDArray:
    """Draw rows with class shares from a flat Dirichlet: some classes nearly vanish."""
    share = rng.dirichlet(np.ones(len(known)))
    code = np.searchsorted(known, y[rows])
    weight = (share / np.maximum(np.bincount(code, minlength=len(known)), 1))[code]
    size = min(size, len(rows) // 2)
    return rng.choice(rows, size, replace=False, p=weight / weight.sum())


def _move(
    window: NDArray, moved: NDArray, spread: NDArray, change: str, rng: np.random.Generator
) -> None:
    """Shift a quarter of the features: all rows by 0.25 sd, or one class by 1 sd."""
    features = rng.permutation(window.shape[1])[: max(1, window.shape[1] // 4)]
    sign = rng.choice([-1.0, 1.0], len(features))
    size = 1.0 if change == "one class drifts" else 0.25
    window[np.ix_(moved, features)] += size * spread[features] * sign
