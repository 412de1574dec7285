"""The interface of all detectors, and what several of them share.

Labels are codes 0, 1, …; rows are what the monitored estimator takes.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler

from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.estimator.rows import Numbers

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
