"""`RTSCVClassifier`: scikit-learn's contract around the search for unknowns."""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.checks import Labels, check_gaps, check_labels, check_rows, check_window
from rtscv_mlops.estimator.clusters import Cluster, group_unknowns
from rtscv_mlops.estimator.gates import FoldsGate, ForestGate, Gate, margins
from rtscv_mlops.estimator.kernel import KernelGate
from rtscv_mlops.estimator.learner import (
    check_weight,
    is_of_trees,
    seeded,
    unwrapped,
    weight_params,
)
from rtscv_mlops.estimator.network import NetworkGate, is_network, learn_embeddings, torch_seeded
from rtscv_mlops.estimator.rows import count, stack, take
from rtscv_mlops.estimator.search import (
    RATIO,
    DistinctRows,
    MonitorSearch,
    PaperSearch,
    TaughtGate,
    sample_window,
)
from rtscv_mlops.estimator.statistics import Assessment


def _estimator_has(method: str) -> Any:
    def check(self: "RTSCVClassifier") -> bool:
        # Raises the estimator's own AttributeError if it lacks the method.
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


def make_gate(
    kind: Any, estimator: Any, X: Any, codes: NDArray, seed: int, n_jobs: int | None
) -> tuple[Gate, NDArray]:
    """Return the gate for an estimator, and the known rows that it may compare a window with."""
    every, estimator = np.arange(len(codes)), unwrapped(estimator)
    if kind == "auto":
        if X.ndim == 1:
            kind = "estimator"  # lists of texts: only the estimator can read them
        elif is_network(estimator):
            kind = "network"
        else:
            kind = "forest" if is_of_trees(estimator) else "kernel"
    if kind == "kernel":
        return KernelGate(), every
    if kind == "forest":
        return ForestGate(n_jobs=n_jobs), every
    learner = seeded(estimator if isinstance(kind, str) else kind, seed)
    if kind == "network":
        embeddings, kept = learn_embeddings(learner, X, codes, seed)
        return NetworkGate(embeddings), kept
    return FoldsGate(learner, n_jobs=n_jobs), every


class RTSCVClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Classifier that learns from an unlabelled window which rows belong to no known class.

    The wrapped classifier is fitted on labelled rows. An unlabelled window of deployment data then
    plays an extra class, the dummy class, against them. Window rows that cross-validation does not
    return to a known class are unknowns. If there are any, the classifier is fitted again with
    them as one more class, so that it can answer "unknown". This is random test sampling and
    cross-validation (RTSCV) [1]_. The default mode adds a calibrated test to the published
    algorithm: without evidence of anything new, the classifier stays as it was.

    Parameters
    ----------
    estimator : classifier
        The classifier to monitor. It is cloned, never changed.
    mode : {"monitor", "paper"}, default="monitor"
        "monitor" first tests whether the window holds anything new, and leaves the model alone if
        not. "paper" is the algorithm as published, for reproduction.
    sample_rate : "auto" or float, default="auto"
        Size of the dummy class. In "paper" mode, the share of `sample_of` that is drawn; in
        "monitor" mode, the weight of the whole window against the training rows. "auto" is 0.2 of
        the training rows in both.
    sample_of : {"window", "training"}, default="window"
        In "paper" mode, the size that a numeric `sample_rate` is a share of.
    cv : int, "holdout" or splitter, default=3
        Folds. "holdout" is for "paper" mode only; "monitor" mode needs a splitter that holds out
        every row.
    unknown_label : object, default=None
        Label of unknowns. None chooses the largest label plus one for numbers, so that predictions
        keep their type, and "unknown" otherwise.
    alpha : float, default=0.01
        Significance level of the test that a window holds nothing new.
    gate : {"auto", "kernel", "forest", "network", "estimator"} or classifier, default="auto"
        Model that scores rows in "monitor" mode. "estimator" cross-validates the estimator itself.
        "auto" uses the forest for models made of trees, a network's own features for skorch, the
        estimator for lists of texts, and the kernel for all others.
    n_jobs : int, default=None
        Number of processes for independent fits. The result does not depend on it.
    random_state : int, default=0
        Seed of every random choice, including those of the estimator if it has no seed.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier; rectified if unknowns were found.
    classes_ : ndarray
        Known labels and, if the model was rectified, the label of unknowns.
    estimator_classes_ : ndarray
        The same classes by the labels that `estimator_` was taught.
    unknown_label_ : object
        Label of unknowns; None if the model was fitted without a window.
    assessment_ : Assessment or None
        The verdict on the window and the facts behind it; None in "paper" mode.
    sample_indices_ : ndarray of int
        Positions of the window rows that took part in the fits.
    unknown_indices_ : ndarray of int
        Positions of the window rows that were extracted as unknown.
    window_scores_, known_scores_ : ndarray of float
        Unknown scores in [0, 1] of window rows and known rows, by models fitted without them.
        Empty in "paper" mode.
    clusters_ : tuple of Cluster
        Candidate classes among the unknown rows, the largest first.
    gate_ : object or None
        The fitted gate, which scores new rows; None in "paper" mode.
    taught_gate_ : TaughtGate or None
        A gate that was taught the extracted rows, with the margins of held-out rows; None without
        such rows. `GatedClassifier.around` puts it before a fitted classifier.
    n_features_in_ : int
        Number of columns seen by `fit`.
    feature_names_in_ : ndarray of str
        Column names seen by `fit`, if all are strings.

    References
    ----------
    .. [1] B. Abrahao, Z. Wang, H. Ahmed and Y. Zhu, "Model Rectification via Unknown Unknowns
       Extraction from Deployment Samples", 2021, arXiv:2102.04145.

    Examples
    --------
    Three classes are known. A fourth, far from all of them, appears in the window.

    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.svm import SVC
    >>> from rtscv_mlops import RTSCVClassifier
    >>> centers = [(0, 0), (6, 0), (0, 6), (12, 12)]
    >>> X, y = make_blobs([100, 100, 100], centers=centers[:3], random_state=0)
    >>> window, _ = make_blobs([60, 60, 60, 40], centers=centers, random_state=1)
    >>> model = RTSCVClassifier(SVC()).fit(X, y, deployment=window)
    >>> print(model.assessment_.verdict)
    unknowns
    >>> len(model.unknown_indices_), model.unknown_label_
    (40, 3)
    >>> model.predict([[0, 0], [12, 12]])
    array([0, 3])
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
            StrOptions({"auto", "kernel", "forest", "network", "estimator"}),
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
        """Fit on labelled rows, and rectify the model if an unlabelled window holds unknowns.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or list of texts
            Labelled rows, in any container that the estimator accepts.
        y : array-like
            One label per row.
        deployment : like X, default=None
            Unlabelled window of deployment data. Without it, this is a plain fit.
        baseline : like X, default=None
            An earlier window that is known to be clean, for "monitor" mode. It replaces the
            training rows as the null: a harmless change since training that it shares with
            `deployment` (new writers, a new sensor) is not reported. At least 50 rows.
        sample_weight : array-like, default=None
            One weight per row of `X`, if the estimator supports weights.

        Returns
        -------
        RTSCVClassifier
            This estimator, fitted.
        """
        self._validate_params()
        self._reset()
        with torch_seeded(self.estimator, self.random_state):
            X = check_rows(self, X, "training data", reset=True)
            y = check_labels(y, count(X))
            weight = check_weight(self.estimator, sample_weight, count(X))
            self._labels = Labels.of(y)
            codes = self._labels.codes(y)
            if deployment is not None:
                return self._fit_with_window(X, codes, deployment, baseline, weight)
            if baseline is not None:
                raise InputError(
                    "A baseline was given without deployment data to compare it with. "
                    "Pass the window as deployment=."
                )
            return self._fit_estimator(X, codes, weight)

    def predict(self, X: Any) -> NDArray:
        """Predict known labels, or `unknown_label_`.

        Parameters
        ----------
        X : like X of `fit`
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_rows,)
            A label of `classes_` for each row.
        """
        check_is_fitted(self, "estimator_")
        predicted = np.asarray(self.estimator_.predict(check_rows(self, X, "data")))
        return self.classes_[np.searchsorted(self.estimator_classes_, predicted.ravel())]

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Return the estimator's probability of each class.

        Parameters
        ----------
        X : like X of `fit`
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(check_rows(self, X, "data")))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Return the estimator's decision values.

        Parameters
        ----------
        X : like X of `fit`
            Rows to classify.

        Returns
        -------
        ndarray
            Decision values in the estimator's own shape, in the order of `classes_`.
        """
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.decision_function(check_rows(self, X, "data")))

    def unknown_score(self, X: Any) -> NDArray:
        """Return how unknown each row looks; extraction began at 0.5.

        The score is meant for later rows. Rows of the fitted window took part in the fit, so they
        look slightly more unknown than they are; `unknown_indices_` has those that were extracted.
        In "paper" mode the score is the rectified model's probability of the unknown label. If the
        model has no probabilities, it is 1 for rows predicted as unknown and 0 for others.

        Parameters
        ----------
        X : like X of `fit`
            Rows to score.

        Returns
        -------
        ndarray of shape (n_rows,)
            Scores in [0, 1].
        """
        check_is_fitted(self, "estimator_")
        if self.unknown_label_ is None:
            raise InputError(
                "This model was fitted without a deployment window, so it cannot score unknowns. "
                "Call fit(X, y, deployment=...) first."
            )
        if self.gate_ is not None:
            return self._score(margins(self.gate_.scores(check_rows(self, X, "data"))))
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

    def _reset(self) -> None:
        """Remove the results of an earlier fit."""
        self.unknown_label_ = None
        self.sample_indices_ = self.unknown_indices_ = np.empty(0, dtype=int)
        self.window_scores_ = self.known_scores_ = np.empty(0)
        self.assessment_: Assessment | None = None
        self.clusters_: tuple[Cluster, ...] = ()
        self.gate_: Gate | None = None
        self.taught_gate_: TaughtGate | None = None

    @property
    def _n_folds(self) -> int:
        """Number of folds; 2 for a splitter, whose number may depend on the rows."""
        return int(self.cv) if isinstance(self.cv, Integral) else 2

    # -- the search

    def _fit_with_window(
        self, X: Any, codes: NDArray, deployment: Any, baseline: Any, weight: NDArray | None
    ) -> "RTSCVClassifier":
        self._labels = self._labels.name_unknown(self.unknown_label)
        window = check_window(self, deployment, "deployment window", X, self._n_folds)
        if self.mode == "monitor":
            if baseline is not None:
                baseline = check_window(self, baseline, "baseline", X, self._n_folds)
            self._search_by_monitor(X, codes, window, baseline)
        elif baseline is None:
            self._search_by_paper(X, codes, window, weight)
        else:
            raise InputError(
                "mode='paper' is the published algorithm, which has no baseline. "
                "Leave it out, or use mode='monitor'."
            )
        n_unknown = len(self.unknown_indices_)
        if n_unknown > 0:
            X = stack(X, take(window, self.unknown_indices_))
            codes = np.append(codes, np.full(n_unknown, len(self._labels.known)))
        self._fit_estimator(X, codes, weight)
        check_gaps(self.estimator_, window, "deployment window")
        self.unknown_label_ = self._labels.unknown
        return self

    def _search_by_paper(self, X: Any, codes: NDArray, window: Any, weight: NDArray | None) -> None:
        is_auto = self.sample_rate == "auto"
        rate, of = (RATIO, "training") if is_auto else (float(self.sample_rate), self.sample_of)
        sample = sample_window(count(window), len(codes), rate, of, self.random_state)
        if len(sample) < self._n_folds:
            raise InputError(
                f"The sample has {len(sample)} row(s), fewer than the {self._n_folds} folds. "
                "Raise sample_rate, or lower cv."
            )
        taught = self._labels.taught
        dummy = np.full(len(sample), len(taught) - 1)
        search = PaperSearch(
            estimator=seeded(self.estimator, self.random_state),
            rows=stack(X, take(window, sample)),
            labels=taught[np.concatenate([codes, dummy])],
            dummy=taught[-1],
            fit_params=weight_params(self.estimator, weight, len(sample)),
        )
        unknown = search.run(self.cv, self.random_state, self.n_jobs)
        self.sample_indices_ = sample
        self.unknown_indices_ = sample[unknown[len(codes) :]]

    def _search_by_monitor(self, X: Any, codes: NDArray, window: Any, baseline: Any) -> None:
        if isinstance(self.cv, str):
            raise InputError(
                "cv='holdout' leaves rows without a held-out score, but mode='monitor' needs one "
                "for every row. Give a number of folds, or use mode='paper'."
            )
        distinct = DistinctRows.of(X, codes, window, baseline)
        if len(distinct.judged) < self._n_folds:
            raise InputError(
                f"The deployment window has {len(distinct.judged)} distinct row(s) in "
                f"{count(window)}, fewer than the {self._n_folds} folds. Check whether its source "
                "repeats rows."
            )
        known, codes = distinct.known, distinct.codes
        gate, kept = make_gate(
            self.gate, self.estimator, known, codes, self.random_state, self.n_jobs
        )
        search = MonitorSearch(
            gate,
            cv=int(self.cv) if isinstance(self.cv, Integral) else self.cv,
            ratio=RATIO if self.sample_rate == "auto" else float(self.sample_rate),
            alpha=self.alpha,
            seed=self.random_state,
        )
        detection = distinct.expand(
            search.run(
                take(known, kept) if len(kept) < len(codes) else known,
                codes[kept],
                distinct.window,
                distinct.baseline,
            )
        )
        self.sample_indices_, self.unknown_indices_ = detection.sampled, detection.unknown
        self.gate_ = gate
        if detection.taught is not None:
            places = distinct.kept[kept[detection.taught.known]]
            self.taught_gate_ = replace(detection.taught, known=places)
        self._threshold, self._spread = detection.threshold, detection.spread
        self.window_scores_ = self._score(detection.window_margins)
        self.known_scores_ = self._score(detection.known_margins)
        facts = dict(detection.assessment.diagnostics)
        names = self._labels.known.tolist()
        for fact in ("class_shift", "looks_like"):
            facts[fact] = dict(zip(names, facts[fact], strict=True))
        if len(detection.unknown) > 0 and known.ndim > 1:
            self.clusters_ = group_unknowns(
                known, codes, window, detection.unknown, self.random_state
            )
        self.assessment_ = replace(detection.assessment, diagnostics=facts)

    def _score(self, margin: NDArray) -> NDArray:
        return expit((margin - self._threshold) / self._spread)

    def _fit_estimator(self, X: Any, codes: NDArray, weight: NDArray | None) -> "RTSCVClassifier":
        n_added = len(codes) - len(weight) if weight is not None else 0
        params = weight_params(self.estimator, weight, n_added)
        estimator = seeded(self.estimator, self.random_state)
        self.estimator_ = estimator.fit(X, self._labels.taught[codes], **params)
        self.estimator_classes_ = np.asarray(self.estimator_.classes_)
        self.classes_ = self._labels.public(self.estimator_classes_)
        return self
