"""Detectors that add a score to the base model: its own confidence, densities, outlier detectors.

Knows the base model and known rows. A score's threshold lets 95 % of held-out known rows pass.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.ensemble import IsolationForest as SklearnIsolationForest
from sklearn.neighbors import LocalOutlierFactor as SklearnLocalOutlierFactor
from sklearn.pipeline import make_pipeline

from rtscv_mlops.bench.detector import Detector, Scaled, class_scores, decision_values, keep_some
from rtscv_mlops.bench.open_set import folds, keep_known
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.learner import last_step, seeded
from rtscv_mlops.estimator.rows import Numbers, take


class ScoredModel(Detector):
    """The base model's classes, and a score of its own that is learned from known rows."""

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        self.learned_ = self._learn(X, y)
        self.model_ = self._fit_base(X, y)
        held_out = [
            self._score(self._learn(take(X, train), y[train]), take(X, test))
            for train, test in folds(y, self.random_state)
        ]
        self.threshold_ = keep_known(np.concatenate(held_out))
        return self

    def score(self, X: Any) -> NDArray:
        return self._score(self.learned_, X)

    def classify(self, X: Any) -> NDArray:
        return np.asarray(self.model_.predict(X)).ravel()

    def _fit_base(self, X: Any, y: NDArray) -> Any:
        return seeded(self.estimator, self.random_state).fit(X, y)

    def _learn(self, X: Any, y: NDArray) -> Any:
        """Return what the score is computed from."""
        raise NotImplementedError

    def _score(self, learned: Any, X: Any) -> NDArray:
        raise NotImplementedError


class MSP(ScoredModel):
    """One minus the base model's largest softmax probability (Hendrycks and Gimpel 2017).

    A model without probabilities is asked for its largest decision value: an SVM's are counts of
    won duels, whose softmax would say little more than which class won.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        return self._fit_base(X, y)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return 1 - class_scores(learned, X).max(axis=1)


class Energy(ScoredModel):
    """The free energy of the base model's decision values (Liu et al. 2020).

    Two classes share one decision value f, as the values -f/2 and f/2. A model that has only
    probabilities is refused: they add up to 1, so every row would have the same energy.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        if not hasattr(self.estimator, "decision_function"):
            raise InputError(
                f"The energy needs decision values, and {type(last_step(self.estimator)).__name__} "
                "has none: the energy of probabilities is the same for every row. Use msp."
            )
        return self._fit_base(X, y)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -logsumexp(decision_values(learned, X), axis=1)


@dataclass(frozen=True, slots=True)
class Means:
    """The classes' means in the numbers that a transformer makes, and how rows spread round them.

    `spread` is a covariance that all classes share, or a variance for each.
    """

    numbers: Any
    means: NDArray
    spread: Any

    def offsets(self, X: Any) -> list[NDArray]:
        """Return the rows relative to each class' mean."""
        numbers = self.numbers.transform(X).astype(np.float64)
        return [numbers - mean for mean in self.means]


def _class_means(numbers: NDArray, y: NDArray) -> NDArray:
    return np.stack([numbers[y == code].mean(axis=0) for code in np.unique(y)])


class Mahalanobis(ScoredModel):
    """Squared distance to the nearest class mean, in one covariance for all (Lee et al. 2018).

    On the input's numbers, not on a network's features, hence without their input preprocessing.
    """

    def _learn(self, X: Any, y: NDArray) -> Means:
        transformer = Numbers().fit(X)
        numbers = transformer.transform(X).astype(np.float64)
        means = _class_means(numbers, y)
        residuals = numbers - means[np.searchsorted(np.unique(y), y)]
        return Means(transformer, means, EmpiricalCovariance(assume_centered=True).fit(residuals))

    def _score(self, learned: Means, X: Any) -> NDArray:
        distances = [learned.spread.mahalanobis(offset) for offset in learned.offsets(X)]
        return np.min(distances, axis=0)


class Likelihood(ScoredModel):
    """The highest log-density of a row under the classes' isotropic Gaussians (Lee et al. 2020).

    On the scaled numbers of the input, where the source trains a network to make such Gaussians.
    """

    def _learn(self, X: Any, y: NDArray) -> Means:
        scaled = Scaled().fit(X)
        numbers = scaled.transform(X)
        variances = [np.mean(np.var(numbers[y == code], axis=0)) for code in np.unique(y)]
        # A class of equal rows would have a density without bound.
        return Means(scaled, _class_means(numbers, y), np.maximum(variances, 1e-12))

    def _score(self, learned: Means, X: Any) -> NDArray:
        densities = [
            -(np.square(offset).sum(axis=1) / variance) / 2
            - offset.shape[1] / 2 * np.log(2 * np.pi * variance)
            for offset, variance in zip(learned.offsets(X), learned.spread, strict=True)
        ]
        return -np.max(densities, axis=0)


class IsolationForest(ScoredModel):
    """scikit-learn's isolation forest (Liu et al. 2008) on all known rows, as it comes."""

    def _learn(self, X: Any, y: NDArray) -> Any:
        return make_pipeline(Scaled(), SklearnIsolationForest(random_state=self.random_state)).fit(
            X
        )

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -learned.score_samples(X)


class LocalOutlierFactor(ScoredModel):
    """scikit-learn's local outlier factor (Breunig et al. 2000), as it comes.

    It keeps at most `MAX_ROWS` known rows: in many columns neighbours are found by trying all.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        kept = take(X, keep_some(y, self.random_state))
        return make_pipeline(Scaled(), SklearnLocalOutlierFactor(novelty=True)).fit(kept)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -learned.score_samples(X)


class ECOD(ScoredModel):
    """PyOD's ECOD (Li et al. 2022), as it comes.

    PyOD takes its empirical tails from the known rows and the scored rows together, so a row's
    score depends a little on its company.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        try:
            from pyod.models.ecod import ECOD as PyodECOD
        except ImportError as error:
            raise InputError(
                "ECOD needs PyOD, which is not installed. Run: pip install 'rtscv-mlops[bench]'"
            ) from error
        return make_pipeline(Scaled(), PyodECOD()).fit(X)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return np.asarray(learned.decision_function(X))
