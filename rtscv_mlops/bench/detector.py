"""The interface of all detectors, and what several of them share.

Labels are codes 0, 1, …; rows are what the monitored estimator takes. A threshold comes from
held-out scores of known rows, or from known classes that are hidden.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from rtscv_mlops import metrics
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.estimator.rows import Numbers, take

UNKNOWN = -1
"""The code of a row that was decided to be unknown."""


class Detector(BaseEstimator):
    """Scores rows and decides which are unknown, by a threshold that only known rows determine.

    If a detector has `window_scores_`, they replace `score(window)`: scores of the window's rows
    by models that were not fitted on them.
    """

    sees_window: ClassVar[bool] = False
    """Whether the unlabelled window takes part in the fit."""

    threshold_: float
    window_scores_: NDArray

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        """Learn the known classes; a detector that does not see windows ignores `window`."""
        raise NotImplementedError

    def score(self, X: Any) -> NDArray:
        """Return how unknown each row looks: higher is more unknown."""
        raise NotImplementedError

    def classify(self, X: Any) -> NDArray:
        """Return the best known class of each row."""
        raise NotImplementedError

    def decide(self, X: Any) -> NDArray:
        """Return whether each row is unknown."""
        return self.score(X) > self.threshold_

    def predict(self, X: Any) -> NDArray:
        """Return the code of each row's class, or `UNKNOWN`."""
        return np.where(self.decide(X), UNKNOWN, self.classify(X))

    def score_window(self, window: Any) -> NDArray:
        """Score the rows of the fitted window, held out if the detector can."""
        return self.window_scores_ if hasattr(self, "window_scores_") else self.score(window)

    def predict_window(self, window: Any) -> NDArray:
        """Return the codes of the fitted window's rows, decided by `score_window`."""
        unknown = self.score_window(window) > self.threshold_
        return np.where(unknown, UNKNOWN, self.classify(window))


class BaseModelDetector(Detector):
    """A detector that adds to the base model, whose predictions are its known classes."""

    model_: Any

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def classify(self, X: Any) -> NDArray:
        return np.asarray(self.model_.predict(X)).ravel()

    def _fit_base(self, X: Any, y: NDArray) -> Any:
        return seeded(self.estimator, self.random_state).fit(X, y)


MAX_ROWS = 12_000
"""Known rows that a detector of quadratic cost keeps; twice as many would take minutes."""


class Scaled(TransformerMixin, BaseEstimator):
    """Turns any table into numbers; in the known rows each column has mean 0 and variance 1."""

    def fit(self, X: Any, y: NDArray | None = None) -> Self:
        self.numbers_ = Numbers().fit(X)
        self.scaler_ = StandardScaler().fit(self._plain(X))
        return self

    def transform(self, X: Any) -> NDArray:
        return self.scaler_.transform(self._plain(X))

    def _plain(self, X: Any) -> NDArray:
        # In single precision, rounding errors exceed the distances of nearly equal rows.
        return self.numbers_.transform(X).astype(np.float64)


def sample_by_class(codes: NDArray, seed: int, limit: int = MAX_ROWS) -> NDArray:
    """Return the indices of about `limit` rows at most, in which classes keep their shares."""
    if len(codes) <= limit:
        return np.arange(len(codes))
    rng = np.random.default_rng(seed)
    by_class = [rng.permutation(np.flatnonzero(codes == code)) for code in np.unique(codes)]
    share = limit / len(codes)
    return np.sort(np.concatenate([rows[: int(np.ceil(share * len(rows)))] for rows in by_class]))


def decision_values(model: Any, X: Any) -> NDArray:
    """Return one decision value per class; two classes share theirs evenly, as -f/2 and f/2."""
    values = np.asarray(model.decision_function(X))
    return np.column_stack([-values / 2, values / 2]) if values.ndim == 1 else values


def native_scores(model: Any, X: Any) -> NDArray:
    """Return the best per-class scores a model offers: probabilities, decision values, labels."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if hasattr(model, "decision_function"):
        return decision_values(model, X)
    return (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(float)


# -- thresholds that only known rows determine

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
