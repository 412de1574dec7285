"""Challengers: is the statement about them true, and can one that is offered hurt?

Each window is judged as the pipeline does, without MLflow: a learner is taught some classes by
2,000 rows, a window of 800 rows has a few rows of one class more, and thousands of fresh rows say
what a challenger really loses and finds. `ordinary` windows have a new class, `attacked` ones rows
like a part of a known class. Constants were chosen on generated rows and on the digits of
scikit-learn; Pendigits and Letter only judge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.progress import track
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.datasets import load
from benchmarks.faults.tally import Tally
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.facts import CandidateFacts, WindowFacts
from rtscv_mlops.judging import describe
from rtscv_mlops.judging.judge import Rectification, WindowJudge
from rtscv_mlops.judging.reference import Baseline, TrainingData
from rtscv_mlops.window import Interval, LabelledRows, Window

ROWS, TRAINING_ROWS, FRESH_ROWS = 800, 2_000, 8_000
CLASSES = 10
NEW_ROWS = (25, 60)
"""Rows of the new class in an ordinary window."""
EXTRACTED = (15, 50)
"""Windows with fewer or more extracted rows are drawn again."""
SUBGROUP, HALF = (0.04, 0.1), (0.4, 0.3)
"""What is attacked: a share of a class, by a share of the window's rows."""

NOTHING, MUCH = 0.02, 0.1
"""A challenger that loses no more than the first of any class loses nothing; the second is much."""
SACRIFICED = 0.25
"""Share of an attacked part that may be lost: of nine rows, two are chance."""

LEARNERS: dict[str, Any] = {
    "SVC": SVC(C=10),
    "forest": RandomForestClassifier(100, random_state=0),
    "logistic": LogisticRegression(max_iter=500),
    "boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
    "neighbours": KNeighborsClassifier(),
    "network": MLPClassifier((50,), max_iter=100, random_state=0),
}
ATTACKED = ("SVC", "forest", "logistic")
"""Learners whose subgroups are attacked."""

DAY = Interval.day("2025-03-01")
Rows = NDArray[Any]


# -- data


def generated(seed: int) -> tuple[Rows, Rows]:
    """Return rows of ten classes of two clusters each."""
    X, y = make_classification(
        12_000, 16, n_informative=12, n_redundant=2, n_classes=CLASSES, class_sep=2.4,
        n_clusters_per_class=2, flip_y=0.005, random_state=seed,
    )  # fmt: skip
    return X, y


@cache
def digits() -> tuple[Rows, Rows]:
    X, y = load_digits(return_X_y=True)
    return X, y


def published(name: str, seed: int) -> tuple[Rows, Rows]:
    """Return rows of ten classes of a published set."""
    data = load(name)
    some = np.random.default_rng(seed).permutation(np.unique(data.y))[:CLASSES]
    chosen = np.isin(data.y, some)
    return data.X[chosen].astype(float), data.y[chosen]


def draw_data(kind: str, seed: int) -> tuple[Rows, Rows]:
    """Return rows and labels of a kind of data."""
    if kind == "generated":
        return generated(seed)
    return digits() if kind == "digits" else published(kind, seed)


# -- windows


