"""How open a problem is, and how well its unknowns were found: labels and scores only."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from rtscv_mlops.errors import InputError
from rtscv_mlops.metrics.checks import check_flat, check_same_length


def openness(
    n_training_classes: int, n_test_classes: int, n_target_classes: int | None = None
) -> float:
    """Return 0 for a closed problem, and more the more test classes were never taught.

    The target classes, those to be told apart, default to the training classes: this reading
    reproduces the paper's Table 1. The hidden classes count as test classes only.
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
    """The scores of one model on one labelled window, each nan where the rows do not define it."""

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
    is_unknown = _encode(y_true, y_pred, known, unknown_label).is_unknown
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
    # Left to itself, numpy turns the 0 of [0, "unknown"] into "0", which no model predicts.
    one_kind = len({isinstance(label, str) for label in collapsed}) == 1
    return np.array(collapsed, dtype=None if one_kind else object)


def macro_f(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> float:
    """Return the mean F over the known classes and one unknown class, to which all others belong.

    A class without true rows has no recall, hence no F, and is left out of the mean. Predicting
    it is not free: each such row is a miss of the class it truly has.
    """
    labels = _encode(y_true, y_pred, known_classes, unknown_label)
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
    labels = _encode(y_true, y_pred, known_classes, unknown_label)
    return _share((labels.predicted == labels.true)[~labels.is_unknown])


def detection_accuracy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> float:
    """Return the share of the unknown rows that were called unknown."""
    labels = _encode(y_true, y_pred, known_classes, unknown_label)
    return _share((labels.predicted == labels.true)[labels.is_unknown])


def auroc(is_unknown: ArrayLike, score: ArrayLike) -> float:
    """Return the chance that an unknown row outscores a known one, a tie counting half."""
    positive, values = _check_ranking(is_unknown, score)
    if positive.all() or not positive.any():
        return nan
    return float(roc_auc_score(positive, values))


def fpr_at_tpr(is_unknown: ArrayLike, score: ArrayLike, tpr: float = 0.95) -> float:
    """Return the share of known rows that is flagged once that share of the unknowns is caught.

    The threshold is the highest score that catches enough; nothing is interpolated, so the
    figure is one that a deployed threshold reaches.
    """
    if not 0 < tpr <= 1:
        raise InputError(f"tpr must be above 0 and at most 1, got {tpr}.")
    positive, values = _check_ranking(is_unknown, score)
    if positive.all() or not positive.any():
        return nan
    # The points that drop_intermediate removes may include the first one that catches enough.
    flagged, caught, _ = roc_curve(positive, values, drop_intermediate=False)
    return float(flagged[np.searchsorted(caught, tpr)])


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels as positions among the known classes, the unknown class coming last."""

    true: NDArray[np.intp]
    predicted: NDArray[np.intp]
    unknown: int

    @property
    def is_unknown(self) -> NDArray[np.bool_]:
        return self.true == self.unknown


def _encode(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    known_classes: Iterable[Hashable],
    unknown_label: Hashable,
) -> _Labels:
    position = {
        label: number for number, label in enumerate(_known_classes(known_classes, unknown_label))
    }
    unknown = len(position)
    true, predicted = _label_list("y_true", y_true), _label_list("y_pred", y_pred)
    check_same_length(y_true=true, y_pred=predicted)
    strangers = set(predicted) - position.keys() - {unknown_label}
    if strangers:
        raise InputError(
            f"y_pred contains {_name_some(strangers)}, neither a known class nor the unknown label "
            f"{unknown_label!r}. Name every class the model was taught in known_classes."
        )
    return _Labels(
        true=np.array([position.get(label, unknown) for label in true], dtype=np.intp),
        predicted=np.array([position.get(label, unknown) for label in predicted], dtype=np.intp),
        unknown=unknown,
    )


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
    # A list may mix kinds ([0, "unknown"]), which only an object array leaves as they are.
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


def _name_some(labels: Iterable[Hashable]) -> str:
    names = sorted(repr(label) for label in labels)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
