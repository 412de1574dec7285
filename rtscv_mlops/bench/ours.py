"""The base model alone, RTSCV, and other detectors that learn from the window."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops.bench import detector
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.rows import Numbers, count, stack, take
from rtscv_mlops.estimator.search import RATIO, sample_window


class PreRectified(detector.BaseModelDetector):
    """The base model alone: it calls no row unknown.

    The score is 1 minus its largest probability, or decision value if it has no probabilities;
    a model with neither gives every row the same score.
    """

    threshold_ = np.inf

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        self.model_ = self._fit_base(X, y)
        return self

    def score(self, X: Any) -> NDArray:
        return 1 - detector.native_scores(self.model_, X).max(axis=1)


class WindowDetector(detector.BaseModelDetector):
    """A detector that learns from the window."""

    sees_window: ClassVar[bool] = True

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        if window is None:
            raise InputError(
                f"{type(self).__name__} learns from a window, and none was given. "
                "Call fit(X, y, window)."
            )
        self._learn(X, y, window)
        return self

    def _learn(self, X: Any, y: NDArray, window: Any) -> None:
        """Learn from known rows and window together."""
        raise NotImplementedError


class Rectified(WindowDetector):
    """The base model, fitted again with rows of the window as one more class.

    Its prediction decides, not the score, which is the lead of the unknown class over the others.
    `model_` is that model; `n_known_` is the code of the unknown class.
    """

    threshold_ = 0.0

    def _learn(self, X: Any, y: NDArray, window: Any) -> None:
        self.n_known_ = int(y.max()) + 1
        self._rectify(X, y, window)

    def score(self, X: Any) -> NDArray:
        scores = detector.native_scores(self.model_, X)
        if scores.shape[1] == self.n_known_:
            return np.full(len(scores), -1.0)
        return scores[:, -1] - scores[:, :-1].max(axis=1)

    def classify(self, X: Any) -> NDArray:
        return detector.native_scores(self.model_, X)[:, : self.n_known_].argmax(axis=1)

    def decide(self, X: Any) -> NDArray:
        return self.predict(X) == detector.UNKNOWN

    def predict(self, X: Any) -> NDArray:
        codes = np.asarray(self.model_.predict(X)).ravel()
        return np.where(codes == self.n_known_, detector.UNKNOWN, codes)

    def predict_window(self, window: Any) -> NDArray:
        return self.predict(window)

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        raise NotImplementedError


class PaperMode(Rectified):
    """RTSCV as published, with a sample of 0.2 of the training rows."""

    mode: ClassVar[Literal["monitor", "paper"]] = "paper"

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        self.model_ = RTSCVClassifier(
            self.estimator, mode=self.mode, random_state=self.random_state
        ).fit(X, y, window)


class MonitorDetector(PaperMode):
    """RTSCV as the pipeline runs it: it first tests whether the window holds anything new."""

    mode = "monitor"
    threshold_ = 0.5

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        super()._rectify(X, y, window)
        self.window_scores_ = self.model_.window_scores_

    def score(self, X: Any) -> NDArray:
        return self.model_.unknown_score(X)


class SeededKMeans(Rectified):
    """Clustering with side information: the paper's alternative to cross-validation.

    It draws the same sample of the window as RTSCV, and divides it into one cluster for each known
    class and one more. They start at the classes' means and at the sample's mean. Rows of the last
    cluster become the unknown class of the base model.
    """

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        sample = sample_window(count(window), len(y), RATIO, "training", self.random_state)
        self.sample_indices_ = sample
        self.unknown_indices_ = sample[self._clusters(X, y, take(window, sample)) == self.n_known_]
        rows, codes = X, y
        if len(self.unknown_indices_):
            rows = stack(X, take(window, self.unknown_indices_))
            codes = np.append(y, np.full(len(self.unknown_indices_), self.n_known_))
        self.model_ = self._fit_base(rows, codes)

    def _clusters(self, X: Any, y: NDArray, sample: Any) -> NDArray:
        if count(sample) <= self.n_known_:
            raise InputError(
                f"The sample has {count(sample)} row(s), too few for {self.n_known_ + 1} clusters. "
                "Take a longer window."
            )
        scaled = detector.Scaled().fit(X)
        known, numbers = scaled.transform(X), scaled.transform(sample)
        seeds = [known[y == code].mean(axis=0) for code in range(self.n_known_)]
        seeds.append(numbers.mean(axis=0))
        means = KMeans(self.n_known_ + 1, init=np.stack(seeds), n_init=1)
        return means.fit_predict(numbers)


class DomainClassifier(WindowDetector):
    """Gradient boosting that separates the window from the known rows.

    The score is the probability that a row is from the window, by models that were not fitted on
    it; later rows get the mean of all models. The threshold lets 95 % of the held-out known rows
    pass.
    """

    def _learn(self, X: Any, y: NDArray, window: Any) -> None:
        self.model_ = self._fit_base(X, y)
        rows = stack(X, window)
        of_window = np.arange(count(rows)) >= len(y)
        self.numbers_ = Numbers().fit(rows)
        numbers, held_out = self.numbers_.transform(rows), np.empty(len(of_window))
        self.models_ = []
        for train, test in detector.split_folds(of_window, self.random_state):
            model = HistGradientBoostingClassifier(random_state=self.random_state)
            self.models_.append(model.fit(numbers[train], of_window[train]))
            held_out[test] = model.predict_proba(numbers[test])[:, 1]
        self.threshold_ = detector.find_threshold(held_out[~of_window])
        self.window_scores_ = held_out[of_window]

    def score(self, X: Any) -> NDArray:
        numbers = self.numbers_.transform(X)
        return np.mean([model.predict_proba(numbers)[:, 1] for model in self.models_], axis=0)


class LabelFilters(WindowDetector):
    """Filtering of mislabelled rows by majority (Brodley and Friedl 1999).

    The base model labels the window; a tree, a nearest neighbour and a linear model are
    cross-validated on known rows and window. The score is the share of them that contradict the
    base model's label, and a majority makes the row unknown. It keeps at most `MAX_ROWS` known
    rows.
    """

    FILTER_FOLDS: ClassVar[int] = 4
    """The source's number of folds."""

    threshold_ = 0.5

    def _learn(self, X: Any, y: NDArray, window: Any) -> None:
        self.model_ = self._fit_base(X, y)
        kept = detector.sample_by_class(y, self.random_state)
        labels = self.classify(window)
        self.scaled_ = detector.Scaled().fit(X)
        numbers = self.scaled_.transform(stack(take(X, kept), window))
        codes = np.append(y[kept], labels)
        splitter = StratifiedKFold(self.FILTER_FOLDS, shuffle=True, random_state=self.random_state)
        answers = [
            cross_val_predict(clone(learner), numbers, codes, cv=splitter)[len(kept) :]
            for learner in self._learners()
        ]
        self.window_scores_ = np.mean([answer != labels for answer in answers], axis=0)
        self.filters_ = [learner.fit(numbers, codes) for learner in self._learners()]

    def score(self, X: Any) -> NDArray:
        labels, numbers = self.classify(X), self.scaled_.transform(X)
        return np.mean([learner.predict(numbers) != labels for learner in self.filters_], axis=0)

    def _learners(self) -> list[Any]:
        return [
            DecisionTreeClassifier(random_state=self.random_state),
            KNeighborsClassifier(1),
            LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        ]
