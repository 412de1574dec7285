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
    "OpenSetScores",
    "auroc",
    "classification_accuracy",
    "collapse_unknown",
    "detection_accuracy",
    "fpr_at_tpr",
    "macro_f",
    "open_set_scores",
    "openness",
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
    """Return every figure at once.

    Parameters
    ----------
    y_true : array-like
        The true labels.
    y_pred : array-like
        The labels that the model answered.
    score : array-like or None
        How unknown each row looks, higher for unknown rows. Without it `auroc` and
        `fpr_at_95_tpr` are nan.
    known_classes : iterable
        The classes that the model was taught; all others count as unknown.
    unknown_label : hashable
        What the model answers for a row that is none of them.

    Returns
    -------
    OpenSetScores
        `macro_f`, `classification_accuracy`, `detection_accuracy`, `auroc` and `fpr_at_95_tpr`.

    Examples
    --------
    >>> from rtscv_mlops import open_set_scores
    >>> truth, answers = ["cat", "cat", "dog", "owl"], ["cat", "new", "dog", "new"]
    >>> scores = open_set_scores(truth, answers, None, ["cat", "dog"], "new")
    >>> round(scores.classification_accuracy, 2), scores.detection_accuracy
    (0.67, 1.0)
    """
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


# Only the paper's benchmark computes it now. It stays here because the diagnostics of models that
# were saved earlier contain it, and such a model could not be loaded without the class.
@dataclass(frozen=True, slots=True)
class ClassSlack:
    """How far one known class is beyond the paper's sufficient conditions for a correct sorting.

    Each figure is the left side of a condition minus its right side, in the scale-free form
    (squared distance over the sum of the two variances). At 0 or more, the condition holds. Below 0
    nothing follows, because the conditions are sufficient, not necessary.

    `likelihood_known`, `likelihood_unknown`: Theorem 3.1, for rows of this class and for unknown
    rows against this class. `bayes_known`, `bayes_unknown`: the same of Theorem 3.2.
    """

    known_class: Hashable
    likelihood_known: float
    likelihood_unknown: float
    bayes_known: float
    bayes_unknown: float
