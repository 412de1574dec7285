"""Gas Sensor Array Drift, dealt out to champions and to the windows that each of them meets.

The set has no timestamps, only batches in the order of time. The file at hand lacks batches 7 and
10, so months 21 and 36 are missing. `RTSCV_DATA_DIR` names the folder that holds it. By
its listing, OpenML's copy (1476) has the 128 readings and the gas, and no column of batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.datasets import load_table
from examples.stories import Champion, Window, make_window

GASES = {
    1: "ethanol",
    2: "ethylene",
    3: "ammonia",
    4: "acetaldehyde",
    5: "acetone",
    6: "toluene",
}
HIDDEN = "toluene"
"""No champion is ever taught this gas; months 11 to 16 do not have it anyway."""

PERIODS = {
    "months 1-10": (1, 2),
    "months 11-16": (3, 4, 5),
    "months 17-20": (6,),
    "months 22-30": (8, 9),
}
"""Which batches were measured when."""
TAUGHT = ("months 1-10", "months 11-16", "months 17-20")
"""When a champion is trained: at first, and again as the sensors age."""


@dataclass(frozen=True, slots=True)
class Period:
    """Rows of some months: sensor readings, and the gas that each is of."""

    name: str
    readings: pd.DataFrame
    gases: NDArray[Any]

    @property
    def is_hidden(self) -> NDArray[Any]:
        return self.gases == HIDDEN

    def take(self, rows: NDArray[Any]) -> "Period":
        return Period(self.name, self.readings[rows], self.gases[rows])


@dataclass(frozen=True, slots=True)
class Chapter:
    """A champion that was taught in one period, and the windows that it meets from then on.

    `baseline` is a window that is known to be clean, and which the others are compared with.
    """

    taught: str
    champion: Champion
    windows: tuple[Window, ...]
    baseline: Window | None = None

    @property
    def title(self) -> str:
        title = f"taught in {self.taught}"
        return title if self.baseline is None else f"{title}, baseline of {self.baseline.story}"


def load_periods() -> list[Period]:
    """Return the months in their order."""
    table = load_table("gas_drift_8of10")
    return [_read(table, name, batches) for name, batches in PERIODS.items()]


def _read(table: pd.DataFrame, name: str, batches: tuple[int, ...]) -> Period:
    rows = table[table["batch"].isin(batches)].reset_index(drop=True)
    return Period(name, rows.filter(regex=r"^f\d+$"), rows["label"].map(GASES).to_numpy(dtype=str))


def tell_chapters(periods: list[Period]) -> Iterator[Chapter]:
    """Train a champion in each of the first periods, and let it meet this one and all later.

    Before the last one is trained, another way out of drift is tried: its forerunner stays, and
    clean rows of the new period, without labels, become a baseline.
    """
    for place, period in enumerate(periods):
        if period.name not in TAUGHT:
            continue
        taught, held_out = split(period)
        champion, later = make_champion(taught), periods[place + 1 :]
        windows = make_windows(champion, [held_out, *later], familiar=period.name)
        yield Chapter(period.name, champion, tuple(windows))
        if later and later[0].name == TAUGHT[-1]:
            yield _compare_with_baseline(champion, period.name, later)


def _compare_with_baseline(champion: Champion, taught: str, later: list[Period]) -> Chapter:
    clean, rest = split(later[0])
    baseline = _make_window(champion, 0, clean, clean.name, "no_change")
    span = baseline.interval
    champion = replace(
        champion,
        name=f"{champion.name}-baseline",
        settings=f"baseline:\n  start: {span.start:%Y-%m-%d}\n  end: {span.end:%Y-%m-%d}\n",
    )
    windows = make_windows(champion, [rest, *later[1:]], familiar=clean.name, first=1)
    return Chapter(taught, champion, tuple(windows), baseline)


def make_champion(taught: Period) -> Champion:
    """Fit a classifier on readings of known gases."""
    model = make_pipeline(StandardScaler(), SVC(C=10)).fit(taught.readings, taught.gases)
    return Champion(f"gas-{taught.name.replace(' ', '-')}", model, taught.readings, taught.gases)


def split(period: Period) -> tuple[Period, Period]:
    """Return half of the known rows, and the rest: the other half, and the hidden gas."""
    known = np.flatnonzero(~period.is_hidden)
    half, _ = train_test_split(known, test_size=0.5, stratify=period.gases[known], random_state=0)
    is_first = np.isin(np.arange(len(period.gases)), half)
    return period.take(is_first), period.take(~is_first)


def make_windows(
    champion: Champion, met: list[Period], familiar: str, first: int = 0
) -> Iterator[Window]:
    """Make of each period a window without the hidden gas, and one as it came if that has it.

    Rows of the `familiar` period have not drifted from what they are compared with.
    """
    numbers = count(first)
    for period in met:
        name = "held out" if period.name == familiar and not first else period.name
        has_drifted = period.name != familiar
        known = period.take(~period.is_hidden)
        expected = "drift" if has_drifted else "no_change"
        yield _make_window(champion, next(numbers), known, name, expected)
        if period.is_hidden.any():
            expected = "unknowns_and_drift" if has_drifted else "unknowns"
            story = f"{name} + {HIDDEN}"
            yield _make_window(champion, next(numbers), period, story, expected)


def _make_window(
    champion: Champion, number: int, period: Period, story: str, expected: str
) -> Window:
    return make_window(
        number,
        story,
        expected,
        period.readings,
        period.gases,
        period.is_hidden,
        champion.model.predict(period.readings),
    )
