"""RTSCV and the model it starts from, as detectors. Knows `RTSCVClassifier` and the base model."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rtscv_mlops.peers.base import UNKNOWN, Detector, check_window
from rtscv_mlops.peers.models import class_scores
from rtscv_mlops.rectify import RTSCVClassifier
from rtscv_mlops.rectify.base import seeded


class PreRectified(Detector):
    """The base model alone: it never says unknown.

    The score is 1 minus its largest probability, or decision value where it has no probabilities;
    a model with neither scores every row alike.
    """

    threshold_ = np.inf

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        self.model_ = seeded(self.estimator, self.random_state).fit(X, y)
        return self

    def score(self, X: Any) -> NDArray:
        return 1 - class_scores(self.model_, X).max(axis=1)

    def classify(self, X: Any) -> NDArray:
        return np.asarray(self.model_.predict(X)).ravel()


class Rectified(Detector):
    """A base model that was fitted again, with rows of the window as one more class.

    Its own prediction decides, not the score, which is the unknown class' lead over the others.
    `model_` is that model; `n_known_` is the code of the unknown class.
    """

    sees_window: ClassVar[bool] = True
    threshold_ = 0.0

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        check_window(self, window)
        self.n_known_ = int(y.max()) + 1
        self._rectify(X, y, window)
        return self

    def score(self, X: Any) -> NDArray:
        scores = class_scores(self.model_, X)
        if scores.shape[1] == self.n_known_:
            return np.full(len(scores), -1.0)
        return scores[:, -1] - scores[:, :-1].max(axis=1)

    def classify(self, X: Any) -> NDArray:
        return class_scores(self.model_, X)[:, : self.n_known_].argmax(axis=1)

    def decide(self, X: Any) -> NDArray:
        return self.predict(X) == UNKNOWN

    def predict(self, X: Any) -> NDArray:
        codes = np.asarray(self.model_.predict(X)).ravel()
        return np.where(codes == self.n_known_, UNKNOWN, codes)

    def predict_window(self, window: Any) -> NDArray:
        return self.predict(window)

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        raise NotImplementedError


class PaperMode(Rectified):
    """RTSCV as published, with a sample of 0.2 of the training rows."""

    mode: ClassVar[Literal["monitor", "paper"]] = "paper"

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        self.model_ = RTSCVClassifier(
            self.estimator, mode=self.mode, random_state=self.random_state
        ).fit(X, y, window)


class Monitor(PaperMode):
    """RTSCV as the product runs it: it tests first whether the window holds anything new."""

    mode = "monitor"
    threshold_ = 0.5

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        super()._rectify(X, y, window)
        self.window_scores_ = self.model_.window_scores_

    def score(self, X: Any) -> NDArray:
        return self.model_.unknown_score(X)
