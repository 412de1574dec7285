"""Figures of merit for open-set recognition: macro F, accuracies, AUROC, openness."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from rtscv_mlops.errors import InputError

__all__ = [
    "ClassSlack",
    "OpenSetScores",
    "auroc",
    "classification_accuracy",
    "collapse_unknown",
    "detection_accuracy",
    "fpr_at_tpr",
    "j1_known",
    "j1_unknown",
    "macro_f",
    "open_set_scores",
    "openness",
    "separation_slack",
]


def check_flat(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values, or refuse them if they are not one per row."""
    if values.ndim != 1:
        raise InputError(
            f"{name} must have one dimension, got {values.ndim}. Pass one value per row."
        )
    return values


def check_same_length(**columns: Any) -> None:
    """Refuse two columns of different length."""
    (first, first_rows), (second, second_rows) = (
        (name, len(rows)) for name, rows in columns.items()
    )
    if first_rows != second_rows:
        raise InputError(
            f"{first} has {first_rows} row(s) and {second} has {second_rows}. Pass one per row."
        )


def openness(
    n_training_classes: int, n_test_classes: int, n_target_classes: int | None = None
) -> float:
    """Return 0 for a closed problem; the more test classes are unknown, the higher the openness.

    The target classes, those to be recognised, default to the training classes, which reproduces
    the paper's Table 1. The hidden classes count as test classes only.
    """
    if n_target_classes is None:
        n_target_classes = n_training_classes
    if min(n_training_classes, n_test_classes, n_target_classes) < 1:
        raise InputError(
            f"Openness needs at least one class of each kind, got {n_training_classes} training, "
            f"{n_test_classes} test and {n_target_classes} target class(es)."
        )
    if n_test_classes + n_target_classes < 2 * n_training_classes:
        raise InputError(
            f"{n_test_classes} test and {n_target_classes} target classes are fewer than twice the "
            f"{n_training_classes} training classes, so the openness would be negative. Count "
            "every training class as a test class, seen or not."
        )
    return 1 - sqrt(2 * n_training_classes / (n_test_classes + n_target_classes))


@dataclass(frozen=True, slots=True)
class OpenSetScores:
    """The scores of one model on one labelled window, each nan if the rows do not define it."""

    macro_f: float
    classification_accuracy: float
    detection_accuracy: float
    auroc: float
    fpr_at_95_tpr: float


