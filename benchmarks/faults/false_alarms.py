"""False alarms: how often a window without anything new is said to hold unknowns.

Fixed before the full run: six data sets, six kinds of window (`CONDITIONS`), 400 windows of each
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
from sklearn.svm import SVC

from benchmarks.datasets import load, load_table
from benchmarks.faults.tally import Tally
from benchmarks.paper.images import load_known
from benchmarks.verdict.sections import ATTACKS
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.estimator.statistics import decide

WINDOWS = 400
WINDOW_ROWS = 800
TRAINING_ROWS = 2_000
SAME_TRAINING = 40
"""Windows that share their training data where a monitor's life is looked at."""
EACH, POOLED = 0.05, 0.01
"""Levels: of each data set, and of all together, which is what a monitor has if nothing is set."""
SLACK = 1.5
MILD = 0.1
NOTHING, SAME = "nothing changed", "nothing changed, training data kept for 40 windows"
OFFSET, NOISE = "mild drift: offset", "mild drift: noise"
SHARES, COPIES = "mild drift: class shares", "5 % exact copies"
CONDITIONS = {
    NOTHING: "windows from where the training data is from",
    OFFSET: "a quarter of the numeric features moved by 0.1 of their spread, up or down",
    NOISE: "Gaussian noise of 0.1 of their spread on all numeric features",
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
        """Return whether there was an alarm; a window that could not be judged counts as one."""
        return self.verdicts[level].startswith(("unknowns", "failed"))


def run(quick: bool) -> Iterator[Tally]:
    """Judge all windows, one by one."""
    names = ("letter", "nsl-kdd") if quick else tuple(SOURCES)
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
    if condition in (OFFSET, NOISE):
        window = move(window, X, condition, rng)
    return X, source.labels[training], window


def move(window: Any, training: Any, condition: str, rng: np.random.Generator) -> Any:
    """Move a quarter of the numeric features, or make all of them noisy.

    The spread is that of the middle two thirds: a column that is zero except for a few huge values
    has none, and stays.
    """
    table, known = pd.DataFrame(window).copy(), pd.DataFrame(training)
    numeric = table.select_dtypes("number").columns
    few = rng.permutation(numeric)[: max(1, len(numeric) // 4)]
    for name in few if condition == OFFSET else numeric:
        low, high = np.quantile(known[name], [0.16, 0.84])
        by = rng.choice([-1, 1]) if condition == OFFSET else rng.normal(size=len(table))
        table[name] = table[name] + MILD * (high - low) / 2 * by
    return table if isinstance(window, pd.DataFrame) else table.to_numpy()


def tallies(judged: list[Judged]) -> Iterator[Tally]:
    """Yield a row per level and condition."""
    for level in (EACH, POOLED):
        for condition in CONDITIONS:
            yield tally([one for one in judged if one.condition == condition], level)


def tally(judged: list[Judged], level: float) -> Tally:
    """Count the alarms of a condition, and tell where the level held."""
    alarms = _alarms(judged, level)
    trials, failures = sum(map(len, alarms.values())), sum(map(sum, alarms.values()))
    told = [f"rate {failures / trials:.2%}"]
    if level == EACH:
        told += [_by_source(alarms, level)]
    else:
        told += ["holds" if holds(failures, trials, level) else "does NOT hold"]
        told += [", ".join(f"{name} {sum(of_one)}" for name, of_one in alarms.items())]
    drift = sum(one.verdicts[level] == "drift" for one in judged)
    told += [f"called drift: {drift}"] if drift else []
    told += [_by_training(judged, level)] if judged[0].condition == SAME else []
    told += [said for one in judged if (said := one.verdicts[level]).startswith("failed")][:2]
    what = f"a null window, level {level}, {judged[0].condition}: alarm"
    return Tally("false alarms", what, trials, failures, "; ".join(told))


def holds(failures: int, trials: int, level: float) -> bool:
    """Return whether the level held: in the rate, and in its upper limit with some slack."""
    bound = Tally("false alarms", "", trials, failures).upper_bound
    return failures <= level * trials and bound <= SLACK * level


def _by_source(alarms: dict[str, list[bool]], level: float) -> str:
    """Return the alarms of each data set, and whether the level held on it."""
    counts = {name: (sum(of_one), len(of_one)) for name, of_one in alarms.items()}
    held = sum(holds(*count, level) for count in counts.values())
    said = [f"{n} {c[0]}{'' if holds(*c, level) else ' (NOT)'}" for n, c in counts.items()]
    each = min(count[1] for count in counts.values())
    return f"holds on {held} of {len(counts)} data sets ({each} windows each): {', '.join(said)}"


def _alarms(judged: list[Judged], level: float) -> dict[str, list[bool]]:
    alarms: dict[str, list[bool]] = {}
    for one in judged:
        alarms.setdefault(one.source, []).append(one.alarm(level))
    return alarms


def _by_training(judged: list[Judged], level: float) -> str:
    """Return how far the rates of single training sets lie apart."""
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
    return Source(rows, table["label"].to_numpy(), make_pipeline(StandardScaler(), SVC()))


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
    "pendigits": _of_arrays("pendigits", RandomForestClassifier(30, random_state=0)),
    "letter": _of_arrays("letter", KNeighborsClassifier()),
    "mnist": _of_arrays("mnist50", make_pipeline(StandardScaler(), GaussianNB())),
    "cifar-10": _pictures,
    "gas": _gas,
    "nsl-kdd": _traffic,
}
"""Pendigits, Letter and MNIST (50 principal components) are among the data that the method's
constants were chosen on, by other draws; CIFAR-10 (50 components), Gas Sensor Array Drift (all
batches mixed) and NSL-KDD (normal and eight attacks, three columns of categories) are not."""
