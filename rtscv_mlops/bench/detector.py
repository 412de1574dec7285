"""What every peer offers: fit on known rows, score rows, decide which are unknown.

Knows labels as codes 0, 1, … and rows as the monitored estimator takes them.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.rows import Numbers

UNKNOWN = -1
"""The code of a row that was decided to be unknown."""


class Detector(BaseEstimator):
    """A way to tell unknown rows. Its threshold comes from its own rule, and from known rows only.

    `window_scores_`, where a detector has it, are the scores of the window's rows by models that
    have not seen them; they count instead of `score(window)`.
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
        """Tell for each row whether it is unknown."""
        return self.score(X) > self.threshold_

    def predict(self, X: Any) -> NDArray:
        """Return the code of each row's class, or `UNKNOWN`."""
        return np.where(self.decide(X), UNKNOWN, self.classify(X))

    def score_window(self, window: Any) -> NDArray:
        """Score the rows of the fitted window, by models that have not seen them where any do."""
        return self.window_scores_ if hasattr(self, "window_scores_") else self.score(window)

    def predict_window(self, window: Any) -> NDArray:
        """Return the codes of the fitted window's rows, decided by `score_window`."""
        unknown = self.score_window(window) > self.threshold_
        return np.where(unknown, UNKNOWN, self.classify(window))


def check_window(detector: Detector, window: Any) -> None:
    """Check that a detector that learns from a window was given one."""
    if window is None:
        raise InputError(
            f"{type(detector).__name__} learns from a window, and none was given. "
            "Call fit(X, y, window)."
        )


MAX_ROWS = 12_000
"""Known rows that a method of quadratic cost keeps: twice as many would take it minutes."""


class Scaled(TransformerMixin, BaseEstimator):
    """Turns any table into numbers of mean 0 and variance 1, as learned from known rows."""

    def fit(self, X: Any, y: NDArray | None = None) -> Self:
        self.numbers_ = Numbers().fit(X)
        self.scaler_ = StandardScaler().fit(self._plain(X))
        return self

    def transform(self, X: Any) -> NDArray:
        return self.scaler_.transform(self._plain(X))

    def _plain(self, X: Any) -> NDArray:
        # The distances of near twins drown in the rounding of single precision.
        return self.numbers_.transform(X).astype(np.float64)


def keep_some(codes: NDArray, seed: int, limit: int = MAX_ROWS) -> NDArray:
    """Return the positions of about `limit` rows at most, with the shares of the classes kept."""
    if len(codes) <= limit:
        return np.arange(len(codes))
    rng = np.random.default_rng(seed)
    of_classes = [rng.permutation(np.flatnonzero(codes == code)) for code in np.unique(codes)]
    share = limit / len(codes)
    return np.sort(np.concatenate([rows[: int(np.ceil(share * len(rows)))] for rows in of_classes]))


def check_two_classes(codes: NDArray, method: str) -> None:
    """Check that there are rows of other classes, which the method takes its bounds from."""
    if len(np.unique(codes)) < 2:
        raise InputError(
            f"{method} bounds a class by the rows of other classes, and only one class is known. "
            "Use a detector of single classes, such as isolation_forest."
        )


def decision_values(model: Any, X: Any) -> NDArray:
    """Return one decision value per class; two classes share theirs evenly, as -f/2 and f/2."""
    values = np.asarray(model.decision_function(X))
    return np.column_stack([-values / 2, values / 2]) if values.ndim == 1 else values


def class_scores(model: Any, X: Any) -> NDArray:
    """Return the best per-class scores a model offers: probabilities, decision values, labels."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if hasattr(model, "decision_function"):
        return decision_values(model, X)
    return (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(float)
