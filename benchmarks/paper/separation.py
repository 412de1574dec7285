"""How well classes are separated: the paper's J1, and the slack of its Theorems 3.1 and 3.2."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtscv_mlops.errors import InputError
from rtscv_mlops.metrics import ClassSlack, check_flat, check_same_length


def j1_known(X: ArrayLike, y: ArrayLike) -> float:
    """Return the paper's J1 of the known classes: 1 plus between-class over within-class scatter.

    As in the paper, distances are taken from the plain mean of the class means, so the size of a
    class does not move the centre. J1 is nan with fewer than two classes, with a class of one row
    (which has no variance), and without any scatter within the classes.
    """
    known = _moments_by_class(X, y)
    if len(known.classes) < 2:
        return nan
    return _j1(known, known.means.mean(axis=0), float(known.shares @ known.scatters))


def j1_unknown(X: ArrayLike, y: ArrayLike, X_unknown: ArrayLike) -> float:
    """Return the paper's J1 of the unknown class: how far it is from the known ones.

    Distances are taken from the unknown mean and measured against the unknown scatter alone. The
    known classes are weighted by their shares of the known rows; the paper does not
    define whether the unknown rows count too, and this way their number does not change J1. It is
    nan without known rows, and with fewer than two distinct unknown rows.
    """
    known = _moments_by_class(X, y)
    unknown_mean, unknown_scatter = _moments_of_unknown(X_unknown, known)
    if not known.classes:
        return nan
    return _j1(known, unknown_mean, unknown_scatter)


def separation_slack(
    X: ArrayLike,
    y: ArrayLike,
    X_unknown: ArrayLike,
    *,
    sample_size: int,
    unknown_rate: float,
) -> tuple[ClassSlack, ...]:
    """Return the slack of Theorems 3.1 and 3.2 for each known class, in sorted order.

    Each class is modelled as a spherical Gaussian; its variance is the mean over the features.
    `sample_size` is the number of rows drawn from the window, `unknown_rate` the unknown share of
    it; the known classes share the rest as they share the training rows.

    A class whose variance cannot be estimated (one row, or equal rows) makes nan of every
    condition that mentions it: its own, and the known conditions of all classes, which hold only
    if they hold against every class. Too few unknown rows do the same. Without unknowns in the
    window (a rate of 0), the unknown conditions are nan. `bayes_unknown` is infinite for a class
    so small that unknown rows cannot be mistaken for it.

    Theorem 3.2 is stated for expected posteriors, but its proof, hence this slack, is about
    expected likelihoods times priors; in many dimensions the two can disagree.
    """
    # Theorem 3.3 is left out: by the law of total variance its known conditions average to 0 over
    # all classes, so they hold for every known class only if the unknowns lie among them.
    if not sample_size >= 1:
        raise InputError(f"sample_size must be at least 1 row, got {sample_size}.")
    if not 0 <= unknown_rate <= 1:
        raise InputError(f"unknown_rate must be a share between 0 and 1, got {unknown_rate}.")
    known = _moments_by_class(X, y)
    unknown_mean, unknown_scatter = _moments_of_unknown(X_unknown, known)
    advantages = _advantages(
        np.vstack([known.means, unknown_mean]), np.append(known.scatters, unknown_scatter)
    )
    of_known, of_unknown = advantages[:-1], advantages[-1, :-1]
    itself = np.eye(*of_known.shape).astype(bool)
    window_shares = known.shares * (1 - unknown_rate)
    window_unknown = unknown_rate or nan
    slacks = {
        "likelihood_known": np.where(itself, np.inf, of_known).min(axis=1),
        "likelihood_unknown": of_unknown - _twice_log((1 - window_shares) / window_unknown),
        # Theorem 3.2 needs each class against itself too: the dummy class holds rows of every
        # class, and one that outnumbers this class wins even those.
        "bayes_known": of_known.min(axis=1) - _twice_log(sample_size / known.rows),
        "bayes_unknown": of_unknown
        - _twice_log((known.rows / sample_size - window_shares) / window_unknown),
    }
    return tuple(
        ClassSlack(label, **{name: float(slack[number]) for name, slack in slacks.items()})
        for number, label in enumerate(known.classes)
    )


@dataclass(frozen=True, slots=True)
class _Moments:
    """Per class: label, number of rows, mean, and the trace of the covariance (divisor n)."""

    classes: list[Hashable]
    rows: NDArray[np.intp]
    means: NDArray[np.float64]
    scatters: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        return self.rows / self.rows.sum()


def _moments_by_class(X: ArrayLike, y: ArrayLike) -> _Moments:
    table, labels = _check_table("X", X), check_flat("y", np.asarray(y))
    check_same_length(X=table, y=labels)
    classes, position = np.unique(labels, return_inverse=True)
    moments = [_moments("X", table[position == number]) for number in range(len(classes))]
    return _Moments(
        classes=classes.tolist(),
        rows=np.bincount(position, minlength=len(classes)),
        means=np.array([mean for mean, _ in moments]).reshape(len(classes), table.shape[1]),
        scatters=np.array([scatter for _, scatter in moments], dtype=np.float64),
    )


def _moments_of_unknown(X_unknown: ArrayLike, known: _Moments) -> tuple[NDArray[np.float64], float]:
    table = _check_table("X_unknown", X_unknown)
    if table.shape[1] != known.means.shape[1]:
        raise InputError(
            f"X_unknown has {table.shape[1]} feature(s) and X has {known.means.shape[1]}. "
            "Pass the same columns of both."
        )
    return _moments("X_unknown", table)


def _moments(name: str, rows: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    # Class by class, so that a table of bytes is not copied to a whole table of floats.
    values = rows.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{name} contains values that are not finite. Impute or drop them first.")
    if len(values) < 2:
        mean = values[0] if len(values) else np.full(values.shape[1], nan)
        return mean, nan
    # Relative to the first row: then equal rows have a scatter of exactly 0, not a rounding error.
    first = values[0].copy()
    values -= first
    shift = values.mean(axis=0)
    values -= shift
    return first + shift, float(np.vdot(values, values)) / len(values)


def _j1(known: _Moments, centre: NDArray[np.float64], within: float) -> float:
    between = known.shares @ np.square(known.means - centre).sum(axis=1)
    return float(1 + between / within) if within > 0 else nan


def _advantages(means: NDArray[np.float64], scatters: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for rows of class a, twice the log of E(likelihood of a) / E(likelihood of b)."""
    n_features = means.shape[1]
    variances = np.where(scatters > 0, scatters / n_features, nan)
    advantages = np.empty((len(means), len(means)))
    for own, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        sums = variance + variances
        distances = np.square(means - mean).sum(axis=1)
        advantages[own] = distances / sums - n_features * np.log(2 * variance / sums)
    return advantages


def _twice_log(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the right side of a condition; odds of 0 or less need no distance."""
    with np.errstate(divide="ignore"):
        return 2 * np.log(np.maximum(odds, 0))


def _check_table(name: str, X: ArrayLike) -> NDArray[Any]:
    table = np.asarray(X)
    if table.ndim != 2 or not table.shape[1]:
        raise InputError(
            f"{name} must be a table of rows and at least one feature, got shape {table.shape}."
        )
    if table.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, got dtype {table.dtype}. Encode it first.")
    return table
