"""Poisoning: windows that an attacker crafted, and what the monitor shows of them.

Pendigits through the pipeline's own reader and judgement, without MLflow: eight of ten digits are
taught by 2 000 rows; a window is a day of 1 000 rows from 20 tenants. `invent` floods it with rows
that are no digit, to have a class taught; `swallow` sends rows from the edge of a known digit, to
have that digit unlearned; `dilute` hides a new digit among ordinary rows. A canary is planted into
each of them, and into quiet windows of a monitor that is blind on purpose.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.progress import track
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.datasets import load
from benchmarks.faults.tally import Tally
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.judging import describe
from rtscv_mlops.judging.judge import Rectification, WindowJudge
from rtscv_mlops.judging.reference import Baseline, TrainingData
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval, LabelledRows

TRIALS = 30
ROWS, TRAINING_ROWS = 1_000, 2_000
TENANTS, HOURS = 20, 24
HIDDEN = 2
"""Digits that the model is never taught."""
FLOOD = 0.15
"""Share of crafted rows in a window."""
RATES = (0.1, 0.05, 0.02, 0.01)
BLINDING = {"rectify": {"alpha": 1e-300}}
"""A level that no window reaches."""

SIGNS = {
    "copies": "differ from another one only in their time",
    "one hour": "came within one hour",
    "one origin": "came from one value of 'tenant'",
}
BLIND = "The monitor is blind today"
"""Words of the findings that are looked for."""

FLOODS = {
    "rows that all differ": (1, ("one hour", "one origin")),
    "each row three times": (3, ("copies", "one hour", "one origin")),
    "one row, repeated": (150, ("copies",)),
}
"""Copies of each crafted row, and the signs that must be shown."""

Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Training rows, known rows that come later, and rows of digits that were never taught."""

    X: Rows
    y: Rows
    later: Rows
    truth: Rows
    new: Rows
    day: Interval
    rng: np.random.Generator

    @classmethod
    def draw(cls, data: tuple[Rows, Rows], seed: int) -> "Traffic":
        """Hide some digits, and draw the training rows from the others; each seed has its day."""
        rng = np.random.default_rng(seed)
        X, y = data
        order = rng.permutation(len(y))
        is_new = np.isin(y[order], rng.permutation(np.unique(y))[:HIDDEN])
        known, new = order[~is_new], order[is_new]
        first, rest = np.split(known, [min(TRAINING_ROWS, len(known) // 2)])
        day = Interval.day(str(date(2025, 3, 1) + timedelta(days=seed)))
        return cls(X[first], y[first], X[rest], y[rest], X[new], day, rng)

    @property
    def rows(self) -> int:
        """How many rows a window has."""
        return min(ROWS, int(0.8 * len(self.later)))

    @property
    def crafted(self) -> int:
        """How many of them are crafted."""
        return round(FLOOD * self.rows)

    def ordinary(self, rows: int) -> pd.DataFrame:
        """Return rows of known digits, from all tenants, over the day."""
        return self.serve(self.later[self.rng.choice(len(self.later), rows, replace=False)])

    def serve(self, rows: Rows) -> pd.DataFrame:
        """Return rows as they land in the source: from any tenant, at any time of the day."""
        seconds = self.rng.integers(0, HOURS * 3_600, len(rows))
        return self._landed(rows, seconds, self.rng.integers(0, TENANTS, len(rows)))

    def flood(self, rows: Rows) -> pd.DataFrame:
        """Return crafted rows as they land: all from one tenant, within one hour."""
        seconds = self.rng.integers(0, 3_600, len(rows)) + 3_600 * self.rng.integers(0, HOURS)
        return self._landed(rows, seconds, np.full(len(rows), self.rng.integers(0, TENANTS)))

    def _landed(self, rows: Rows, seconds: Rows, tenants: Rows) -> pd.DataFrame:
        return as_table(rows).assign(
            tenant=tenants.astype(str),
            served_at=self.day.start + pd.to_timedelta(seconds, unit="s"),
        )


@cache
def pendigits() -> tuple[Rows, Rows]:
    data = load("pendigits")
    return data.X.astype(float), data.y


@cache
def small_digits() -> tuple[Rows, Rows]:
    """Return rows for a short version, which come with scikit-learn."""
    X, y = load_digits(return_X_y=True)
    return X, y


def as_table(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[f"f{place}" for place in range(rows.shape[1])])


# -- the attacks


def quiet(traffic: Traffic) -> pd.DataFrame:
    """No attack."""
    return traffic.ordinary(traffic.rows)


def invent(traffic: Traffic, copies: int = 1) -> pd.DataFrame:
    """Flood with rows around a place where no digit is."""
    low, high = traffic.X.min(axis=0), traffic.X.max(axis=0)
    place, distinct = traffic.rng.uniform(low, high), max(1, traffic.crafted // copies)
    around = traffic.rng.normal(size=(distinct, len(low))) * 0.2 * traffic.X.std(axis=0)
    crafted = np.repeat(place + around, copies, axis=0)
    return pd.concat([traffic.ordinary(traffic.rows - len(crafted)), traffic.flood(crafted)])


def swallow(traffic: Traffic) -> pd.DataFrame:
    """Send rows of a known digit, moved a little, from all tenants and over the day."""
    of_one = traffic.later[traffic.truth == traffic.rng.choice(np.unique(traffic.y))]
    crafted = traffic.rng.permutation(of_one)[: traffic.crafted]
    signs = traffic.rng.choice([-1, 1], crafted.shape[1])
    crafted = crafted + traffic.rng.uniform(0.1, 0.25) * signs * traffic.X.std(axis=0)
    return pd.concat([traffic.ordinary(traffic.rows - len(crafted)), traffic.serve(crafted)])


def dilute(traffic: Traffic, rate: float = 0.05) -> pd.DataFrame:
    """Hide rows of digits that were never taught among ordinary ones."""
    new = traffic.rng.permutation(traffic.new)[: round(rate * traffic.rows)]
    return pd.concat([traffic.ordinary(traffic.rows - len(new)), traffic.serve(new)])


def judge(
    traffic: Traffic, window: pd.DataFrame, learner: Any = None, **more: Any
) -> Rectification:
    """Read a window from a file and judge it as the pipeline does, with a canary."""
    learner = make_pipeline(StandardScaler(), SVC(C=10) if learner is None else learner)
    known = LabelledRows(as_table(traffic.X), traffic.y, source="drawn")
    champion = clone(learner).fit(known.features, known.labels)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.parquet")
        window.to_parquet(file, index=False)
        source = {"path": str(file), "timestamp": "served_at", "origin": "tenant"}
        given = {"name": "digits", "model": {"name": "digits"}, "source": source, "canary": {}}
        monitor = Monitor.model_validate(given | more)
        columns = [Column(name, "float") for name in known.features.columns]
        read = read_window(monitor.source, traffic.day, columns, max_rows=20_000, seed=0)
    facts = WindowFacts(
        key="",
        monitor="digits",
        model="digits",
        champion_version="1",
        window_start=traffic.day.start,
        window_end=traffic.day.end,
        verdict="",
        headline="",
    )
    training, null = TrainingData(known), Baseline(None, "training data")
    # The drawing takes most of the time, and nothing is looked at here.
    empty = describe.Projection(*(np.empty((0, 2)) for _ in range(2)), np.empty(0))
    with patch.object(describe, "project", lambda *_: empty):
        return WindowJudge(monitor, read, champion, learner, training, null).rectify(facts)


# -- the trials: each returns what went wrong, or nothing


def missing_signs(kind: str, traffic: Traffic) -> str:
    """Return which signs of a flood are not shown."""
    copies, signs = FLOODS[kind]
    facts = judge(traffic, invent(traffic, copies)).facts
    lost = [sign for sign in signs if not any(SIGNS[sign] in said for said in facts.findings)]
    return f"{kind}: {facts.verdict} without {' and '.join(lost)}" if lost else ""


def class_loss(traffic: Traffic, done: Rectification) -> float:
    """Return what the challenger loses of the digit that it loses most of, on fresh rows."""
    learner, later = make_pipeline(StandardScaler(), GaussianNB()), as_table(traffic.later)
    before = learner.fit(as_table(traffic.X), traffic.y).predict(later) == traffic.truth
    after = done.model.predict(later) == traffic.truth
    of_class = [traffic.truth == label for label in np.unique(traffic.y)]
    return float(max(before[rows].mean() - after[rows].mean() for rows in of_class))


def canary_trial(window: Callable[[Traffic], pd.DataFrame], traffic: Traffic) -> str:
    """Return that a canary was not found."""
    facts = judge(traffic, window(traffic)).facts
    if facts.canary is None:
        return "; ".join(facts.findings)
    return "" if facts.canary.found else f"class {facts.canary.label} missed"


def blind_trial(traffic: Traffic) -> str:
    """Return that a blind monitor went unnoticed."""
    facts = judge(traffic, quiet(traffic), **BLINDING).facts
    told = any(BLIND in said for said in facts.findings)
    return "" if told and facts.canary and not facts.canary.found else "not noticed"


# -- the experiment


def run(quick: bool) -> Iterator[Tally]:
    """Try every attack."""
    data = small_digits() if quick else pendigits()
    trials = 2 if quick else TRIALS

    def traffics(what: str) -> Iterator[Traffic]:
        for seed in track(range(trials), what):
            yield Traffic.draw(data, seed)

    wrong = [tried(missing_signs, kind, each) for kind in FLOODS for each in traffics(kind)]
    yield _tally("a window flooded with crafted rows: a sign is not shown", wrong)
    yield blocked(list(traffics("swallow")))
    for window in (quiet, invent, swallow, dilute):
        wrong = [
            tried(canary_trial, window, each) for each in traffics(f"canary, {window.__name__}")
        ]
        yield _tally(f"a canary of 10 % in a window, {window.__name__}: not found", wrong)
    wrong = [tried(blind_trial, each) for each in traffics("blind")]
    yield _tally("a monitor blind on purpose: its canary does not say so", wrong)
    yield diluted(lambda: traffics("dilute"))


def tried(trial: Callable[..., str], *given: Any) -> str:
    """Return what went wrong in a trial, be it that it broke."""
    try:
        return trial(*given)
    except Exception as error:  # whatever it is, it is counted and told
        return f"{type(error).__name__}: {error}"


def blocked(traffics: list[Traffic], limit: float = 0.05) -> Tally:
    """Swallow a digit: a loss of twice the limit must be blocked; just above it is chance."""
    losses, stopped = [], 0

    def trial(traffic: Traffic) -> str:
        nonlocal stopped
        done = judge(traffic, swallow(traffic), GaussianNB())
        losses.append(class_loss(traffic, done) if done.challenger is not None else 0.0)
        stopped += bool(done.facts.blocked)
        unstopped = losses[-1] > 2 * limit and not done.facts.blocked
        return f"loses {losses[-1]:.0%}" if unstopped else ""

    wrong = [tried(trial, traffic) for traffic in traffics]
    losing = sum(loss > 2 * limit for loss in losses)
    near = sum(limit < loss <= 2 * limit for loss in losses)
    tally = _tally("crafted rows at the edge of a known class: it loses, unblocked", wrong)
    told = (
        f"{losing} challengers lost more than 10 points of a class on fresh rows, {near} between "
        f"5 and 10; {stopped} were blocked"
    )
    return Tally(tally.promise, tally.what, tally.trials, tally.failures, f"{told}{tally.told}")


def diluted(traffics: Callable[[], Iterator[Traffic]]) -> Tally:
    """Count how often a new class is found as it gets rarer; this is not promised."""
    found = {
        rate: [judge(each, dilute(each, rate)).facts.detected for each in traffics()]
        for rate in RATES
    }
    told = ", ".join(f"{rate:.0%}: {sum(of)} of {len(of)}" for rate, of in found.items())
    every = [one for of in found.values() for one in of]
    what = "not promised: a new class among 1,000 rows is missed"
    return Tally("poisoning", what, len(every), every.count(False), f"found at {told}")


def _tally(what: str, wrong: list[str]) -> Tally:
    failed = [one for one in wrong if one]
    return Tally("poisoning", what, len(wrong), len(failed), "; ".join(failed[:3]))
