"""`RTSCVClassifier`: a classifier that can be taught, without labels, that a window is not known.

Knows scikit-learn's contract; the two ways to find unknowns live in `paper` and `monitor`.
"""

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
from rtscv_mlops.estimator.clusters import Cluster, group_rows
from rtscv_mlops.estimator.gates import FoldsGate, ForestGate, Gate, margins
from rtscv_mlops.estimator.kernel import KernelGate
from rtscv_mlops.estimator.learner import check_weight, is_of_trees, seeded, weight_params
from rtscv_mlops.estimator.network import NetworkGate, is_network, learn_embeddings, torch_seeded
from rtscv_mlops.estimator.rows import Numbers, count, find_distinct, fingerprints, stack, take
from rtscv_mlops.estimator.search import (
    RATIO,
    Finding,
    assess_window,
    cross_validate_sample,
    make_splitter,
    sample_window,
)
from rtscv_mlops.estimator.statistics import Assessment

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
        How unknowns are called. None: the largest label plus one for numbers, so that the
        rectified model's answers keep their type, else "unknown".
    alpha : float
        Level of the test that a window holds nothing new.
    gate : {"auto", "kernel", "forest", "network", "estimator"} or classifier
        What scores rows in "monitor" mode. "estimator" cross-validates the estimator itself;
        "auto" takes the forest gate for models of trees, a network's own features for skorch,
        and the kernel gate for all others.
    n_jobs : int or None
        Processes for fits that are independent. The result does not depend on it.
    random_state : int
        Seed of every random choice, the estimator's own included where it has no seed.

    Attributes
    ----------
    estimator_ : the fitted, and if unknowns were found rectified, classifier
    classes_ : known labels, and the unknown label where the model was rectified
    unknown_label_ : how unknowns are called
    sample_indices_, unknown_indices_ : rows of the window that were sampled / kept as unknown
    assessment_ : `Assessment`, the facts about the window; None in "paper" mode
    window_scores_, known_scores_ : how unknown rows of the window, and known rows, look to models
        that have not seen them, in [0, 1]; empty in "paper" mode
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
        """Fit on labelled rows, rectified by an unlabelled window if that holds unknowns.

        `baseline` is an earlier, clean window: a harmless change since training that it shares
        with `deployment` (new writers, a new sensor) is then no finding. It is the null, so a
        few dozen rows of it prove nothing. Without `deployment` this is a plain fit of the
        estimator.
        """
        self._validate_params()
        self._forget()
        with torch_seeded(self.estimator, self.random_state):
            return self._fit(X, y, deployment, baseline, sample_weight)

    def _fit(
        self, X: Any, y: Any, deployment: Any, baseline: Any, sample_weight: Any
    ) -> "RTSCVClassifier":
        X = check_rows(self, X, "training data", reset=True)
        y = check_labels(y, count(X))
        weight = check_weight(self.estimator, sample_weight, count(X))
        self._labels = Labels.of(y)
        codes = self._labels.codes(y)
        if deployment is None:
            if baseline is not None:
                raise InputError(
                    "A baseline was given without deployment data to compare it with. "
                    "Pass the window as deployment=."
                )
            return self._fit_estimator(X, codes, weight)
        self._labels = self._labels.name_unknown(self.unknown_label)
        window = check_window(self, deployment, "deployment window", X, self._n_folds())
        if self.mode == "paper":
            if baseline is not None:
                raise InputError(
                    "mode='paper' is Algorithm 1, which knows no baseline. "
                    "Leave it out, or use mode='monitor'."
                )
            self._find_by_paper(X, codes, window, weight)
        else:
            if baseline is not None:
                baseline = check_window(self, baseline, "baseline", X, self._n_folds())
            self._find_by_monitor(X, codes, window, baseline)
        self._fit_rectified(X, codes, window, weight)
        check_gaps(self.estimator_, window, "deployment window")
        self.unknown_label_ = self._labels.unknown
        return self

    def predict(self, X: Any) -> NDArray:
        """Return known labels, or `unknown_label_`."""
        check_is_fitted(self, "estimator_")
        predicted = np.asarray(self.estimator_.predict(check_rows(self, X, "data")))
        return self.classes_[np.searchsorted(self.estimator_classes_, predicted.ravel())]

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Return a probability per label, in the order of `classes_`."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(check_rows(self, X, "data")))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Return the estimator's decision values, in the order of `classes_`."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.decision_function(check_rows(self, X, "data")))

    def unknown_score(self, X: Any) -> NDArray:
        """Return how unknown each row looks, in [0, 1]; 0.5 is where extraction began.

        Meant for later rows: those of the fitted window helped to make the score and look somewhat
        more unknown than they are; which of them were extracted is in `unknown_indices_`.
        In "paper" mode it is the rectified model's own probability of the unknown label where it
        has one, else 1 for rows it calls unknown and 0 for others.
        """
        check_is_fitted(self, "estimator_")
        if self.unknown_label_ is None:
            raise InputError(
                "This model was fitted without a deployment window, so it has no idea of unknowns. "
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

    def _forget(self) -> None:
        """Forget what an earlier fit found."""
        self.unknown_label_ = None
        self.sample_indices_ = self.unknown_indices_ = np.empty(0, dtype=int)
        self.window_scores_ = self.known_scores_ = np.empty(0)
        self.assessment_: Assessment | None = None
        self.clusters_: tuple[Cluster, ...] = ()
        self.gate_: Gate | None = None

    def _n_folds(self) -> int:
        """Return the number of folds, as far as a splitter tells without rows."""
        return int(self.cv) if isinstance(self.cv, Integral) else 2

    # -- the search

    def _find_by_paper(self, X: Any, codes: NDArray, window: Any, weight: NDArray | None) -> None:
        is_auto = self.sample_rate == "auto"
        rate, of = (RATIO, "training") if is_auto else (float(self.sample_rate), self.sample_of)
        sample = sample_window(count(window), len(codes), rate, of, self.random_state)
        if len(sample) < self._n_folds():
            raise InputError(
                f"The sample has {len(sample)} row(s), fewer than the {self._n_folds()} folds. "
                "Raise sample_rate, or lower cv."
            )
        taught = self._labels.taught
        dummy = np.full(len(sample), len(taught) - 1)
        unknown = cross_validate_sample(
            seeded(self.estimator, self.random_state),
            stack(X, take(window, sample)),
            taught[np.concatenate([codes, dummy])],
            taught[-1],
            make_splitter(self.cv, self.random_state),
            weight_params(self.estimator, weight, len(sample)),
            self.n_jobs,
        )
        self.sample_indices_ = sample
        self.unknown_indices_ = sample[unknown[len(codes) :]]

    def _find_by_monitor(self, X: Any, codes: NDArray, window: Any, baseline: Any) -> None:
        if isinstance(self.cv, str):
            raise InputError(
                "cv='holdout' leaves rows without a held-out score, which mode='monitor' needs "
                "for every row. Give a number of folds, or use mode='paper'."
            )
        prints, known_prints = fingerprints(window), fingerprints(X)
        judged, known = find_distinct(prints, known_prints), find_distinct(known_prints, prints)
        if len(judged) < self._n_folds():
            raise InputError(
                f"The deployment window has {len(judged)} distinct row(s) in {len(prints)}, fewer "
                f"than the {self._n_folds()} folds. See whether its source repeats itself."
            )
        if baseline is not None:
            baseline = take(baseline, find_distinct(fingerprints(baseline), prints))
        if len(known) < len(codes):
            X, codes = take(X, known), codes[known]
        gate, kept = self._make_gate(X, codes)
        finding = assess_window(
            take(X, kept) if len(kept) < len(codes) else X,
            codes[kept],
            window if len(judged) == len(prints) else take(window, judged),
            baseline=baseline,
            gate=gate,
            cv=int(self.cv) if isinstance(self.cv, Integral) else self.cv,
            ratio=RATIO if self.sample_rate == "auto" else float(self.sample_rate),
            alpha=self.alpha,
            seed=self.random_state,
        )
        if len(judged) < len(prints):
            finding = _with_copies(finding, prints, judged)
        self.sample_indices_, self.unknown_indices_ = finding.sampled, finding.unknown
        self.gate_, self._threshold, self._spread = finding.gate, finding.threshold, finding.spread
        self.window_scores_ = self._score(finding.window_margins)
        self.known_scores_ = self._score(finding.known_margins)
        self._describe_unknowns(X, codes, window, finding)

    def _score(self, margin: NDArray) -> NDArray:
        return expit((margin - self._threshold) / self._spread)

    def _make_gate(self, X: Any, codes: NDArray) -> tuple[Gate, NDArray]:
        """Return the gate, and the known rows that it may compare a window with."""
        kind, every = self.gate, np.arange(len(codes))
        if kind == "auto":
            kind = self._choose_gate(X)
        if kind == "kernel":
            return KernelGate(), every
        if kind == "forest":
            return ForestGate(n_jobs=self.n_jobs), every
        learner = self.estimator if isinstance(kind, str) else kind
        learner = seeded(learner, self.random_state)
        if kind == "network":
            embeddings, kept = learn_embeddings(learner, X, codes, self.random_state)
            return NetworkGate(embeddings), kept
        return FoldsGate(learner, n_jobs=self.n_jobs), every

    def _choose_gate(self, X: Any) -> str:
        if X.ndim == 1:
            return "estimator"  # texts: only the estimator can read them
        if is_network(self.estimator):
            return "network"
        return "forest" if is_of_trees(self.estimator) else "kernel"

    def _describe_unknowns(self, X: Any, codes: NDArray, window: Any, finding: Finding) -> None:
        """Name the classes in the diagnostics, and group the unknown rows."""
        facts = dict(finding.assessment.diagnostics)
        names = self._labels.known.tolist()
        for fact in ("class_shift", "looks_like"):
            facts[fact] = dict(zip(names, facts[fact], strict=True))
        self.assessment_ = replace(finding.assessment, diagnostics=facts)
        if len(finding.unknown) == 0 or X.ndim == 1:
            return
        rng = np.random.default_rng(self.random_state)
        shown = rng.permutation(len(codes))[:DESCRIBED_ROWS]
        unknown = take(window, finding.unknown)
        numbers = Numbers().fit(stack(take(X, shown), unknown))
        known_numbers, unknown_numbers = (
            numbers.transform(rows) for rows in (take(X, shown), unknown)
        )
        scale = _spread_within(known_numbers, codes[shown])
        self.clusters_ = group_rows(unknown_numbers, finding.unknown, scale, self.random_state)

    # -- the fit

    def _fit_rectified(
        self, X: Any, codes: NDArray, window: Any, weight: NDArray | None
    ) -> "RTSCVClassifier":
        n_unknown = len(self.unknown_indices_)
        if n_unknown == 0:
            return self._fit_estimator(X, codes, weight)
        unknown = np.full(n_unknown, len(self._labels.known))
        rows = stack(X, take(window, self.unknown_indices_))
        return self._fit_estimator(rows, np.concatenate([codes, unknown]), weight)

    def _fit_estimator(self, X: Any, codes: NDArray, weight: NDArray | None) -> "RTSCVClassifier":
        n_added = len(codes) - len(weight) if weight is not None else 0
        params = weight_params(self.estimator, weight, n_added)
        estimator = seeded(self.estimator, self.random_state)
        self.estimator_ = estimator.fit(X, self._labels.taught[codes], **params)
        self.estimator_classes_ = np.asarray(self.estimator_.classes_)
        self.classes_ = self._labels.public(self.estimator_classes_)
        return self


def _with_copies(finding: Finding, prints: NDArray, judged: NDArray) -> Finding:
    """Return what was found in distinct rows as rows of the whole window, copies and all."""
    facts = {**finding.assessment.diagnostics, "copies": len(prints) - len(judged)}
    order = np.argsort(prints[judged], kind="stable")
    twin = order[np.searchsorted(prints[judged], prints, sorter=order)]
    return replace(
        finding,
        assessment=replace(finding.assessment, diagnostics=facts),
        sampled=judged[finding.sampled],
        unknown=np.flatnonzero(np.isin(prints, prints[judged[finding.unknown]])),
        window_margins=finding.window_margins[twin],
    )


def _spread_within(numbers: NDArray, codes: NDArray) -> NDArray:
    """Return how far each column spreads within a class."""
    variances = np.zeros(numbers.shape[1])
    for code in np.unique(codes):
        of_class = numbers[codes == code].astype(float)
        variances += of_class.var(axis=0) * len(of_class) / len(codes)
    return np.sqrt(variances)
