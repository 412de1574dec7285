"""Weibull tails, and the extreme value machine, which draws one round every known row.

Knows distances and tails; the machines that put tails on SVM scores live in `machines`.
"""

from collections.abc import Iterator
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_chunked

from rtscv_mlops.peers.open_set import OpenSetClassifier, split_points

CHUNK_MIB = 128
"""Memory for one piece of a distance matrix."""

STEPS = 30
SHAPES = (1e-2, 1e4)
"""Shapes outside these are those of equal values, which no Weibull describes."""

LEAST = 1e-6
"""A value this small beside the largest counts as this large: the log of 0 is no number."""

LARGEST_EXPONENT = 600.0


def fit_weibull(values: NDArray) -> tuple[NDArray, NDArray]:
    """Return the most likely shape and scale for each row of positive values, by Newton's method.

    The location is 0. The shape's equation has one root, and its left side only grows.
    """
    least = LEAST * np.maximum(values.max(axis=1, keepdims=True), LEAST)
    logs = np.log(np.maximum(values, least))
    # Relative to the largest value, so that no power of any shape overflows.
    top = logs.max(axis=1)
    logs = logs - top[:, None]
    middle = logs.mean(axis=1)
    shape = np.clip(np.pi / np.sqrt(6) / np.maximum(logs.std(axis=1), 1 / SHAPES[1]), *SHAPES)
    for _ in range(STEPS):
        powers = np.exp(shape[:, None] * logs)
        total = powers.sum(axis=1)
        first, second = ((powers * logs**order).sum(axis=1) / total for order in (1, 2))
        excess = first - 1 / shape - middle
        step = excess / (second - first**2 + 1 / shape**2)
        # A full step may leave the positive numbers; half the shape never does.
        shape = np.clip(np.maximum(shape - step, shape / 2), *SHAPES)
    scale = np.exp(shape[:, None] * logs).mean(axis=1) ** (1 / shape)
    return shape, scale * np.exp(top)


class EVM(OpenSetClassifier):
    """The extreme value machine (Rudd et al. 2018).

    Every known row gets a Weibull, fitted to half its distances to the `TAIL` nearest rows of other
    classes; a row belongs to it with probability exp(-(distance / scale) ** shape), and to a class
    as much as to its best row. The score is the negative logarithm, which ranks far rows too.
    Rows are all kept: the source's reduction to a cover saves time and changes little else.
    """

    TAIL: ClassVar[int] = 75
    """The source's choice for Letter."""

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        order = np.argsort(codes, kind="stable")
        self.rows_, self.starts_ = numbers[order], split_points(codes[order])
        ends = np.append(self.starts_[1:], len(codes))
        fits = [
            fit_weibull(self._nearest_margins(slice(start, end)))
            for start, end in zip(self.starts_, ends, strict=True)
        ]
        self.shapes_, self.scales_ = np.concatenate(fits, axis=1)
        return self

    def _nearest_margins(self, of_class: slice) -> NDArray:
        """Return half the distances of a class' rows to the nearest rows of other classes."""
        others = np.delete(self.rows_, of_class, axis=0)
        tail = min(self.TAIL, len(others))

        def shortest(distances: NDArray, start: int) -> NDArray:
            return np.partition(distances, tail - 1, axis=1)[:, :tail] / 2

        return np.concatenate(list(distance_chunks(self.rows_[of_class], others, shortest)))

    def _membership(self, numbers: NDArray) -> NDArray:
        scale = np.log(np.maximum(self.scales_, np.finfo(float).tiny))

        def best_exponent(distances: NDArray, start: int) -> NDArray:
            with np.errstate(divide="ignore"):  # a known row itself: the log is -inf, psi is 1
                exponents = self.shapes_ * (np.log(distances) - scale)
            return np.minimum.reduceat(exponents, self.starts_, axis=1)

        exponents = np.concatenate(list(distance_chunks(numbers, self.rows_, best_exponent)))
        return -np.exp(np.minimum(exponents, LARGEST_EXPONENT))


def distance_chunks(rows: NDArray, others: NDArray, reduce: object) -> Iterator[NDArray]:
    """Reduce the distances from rows to others, in pieces of bounded memory."""
    yield from pairwise_distances_chunked(
        rows, others, reduce_func=reduce, working_memory=CHUNK_MIB
    )
