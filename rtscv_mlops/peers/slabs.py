"""The 1-vs-Set machine: a class lies between two parallel planes. Knows numbers only."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from rtscv_mlops.peers.open_set import OpenSetClassifier

PENALTY = 10.0
TOLERANCE = 1e-3
"""Where a plane separates the classes, the solver's usual tolerance takes a thousand steps."""

POSITIONS = 64
"""Places that are tried for each plane."""


@dataclass(frozen=True, slots=True)
class Slab:
    """The scores between a near and a far plane."""

    near: float
    far: float

    def outside(self, scores: NDArray) -> NDArray:
        """Return how far outside the slab each score lies; inside, it is negative."""
        return np.maximum(self.near - scores, scores - self.far)


def open_space_risk(width: NDArray, needed: float) -> NDArray:
    """Return Scheirer's risk of a slab: high when far wider, or far thinner, than the class."""
    return width / needed + needed / width


def fit_slab(own: NDArray, others: NDArray) -> Slab:
    """Return the slab of least open space risk plus empirical risk (1 - F on training scores).

    The pressures on the planes are 0, as in the authors' program. Instead of their greedy search,
    all pairs of positions are tried: quantiles of the class' own scores, the near one also at the
    machine's plane.
    """
    needed = max(float(np.ptp(own)), np.finfo(float).eps)
    places = np.quantile(own, np.linspace(0, 1, POSITIONS))
    near, far = (grid.ravel() for grid in np.meshgrid(np.append(places, 0.0), places))
    near, far = near[near < far], far[near < far]
    if len(near) == 0:
        return Slab(own.min(), own.max())
    hits, false_hits = _count_between(own, near, far), _count_between(others, near, far)
    f_measure = 2 * hits / (len(own) + hits + false_hits)
    best = np.argmin(open_space_risk(far - near, needed) + 1 - f_measure)
    return Slab(float(near[best]), float(far[best]))


def _count_between(scores: NDArray, near: NDArray, far: NDArray) -> NDArray:
    ordered = np.sort(scores)
    return np.searchsorted(ordered, far, side="right") - np.searchsorted(ordered, near)


class OneVsSet(OpenSetClassifier):
    """The 1-vs-Set machine (Scheirer et al. 2013): linear, one class against the rest.

    A row outside all slabs is unknown, so the threshold is 0; of several slabs that hold a row, the
    one whose machine scores it highest wins.
    """

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        self.machines_ = [
            LinearSVC(C=PENALTY, tol=TOLERANCE, random_state=self.random_state).fit(
                numbers, codes == code
            )
            for code in np.unique(codes)
        ]
        values = self._values(numbers)
        self.slabs_ = [
            fit_slab(values[codes == code, code], values[codes != code, code])
            for code in range(len(self.machines_))
        ]
        return self

    def classify(self, X: object) -> NDArray:
        numbers = self.scaled_.transform(X)
        inside = self._membership(numbers)
        # Inside a slab the machine's own score counts; else the nearest slab does.
        values = np.where(inside >= 0, self._values(numbers), -np.inf)
        return np.where((inside >= 0).any(axis=1), values.argmax(axis=1), inside.argmax(axis=1))

    def _membership(self, numbers: NDArray) -> NDArray:
        values = self._values(numbers)
        return -np.column_stack(
            [slab.outside(values[:, code]) for code, slab in enumerate(self.slabs_)]
        )

    def _values(self, numbers: NDArray) -> NDArray:
        return np.column_stack([machine.decision_function(numbers) for machine in self.machines_])

    def _choose_threshold(self, numbers: NDArray, codes: NDArray) -> float:
        return 0.0
