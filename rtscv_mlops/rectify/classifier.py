"""`RTSCVClassifier`: a classifier that can be taught, without labels, that a window is not known.

Knows scikit-learn's contract; the two ways to find unknowns live in `paper` and `monitor`.
"""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d, get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from rtscv_mlops import metrics
from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.clusters import group_rows
from rtscv_mlops.rectify.evidence import Assessment
from rtscv_mlops.rectify.gates import FoldsGate, ForestGate, Gate, KernelGate, margins
from rtscv_mlops.rectify.monitor import RATIO, Finding, assess_window
from rtscv_mlops.rectify.paper import cross_validate_sample, sample_window
from rtscv_mlops.rectify.rows import Numbers, count, stack, take

TREE_MODULES = ("sklearn.ensemble", "sklearn.tree", "xgboost", "lightgbm", "catboost")
"""Where models made of trees live: the forest gate sees their tables as they do."""

DESCRIBED_ROWS = 5_000
"""Known rows that the diagnostics are computed from."""


def _estimator_has(method: str) -> Any:
    def check(self: "RTSCVClassifier") -> bool:
        # Raises AttributeError with the base's own words where it lacks the method.
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


class RTSCVClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Rectifies a classifier with an unlabelled window of deployment data.

    Parameters
    ----------
    estimator : classifier
        What is monitored; cloned, never changed.
    mode : {"monitor", "paper"}
        "monitor" tests first whether the window holds anything new, with a calibrated null, and
        leaves the model alone if not. "paper" is Algorithm 1 as published, for reproduction.
    sample_rate : "auto" or float
        How large the dummy class is. In "paper" mode the share of `sample_of` that is drawn; in
        "monitor" mode what the whole window weighs against the training rows. "auto" is 0.2 of
        the training rows in both.
    sample_of : {"window", "training"}
        What a numeric `sample_rate` is a share of in "paper" mode: c or the sample/training ratio.
    cv : int, "holdout" or splitter
        Folds. "monitor" needs a splitter that holds out every row.
    unknown_label : object or None
        How unknowns are called. None: "unknown" for text labels, the largest label plus one for
        numbers, so that the rectified model's answers keep their type.
    alpha : float
        Level of the test that a window holds nothing new.
    gate : {"auto", "kernel", "forest", "estimator"} or classifier
        What scores rows in "monitor" mode. "estimator" cross-validates the estimator itself;
        "auto" takes the forest gate for models of trees and the kernel gate for all others.
    n_jobs : int or None
        Processes for fits that are independent. The result does not depend on it.
    random_state : int
        Seed of every random choice.

    Attributes
    ----------
    estimator_ : the fitted, and if unknowns were found rectified, classifier
    classes_ : known labels, and the unknown label where the model was rectified
    unknown_label_ : how unknowns are called
    sample_indices_, unknown_indices_ : rows of the window that were sampled / kept as unknown
    assessment_ : `Assessment`, the facts about the window; None in "paper" mode
    clusters_ : candidate classes among the unknown rows
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "mode": [StrOptions({"monitor", "paper"})],
        "sample_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "sample_of": [StrOptions({"window", "training"})],
        "cv": [StrOptions({"holdout"}), Interval(Integral, 2, None, closed="left"), "cv_object"],
        "unknown_label": "no_validation",
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "gate": [
            StrOptions({"auto", "kernel", "forest", "estimator"}),
            HasMethods(["fit", "predict"]),
        ],
        "n_jobs": [Integral, None],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        mode: Literal["monitor", "paper"] = "monitor",
        sample_rate: float | Literal["auto"] = "auto",
        sample_of: Literal["window", "training"] = "window",
        cv: Any = 3,
        unknown_label: Any = None,
        alpha: float = 0.01,
        gate: Any = "auto",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.mode = mode
        self.sample_rate = sample_rate
        self.sample_of = sample_of
        self.cv = cv
        self.unknown_label = unknown_label
        self.alpha = alpha
        self.gate = gate
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        deployment: Any = None,
        baseline: Any = None,
        sample_weight: Any = None,
    ) -> "RTSCVClassifier":
        """Fit on labelled rows, rectified by an unlabelled window if that holds unknowns.

        `baseline` is an earlier, clean window: a harmless change since training that it shares
        with `deployment` (new writers, a new sensor) is then no finding. Without `deployment`
        this is a plain fit of the estimator.
        """
        self._validate_params()
        X = self._check_rows(X, "training data", reset=True)
        y = self._check_labels(X, y)
        weight = self._check_weight(sample_weight, X)
        self._reset(y)
        if deployment is None:
            if baseline is not None:
                raise InputError(
                    "A baseline was given without deployment data to compare it with. "
                    "Pass the window as deployment=."
                )
            return self._fit_estimator(X, y, weight)
        window = self._check_window(deployment, "deployment window")
        codes = np.searchsorted(self._known, y)
        if self.mode == "paper":
            self._find_by_paper(X, codes, window, weight)
        else:
            if baseline is not None:
                baseline = self._check_window(baseline, "baseline")
            self._find_by_monitor(X, codes, window, baseline)
        return self._fit_rectified(X, y, window, weight)

    def predict(self, X: Any) -> NDArray:
        """Return known labels, or `unknown_label_`."""
        check_is_fitted(self)
        predicted = np.asarray(self.estimator_.predict(self._check_rows(X, "data")))
        return self.classes_[np.searchsorted(self.estimator_classes_, predicted.ravel())]

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Return a probability per label, in the order of `classes_`."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(self._check_rows(X, "data")))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Return the estimator's decision values, in the order of `classes_`."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.decision_function(self._check_rows(X, "data")))

    def unknown_score(self, X: Any) -> NDArray:
        """Return how unknown each row looks, in [0, 1]; 0.5 is where extraction began.

        In "paper" mode it is the rectified model's own probability of the unknown label where it
        has one, else 1 for rows it calls unknown and 0 for others.
        """
        check_is_fitted(self)
        if self.unknown_label_ is None:
            raise InputError(
                "This model was fitted without a deployment window, so it has no idea of unknowns. "
                "Call fit(X, y, deployment=...) first."
            )
        if self.mode == "monitor":
            margin = margins(self.gate_.scores(self._check_rows(X, "data")))
            return expit((margin - self._threshold) / self._spread)
        if hasattr(self, "predict_proba") and self.unknown_label_ in list(self.classes_):
            return self.predict_proba(X)[:, list(self.classes_).index(self.unknown_label_)]
        return (self.predict(X) == self.unknown_label_).astype(float)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self.estimator)
        tags.input_tags.sparse = base.input_tags.sparse
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        tags.classifier_tags.poor_score = bool(
            base.classifier_tags and base.classifier_tags.poor_score
        )
        return tags

    # -- what was handed in

    def _check_rows(self, X: Any, what: str, *, reset: bool = False) -> Any:
        """Check rows, and keep the container that the estimator can make sense of."""
        if isinstance(X, pd.DataFrame):
            _check_feature_names(self, X, reset=reset)
            _check_n_features(self, X, reset=reset)
            if reset and len(X) == 0:
                raise InputError(f"The {what} has 0 rows. At least one row per class is needed.")
            return X
        if not sparse.issparse(X) and np.ndim(X) != 2 and np.ndim(X) != 0:
            rows = np.asarray(X)
            if rows.ndim > 2 or rows.dtype.kind in "OUS":  # images, texts: the estimator's business
                return rows
        allow_nan = get_tags(self.estimator).input_tags.allow_nan
        is_text = not sparse.issparse(X) and np.asarray(X).dtype.kind in "OUS"
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=None if is_text else "numeric",
            ensure_all_finite="allow-nan" if allow_nan else not is_text,
        )

    def _check_window(self, window: Any, what: str) -> Any:
        """Check that a window has the training data's columns, and rows enough for the folds."""
        columns = getattr(self, "feature_names_in_", None)
        if columns is not None and isinstance(window, pd.DataFrame):
            missing = sorted(set(columns) - set(window.columns))
            extra = sorted(map(str, set(window.columns) - set(columns)))
            if missing or extra:
                raise InputError(
                    f"The {what} has other columns than the training data: "
                    f"missing {', '.join(missing) or 'none'}; extra {', '.join(extra) or 'none'}. "
                    "Select the model's columns in the window's source."
                )
            window = window[list(columns)]
        n_columns = np.shape(window)[1] if np.ndim(window) == 2 or sparse.issparse(window) else None
        expected = getattr(self, "n_features_in_", n_columns)
        if n_columns is not None and n_columns != expected:
            raise InputError(
                f"The {what} has {n_columns} columns, the training data {expected}. "
                "Select the model's columns in the window's source."
            )
        try:
            window = self._check_rows(window, what)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"The {what} cannot be used: {error}") from error
        folds = self.cv if isinstance(self.cv, int) else 2
        if count(window) < folds:
            raise InputError(
                f"The {what} has {count(window)} row(s), fewer than the {folds} folds. "
                "Take a longer window, or lower cv."
            )
        return window

    def _check_labels(self, X: Any, y: Any) -> NDArray:
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        y = column_or_1d(np.asarray(y), warn=True)
        check_classification_targets(y)
        if len(y) != count(X):
            raise InputError(
                f"Found input variables with inconsistent numbers of samples: {count(X)} rows "
                f"and {len(y)} labels. Give one label per row."
            )
        if pd.isna(y).any():
            raise InputError(
                f"{pd.isna(y).sum()} of {len(y)} labels are missing (NaN). "
                "Drop these rows from the training data, or label them."
            )
        return y

    def _check_weight(self, sample_weight: Any, X: Any) -> NDArray | None:
        if sample_weight is None:
            return None
        last = self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator
        if not has_fit_parameter(last, "sample_weight"):
            raise InputError(
                f"sample_weight was given, but {type(last).__name__} takes none. "
                "Leave it out, or use an estimator that weighs its rows."
            )
        return _check_sample_weight(sample_weight, np.empty((count(X), 1)))

    # -- labels

    def _reset(self, y: NDArray) -> None:
        """Learn the labels, and forget what an earlier window showed."""
        self._public_known = np.unique(y)
        # No third bool exists to call unknowns by: the estimator sees 0, 1 and 2 instead.
        self._known = self._public_known.astype(int) if y.dtype == bool else self._public_known
        self._unknown_code, self.unknown_label_ = None, None
        self.sample_indices_ = self.unknown_indices_ = np.empty(0, dtype=int)
        self.assessment_: Assessment | None = None
        self.clusters_: tuple[Any, ...] = ()

    def _name_unknown(self) -> None:
        """Choose what unknowns are called, by the estimator and by its users."""
        known = self._known
        if len(known) < 2:
            raise InputError(
                f"The training data has one class only ({self._public_known[0]!r}). "
                "A dummy class can be told from known classes only if there are at least two."
            )
        self._unknown_code = known.max() + 1 if known.dtype.kind in "iuf" else _free_name(known)
        default = "unknown" if self._public_known.dtype == bool else self._unknown_code
        self.unknown_label_ = default if self.unknown_label is None else self.unknown_label
        if self.unknown_label_ in self._public_known.tolist():
            raise InputError(
                f"unknown_label={self.unknown_label_!r} is a known class already, so an unknown "
                "row could not be told from it. Choose a label that no training row has."
            )

    # -- the search

    def _find_by_paper(self, X: Any, codes: NDArray, window: Any, weight: NDArray | None) -> None:
        self._name_unknown()
        rate, of = (
            (RATIO, "training")
            if self.sample_rate == "auto"
            else (
                self.sample_rate,
                self.sample_of,
            )
        )
        sample = sample_window(count(window), len(codes), rate, of, self.random_state)
        labels = np.append(self._known, [self._unknown_code])
        layout = np.concatenate([codes, np.full(len(sample), len(self._known))])
        folds = self.cv if isinstance(self.cv, int) else 2
        if len(sample) < folds:
            raise InputError(
                f"The sample has {len(sample)} row(s), fewer than the {folds} folds. "
                "Raise sample_rate, or lower cv."
            )
        unknown = cross_validate_sample(
            self.estimator,
            stack(X, take(window, sample)),
            labels[layout],
            self._unknown_code,
            self._splitter(),
            self._weights(weight, len(sample)),
            self.n_jobs,
        )
        self.sample_indices_ = sample
        self.unknown_indices_ = sample[unknown[len(codes) :]]

    def _splitter(self) -> Any:
        if self.cv == "holdout":
            return StratifiedShuffleSplit(1, test_size=1 / 3, random_state=self.random_state)
        if isinstance(self.cv, int):
            return StratifiedKFold(self.cv, shuffle=True, random_state=self.random_state)
        return self.cv

    def _find_by_monitor(self, X: Any, codes: NDArray, window: Any, baseline: Any) -> None:
        self._name_unknown()
        if self.cv == "holdout":
            raise InputError(
                "cv='holdout' leaves rows without a held-out score, which mode='monitor' needs "
                "for every row. Give a number of folds, or use mode='paper'."
            )
        finding = assess_window(
            X,
            codes,
            window,
            baseline=baseline,
            gate=self._make_gate(X),
            cv=self.cv,
            ratio=RATIO if self.sample_rate == "auto" else float(self.sample_rate),
            alpha=self.alpha,
            seed=self.random_state,
        )
        self.sample_indices_, self.unknown_indices_ = finding.sampled, finding.unknown
        self.gate_, self._threshold, self._spread = finding.gate, finding.threshold, finding.spread
        self._describe_unknowns(X, codes, window, finding)

    def _make_gate(self, X: Any) -> Gate:
        if not isinstance(self.gate, str):
            return FoldsGate(self.gate, n_jobs=self.n_jobs)
        kind = self.gate
        if kind == "auto":
            last = self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator
            of_trees = type(last).__module__.startswith(TREE_MODULES)
            is_text = not isinstance(X, pd.DataFrame) and np.ndim(X) == 1
            kind = "estimator" if is_text else "forest" if of_trees else "kernel"
        if kind == "estimator":
            return FoldsGate(self.estimator, n_jobs=self.n_jobs)
        return ForestGate(n_jobs=self.n_jobs) if kind == "forest" else KernelGate()

    def _describe_unknowns(self, X: Any, codes: NDArray, window: Any, finding: Finding) -> None:
        """Group the unknown rows, and say how far from the known classes they lie."""
        self.assessment_ = finding.assessment
        if len(finding.unknown) == 0 or (np.ndim(X) == 1 and not sparse.issparse(X)):
            return
        rng = np.random.default_rng(self.random_state)
        shown = rng.permutation(len(codes))[:DESCRIBED_ROWS]
        unknown = take(window, finding.unknown)
        numbers = Numbers().fit(stack(take(X, shown), unknown))
        known_numbers, unknown_numbers = (
            numbers.transform(rows) for rows in (take(X, shown), unknown)
        )
        self.clusters_ = group_rows(unknown_numbers, finding.unknown, self.random_state)
        slack = metrics.separation_slack(
            known_numbers,
            codes[shown],
            unknown_numbers,
            sample_size=len(finding.sampled),
            unknown_rate=finding.assessment.unknown_rate,
        )
        self.assessment_ = replace(
            finding.assessment,
            diagnostics={
                **finding.assessment.diagnostics,
                "j1_known": metrics.j1_known(known_numbers, codes[shown]),
                "j1_unknown": metrics.j1_unknown(known_numbers, codes[shown], unknown_numbers),
                "slack": slack,
            },
        )

    # -- the fit

    def _fit_rectified(
        self, X: Any, y: NDArray, window: Any, weight: NDArray | None
    ) -> "RTSCVClassifier":
        if len(self.unknown_indices_) == 0:
            return self._fit_estimator(X, y, weight)
        labels = np.append(self._known, [self._unknown_code])
        codes = np.searchsorted(self._public_known, y)
        extended = np.concatenate([codes, np.full(len(self.unknown_indices_), len(self._known))])
        rows = stack(X, take(window, self.unknown_indices_))
        params = self._weights(weight, len(self.unknown_indices_))
        self.estimator_ = clone(self.estimator).fit(rows, labels[extended], **params)
        return self._learn_classes()

    def _fit_estimator(self, X: Any, y: NDArray, weight: NDArray | None) -> "RTSCVClassifier":
        labels = self._known[np.searchsorted(self._public_known, y)]
        self.estimator_ = clone(self.estimator).fit(X, labels, **self._weights(weight, 0))
        return self._learn_classes()

    def _learn_classes(self) -> "RTSCVClassifier":
        self.estimator_classes_ = np.asarray(self.estimator_.classes_)
        public = [
            self.unknown_label_
            if label == self._unknown_code
            else self._public_known[np.searchsorted(self._known, label)]
            for label in self.estimator_classes_
        ]
        known_type = self._public_known.dtype
        same_type = np.asarray(public).dtype.kind == known_type.kind
        self.classes_ = np.asarray(public, dtype=None if same_type else object)
        return self

    def _weights(self, weight: NDArray | None, n_added: int) -> dict[str, NDArray]:
        """Return fit parameters: added rows weigh as much as the average row."""
        if weight is None:
            return {}
        step = f"{self.estimator.steps[-1][0]}__" if isinstance(self.estimator, Pipeline) else ""
        return {f"{step}sample_weight": np.append(weight, np.full(n_added, weight.mean()))}


def _free_name(known: NDArray) -> str:
    """Return a word that no known class is called by."""
    name = "unknown"
    while name in known.tolist():
        name += "_"
    return name
