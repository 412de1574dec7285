"""What every peer offers: fit on known rows, score rows, decide which are unknown.

Knows labels as codes 0, 1, … and rows as the monitored estimator takes them.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from rtscv_mlops.errors import InputError

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
