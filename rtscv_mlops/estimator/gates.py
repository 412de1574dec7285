"""Gates: models that score how much a row looks like the window and unlike any known class.

A gate fits RTSCV's class layout (some classes and one dummy class), and scores every row with
models that have not seen it. `kernel.KernelGate` solves the layout in closed form, `ForestGate`
scores a row with the trees that left it out, and `FoldsGate` fits any classifier once per fold.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import gen_batches

from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import Numbers, count, take

CHUNK = 20_000
"""Rows scored at once. This bounds memory, and makes a task worth sending to another process."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows of a table play the classes, and which play the dummy class.

    `folds` has, for each row of the table, the fold that holds it out.
    """

    classes: NDArray
    labels: NDArray
    dummy: NDArray
    folds: NDArray
    ratio: float

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def dummy_weight(self) -> float:
        """Weight of a dummy row; all dummy rows weigh `ratio` times the rows of the classes.

        A whole window of light rows is the limit of an average over many small samples of it.
        """
        return self.ratio * len(self.classes) / max(len(self.dummy), 1)


class Gate(Protocol):
    """The interface that `MonitorSearch` needs."""

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        """Preprocess the rows once, for all layouts."""

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        """Return a score per class and, last, for the dummy, by models fitted without the row."""

    def scores(self, rows: Any) -> NDArray:
        """Score new rows with the models of the first `cross_fit`."""

    def renewed(self) -> Self:
        """Return a gate on the same prepared rows that was never fitted."""

    def forget(self) -> None:
        """Drop the rows; keep what `scores` needs."""


def margins(scores: NDArray) -> NDArray:
    """Return the dummy's score minus the best class's score; above 0, the dummy wins."""
    return scores[:, -1] - scores[:, :-1].max(axis=1)


def nearest_class(scores: NDArray) -> NDArray:
    """Return the best class of each row, apart from the dummy."""
    return scores[:, :-1].argmax(axis=1)


def chunks(indices: NDArray, size: int = 0) -> Iterator[NDArray]:
    """Split indices into chunks of bounded length."""
    if len(indices):
        for piece in gen_batches(len(indices), size or CHUNK):
            yield indices[piece]


def held_out_chunks(
    layout: Layout, scored: NDArray, size: int = 0
) -> Iterator[tuple[int, NDArray]]:
    """Split rows into chunks of bounded length, each with the fold that holds its rows out."""
    for fold in range(layout.folds.max() + 1):
        for rows in chunks(scored[layout.folds[scored] == fold], size):
            yield fold, rows


class ForestGate:
    """Trees grown on halves of the rows; each row is scored by the trees that left it out.

    For models made of trees: skewed columns need no transformation. Halves instead of bootstraps
    leave known and window rows out equally often. Out-of-bag votes of a weighted forest are noisier
    for the heavier rows, so their margins could not be compared.
    """

    def __init__(self, n_trees: int = 40, n_jobs: int | None = None) -> None:
        self.n_trees, self.n_jobs = n_trees, n_jobs

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        self._numbers = Numbers().fit(table)
        self._table = self._numbers.transform(table)
        self._seed = seed
        self._trees: list[Any] = []
        return self

    def renewed(self) -> Self:
        gate = copy(self)
        gate._trees = []
        return gate

    def forget(self) -> None:
        del self._table

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        fitted = np.concatenate([layout.classes, layout.dummy])
        labels = np.concatenate([layout.labels, np.full(len(layout.dummy), layout.n_classes)])
        weight = np.ones(len(fitted))
        weight[len(layout.classes) :] = layout.dummy_weight
        seeds = np.random.SeedSequence([self._seed, len(fitted)]).spawn(self.n_trees)
        draws = [self._draw_half(seed) for seed in seeds]
        trees = do_all(
            _grow,
            ((drawn[fitted], seed) for drawn, seed in draws),
            shared=(self._table[fitted], labels, weight),
            n_jobs=self.n_jobs,
        )
        scores = np.zeros((len(self._table), layout.n_classes + 1))
        votes = np.zeros(len(self._table))
        for tree, (drawn, _) in zip(trees, draws, strict=True):
            for rows in chunks(scored[~drawn[scored]]):
                scores[rows[:, None], tree.classes_] += tree.predict_proba(self._table[rows])
                votes[rows] += 1
        self._trees = self._trees or trees
        return scores / np.maximum(votes, 1)[:, None]

    def scores(self, rows: Any) -> NDArray:
        numbers = self._numbers.transform(rows)
        n_scores = 1 + max(int(tree.classes_[-1]) for tree in self._trees)
        scores = np.zeros((len(numbers), n_scores))
        for tree in self._trees:
            scores[:, tree.classes_] += tree.predict_proba(numbers) / len(self._trees)
        return scores

    def _draw_half(self, seed: np.random.SeedSequence) -> tuple[NDArray, int]:
        """Return which rows of the table a tree may see, and the seed of its own choices.

        Rows that are never fitted are left out just as often as others, so that all rows have the
        same number of votes. More votes make a margin less noisy, and so not comparable.
        """
        rng = np.random.default_rng(seed)
        return rng.random(len(self._table)) < 0.5, int(rng.integers(2**31))


def _grow(rows: NDArray, labels: NDArray, weight: NDArray, grown: NDArray, seed: int) -> Any:
    tree = DecisionTreeClassifier(max_features="sqrt", min_samples_leaf=4, random_state=seed)
    return tree.fit(rows[grown], labels[grown], sample_weight=weight[grown])


class FoldsGate:
    """Clones of a classifier, fitted per fold on the classes and a sample of the window.

    Each fold averages `n_samples` clones, each with a small sample of its own.
    """

    def __init__(self, estimator: Any, n_samples: int = 2, n_jobs: int | None = None) -> None:
        self.estimator, self.n_samples, self.n_jobs = estimator, n_samples, n_jobs

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        self._table, self._seed = table, seed
        self._models: list[Any] = []
        return self

    def renewed(self) -> Self:
        gate = copy(self)
        gate._models = []
        return gate

    def forget(self) -> None:
        del self._table

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        jobs = [
            (fold, np.random.SeedSequence([self._seed, fold, sample]))
            for fold in range(layout.folds.max() + 1)
            for sample in range(self.n_samples)
        ]
        models = do_all(
            _fit,
            (self._fold(layout, fold, seed) for fold, seed in jobs),
            shared=(self.estimator,),
            n_jobs=self.n_jobs,
        )
        scores = np.zeros((count(self._table), layout.n_classes + 1))
        n = self.n_samples
        tasks = [
            (rows, model)
            for fold, rows in held_out_chunks(layout, scored)
            for model in models[fold * n : (fold + 1) * n]
        ]
        held_out = do_all(
            class_scores,
            ((model, take(self._table, rows), scores.shape[1]) for rows, model in tasks),
            n_jobs=self.n_jobs,
        )
        for (rows, _), of_model in zip(tasks, held_out, strict=True):
            scores[rows] += of_model / n
        if not self._models:
            self._models, self._n_classes = models, scores.shape[1]
        return scores

    def scores(self, rows: Any) -> NDArray:
        return np.mean(
            [class_scores(model, rows, self._n_classes) for model in self._models], axis=0
        )

    def _fold(self, layout: Layout, fold: int, seed: np.random.SeedSequence) -> tuple[Any, NDArray]:
        """Return the rows fitted without a fold, classes and a window sample, and their labels."""
        rng = np.random.default_rng(seed)
        kept = layout.folds[layout.classes] != fold
        others = layout.dummy[layout.folds[layout.dummy] != fold]
        size = min(max(round(layout.ratio * kept.sum()), 2), len(others))
        rows = np.concatenate([layout.classes[kept], rng.choice(others, size, replace=False)])
        labels = np.concatenate([layout.labels[kept], np.full(size, layout.n_classes)])
        return take(self._table, rows), labels


def _fit(estimator: Any, rows: Any, labels: NDArray) -> Any:
    return clone(estimator).fit(rows, labels)


def class_scores(model: Any, rows: Any, n_classes: int) -> NDArray:
    """Return a score per class; a class that the model has not seen gets the lowest score."""
    raw = _raw_scores(model, rows)
    scores = np.full((len(raw), n_classes), raw.min())
    scores[:, np.asarray(model.classes_, dtype=int)] = raw
    return scores


def _raw_scores(model: Any, rows: Any) -> NDArray:
    """Return probabilities, decision values or, failing both, indicators of the prediction."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    if hasattr(model, "decision_function"):
        decision = np.asarray(model.decision_function(rows))
        if decision.ndim == 1:
            return np.column_stack([-decision, decision])
        if decision.shape[1] == len(model.classes_):
            return decision
    return np.eye(len(model.classes_))[np.searchsorted(model.classes_, model.predict(rows))]