@dataclass(frozen=True, slots=True)
class World:
    """Rows that a model is taught, those of a window, and fresh rows that say what is true."""

    X: Rows
    y: Rows
    later: Rows
    truth: Rows
    new: Rows
    rng: np.random.Generator

    @classmethod
    def draw(cls, kind: str, seed: int) -> "World":
        """Hide one class, and draw the training rows from the others."""
        rng = np.random.default_rng(seed)
        X, y = draw_data(kind, seed)
        order = rng.permutation(len(y))
        is_new = y[order] == rng.choice(np.unique(y))
        known, new = order[~is_new], order[is_new]
        first, rest = np.split(known, [min(TRAINING_ROWS, len(known) // 2)])
        return cls(X[first], y[first], X[rest], y[rest], X[new], rng)

    @property
    def rows(self) -> int:
        """How many rows a window has."""
        return min(ROWS, len(self.later) // 3)

    @property
    def fresh(self) -> tuple[Rows, Rows]:
        """Known rows that are neither taught nor in a window."""
        part = slice(self.rows, self.rows + FRESH_ROWS)
        return self.later[part], self.truth[part]

    def ordinary(self) -> tuple[Rows, Rows, Any]:
        """Return a window with rows of the new class, and later rows of that class."""
        size = min(int(self.rng.integers(*NEW_ROWS)), len(self.new) // 2)
        return np.vstack([self.later[: self.rows - size], self.new[:size]]), self.new[size:], None

    def attacked(self, share: float, crafted: float) -> tuple[Rows, Rows, Any]:
        """Return a window with rows like a part of a class, fresh rows of that part, and the class.

        The attacker has other rows of that part than the model was taught and is judged on.
        """
        label = self.rng.choice(np.unique(self.y))
        X, y = self.fresh
        of_class = X[y == label]
        spread = np.where(self.X.std(axis=0) > 0, self.X.std(axis=0), 1.0)
        near = NearestNeighbors(n_neighbors=max(6, round(share * len(of_class))))
        centre = of_class[self.rng.integers(len(of_class))] / spread
        part = near.fit(of_class / spread).kneighbors(centre[None], return_distance=False)[0]
        base, size = of_class[part[::2]], round(crafted * self.rows)
        like = base[self.rng.integers(len(base), size=size)]
        like = like + 0.05 * spread * self.rng.choice([-1, 1], like.shape[1])
        like = like + 0.1 * spread * self.rng.normal(size=like.shape)
        return np.vstack([self.later[: self.rows - size], like]), of_class[part[1::2]], label


def as_table(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[f"f{place}" for place in range(rows.shape[1])])


@dataclass(frozen=True, slots=True)
class Judged:
    """A window that was judged, and the models that it was about."""

    world: World
    champion: Any
    done: Rectification

    def worst_loss(self, challenger: Any) -> float:
        """Return what a challenger loses of the class that it loses most of, on fresh rows."""
        X, y = self.world.fresh
        before, after = (model.predict(as_table(X)) == y for model in (self.champion, challenger))
        return max(before[y == one].mean() - after[y == one].mean() for one in np.unique(y))

    def share_unknown(self, challenger: Any, rows: Rows) -> float:
        """Return the share of rows that a challenger calls unknown."""
        unknown = self.done.model.unknown_label_
        return float(np.mean(challenger.predict(as_table(rows)) == unknown))

    def lost_share(self, challenger: Any, rows: Rows, label: Any) -> float:
        """Return the share of rows of a class that the champion finds, and a challenger does not.

        Without rows that the champion finds, nothing can be lost.
        """
        before, after = (
            model.predict(as_table(rows)) == label for model in (self.champion, challenger)
        )
        return float(np.mean(~after[before])) if before.any() else 0.0

    @property
    def is_unblocked(self) -> bool:
        return self.done.challenger is not None and not self.done.facts.blocked

    @property
    def refit(self) -> CandidateFacts:
        """What is said of the refit, be it offered or not."""
        offer = self.done.facts.challenger
        assert offer is not None
        return offer if offer.kind == "refit" or offer.other is None else offer.other


def judge(world: World, window: Rows, learner: str) -> Judged:
    """Judge a window as the pipeline does."""
    recipe = make_pipeline(StandardScaler(), clone(LEARNERS[learner]))
    known = LabelledRows(as_table(world.X), world.y, source="drawn")
    champion = clone(recipe).fit(known.features, known.labels)
    given = {"name": "m", "model": {"name": "m"}, "source": {"path": "x", "timestamp": "t"}}
    facts = WindowFacts(
        key="", monitor="m", model="m", champion_version="1", window_start=DAY.start,
        window_end=DAY.end, verdict="", headline="",
    )  # fmt: skip
    sample = as_table(window)
    read = Window(interval=DAY, sample=sample, rows=len(sample), digest="")
    training, null = TrainingData(known), Baseline(None, "training data")
    # The drawing takes most of the time, and nothing is looked at here.
    empty = describe.Projection(*(np.empty((0, 2)) for _ in range(2)), np.empty(0))
    with patch.object(describe, "project", lambda *_: empty):
        monitor = Monitor.model_validate(given)
        done = WindowJudge(monitor, read, champion, recipe, training, null).rectify(facts)
    return Judged(world, champion, done)


# -- the experiments


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one window: what was said, and what fresh rows say."""

    learner: str
    judged: Judged
    part: Rows
    """Later rows of the new class; or fresh rows of the part that was attacked."""
    label: Any
    """The class that was attacked."""


def draw_trials(
    kinds: tuple[str, ...],
    attack: tuple[float, float] | None,
    learners: tuple[str, ...],
    wanted: int,
    extracted: tuple[int, int],
) -> Iterator[Trial]:
    """Yield windows with so many extracted rows: learners take turns, and so do kinds of data."""
    seed, found = 0, 0
    while found < wanted:
        world = World.draw(kinds[seed // len(learners) % len(kinds)], seed)
        learner = learners[seed % len(learners)]
        window, part, label = world.ordinary() if attack is None else world.attacked(*attack)
        judged = judge(world, window, learner)
        seed += 1
        if extracted[0] <= judged.done.facts.unknowns <= extracted[1]:
            found += 1
            yield Trial(learner, judged, part, label)


class Blocks:
    """Counts refits: those that lose nothing must pass, those that lose much must not."""

    def __init__(self) -> None:
        self.sound, self.losing = 0, 0
        self.false: list[str] = []
        self.missed: list[str] = []

    def add(self, trial: Trial) -> None:
        judged = trial.judged
        loss = judged.worst_loss(judged.done.model.estimator_)
        what, blocked = f"{trial.learner} loses {loss:.0%}", judged.refit.blocked
        if loss <= NOTHING:
            self.sound += 1
            self.false += [f"{what}: {blocked}"] if blocked else []
        elif loss >= MUCH:
            self.losing += 1
            self.missed += [] if blocked else [what]

    def tallies(self) -> Iterator[Tally]:
        what = "a refit loses nothing on fresh rows: it is blocked"
        yield _tally(what, self.sound, self.false)
        what = "a refit loses 10 points of a class: it is not blocked"
        yield _tally(what, self.losing, self.missed)


def offers(trials: Iterator[Trial], blocks: Blocks) -> Iterator[Tally]:
    """Offer a challenger in windows with few unknown rows, and see what it does later."""
    hurt: list[str] = []
    refused: list[str] = []
    found: list[float] = []
    kinds: list[str] = []
    for trial in trials:
        blocks.add(trial)
        judged = trial.judged
        offer = judged.done.facts.challenger
        assert offer is not None
        kinds.append(offer.kind)
        if not judged.is_unblocked:
            refused.append(f"{trial.learner}: {judged.done.facts.blocked}")
            continue
        loss = judged.worst_loss(judged.done.challenger)
        found.append(judged.share_unknown(judged.done.challenger, trial.part))
        hurt += [f"{trial.learner}, {offer.kind}: {loss:.1%}"] if loss > NOTHING else []
    yield _tally("15 to 50 unknown rows: no challenger is offered", len(kinds), refused)
    told = (
        f"{kinds.count('gated')} of {len(kinds)} are gated; {np.mean(found):.0%} of later rows of "
        "the new class are called unknown"
    )
    what = "an offered challenger loses more than 2 points of a class"
    yield _tally(what, len(found), hurt, told)


def subgroups(trials: Iterator[Trial]) -> Tally:
    """Send rows like a small part of a class: it may not be lost unblocked."""
    wrong, offered, lost, by_refit = [], 0, [], []
    for trial in trials:
        judged = trial.judged
        models = (judged.done.model.estimator_, judged.done.challenger)
        of_refit, of_offer = (judged.lost_share(one, trial.part, trial.label) for one in models)
        by_refit.append(of_refit)
        lost.append(of_offer)
        offered += judged.is_unblocked
        if judged.is_unblocked and lost[-1] > SACRIFICED:
            kind = judged.done.facts.challenger
            wrong.append(f"{trial.learner}, {kind.kind if kind else ''}: {lost[-1]:.0%}")
    told = f"refits lose {np.mean(by_refit):.0%} of that part; {offered} challengers are offered"
    what = "rows like 4 % of a class: more than a quarter of that part is lost, unblocked"
    return _tally(what, len(lost), wrong, told)


def run(quick: bool) -> Iterator[Tally]:
    """Try every kind of window."""
    kinds = ("generated",) if quick else ("pendigits", "letter")
    every, blocks = tuple(LEARNERS), Blocks()
    few, many, some = (6, 3, 3) if quick else (120, 80, 108)
    ordinary = draw_trials(kinds, None, every, few, EXTRACTED)
    yield from offers(_shown(ordinary, few, "ordinary"), blocks)
    for trial in _shown(draw_trials(kinds, HALF, every, many, (10, ROWS)), many, "half a class"):
        blocks.add(trial)
    yield from blocks.tallies()
    attacks = draw_trials(kinds, SUBGROUP, ATTACKED, some, (10, ROWS))
    yield subgroups(_shown(attacks, some, "a small part"))


def _shown(trials: Iterator[Trial], wanted: int, what: str) -> Iterator[Trial]:
    return iter(track(trials, what, total=wanted))


def _tally(what: str, trials: int, wrong: list[str], told: str = "") -> Tally:
    remarks = "; ".join(filter(None, [told, *wrong[:3]]))
    return Tally("challengers", what, trials, len(wrong), remarks)
