"""NSL-KDD as a team meets it: rows to train on, rows held out, and a fortnight of traffic.

The data has no times. Each row of the published test part is given one of fourteen days at random,
with a fixed seed: a row of a known type any day, a row of a new type a day on which its category
has begun. Knows the table; knows nothing of models and monitors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype
from sklearn.model_selection import train_test_split

from benchmarks.datasets import load_table
from rtscv_mlops.window import Interval

KEY, TIME, LABEL = "connection", "seen_at", "attack"

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
N_DAYS = 14
FIRST_DAY = {"probe": 7, "dos": 9, "r2l": 11, "u2r": 13}
"""On which day the new attacks of a category begin: first who looks around, last who breaks in."""

HELD_OUT = 0.2
FEWEST_HELD_OUT = 10
"""Of a type with fewer training rows all are taught: one held-out row would say nothing."""

FEWEST_KEPT = 20
"""Rows that each type keeps where training rows are left out."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """All rows by what they are for; each has the features, its `attack` and its `category`."""

    training: pd.DataFrame
    holdout: pd.DataFrame
    served: pd.DataFrame

    @property
    def known_types(self) -> list[str]:
        return sorted(set(self.training[LABEL]))

    @property
    def new_types(self) -> list[str]:
        return sorted(set(self.served[LABEL]) - set(self.training[LABEL]))


@dataclass(frozen=True, slots=True)
class Day:
    """One day of traffic; the rows have a key and a time, and no label."""

    number: int
    interval: Interval
    rows: pd.DataFrame
    truth: pd.DataFrame
    """The key, the attack and the category of each row: what analysts find out later."""


def load_traffic(training_rows: int | None = None) -> Traffic:
    """Read the table, and set rows of its training part aside to compare models on."""
    table = _as_plain(load_table("nsl_kdd"))
    is_training = table.pop("split") == "train"
    training, holdout = _hold_out(table[is_training])
    if training_rows is not None:
        training = thin(training, training_rows)
    return Traffic(training, holdout, table[~is_training])


def features_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that a model may see."""
    return rows.drop(columns=[LABEL, "category", KEY, TIME], errors="ignore")


def make_days(traffic: Traffic, rows_a_day: int | None = None) -> Iterator[Day]:
    """Deal the served rows out to a fortnight; `rows_a_day` leaves out what is more than that."""
    rng = np.random.default_rng(0)
    served = traffic.served.sample(frac=1, random_state=0)
    is_new = served[LABEL].isin(traffic.new_types)
    earliest = served["category"].map(FIRST_DAY).where(is_new, 1).to_numpy(dtype=int)
    given = rng.integers(earliest, N_DAYS, endpoint=True)
    for number in range(1, N_DAYS + 1):
        start = MONDAY + timedelta(days=number - 1)
        rows = served[given == number][:rows_a_day].reset_index(drop=True)
        seconds = np.sort(rng.uniform(0, 86_400, len(rows))).round(3)
        rows.insert(0, KEY, [f"{start:%Y%m%d}-{place:05}" for place in range(len(rows))])
        rows.insert(1, TIME, start + pd.to_timedelta(seconds, unit="s"))
        yield Day(
            number,
            Interval(start, start + timedelta(days=1)),
            rows.drop(columns=[LABEL, "category"]),
            rows[[KEY, LABEL, "category"]],
        )


def thin(rows: pd.DataFrame, size: int) -> pd.DataFrame:
    """Return about this many rows, each type in proportion, but of none fewer than twenty."""
    order = rows.sample(frac=1, random_state=0)
    is_kept = order.groupby(LABEL).cumcount() < FEWEST_KEPT
    others = order[~is_kept][: max(size - int(is_kept.sum()), 0)]
    return pd.concat([order[is_kept], others]).sort_index()


def _as_plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return words as text and numbers in the usual width, as files of a real source have them."""
    table = table.drop(columns="difficulty", errors="ignore").rename(columns={"label": LABEL})
    kinds = {
        name: str if not is_numeric_dtype(dtype) else float if is_float_dtype(dtype) else int
        for name, dtype in table.dtypes.items()
    }
    return table.astype(kinds)


def _hold_out(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    is_rare = rows.groupby(LABEL)[LABEL].transform("size") < FEWEST_HELD_OUT
    common = rows[~is_rare]
    training, holdout = train_test_split(
        common, test_size=HELD_OUT, stratify=common[LABEL], random_state=0
    )
    return pd.concat([training, rows[is_rare]]).sort_index(), holdout.sort_index()
