"""`GatedClassifier`: a classifier, unchanged, behind a gate that answers for one more class."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.classifier import make_gate
from rtscv_mlops.estimator.gates import Layout, margins
from rtscv_mlops.estimator.learner import Wrapper, seeded, weight_params
from rtscv_mlops.estimator.rows import take
from rtscv_mlops.estimator.search import MIN_KNOWN, RATIO, TaughtGate, sample_rows, spread_evenly

FALSE_RATE = 0.002
"""Share of a known class that the gate may take for unknown."""
TAIL, TAIL_ROWS = 0.1, 20
"""Largest margins of a class that say how its tail falls, if it has so many rows at least."""


def limits_by_class(known_margins: NDArray, codes: NDArray, n_classes: int) -> NDArray:
    """Return for each known class the margin above which a row is called unknown.

    The margins are of held-out rows. At most `FALSE_RATE` of the rows of any class lie above its
    limit, and no more of all rows do. A few hundred rows do not reach that far into the tail of a
    class, and extracted rows lie where training rows happen to be few. So a limit is at least
    where the class falls to that rate if its largest margins fall off exponentially.
    """
    limits = np.full(n_classes, _quantile(known_margins))
    tail = _tail_quantile(known_margins)
    for code in np.unique(codes):
        of_class = known_margins[codes == code]
        own = _tail_quantile(of_class) if len(of_class) >= TAIL_ROWS else tail
        limits[code] = max(limits[code], _quantile(of_class), own)
    return limits


def _quantile(values: NDArray) -> float:
    """Return a value that at most `FALSE_RATE` of the values exceed."""
    allowed = int(FALSE_RATE * (len(values) + 1))
    return float(-np.partition(-values, allowed)[allowed])


def _tail_quantile(values: NDArray) -> float:
    """Return the value that `FALSE_RATE` would exceed if the tail were exponential."""
    size = min(max(round(TAIL * len(values)), 5), len(values) - 1)
    if size < 1:
        return float(values.max())
    ordered = np.sort(values)
    start = ordered[-size - 1]
    excess = float(np.mean(ordered[-size:] - start))
    return float(start + excess * np.log(size / len(values) / FALSE_RATE))


def _estimator_has(method: str) -> Any:
    def check(self: "GatedClassifier") -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


class GatedClassifier(Wrapper, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier behind a gate that answers `unknown_label`; all other rows pass through.

    The gate scores how much a row looks like rows of the unknown class and unlike any known one.
    Its limits are set on held-out known rows, one limit for each class, so that about 0.2 % of a
    known class is lost to it, whatever the classifier is.

    Parameters
    ----------
    estimator : classifier
        The classifier to put behind a gate. `fit` clones it.
    unknown_label : object
        The class that the gate answers for. `fit` keeps its rows from the classifier.
    gate : str, default="auto"
        The model that scores rows, as in `RTSCVClassifier`.
    random_state : int, default=0
        Seed of every random choice.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    gate_ : object or None
        The fitted gate; None if there was no row of the unknown class.
    limits_ : ndarray
        Margin of each known class above which a row is unknown.
    known_classes_, classes_ : ndarray
        The classes of the classifier, and those with the unknown one.
    """

    def __init__(
        self, estimator: Any, *, unknown_label: Any, gate: Any = "auto", random_state: int = 0
    ) -> None:
        self.estimator = estimator
        self.unknown_label = unknown_label
        self.gate = gate
        self.random_state = random_state

    @classmethod
    def around(
        cls, fitted: Any, taught: TaughtGate, labels: NDArray, unknown_label: Any, **settings: Any
    ) -> Self:
        """Put a fitted classifier, as it is, behind a gate that a search has taught.

        `labels` are of the known rows that the search was given.
        """
        gated = cls(clone(fitted), unknown_label=unknown_label, **settings)
        gated._keep(fitted, np.unique(labels))
        codes = np.searchsorted(gated.known_classes_, labels[taught.known])
        gated.gate_ = taught.gate
        gated.limits_ = limits_by_class(taught.known_margins, codes, len(gated.known_classes_))
        return gated

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier on the known rows, and the gate on all.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or list of texts
            Labelled rows.
        y : array-like
            One label per row; rows of `unknown_label` teach the gate.
        sample_weight : array-like, default=None
            One weight per row, if the estimator supports weights.

        Returns
        -------
        GatedClassifier
            This estimator, fitted.
        """
        y = np.asarray(y)
        known, unknown = np.flatnonzero(y != self.unknown_label), y == self.unknown_label
        if len(known) == 0:
            raise InputError(
                f"All rows have the label {self.unknown_label!r} of the gate. Give rows of known "
                "classes as well."
            )
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        params = weight_params(self.estimator, weight, 0)
        estimator = seeded(self.estimator, self.random_state)
        fitted = estimator.fit(take(X, known), y[known], **params)
        self._keep(fitted, np.unique(y[known]))
        if unknown.any():
            self._fit_gate(X, y, known, np.flatnonzero(unknown))
        return self

    def _keep(self, fitted: Any, known_classes: NDArray) -> None:
        self.estimator_ = fitted
        # There is no third boolean for unknowns.
        is_bool = known_classes.dtype == bool
        self.known_classes_ = known_classes.astype(int) if is_bool else known_classes
        # From a list, so that the type has room for the longest label.
        self.classes_ = np.sort(np.asarray([*self.known_classes_.tolist(), self.unknown_label]))
        self.gate_: Any = None
        self.limits_ = np.full(len(self.known_classes_), np.inf)

    def _fit_gate(self, X: Any, y: NDArray, known: NDArray, unknown: NDArray) -> None:
        rng = np.random.default_rng(self.random_state)
        known = known[sample_rows(y[known], MIN_KNOWN, rng)]
        codes = np.searchsorted(self.known_classes_, y[known])
        rows = take(X, known)
        gate, kept = make_gate(self.gate, self.estimator, rows, codes, self.random_state, None)
        known, codes = known[kept], codes[kept]
        table, classes = take(X, np.concatenate([known, unknown])), np.arange(len(known))
        gate.prepare(table, classes, codes, self.random_state)
        of_class = np.append(codes, np.full(len(unknown), codes.max() + 1))
        folds = spread_evenly(of_class, 3, rng)
        dummy = np.arange(len(known), len(of_class))
        scores = gate.cross_fit(Layout(classes, codes, dummy, folds, RATIO), classes)
        gate.forget()
        self.gate_ = gate
        self.limits_ = limits_by_class(margins(scores[classes]), codes, len(self.known_classes_))

    def predict(self, X: Any) -> NDArray:
        """Return the classifier's labels, or `unknown_label` where the gate answers.

        Parameters
        ----------
        X : like X of `fit`
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_rows,)
            A label of `classes_` for each row.
        """
        answers, is_unknown = self._ask(X)
        answers[is_unknown] = self.unknown_label
        return answers

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Return the classifier's probabilities; 1 for `unknown_label` where the gate answers.

        Parameters
        ----------
        X : like X of `fit`
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of `classes_`.
        """
        _, is_unknown = self._ask(X)
        probabilities = np.zeros((len(is_unknown), len(self.classes_)))
        places = np.searchsorted(self.classes_, self.known_classes_)
        probabilities[:, places] = np.asarray(self.estimator_.predict_proba(X))
        probabilities[is_unknown] = self.classes_ == self.unknown_label
        return probabilities

    def _ask(self, X: Any) -> tuple[NDArray, NDArray]:
        """Return the classifier's answers, and for which rows the gate answers instead."""
        check_is_fitted(self, "estimator_")
        answers = np.asarray(self.estimator_.predict(X)).ravel().astype(self.classes_.dtype)
        if self.gate_ is None:
            return answers, np.zeros(len(answers), dtype=bool)
        limits = self.limits_[np.searchsorted(self.known_classes_, answers)]
        return answers, margins(self.gate_.scores(X)) > limits

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the classifier was fitted on."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray:
        """Names of the columns that the classifier was fitted on."""
        return np.asarray(self.estimator_.feature_names_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self.estimator)
        tags.input_tags.sparse = base.input_tags.sparse
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        return tags
