"""The gate that solves RTSCV's class layout in closed form, on a kernel."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from rtscv_mlops.estimator.gates import Layout, chunks, held_out_chunks
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import Numbers

TRIMMED = 0.01
"""Share of known rows clipped at either end before a column's spread is measured."""

FEATURE_ROWS = 1_000
"""Rows whose features are processed at once, about 5 MB with a thousand features each."""


class KernelGate:
    """Weighted ridge regression on a Gaussian kernel, with landmarks drawn from all rows.

    The solution is in closed form, so the whole window takes part in every fold, lightly weighted,
    instead of a small sample of it, and the reverse test needs no new features. Scaling, width
    and ridge are those that separate the known classes best in a trial on some of their rows. The
    trial also sets the number of landmarks, so that an easy problem stays cheap.
    """

    SPREADS = (0.3, 1.0, 2.0)
    RIDGES = (0.1, 1.0)
    TRIAL_ROWS = 1_000
    TRIAL_LANDMARKS = 240
    MAX_FEATURES = 40_000_000  # 160 MB; larger tables are not cached but computed again

    def __init__(self, max_landmarks: int = 1_200) -> None:
        self.max_landmarks = max_landmarks

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        rng = np.random.default_rng(seed)
        self._numbers = Numbers().fit(table)
        numbers = self._numbers.transform(table)
        enough = self._choose_space(numbers, classes, labels, rng)
        self._table = self._scale(numbers)
        size = min(max(len(numbers) // 8, 500), enough or self.max_landmarks, len(numbers))
        self._landmarks = self._table[rng.permutation(len(numbers))[:size]]
        self._is_kept = np.zeros(len(numbers), dtype=bool)
        fits_memory = len(numbers) * size <= self.MAX_FEATURES
        # The operating system allocates this memory only as rows are written to it.
        self._features = np.empty((len(numbers), size), self._table.dtype) if fits_memory else None
        self._grams: dict[bytes, NDArray] = {}
        self._coefficients: NDArray | None = None
        return self

    def renewed(self) -> Self:
        gate = copy(self)
        gate._coefficients, gate._grams = None, {}
        return gate

    def forget(self) -> None:
        del self._table, self._features, self._is_kept, self._grams

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        scores = np.full((len(self._table), layout.n_classes + 1), np.nan)
        before, self._grams = self._grams, {}
        sums = [
            self._normal_equations(layout, fold, before) for fold in range(layout.folds.max() + 1)
        ]
        before.clear()
        prior = self._kernel(self._landmarks)
        coefficients = [
            _ridge(*_Equations.add_up(sums[:fold] + sums[fold + 1 :]), prior, self._ridge)
            for fold in range(len(sums))
        ]
        for rows, held_out in self._held_out_scores(layout, scored, coefficients):
            scores[rows] = held_out
        if self._coefficients is None:
            self._coefficients = np.mean(coefficients, axis=0)
        return scores

    def scores(self, rows: Any) -> NDArray:
        return self._kernel(self._scale(self._numbers.transform(rows))) @ self._coefficients

    def _held_out_scores(
        self, layout: Layout, scored: NDArray, coefficients: list[NDArray]
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield rows, and their scores by the coefficients that were fitted without them."""
        if self._features is not None:
            for fold, rows in held_out_chunks(layout, scored, FEATURE_ROWS):
                is_kept = self._is_kept[rows]
                yield rows[is_kept], self._features[rows[is_kept]] @ coefficients[fold]
                others = self._table[rows[~is_kept]]
                yield rows[~is_kept], self._kernel(others) @ coefficients[fold]
            return
        chunked = list(held_out_chunks(layout, scored))
        scores = do_all(
            _kernel_scores,
            ((self._table[rows], coefficients[fold]) for fold, rows in chunked),
            shared=(self._landmarks,),
        )
        yield from zip((rows for _, rows in chunked), scores, strict=True)

    def _normal_equations(
        self, layout: Layout, fold: int, before: dict[bytes, NDArray]
    ) -> "_Equations":
        """Return what the rows of one fold add to both sides of the normal equations."""
        target = np.zeros((len(self._landmarks), layout.n_classes + 1))
        held = np.flatnonzero(layout.folds[layout.classes] == fold)
        for piece in chunks(held, FEATURE_ROWS):
            hot = np.eye(layout.n_classes + 1, dtype=np.float32)[layout.labels[piece]]
            target += self._features_of(layout.classes[piece]).T @ hot
        dummy = layout.dummy[layout.folds[layout.dummy] == fold]
        for rows in chunks(dummy, FEATURE_ROWS):
            target[:, -1] += layout.dummy_weight * self._features_of(rows).sum(axis=0)
        return _Equations(
            self._gram(layout.classes[held], before),
            self._gram(dummy, before),
            layout.dummy_weight,
            target,
        )

    def _gram(self, rows: NDArray, before: dict[bytes, NDArray]) -> NDArray:
        """Return the Gram matrix of rows, the most expensive part.

        It is cached: the reverse test has the same rows, with classes and dummy exchanged.
        """
        rows = np.sort(rows)
        key = rows.tobytes()
        if key in before:
            self._grams[key] = before.pop(key)
        if key not in self._grams:
            gram = np.zeros((len(self._landmarks),) * 2)
            for chunk in chunks(rows, FEATURE_ROWS):
                features = self._features_of(chunk)
                gram += features.T @ features
            self._grams[key] = gram.astype(np.float32)
        return self._grams[key]

    def _features_of(self, rows: NDArray) -> NDArray:
        """Return the features of fitted rows. They are cached: every fold needs them again."""
        if self._features is None:
            return self._kernel(self._table[rows])
        new = rows[~self._is_kept[rows]]
        self._features[new] = self._kernel(self._table[new])
        self._is_kept[new] = True
        return self._features[rows]

    def _scale(self, numbers: NDArray) -> NDArray:
        return _squash(numbers - self._centre, self._spread)

    def _kernel(self, scaled: NDArray) -> NDArray:
        return _gaussian(scaled, self._landmarks)

    def _choose_space(
        self, numbers: NDArray, classes: NDArray, labels: NDArray, rng: np.random.Generator
    ) -> int | None:
        """Choose scaling, width and ridge by how well some known rows predict others.

        Return how many landmarks are enough; None for as many as allowed.
        """
        picked = rng.permutation(len(classes))[: self.TRIAL_ROWS]
        trial, hot = numbers[classes[picked]], np.eye(labels.max() + 1)[labels[picked]]
        self._centre, scale_of_each = _measure(numbers, classes)
        overall = np.full_like(scale_of_each, np.sqrt(np.mean(scale_of_each**2)) or 1.0)
        scale_of_each = np.where(scale_of_each > 0, scale_of_each, 1.0)
        size = min(len(trial) // 2, self.TRIAL_LANDMARKS)
        best = np.inf
        for scale in (scale_of_each, overall):
            for spread in self.SPREADS:
                divisor = (scale * np.sqrt(len(scale) / spread)).astype(np.float32)
                scaled = _squash(trial - self._centre, divisor)
                features = _gaussian(scaled, scaled[:size])
                for ridge in self.RIDGES:
                    loss = _trial_loss(features, hot, ridge)
                    if loss < best:
                        best, kept = loss, features
                        self._spread, self._ridge = divisor, ridge
        gain = _trial_loss(kept[:, : size // 2], hot, self._ridge) / best
        return size if gain < 1.05 else 2 * size if gain < 1.12 else None


def _measure(numbers: NDArray, classes: NDArray) -> tuple[NDArray, NDArray]:
    """Return the centre and the spread of each column in the known rows, outliers clipped.

    An outlier would widen its own column, and so look less unusual than the same value in a
    window. A column that is constant in the known rows is measured in all rows, window included.
    """
    low, high = np.quantile(numbers[classes], [TRIMMED, 1 - TRIMMED], axis=0)
    known = np.clip(numbers[classes], low, high)
    spread = known.std(axis=0)
    spread = np.where(spread > 0, spread, numbers.std(axis=0))
    # In the rows' own precision: float64 kernels would cost twice the time and memory.
    return known.mean(axis=0).astype(numbers.dtype), spread.astype(numbers.dtype)


def _squash(rows: NDArray, spread: NDArray) -> NDArray:
    """Scale rows in place, and clip them: a value far out carries no more information."""
    rows /= spread
    return np.clip(rows, -8, 8, out=rows)


def _trial_loss(features: NDArray, hot: NDArray, ridge: float) -> float:
    """Return the squared error on the second half of the rows, fitted on the first."""
    half, size = len(features) // 2, features.shape[1]
    first, second = features[:half], features[half:]
    solved = _ridge(first.T @ first, first.T @ hot[:half], first[:size], ridge)
    return float(np.mean((second @ solved - hot[half:]) ** 2))


def _gaussian(rows: NDArray, landmarks: NDArray) -> NDArray:
    squared = rows @ (-2 * landmarks.T)
    squared += (rows**2).sum(axis=1)[:, None]
    squared += (landmarks**2).sum(axis=1)
    np.maximum(squared, 0, out=squared)
    squared *= -1
    return np.exp(squared, out=squared)


def _kernel_scores(landmarks: NDArray, rows: NDArray, coefficients: NDArray) -> NDArray:
    return _gaussian(rows, landmarks) @ coefficients


@dataclass(frozen=True, slots=True)
class _Equations:
    """What the rows of a fold add to the normal equations: Gram matrices and target."""

    of_classes: NDArray
    of_dummy: NDArray
    dummy_weight: float
    target: NDArray

    @staticmethod
    def add_up(folds: "list[_Equations]") -> tuple[NDArray, NDArray]:
        """Return both sides of the equations, summed over folds."""
        gram = np.zeros_like(folds[0].of_classes, dtype=float)
        for fold in folds:
            gram += fold.of_classes
            gram += fold.dummy_weight * fold.of_dummy
        return gram, np.sum([fold.target for fold in folds], axis=0)


def _ridge(gram: NDArray, target: NDArray, prior: NDArray, ridge: float) -> NDArray:
    """Solve the ridge equations; overwrites `gram`.

    In single precision, near-copies leave the system slightly indefinite. A small value on the
    diagonal corrects that, or a larger one if it was not enough.
    """
    step = 1e-3 * ridge + 1e-4 * np.trace(gram) / len(gram)
    gram += ridge * prior
    for jitter in (step, 30 * step, 1000 * step):
        # Fortran order lets LAPACK factor it in place.
        system = np.array(gram, order="F", dtype=float)
        np.fill_diagonal(system, system.diagonal() + jitter)
        try:
            factor = cho_factor(system, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        return cho_solve(factor, target, check_finite=False).astype(np.float32)
    return np.linalg.lstsq(gram, target)[0].astype(np.float32)
