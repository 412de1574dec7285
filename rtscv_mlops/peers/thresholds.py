"""Where "unknown" begins, found from known rows only: out-of-fold scores, or hidden classes.

Knows codes, scores and functions that learn; knows nothing of particular methods.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from rtscv_mlops import metrics

KNOWN_KEPT = 0.95
"""Share of held-out known rows that a threshold without hidden classes leaves known."""

FOLDS = 3
CANDIDATES = 100
HELD_OUT = 1 / 3
"""Share of the visible classes' rows that a round judges instead of learning from."""

Quality = Callable[[NDArray, NDArray], float]
"""Rates predicted codes, given the true ones; unknown rows are -1 in both."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows with their true code (-1: of a hidden class), their best known class, their score."""

    truth: NDArray
    best: NDArray
    scores: NDArray


@dataclass(frozen=True, slots=True)
class Level:
    """A threshold, and how well it found hidden classes: 0 where none could be hidden."""

    threshold: float
    quality: float


Judge = Callable[[NDArray, NDArray, NDArray], tuple[NDArray, NDArray]]
"""Learns from rows and codes, then returns the best class and the score of further rows."""


def folds(codes: NDArray, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Split rows so that each is held out once."""
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    yield from splitter.split(np.zeros(len(codes)), codes)


def keep_known(scores: NDArray) -> float:
    """Return the threshold that leaves the agreed share of known rows below it."""
    return float(np.quantile(scores, KNOWN_KEPT))


def open_set_f(truth: NDArray, predicted: NDArray) -> float:
    """Rate by the macro F over the visible classes and one unknown class."""
    return metrics.macro_f(truth, predicted, np.unique(truth[truth >= 0]).tolist(), -1)


def normalised_accuracy(truth: NDArray, predicted: NDArray) -> float:
    """Rate by the mean of the accuracies on known and on unknown rows (Mendes Júnior 2016)."""
    hits, known = truth == predicted, truth >= 0
    return float(hits[known].mean() + hits[~known].mean()) / 2


def level_by_hiding(
    judge: Judge, rows: NDArray, codes: NDArray, *, groups: int, quality: Quality, seed: int
) -> Level:
    """Hide one group of the known classes after another; return what finds them best on average.

    Of two classes none can be hidden with two left: then held-out known rows alone decide.
    """
    classes = np.random.default_rng(seed).permutation(np.unique(codes))
    if len(classes) < 3:
        splits = folds(codes, seed)
        held_out = [judge(rows[train], codes[train], rows[test])[1] for train, test in splits]
        return Level(keep_known(np.concatenate(held_out)), 0.0)
    # Of three classes a half would be two, and leave one alone.
    hidden = np.array_split(classes, groups if len(classes) > 3 else 3)
    rounds = [_hide_and_judge(judge, rows, codes, group, seed) for group in hidden]
    pooled = np.concatenate([judged.scores for judged in rounds])
    candidates = np.unique(np.quantile(pooled, np.linspace(0, 1, CANDIDATES)))
    rated = [np.mean([_rate(judged, level, quality) for judged in rounds]) for level in candidates]
    return Level(float(candidates[int(np.argmax(rated))]), float(max(rated)))


def _hide_and_judge(
    judge: Judge, rows: NDArray, codes: NDArray, hidden: NDArray, seed: int
) -> Judged:
    is_hidden = np.isin(codes, hidden)
    visible, shown = np.unique(codes[~is_hidden]), np.flatnonzero(~is_hidden)
    train, test = train_test_split(
        shown, test_size=HELD_OUT, stratify=codes[shown], random_state=seed
    )
    judged = np.concatenate([test, np.flatnonzero(is_hidden)])
    best, scores = judge(rows[train], np.searchsorted(visible, codes[train]), rows[judged])
    truth = np.where(is_hidden[judged], -1, np.searchsorted(visible, codes[judged]))
    return Judged(truth, best, scores)


def _rate(judged: Judged, threshold: float, quality: Quality) -> float:
    return quality(judged.truth, np.where(judged.scores > threshold, -1, judged.best))
