"""Open-set classifiers, and thresholds that only known rows determine.

A threshold comes from held-out scores of known rows, or from known classes that are hidden.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from rtscv_mlops import metrics
from rtscv_mlops.bench.detector import UNKNOWN, Detector, Scaled, sample_by_class
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.rows import take

KNOWN_KEPT = 0.95
"""Share of held-out known rows below a threshold that is found without hidden classes."""

FOLDS = 3
CANDIDATES = 100
HELD_OUT = 1 / 3
"""Share of the visible classes' rows that are held out when other classes are hidden."""

Quality = Callable[[NDArray, NDArray], float]
"""Rates predicted codes, given the true ones; both use `UNKNOWN`."""

Judge = Callable[[NDArray, NDArray, NDArray], tuple[NDArray, NDArray]]
"""Learns from rows and codes, then returns the best class and the score of further rows."""


@dataclass(frozen=True, slots=True)
class RatedThreshold:
    """A threshold, and how well it finds hidden classes: 0 if none could be hidden."""

    threshold: float
    quality: float


@dataclass(frozen=True, slots=True)
class HidingRound:
    """Rows with their true code (`UNKNOWN` if hidden), their best known class, and their score."""

    truth: NDArray
    best: NDArray
    scores: NDArray

    @classmethod
    def of(cls, judge: Judge, rows: NDArray, codes: NDArray, hidden: NDArray, seed: int) -> Self:
        """Learn without the hidden classes, then score them and held-out rows of the others."""
        is_hidden = np.isin(codes, hidden)
        classes, visible = np.unique(codes[~is_hidden]), np.flatnonzero(~is_hidden)
        train, test = train_test_split(
            visible, test_size=HELD_OUT, stratify=codes[visible], random_state=seed
        )
        scored = np.concatenate([test, np.flatnonzero(is_hidden)])
        best, scores = judge(rows[train], np.searchsorted(classes, codes[train]), rows[scored])
        truth = np.where(is_hidden[scored], UNKNOWN, np.searchsorted(classes, codes[scored]))
        return cls(truth, best, scores)

    def rate(self, threshold: float, quality: Quality) -> float:
        return quality(self.truth, np.where(self.scores > threshold, UNKNOWN, self.best))


def split_folds(codes: NDArray, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Split rows so that each is held out once."""
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    yield from splitter.split(np.zeros(len(codes)), codes)


def find_threshold(known_scores: NDArray) -> float:
    """Return the threshold that the agreed share of known rows is below."""
    return float(np.quantile(known_scores, KNOWN_KEPT))


def open_set_f(truth: NDArray, predicted: NDArray) -> float:
    """Rate by the macro F over the visible classes and one unknown class."""
    return metrics.macro_f(truth, predicted, np.unique(truth[truth >= 0]).tolist(), UNKNOWN)


def normalised_accuracy(truth: NDArray, predicted: NDArray) -> float:
    """Rate by the mean of the accuracies on known and on unknown rows (Mendes Júnior 2016)."""
    hits, known = truth == predicted, truth >= 0
    return float(hits[known].mean() + hits[~known].mean()) / 2


def find_threshold_by_hiding(
    judge: Judge, rows: NDArray, codes: NDArray, *, groups: int, quality: Quality, seed: int
) -> RatedThreshold:
    """Hide each group of known classes in turn; return what finds them best on average.

    If there are only two classes, none can be hidden, and held-out known rows alone decide.
    """
    classes = np.random.default_rng(seed).permutation(np.unique(codes))
    if len(classes) < 3:
        splits = split_folds(codes, seed)
        held_out = [judge(rows[train], codes[train], rows[test])[1] for train, test in splits]
        return RatedThreshold(find_threshold(np.concatenate(held_out)), 0.0)
    # With three classes, half of them would be two, and one class would be left.
    hidden = np.array_split(classes, groups if len(classes) > 3 else 3)
    rounds = [HidingRound.of(judge, rows, codes, group, seed) for group in hidden]
    pooled = np.concatenate([each.scores for each in rounds])
    candidates = np.unique(np.quantile(pooled, np.linspace(0, 1, CANDIDATES)))
    rated = [np.mean([each.rate(level, quality) for each in rounds]) for level in candidates]
    return RatedThreshold(float(candidates[int(np.argmax(rated))]), float(max(rated)))


class OpenSetClassifier(Detector):
    """Classifies without the base model, from at most `MAX_ROWS` scaled known rows."""

    GROUPS: ClassVar[int] = 3
    """Groups of classes, each of which is hidden once. Most detectors become stricter with every
    further class, so a threshold is valid only if few classes were missing when it was found."""

    _quality = staticmethod(open_set_f)

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        if len(np.unique(y)) < 2:
            raise InputError(
                f"{type(self).__name__} bounds a class by the rows of other classes, and only one "
                "class is known. Use a detector of single classes, such as isolation_forest."
            )
        kept = sample_by_class(y, self.random_state)
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

    def _hide_classes(self, numbers: NDArray, codes: NDArray) -> RatedThreshold:
        return find_threshold_by_hiding(
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
