"""The open-set nearest neighbour, which compares distances with distances. Knows numbers only."""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from rtscv_mlops.peers.extremes import distance_chunks
from rtscv_mlops.peers.open_set import OpenSetClassifier, split_points
from rtscv_mlops.peers.thresholds import normalised_accuracy


class OSNN(OpenSetClassifier):
    """Nearest neighbour distance ratio (Mendes Júnior et al. 2016).

    The score is the distance to the nearest known row over that to the nearest row of any other
    class: near 1, a row lies between classes or far from all. The threshold is the source's, which
    hides half of the classes and takes the best normalised accuracy.
    """

    GROUPS: ClassVar[int] = 2
    _quality = staticmethod(normalised_accuracy)

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        order = np.argsort(codes, kind="stable")
        self.rows_, self.starts_ = numbers[order], split_points(codes[order])
        return self

    def _membership(self, numbers: NDArray) -> NDArray:
        def nearest(distances: NDArray, start: int) -> NDArray:
            return np.minimum.reduceat(distances, self.starts_, axis=1)

        return -np.concatenate(list(distance_chunks(numbers, self.rows_, nearest)))

    def _strangeness(self, membership: NDArray) -> NDArray:
        first, second = np.partition(-membership, 1, axis=1)[:, :2].T
        # A row that coincides with rows of two classes is as ambiguous as can be.
        return np.divide(first, second, out=np.ones(len(first)), where=second > 0)
