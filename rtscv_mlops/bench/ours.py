"""RTSCV and the model it starts from, as detectors. Knows `RTSCVClassifier` and the base model."""

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

from rtscv_mlops.bench.detector import (
    UNKNOWN,
    Detector,
    Scaled,
    check_window,
    class_scores,
    keep_some,
)
from rtscv_mlops.bench.open_set import folds, keep_known
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.estimator.rows import Numbers, count, stack, take
from rtscv_mlops.estimator.search import RATIO, sample_window


class PreRectified(Detector):
    """The base model alone: it never says unknown.

    The score is 1 minus its largest probability, or decision value where it has no probabilities;
    a model with neither scores every row alike.
    """

    threshold_ = np.inf

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        self.model_ = seeded(self.estimator, self.random_state).fit(X, y)
        return self

    def score(self, X: Any) -> NDArray:
        return 1 - class_scores(self.model_, X).max(axis=1)

    def classify(self, X: Any) -> NDArray:
        return np.asarray(self.model_.predict(X)).ravel()


class Rectified(Detector):
    """A base model that was fitted again, with rows of the window as one more class.

    Its own prediction decides, not the score, which is the unknown class' lead over the others.
    `model_` is that model; `n_known_` is the code of the unknown class.
    """

    sees_window: ClassVar[bool] = True
    threshold_ = 0.0

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        check_window(self, window)
        self.n_known_ = int(y.max()) + 1
        self._rectify(X, y, window)
        return self

    def score(self, X: Any) -> NDArray:
        scores = class_scores(self.model_, X)
        if scores.shape[1] == self.n_known_:
            return np.full(len(scores), -1.0)
        return scores[:, -1] - scores[:, :-1].max(axis=1)

    def classify(self, X: Any) -> NDArray:
        return class_scores(self.model_, X)[:, : self.n_known_].argmax(axis=1)

    def decide(self, X: Any) -> NDArray:
        return self.predict(X) == UNKNOWN

    def predict(self, X: Any) -> NDArray:
        codes = np.asarray(self.model_.predict(X)).ravel()
        return np.where(codes == self.n_known_, UNKNOWN, codes)

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
    """RTSCV as the product runs it: it tests first whether the window holds anything new."""

    mode = "monitor"
    threshold_ = 0.5

    def _rectify(self, X: Any, y: NDArray, window: Any) -> None:
        super()._rectify(X, y, window)
        self.window_scores_ = self.model_.window_scores_

    def score(self, X: Any) -> NDArray:
        return self.model_.unknown_score(X)


class SeededKMeans(Rectified):
    """Clustering with side information: the paper's alternative to cross-validation.

    The sample of the window, drawn as RTSCV draws its own, is put into one cluster for each known
    class and one more; they start at the classes' means and at the sample's mean. Rows of the last
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
        self.model_ = seeded(self.estimator, self.random_state).fit(rows, codes)

    def _clusters(self, X: Any, y: NDArray, sample: Any) -> NDArray:
        if count(sample) <= self.n_known_:
            raise InputError(
                f"The sample has {count(sample)} row(s), too few for {self.n_known_ + 1} clusters. "
                "Take a longer window."
            )
        scaled = Scaled().fit(X)
        known, numbers = scaled.transform(X), scaled.transform(sample)
        seeds = [known[y == code].mean(axis=0) for code in range(self.n_known_)]
        seeds.append(numbers.mean(axis=0))
        means = KMeans(self.n_known_ + 1, init=np.stack(seeds), n_init=1)
        return means.fit_predict(numbers)


class WindowModel(Detector):
    """The base model's classes, and a score that is learned from known rows and window together."""

    sees_window: ClassVar[bool] = True

    def __init__(self, estimator: Any, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray, window: Any = None) -> Self:
        check_window(self, window)
        self.model_ = seeded(self.estimator, self.random_state).fit(X, y)
        self._compare(X, y, window)
        return self

    def classify(self, X: Any) -> NDArray:
        return np.asarray(self.model_.predict(X)).ravel()

    def _compare(self, X: Any, y: NDArray, window: Any) -> None:
        """Learn the score, the threshold and the window's held-out scores."""
        raise NotImplementedError


class DomainClassifier(WindowModel):
    """Gradient boosting that tells the window from the known rows.

    A row's score is its probability to be of the window, by models that have not seen it; later
    rows get the mean of all models. The threshold lets 95 % of the held-out known rows pass.
    """

    def _compare(self, X: Any, y: NDArray, window: Any) -> None:
        rows = stack(X, window)
        of_window = np.arange(count(rows)) >= len(y)
        self.numbers_ = Numbers().fit(rows)
        numbers, held_out = self.numbers_.transform(rows), np.empty(len(of_window))
        self.models_ = []
        for train, test in folds(of_window, self.random_state):
            model = HistGradientBoostingClassifier(random_state=self.random_state)
            self.models_.append(model.fit(numbers[train], of_window[train]))
            held_out[test] = model.predict_proba(numbers[test])[:, 1]
        self.threshold_ = keep_known(held_out[~of_window])
        self.window_scores_ = held_out[of_window]

    def score(self, X: Any) -> NDArray:
        numbers = self.numbers_.transform(X)
        return np.mean([model.predict_proba(numbers)[:, 1] for model in self.models_], axis=0)


class LabelFilters(WindowModel):
    """Filtering of mislabelled rows by majority (Brodley and Friedl 1999).

    The base model labels the window; a tree, a nearest neighbour and a linear model are
    cross-validated on known rows and window. The score is the share of them that contradict the
    base model's label: most of them, and the row is unknown. At most `MAX_ROWS` known rows count.
    """

    FILTER_FOLDS: ClassVar[int] = 4
    """The source's number of folds."""

    threshold_ = 0.5

    def _compare(self, X: Any, y: NDArray, window: Any) -> None:
        kept = keep_some(y, self.random_state)
        labels = self.classify(window)
        self.scaled_ = Scaled().fit(X)
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
