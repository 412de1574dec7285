"""Where "unknown" begins, found from known rows only: out-of-fold scores, or hidden classes.

Knows codes, scores and functions that learn; knows nothing of particular methods.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from rtscv_mlops import metrics
from rtscv_mlops.bench.detector import Detector, Scaled, check_two_classes, keep_some
from rtscv_mlops.estimator.rows import take

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


class OpenSetClassifier(Detector):
    """Classifies by itself, without the base model, from at most `MAX_ROWS` scaled known rows."""

    GROUPS: ClassVar[int] = 3
    """Of this many groups of classes each is hidden once: few enough visible classes are missing
    that a threshold carries over, since most methods grow stricter with every further class."""

    _quality = staticmethod(open_set_f)

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        check_two_classes(y, type(self).__name__)
        kept = keep_some(y, self.random_state)
        self.scaled_ = Scaled().fit(X)
        numbers, codes = self.scaled_.transform(take(X, kept)), y[kept]
        self.threshold_ = self._choose_threshold(numbers, codes)
        return self._learn(numbers, codes)

    def score(self, X: Any) -> NDArray:
        return self._strangeness(self._membership(self.scaled_.transform(X)))

    def classify(self, X: Any) -> NDArray:
        return self._membership(self.scaled_.transform(X)).argmax(axis=1)

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        """Learn the classes from numbers; the codes are 0, 1, … without gaps."""
        raise NotImplementedError

    def _membership(self, numbers: NDArray) -> NDArray:
        """Return how much each row belongs to each class."""
        raise NotImplementedError

    def _strangeness(self, membership: NDArray) -> NDArray:
        return -membership.max(axis=1)

    def _choose_threshold(self, numbers: NDArray, codes: NDArray) -> float:
        return self._hide_classes(numbers, codes).threshold

    def _hide_classes(self, numbers: NDArray, codes: NDArray) -> Level:
        return level_by_hiding(
            self._judge,
            numbers,
            codes,
            groups=self.GROUPS,
            quality=self._quality,
            seed=self.random_state,
        )

    def _judge(self, known: NDArray, codes: NDArray, rows: NDArray) -> tuple[NDArray, NDArray]:
        membership = copy(self)._learn(known, codes)._membership(rows)
        return membership.argmax(axis=1), self._strangeness(membership)


def split_points(sorted_codes: NDArray) -> NDArray:
    """Return where each class begins among rows sorted by class."""
    return np.searchsorted(sorted_codes, np.unique(sorted_codes))
