"""Detectors that add a score to the base model: its own confidence, densities, outlier scores.

The threshold of each score lets 95 % of held-out known rows pass.
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

from rtscv_mlops.bench import detector
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.learner import last_step
from rtscv_mlops.estimator.rows import Numbers, take


class ScoredModel(detector.BaseModelDetector):
    """The base model, and a score that is learned from known rows."""

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        self.learned_ = self._learn(X, y)
        self.model_ = self._fit_base(X, y)
        held_out = [
            self._score(self._learn(take(X, train), y[train]), take(X, test))
            for train, test in detector.split_folds(y, self.random_state)
        ]
        self.threshold_ = detector.find_threshold(np.concatenate(held_out))
        return self

    def score(self, X: Any) -> NDArray:
        return self._score(self.learned_, X)

    def _learn(self, X: Any, y: NDArray) -> Any:
        """Return what the score is computed from."""
        raise NotImplementedError

    def _score(self, learned: Any, X: Any) -> NDArray:
        raise NotImplementedError


class MSP(ScoredModel):
    """One minus the base model's largest softmax probability (Hendrycks and Gimpel 2017).

    For a model without probabilities it is the largest decision value. An SVM's decision values
    count votes, and their softmax would show little more than which class won.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        return self._fit_base(X, y)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return 1 - detector.native_scores(learned, X).max(axis=1)


class Energy(ScoredModel):
    """The free energy of the base model's decision values (Liu et al. 2020).

    With two classes there is one decision value f, which counts as -f/2 and f/2. A model that has
    only probabilities is refused: they add up to 1, so every row would have the same energy.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        if not hasattr(self.estimator, "decision_function"):
            raise InputError(
                f"The energy needs decision values, and {type(last_step(self.estimator)).__name__} "
                "has none. The energy of probabilities is the same for every row. Use msp."
            )
        return self._fit_base(X, y)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -logsumexp(detector.decision_values(learned, X), axis=1)


@dataclass(frozen=True, slots=True)
class Means:
    """The classes' means in the numbers of a transformer, and how rows spread around them.

    `spread` is one covariance for all classes, or a variance for each.
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

    On the input's numbers, not on a network's features, so without the source's preprocessing.
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

    On the scaled numbers of the input; the source trains a network to make such Gaussians.
    """

    def _learn(self, X: Any, y: NDArray) -> Means:
        scaled = detector.Scaled().fit(X)
        numbers = scaled.transform(X)
        variances = [np.mean(np.var(numbers[y == code], axis=0)) for code in np.unique(y)]
        # The density of a class of equal rows would be infinite.
        return Means(scaled, _class_means(numbers, y), np.maximum(variances, 1e-12))

    def _score(self, learned: Means, X: Any) -> NDArray:
        densities = [
            -(np.square(offset).sum(axis=1) / variance) / 2
            - offset.shape[1] / 2 * np.log(2 * np.pi * variance)
            for offset, variance in zip(learned.offsets(X), learned.spread, strict=True)
        ]
        return -np.max(densities, axis=0)


class IsolationForest(ScoredModel):
    """scikit-learn's isolation forest (Liu et al. 2008) on all known rows, with its defaults."""

    def _learn(self, X: Any, y: NDArray) -> Any:
        forest = SklearnIsolationForest(random_state=self.random_state)
        return make_pipeline(detector.Scaled(), forest).fit(X)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -learned.score_samples(X)


class LocalOutlierFactor(ScoredModel):
    """scikit-learn's local outlier factor (Breunig et al. 2000), with its defaults.

    It keeps at most `MAX_ROWS` known rows, because with many columns it compares all pairs.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        kept = take(X, detector.sample_by_class(y, self.random_state))
        return make_pipeline(detector.Scaled(), SklearnLocalOutlierFactor(novelty=True)).fit(kept)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return -learned.score_samples(X)


class ECOD(ScoredModel):
    """PyOD's ECOD (Li et al. 2022), with its defaults.

    PyOD takes its empirical tails from the known rows and the scored rows together, so a row's
    score depends a little on the rows that are scored with it.
    """

    def _learn(self, X: Any, y: NDArray) -> Any:
        try:
            from pyod.models.ecod import ECOD as PyodECOD
        except ImportError as error:
            raise InputError(
                "ECOD needs PyOD, which is not installed. Run: pip install 'rtscv-mlops[bench]'"
            ) from error
        return make_pipeline(detector.Scaled(), PyodECOD()).fit(X)

    def _score(self, learned: Any, X: Any) -> NDArray:
        return np.asarray(learned.decision_function(X))