def open_set_scores(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    score: ArrayLike | None,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> OpenSetScores:
    """Return every score at once; without a score for each row (None), the ranking ones are nan."""
    known = list(known_classes)
    is_unknown = _Labels.encode(y_true, y_pred, known, unknown_label).is_unknown
    return OpenSetScores(
        macro_f=macro_f(y_true, y_pred, known, unknown_label),
        classification_accuracy=classification_accuracy(y_true, y_pred, known, unknown_label),
        detection_accuracy=detection_accuracy(y_true, y_pred, known, unknown_label),
        auroc=nan if score is None else auroc(is_unknown, score),
        fpr_at_95_tpr=nan if score is None else fpr_at_tpr(is_unknown, score, tpr=0.95),
    )


def collapse_unknown(
    y_true: ArrayLike, known_classes: Iterable[Hashable], unknown_label: Hashable
) -> NDArray[Any]:
    """Return the labels with every class that is not known replaced by the unknown label."""
    known = _known_classes(known_classes, unknown_label)
    collapsed = [
        label if label in known else unknown_label for label in _label_list("y_true", y_true)
    ]
    # By default numpy turns the 0 of [0, "unknown"] into "0", which no model predicts.
    same_type = len({isinstance(label, str) for label in collapsed}) == 1
    return np.array(collapsed, dtype=None if same_type else object)


def macro_f(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> float:
    """Return the mean F over the known classes and one unknown class, to which all others belong.

    A class without true rows has no recall, so no F, and is left out of the mean. To predict it
    still costs: each such row is missing from the class that it truly has.
    """
    labels = _Labels.encode(y_true, y_pred, known_classes, unknown_label)
    if not labels.true.size:
        return nan
    present = np.unique(labels.true)
    return float(f1_score(labels.true, labels.predicted, labels=present, average="macro"))


def classification_accuracy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> float:
    """Return the share of the known classes' rows that got their own label."""
    labels = _Labels.encode(y_true, y_pred, known_classes, unknown_label)
    return _share((labels.predicted == labels.true)[~labels.is_unknown])


def detection_accuracy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> float:
    """Return the share of the unknown rows that were predicted as unknown."""
    labels = _Labels.encode(y_true, y_pred, known_classes, unknown_label)
    return _share((labels.predicted == labels.true)[labels.is_unknown])


def auroc(is_unknown: ArrayLike, score: ArrayLike) -> float:
    """Return the probability that an unknown row scores above a known one; ties count half."""
    positive, values = _check_ranking(is_unknown, score)
    if positive.all() or not positive.any():
        return nan
    return float(roc_auc_score(positive, values))


def fpr_at_tpr(is_unknown: ArrayLike, score: ArrayLike, tpr: float = 0.95) -> float:
    """Return the share of known rows that is flagged when this share of the unknowns is flagged.

    The threshold is the highest score that flags enough unknowns. Nothing is interpolated, so a
    deployed threshold reaches the figure.
    """
    if not 0 < tpr <= 1:
        raise InputError(f"tpr must be above 0 and at most 1, got {tpr}.")
    positive, values = _check_ranking(is_unknown, score)
    if positive.all() or not positive.any():
        return nan
    # The points that drop_intermediate removes may include the first one with enough unknowns.
    false_rates, true_rates, _ = roc_curve(positive, values, drop_intermediate=False)
    return float(false_rates[np.searchsorted(true_rates, tpr)])


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels as indices of the known classes; the unknown class comes last."""

    true: NDArray[np.intp]
    predicted: NDArray[np.intp]
    unknown: int

    @classmethod
    def encode(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        known_classes: Iterable[Hashable],
        unknown_label: Hashable,
    ) -> Self:
        known = _known_classes(known_classes, unknown_label)
        index = {label: number for number, label in enumerate(known)}
        unknown = len(index)
        true, predicted = _label_list("y_true", y_true), _label_list("y_pred", y_pred)
        check_same_length(y_true=true, y_pred=predicted)
        others = sorted(map(repr, set(predicted) - index.keys() - {unknown_label}))
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            raise InputError(
                f"y_pred contains {', '.join(others[:3])}{more}, neither a known class nor the "
                f"unknown label {unknown_label!r}. Name every class the model was taught in "
                "known_classes."
            )
        return cls(
            true=np.array([index.get(label, unknown) for label in true], dtype=np.intp),
            predicted=np.array([index.get(label, unknown) for label in predicted], dtype=np.intp),
            unknown=unknown,
        )

    @property
    def is_unknown(self) -> NDArray[np.bool_]:
        return self.true == self.unknown


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if hits.size else nan


def _known_classes(
    known_classes: Iterable[Hashable], unknown_label: Hashable
) -> dict[Hashable, None]:
    known = dict.fromkeys(known_classes)
    if unknown_label in known:
        raise InputError(
            f"The unknown label {unknown_label!r} is also a known class. Choose a label that no "
            "class has."
        )
    return known


def _label_list(name: str, labels: ArrayLike) -> list[Any]:
    # A list may mix types ([0, "unknown"]), which only an object array keeps.
    dtype = object if isinstance(labels, list | tuple) else None
    return check_flat(name, np.asarray(labels, dtype=dtype)).tolist()


def _check_ranking(
    is_unknown: ArrayLike, score: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    positive = check_flat("is_unknown", np.asarray(is_unknown))
    values = check_flat("score", np.asarray(score, dtype=np.float64))
    check_same_length(is_unknown=positive, score=values)
    if not np.isin(positive, [0, 1]).all():
        raise InputError("is_unknown must be true or false for each row. Compare labels first.")
    not_finite = int((~np.isfinite(values)).sum())
    if not_finite:
        raise InputError(f"score has {not_finite} value(s) that are not finite. Clip or drop them.")
    return positive.astype(bool), values


def j1_known(X: ArrayLike, y: ArrayLike) -> float:
    """Return the paper's J1 of the known classes: 1 plus between-class over within-class scatter.

    Distances are taken from the plain mean of the class means, as in the paper, so a large class
    does not draw the centre towards itself. It is nan with fewer than two classes, with a class
    of one row (which has no variance), and without any scatter within the classes.
    """
    known = _moments_by_class(X, y)
    if len(known.classes) < 2:
        return nan
    return _j1(known, known.means.mean(axis=0), float(known.shares @ known.scatters))


def j1_unknown(X: ArrayLike, y: ArrayLike, X_unknown: ArrayLike) -> float:
    """Return the paper's J1 of the unknown class: how far it lies from the known ones.

    Distances are taken from the unknown mean and measured against the unknown scatter alone. The
    known classes are weighted by their shares of the known rows; the paper leaves open whether the
    unknown rows count too, and this way their number does not move the figure. It is nan without
    known rows, and with fewer than two distinct unknown rows.
    """
    known = _moments_by_class(X, y)
    unknown_mean, unknown_scatter = _moments_of_unknown(X_unknown, known)
    if not known.classes:
        return nan
    return _j1(known, unknown_mean, unknown_scatter)


@dataclass(frozen=True, slots=True)
class ClassSlack:
    """How far one known class is beyond the paper's sufficient conditions for a correct sorting.

    Each figure is the left side of a condition minus its right side, in the scale-free form
    (squared distance over the sum of the two variances). From 0 on, the condition holds; below 0
    nothing is said, since the conditions are sufficient, not necessary.

    `likelihood_known`, `likelihood_unknown`: Theorem 3.1, for rows of this class and for unknown
    rows against this class. `bayes_known`, `bayes_unknown`: Theorem 3.2, likewise.
    """

    known_class: Hashable
    likelihood_known: float
    likelihood_unknown: float
    bayes_known: float
    bayes_unknown: float


def separation_slack(
    X: ArrayLike,
    y: ArrayLike,
    X_unknown: ArrayLike,
    *,
    sample_size: int,
    unknown_rate: float,
) -> tuple[ClassSlack, ...]:
    """Return the slack of Theorems 3.1 and 3.2 for each known class, in sorted order.

    Each class is taken for a spherical Gaussian, its variance being the mean over the features.
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
    # all classes, so they hold for every known class only if the unknowns lie in their midst.
    _check_sample(sample_size, unknown_rate)
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
    # Class by class, so that a table of bytes never becomes a whole table of floats.
    values = rows.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{name} contains values that are not finite. Impute or drop them first.")
    if len(values) < 2:
        mean = values[0] if len(values) else np.full(values.shape[1], nan)
        return mean, nan
    # From the first row on, so that equal rows scatter by exactly 0 and not by a rounding error.
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
    """Return the right side's share of a condition; odds of 0 or less need no distance at all."""
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


def _check_sample(sample_size: int, unknown_rate: float) -> None:
    if not sample_size >= 1:
        raise InputError(f"sample_size must be at least 1 row, got {sample_size}.")
    if not 0 <= unknown_rate <= 1:
        raise InputError(f"unknown_rate must be a share between 0 and 1, got {unknown_rate}.")
