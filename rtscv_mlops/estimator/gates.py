"""Gates: learners that say how much a row looks like the window and unlike any known class.

A gate carries RTSCV's class layout (some classes, and one dummy class) and scores every row with
models that have not seen it. Three of them: `kernel.KernelGate` solves the layout in closed form,
`ForestGate` asks the trees that left a row out, `FoldsGate` is the plain way, one fit of any
classifier per fold. Knows rows, labels and classifiers; draws no conclusions.
"""

from collections.abc import Iterator
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
"""Rows scored at once: memory is bounded by this, however large the window is.

A piece of work of this size is also what another process, or a cluster, is worth asking for.
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows of a table play the classes, and which the dummy class.

    `folds` gives each row of the table the fold in which it is held out.
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
        """Weight of a dummy row: together they weigh `ratio` times the rows of the classes.

        A whole window of light rows is what the average over many small samples of it tends to.
        """
        return self.ratio * len(self.classes) / max(len(self.dummy), 1)


class Gate(Protocol):
    """What the verdict needs of a gate."""

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        """Look at the rows once; every layout of them is then cheaper."""

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        """Return a score per class and, last, for the dummy: each row by models without it."""

    def scores(self, rows: Any) -> NDArray:
        """Score new rows with the models of the first `cross_fit`."""

    def forget(self) -> None:
        """Drop the rows; what is needed to score new ones stays."""


def margins(scores: NDArray) -> NDArray:
    """Return the dummy's lead over the best class: above 0, the dummy wins."""
    return scores[:, -1] - scores[:, :-1].max(axis=1)


def nearest_class(scores: NDArray) -> NDArray:
    """Return the best class of each row, the dummy left aside."""
    return scores[:, :-1].argmax(axis=1)


def chunks(indices: NDArray, size: int = 0) -> Iterator[NDArray]:
    """Cut indices into pieces of bounded length."""
    for piece in gen_batches(len(indices), size or CHUNK):
        yield indices[piece]


def held_out_chunks(
    layout: Layout, scored: NDArray, size: int = 0
) -> Iterator[tuple[int, NDArray]]:
    """Cut rows into pieces of bounded length, each with the one fold that holds it out."""
    for fold in range(layout.folds.max() + 1):
        for rows in chunks(scored[layout.folds[scored] == fold], size):
            yield fold, rows


class ForestGate:
    """Trees grown on halves of the rows; each row is scored by the trees that left it out.

    For models made of trees: it takes their tables as they are, skewed columns and all. Halves
    instead of bootstraps, so that known and window rows are left out equally often: out-of-bag
    votes of a weighted forest are noisier for the heavier rows, and then no null for the others.
    """

    def __init__(self, n_trees: int = 40, n_jobs: int | None = None) -> None:
        self.n_trees, self.n_jobs = n_trees, n_jobs

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        self._numbers = Numbers().fit(table)
        self._table = self._numbers.transform(table)
        self._seed = seed
        self._trees: list[Any] = []
        return self

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

        Rows that no layout fits are left out as often as others, so that all have as many votes:
        more votes make a margin less noisy, and then no null for the others.
        """
        rng = np.random.default_rng(seed)
        return rng.random(len(self._table)) < 0.5, int(rng.integers(2**31))


def _grow(rows: NDArray, labels: NDArray, weight: NDArray, grown: NDArray, seed: int) -> Any:
    tree = DecisionTreeClassifier(max_features="sqrt", min_samples_leaf=4, random_state=seed)
    return tree.fit(rows[grown], labels[grown], sample_weight=weight[grown])


class FoldsGate:
    """The plain way: a clone of a classifier per fold, fitted on the classes and a window sample.

    `n_samples` of them per fold, each with a small sample of its own, are averaged.
    """

    def __init__(self, estimator: Any, n_samples: int = 2, n_jobs: int | None = None) -> None:
        self.estimator, self.n_samples, self.n_jobs = estimator, n_samples, n_jobs

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        self._table, self._seed = table, seed
        self._models: list[Any] = []
        return self

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
        pieces = [
            (rows, model)
            for fold, rows in held_out_chunks(layout, scored)
            for model in models[fold * n : (fold + 1) * n]
        ]
        found = do_all(
            class_scores,
            ((model, take(self._table, rows), scores.shape[1]) for rows, model in pieces),
            n_jobs=self.n_jobs,
        )
        for (rows, _), some in zip(pieces, found, strict=True):
            scores[rows] += some / n
        if not self._models:
            self._models, self._n_classes = models, scores.shape[1]
        return scores

    def scores(self, rows: Any) -> NDArray:
        return np.mean(
            [class_scores(model, rows, self._n_classes) for model in self._models], axis=0
        )

    def _fold(self, layout: Layout, fold: int, seed: np.random.SeedSequence) -> tuple[Any, NDArray]:
        """Return what is fitted without a fold: rows of the classes and a sample of the window."""
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
    """Return comparable scores per class; a class that the model has not seen gets the least."""
    raw = _raw_scores(model, rows)
    scores = np.full((len(raw), n_classes), raw.min())
    scores[:, np.asarray(model.classes_, dtype=int)] = raw
    return scores


def _raw_scores(model: Any, rows: Any) -> NDArray:
    """Return whatever scores the classifier offers for its own classes."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    if hasattr(model, "decision_function"):
        decision = np.asarray(model.decision_function(rows))
        if decision.ndim == 1:
            return np.column_stack([-decision, decision])
        if decision.shape[1] == len(model.classes_):
            return decision
    return np.eye(len(model.classes_))[np.searchsorted(model.classes_, model.predict(rows))]
