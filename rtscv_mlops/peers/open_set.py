"""What open-set classifiers share: they judge by class, and set their threshold by hiding classes.

Knows numbers and codes; the methods live in `extremes`, `machines`, `neighbours` and `slabs`.
"""

from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from rtscv_mlops.peers.base import Detector
from rtscv_mlops.peers.models import Scaled, check_two_classes, keep_some
from rtscv_mlops.peers.thresholds import Level, level_by_hiding, open_set_f
from rtscv_mlops.rectify.rows import take


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
