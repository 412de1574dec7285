"""False alarms: how often a window without anything new is said to hold unknowns.

Fixed before the first run: six data sets, five kinds of window (`CONDITIONS`), 400 windows of each
on each. A window has 800 rows, the training data 2 000 other rows, both drawn anew for every
window from one data set, so that windows overlap. An alarm is a verdict of unknowns, with drift
or without; `drift` alone is counted apart, since it is right under drift and never asks anyone
for a class. A level holds where at most that share of the windows raised an alarm, and the 95 %
upper limit is at most 1.5 times it. 400 windows can show that at .05 and not at .01, so each data
set is judged at .05, and all of them together at the level that monitors have if nothing is set.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.progress import track
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.datasets import load, load_table
from benchmarks.faults.tally import Tally
from benchmarks.paper.images import load_known
from benchmarks.verdict.sections import ATTACKS
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.rectify.evidence import decide

WINDOWS = 400
WINDOW_ROWS = 800
TRAINING_ROWS = 2_000
SAME_TRAINING = 40
"""Windows that share their training data where a monitor's life is looked at."""
EACH, POOLED = 0.05, 0.01
"""Levels: of each data set, and of all together, which is what a monitor has if nothing is set."""
SLACK = 1.5
NOTHING, SAME = "nothing changed", "nothing changed, training data kept for 40 windows"
OFFSET, SHARES, COPIES = "mild drift: offset", "mild drift: class shares", "5 % exact copies"
CONDITIONS = {
    NOTHING: "windows from where the training data is from",
    OFFSET: "a quarter of the numeric features moved by 0.1 of their spread, up or down",
    SHARES: "the share of each class multiplied by something between a half and two",
    COPIES: "every twentieth row is a copy of another row of the window",
    SAME: "each training set judges 40 windows, so that its luck is theirs",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Rows with their labels, and the model that is monitored."""

    rows: Any
    labels: NDArray[Any]
    learner: Any

    def take(self, places: NDArray[Any]) -> Any:
        is_table = isinstance(self.rows, pd.DataFrame)
        return self.rows.iloc[places] if is_table else self.rows[places].astype(float)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one window, by level."""

    source: str
    condition: str
    seed: int
    verdicts: dict[float, str]

    def alarm(self, level: float) -> bool:
        """Say whether someone was alarmed; a window that could not be judged counts as one."""
        return self.verdicts[level].startswith(("unknowns", "failed"))


def run(quick: bool) -> Iterator[Tally]:
    """Judge all windows, one by one."""
    names = ("pendigits", "gas") if quick else tuple(SOURCES)
    windows = 10 if quick else WINDOWS
    plan = [(n, c, seed) for n in names for c in CONDITIONS for seed in range(windows)]
    yield from tallies([judge(*case) for case in track(plan, "windows")])


def judge(name: str, condition: str, seed: int) -> Judged:
    """Judge one window at both levels."""
    source = SOURCES[name]()
    X, y, window = draw(source, condition, seed)
    model = RTSCVClassifier(source.learner, alpha=EACH, random_state=seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = model.fit(X, y, deployment=window).assessment_
    except Exception as error:  # whatever it is, it is counted and told
        said = f"failed: {type(error).__name__}: {error}"
        return Judged(name, condition, seed, {EACH: said, POOLED: said})
    assert found is not None
    # The level enters at the very end, so one search serves both.
    verdicts = {
        level: str(decide(found.p_value, found.diagnostics["excess"], level))
        for level in (EACH, POOLED)
    }
    return Judged(name, condition, seed, verdicts)


def draw(source: Source, condition: str, seed: int) -> tuple[Any, NDArray[Any], Any]:
    """Return training rows, their labels, and a window of other rows that holds nothing new."""
    rng = np.random.default_rng([list(CONDITIONS).index(condition), seed])
    sets = np.random.default_rng(seed // SAME_TRAINING) if condition == SAME else rng
    order = sets.permutation(len(source.labels))
    training, rest = order[:TRAINING_ROWS], order[TRAINING_ROWS:]
    labels = source.labels[rest]
    weight = np.ones(len(rest))
    if condition == SHARES:
        names, codes = np.unique(labels, return_inverse=True)
        weight = (2.0 ** rng.uniform(-1, 1, len(names)))[codes]
    places = rng.choice(rest, WINDOW_ROWS, replace=False, p=weight / weight.sum())
    if condition == COPIES:
        places[: WINDOW_ROWS // 20] = places[-(WINDOW_ROWS // 20) :]
        places = rng.permutation(places)
    X, window = source.take(training), source.take(places)
    if condition == OFFSET:
        window = move(window, X, rng)
    return X, source.labels[training], window


def move(window: Any, training: Any, rng: np.random.Generator) -> Any:
    """Move a quarter of the numeric features; whole numbers stay whole.

    The spread is that of the middle two thirds: a column that is zero but for a few huge values
    has none, and stays.
    """
    table, known = pd.DataFrame(window).copy(), pd.DataFrame(training)
    numeric = table.select_dtypes("number").columns
    for name in rng.permutation(numeric)[: max(1, len(numeric) // 4)]:
        low, high = np.quantile(known[name], [0.16, 0.84])
        moved = table[name] + rng.choice([-0.1, 0.1]) * (high - low) / 2
        is_whole = bool((known[name] % 1 == 0).all())
        # Rounded by chance, so that the mean moves as far as it should.
        table[name] = np.floor(moved + rng.random(len(table))) if is_whole else moved
    return table if isinstance(window, pd.DataFrame) else table.to_numpy()


def tallies(judged: list[Judged]) -> Iterator[Tally]:
    """Yield a row per data set where nothing changed, then one per condition and level."""
    nothing = [one for one in judged if one.condition == NOTHING]
    for name in dict.fromkeys(one.source for one in nothing):
        yield tally(f"{NOTHING}: {name}", [one for one in nothing if one.source == name], EACH)
    for level in (EACH, POOLED):
        for condition in CONDITIONS:
            under = [one for one in judged if one.condition == condition]
            if level == POOLED or condition != NOTHING:
                yield tally(f"{condition}: all data sets", under, level)


def tally(what: str, judged: list[Judged], level: float) -> Tally:
    """Count alarms, and tell whether the level held: over all windows, and by data set."""
    row = Tally(
        "false alarms",
        f"alarm at level {level}, {what}",
        len(judged),
        sum(one.alarm(level) for one in judged),
    )
    told = [_says(row, level)]
    names = list(dict.fromkeys(one.source for one in judged))
    if len(names) > 1:
        counts = {n: sum(one.alarm(level) for one in judged if one.source == n) for n in names}
        told.append("alarms " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    drift = sum(one.verdicts[level] == "drift" for one in judged)
    told += [f"called drift {drift} times"] if drift else []
    if judged[0].condition == SAME:
        told.append(_by_training(judged, level))
    failed = [one.verdicts[level] for one in judged if one.verdicts[level].startswith("failed")]
    told += failed[:2]
    return Tally(row.promise, row.what, row.trials, row.failures, "; ".join(told))


def _says(row: Tally, level: float) -> str:
    rate = row.failures / row.trials
    holds = rate <= level and row.upper_bound <= SLACK * level
    return f"rate {rate:.2%}: {'holds' if holds else 'does NOT hold'}"


def _by_training(judged: list[Judged], level: float) -> str:
    """Tell how far the rates of single training sets lie apart."""
    alarms: dict[tuple[str, int], list[bool]] = {}
    for one in judged:
        alarms.setdefault((one.source, one.seed // SAME_TRAINING), []).append(one.alarm(level))
    rates = [float(np.mean(of_one)) for of_one in alarms.values()]
    return f"{len(rates)} training sets, the worst at {max(rates):.1%}"


# -- the data sets


def _of_arrays(name: str, learner: Any) -> Callable[[], Source]:
    @cache
    def source() -> Source:
        data = load(name)
        return Source(data.X, data.y, learner)

    return source


@cache
def _pictures() -> Source:
    images = load_known("CIFAR-10")
    rows = np.concatenate([images.X, images.later])
    flat = rows.reshape(len(rows), -1)
    some = np.random.default_rng(0).permutation(len(flat))[:5_000]
    pca = PCA(50, svd_solver="randomized", random_state=0).fit(flat[some])
    labels = np.concatenate([images.y, images.truth])
    return Source(pca.transform(flat), labels, GaussianNB())


@cache
def _gas() -> Source:
    table = load_table("gas_drift_8of10")
    rows = table.filter(regex=r"^f\d+$").to_numpy(float)
    return Source(rows, table["label"].to_numpy(), RandomForestClassifier(30, random_state=0))


@cache
def _traffic() -> Source:
    table = load_table("nsl_kdd")
    table = table[(table["split"] == "train") & table["label"].isin(["normal", *ATTACKS])]
    rows = table.drop(columns=["label", "category", "difficulty", "split"])
    prepared = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    learner = make_pipeline(prepared, LogisticRegression(max_iter=100))
    return Source(rows, table["label"].to_numpy(str), learner)


SOURCES: dict[str, Callable[[], Source]] = {
    "pendigits": _of_arrays("pendigits", KNeighborsClassifier()),
    "letter": _of_arrays("letter", KNeighborsClassifier()),
    "mnist": _of_arrays("mnist50", make_pipeline(StandardScaler(), GaussianNB())),
    "cifar-10": _pictures,
    "gas": _gas,
    "nsl-kdd": _traffic,
}
"""Pendigits, Letter and MNIST (50 principal components) are among the data that the method's
constants were chosen on, by other draws; CIFAR-10 (50 components), Gas Sensor Array Drift (all
batches mixed) and NSL-KDD (normal and eight attacks, three columns of categories) are not."""
