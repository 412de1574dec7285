"""Gates: learners that say how much a row looks like the window and unlike any known class.

A gate carries RTSCV's class layout (some classes, and one dummy class) and scores every row with
models that have not seen it. Three of them: `KernelGate` solves the layout in closed form,
`ForestGate` asks the trees that left a row out, `FoldsGate` is the plain way, one fit of any
classifier per fold. Knows rows, labels and classifiers; draws no conclusions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops.rectify.rows import Numbers, count, take
from rtscv_mlops.rectify.work import do_all

TRIMMED = 0.01
"""Share of known rows at either end that a column's spread is measured without."""

CHUNK = 20_000
"""Rows scored at once: memory is bounded by this, however large the window is."""


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


def chunks(indices: NDArray) -> Iterator[NDArray]:
    """Cut indices into pieces of bounded length."""
    for start in range(0, len(indices), CHUNK):
        yield indices[start : start + CHUNK]


def held_out_chunks(layout: Layout, scored: NDArray) -> Iterator[tuple[int, NDArray]]:
    """Cut rows into pieces of bounded length, each with the one fold that holds it out."""
    for fold in range(layout.folds.max() + 1):
        for rows in chunks(scored[layout.folds[scored] == fold]):
            yield fold, rows


class KernelGate:
    """Weighted ridge regression on a Gaussian kernel, on landmarks drawn from all rows.

    The solution is in closed form, so the whole window takes part in every fold, lightly weighted,
    instead of one small sample of it, and the test may be turned round without new features.
    Scaling, width and ridge are those that tell the known classes apart best in a trial on some of
    them, and there are as many landmarks as that takes: an easy problem stays cheap.
    """

    SPREADS = (0.3, 1.0, 2.0)
    RIDGES = (0.1, 1.0)
    TRIAL_ROWS = 1_000
    TRIAL_LANDMARKS = 240
    MAX_FEATURES = 40_000_000  # kept between layouts up to 160 MB, computed anew beyond

    def __init__(self, max_landmarks: int = 1_200) -> None:
        self.max_landmarks = max_landmarks

    def prepare(self, table: Any, classes: NDArray, labels: NDArray, seed: int) -> Self:
        rng = np.random.default_rng(seed)
        self._numbers = Numbers().fit(table)
        numbers = self._numbers.transform(table)
        enough = self._choose_space(numbers, classes, labels, rng)
        self._table = self._scale(numbers)
        size = min(max(len(numbers) // 8, 500), enough or self.max_landmarks, len(numbers))
        self._landmarks = self._table[rng.permutation(len(numbers))[:size]]
        fits_memory = len(numbers) * size <= self.MAX_FEATURES
        self._features = self._kernel(self._table) if fits_memory else None
        self._grams: dict[bytes, NDArray] = {}
        self._coefficients: NDArray | None = None
        return self

    def forget(self) -> None:
        del self._table, self._features, self._grams

    def cross_fit(self, layout: Layout, scored: NDArray) -> NDArray:
        scores = np.full((len(self._table), layout.n_classes + 1), np.nan)
        before, self._grams = self._grams, {}
        sums = [
            self._normal_equations(layout, fold, before) for fold in range(layout.folds.max() + 1)
        ]
        gram = sum(gram for gram, _ in sums)
        target = sum(target for _, target in sums)
        prior = self._kernel(self._landmarks)
        coefficients = [
            _ridge(gram - fold_gram, target - fold_target, prior, self._ridge)
            for fold_gram, fold_target in sums
        ]
        for rows, found in self._held_out_scores(layout, scored, coefficients):
            scores[rows] = found
        if self._coefficients is None:
            self._coefficients = np.mean(coefficients, axis=0)
        return scores

    def scores(self, rows: Any) -> NDArray:
        return self._kernel(self._scale(self._numbers.transform(rows))) @ self._coefficients

    def _held_out_scores(
        self, layout: Layout, scored: NDArray, coefficients: list[NDArray]
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield rows, and their scores by the coefficients that were solved without them."""
        pieces = list(held_out_chunks(layout, scored))
        if self._features is not None:
            yield from ((rows, self._features[rows] @ coefficients[fold]) for fold, rows in pieces)
            return
        found = do_all(
            _kernel_scores,
            ((self._table[rows], coefficients[fold]) for fold, rows in pieces),
            shared=(self._landmarks,),
        )
        yield from zip((rows for _, rows in pieces), found, strict=True)

    def _normal_equations(
        self, layout: Layout, fold: int, before: dict[bytes, NDArray]
    ) -> tuple[NDArray, NDArray]:
        """Return what the rows of one fold add to the two sides of the equations."""
        target = np.zeros((len(self._landmarks), layout.n_classes + 1))
        held = np.flatnonzero(layout.folds[layout.classes] == fold)
        for piece in chunks(held):
            hot = np.eye(layout.n_classes + 1, dtype=np.float32)[layout.labels[piece]]
            target += self._features_of(layout.classes[piece]).T @ hot
        dummy = layout.dummy[layout.folds[layout.dummy] == fold]
        for rows in chunks(dummy):
            target[:, -1] += layout.dummy_weight * self._features_of(rows).sum(axis=0)
        gram = self._gram(layout.classes[held], before)
        return gram + layout.dummy_weight * self._gram(dummy, before), target

    def _gram(self, rows: NDArray, before: dict[bytes, NDArray]) -> NDArray:
        """Return what rows add to the equations, whatever they play: it is the dearest part.

        The layout before often had the same rows, with the parts exchanged.
        """
        rows = np.sort(rows)
        key = rows.tobytes()
        if key not in self._grams:
            self._grams[key] = before[key] if key in before else self._sum_gram(rows)
        return self._grams[key]

    def _sum_gram(self, rows: NDArray) -> NDArray:
        gram = np.zeros((len(self._landmarks),) * 2)
        for piece in chunks(rows):
            features = self._features_of(piece)
            gram += features.T @ features
        return gram

    def _features_of(self, rows: NDArray) -> NDArray:
        return self._kernel(self._table[rows]) if self._features is None else self._features[rows]

    def _scale(self, numbers: NDArray) -> NDArray:
        return _squash((numbers - self._centre) / self._spread)

    def _kernel(self, scaled: NDArray) -> NDArray:
        return _gaussian(scaled, self._landmarks)

    def _choose_space(
        self, numbers: NDArray, classes: NDArray, labels: NDArray, rng: np.random.Generator
    ) -> int | None:
        """Choose how to compare rows, by how well some known rows foretell others.

        Return how many landmarks are enough; None: as many as can be had.
        """
        picked = rng.permutation(len(classes))[: self.TRIAL_ROWS]
        trial, hot = numbers[classes[picked]], np.eye(labels.max() + 1)[labels[picked]]
        self._centre, scale_of_each = _measure(numbers, classes)
        overall = np.full_like(scale_of_each, np.sqrt(np.mean(scale_of_each**2)) or 1.0)
        scale_of_each = np.where(scale_of_each > 0, scale_of_each, 1.0)
        size = min(len(trial) // 2, self.TRIAL_LANDMARKS)
        best = np.inf
        for scale in (scale_of_each, overall):
            for spread in self.SPREADS:
                divisor = (scale * np.sqrt(len(scale) / spread)).astype(np.float32)
                scaled = _squash((trial - self._centre) / divisor)
                features = _gaussian(scaled, scaled[:size])
                for ridge in self.RIDGES:
                    loss = _trial_loss(features, hot, ridge)
                    if loss < best:
                        best, kept = loss, features
                        self._spread, self._ridge = divisor, ridge
        gain = _trial_loss(kept[:, : size // 2], hot, self._ridge) / best
        return size if gain < 1.05 else 2 * size if gain < 1.12 else None


def _measure(numbers: NDArray, classes: NDArray) -> tuple[NDArray, NDArray]:
    """Return the middle and the spread of each column in the known rows, but for their outliers.

    An outlier would widen its own column, and so be less odd than the same value in a window. Where
    hardly any known row differs from the others, all rows are measured, those of the window too.
    """
    low, high = np.quantile(numbers[classes], [TRIMMED, 1 - TRIMMED], axis=0)
    known = np.clip(numbers[classes], low, high)
    spread = known.std(axis=0)
    spread = np.where(spread > 0, spread, numbers.std(axis=0))
    # In the rows' own precision: kernels are the dearest part, in time and in memory.
    return known.mean(axis=0).astype(numbers.dtype), spread.astype(numbers.dtype)


def _squash(scaled: NDArray) -> NDArray:
    """Bound the rows: a value eight spreads out says no more than one twice as far."""
    return np.clip(scaled, -8, 8)


def _trial_loss(features: NDArray, hot: NDArray, ridge: float) -> float:
    """Return the squared error on the second half of the rows, fitted on the first."""
    half, size = len(features) // 2, features.shape[1]
    first, second = features[:half], features[half:]
    solved = _ridge(first.T @ first, first.T @ hot[:half], first[:size], ridge)
    return float(np.mean((second @ solved - hot[half:]) ** 2))


def _gaussian(rows: NDArray, landmarks: NDArray) -> NDArray:
    squared = rows @ (-2 * landmarks.T)
    squared += (rows**2).sum(axis=1)[:, None]
    squared += (landmarks**2).sum(axis=1)
    np.maximum(squared, 0, out=squared)
    squared *= -1
    return np.exp(squared, out=squared)


def _kernel_scores(landmarks: NDArray, rows: NDArray, coefficients: NDArray) -> NDArray:
    return _gaussian(rows, landmarks) @ coefficients


def _ridge(gram: NDArray, target: NDArray, prior: NDArray, ridge: float) -> NDArray:
    """Solve the ridge equations.

    Single precision leaves a system of near-copies slightly indefinite; a little on the diagonal
    mends that, and more where a little was not enough.
    """
    system = gram + ridge * prior.astype(float)
    step = 1e-3 * ridge + 1e-4 * np.trace(gram) / len(gram)
    for jitter in (step, 30 * step, 1000 * step):
        try:
            factor = cho_factor(system + np.diag(np.full(len(system), jitter)), check_finite=False)
        except LinAlgError:
            continue
        return cho_solve(factor, target, check_finite=False).astype(np.float32)
    return np.linalg.lstsq(system, target)[0].astype(np.float32)


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
