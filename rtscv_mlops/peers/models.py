"""What detectors ask of the base model, and the numbers that distances and kernels work on.

Knows scikit-learn's estimators; knows nothing of what is unknown.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler

from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.rows import Numbers

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
