"""Drift by column: Evidently's own measures of a window against the training data.

A column that cannot be compared is reported with its reason. Evidently's reports stop at the
first such column, or leave it out silently.
"""

import math
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from evidently.legacy.calculations.stattests import StatTest
from evidently.legacy.calculations.stattests.registry import get_registered_stattest
from evidently.legacy.core import ColumnType
from pandas.api import types

from rtscv_mlops.config.monitor import DISTANCES, DriftSettings
from rtscv_mlops.facts import ColumnDrift, DriftFacts

Kind = Literal["number", "category"]

SAMPLE_SEED = 0
MAX_CATEGORIES = 100
"""Free text has more distinct values than this, and than half the larger side's rows."""

ENOUGH_ROWS = 5_000
"""From here on chance stays well below any threshold that makes sense."""

SAME = "one and the same value everywhere"
CHANCE_DRAWS = 10
CHANCE_SPREADS = 3.0
"""Chance explains a distance up to this many spreads above its mean over the draws."""

COLUMN_TYPES = {"number": ColumnType.Numerical, "category": ColumnType.Categorical}


class _NotComparable(Exception):
    """Why a column cannot be compared, for people."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one column on one side, without missing ones."""

    kind: Kind
    values: "pd.Series[Any]"

    @classmethod
    def of(cls, column: "pd.Series[Any]", side: str) -> Self:
        """Return the values of a column as numbers or as categories."""
        if types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
            return cls.categories(column)
        if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
            return cls.numbers(column, side)
        if not (types.is_object_dtype(column) or types.is_string_dtype(column)):
            raise _NotComparable(
                f"holds {column.dtype} values in the {side}; they are not compared"
            )
        held = {type(value) for value in column}
        if held <= {str, bool, np.bool_} and len(held) == 1:
            return cls.categories(column)
        if bool not in held and all(issubclass(kind, Real | Decimal) for kind in held):
            return cls.numbers(column, side)
        names = ", ".join(sorted(kind.__name__ for kind in held))
        problem = f"mixes types ({names})" if len(held) > 1 else f"holds {names} values"
        raise _NotComparable(f"{problem} in the {side}")

    @classmethod
    def numbers(cls, column: "pd.Series[Any]", side: str) -> Self:
        numbers = column.astype("float64").to_numpy()
        finite = numbers[np.isfinite(numbers)]
        if len(finite) == 0:
            raise _NotComparable(f"no finite values in the {side}")
        return cls("number", pd.Series(finite))

    @classmethod
    def categories(cls, column: "pd.Series[Any]") -> Self:
        return cls("category", column.astype(str).astype(object))

    def comparable_with(
        self, served: "pd.Series[Any]"
    ) -> tuple["pd.Series[Any]", "pd.Series[Any]"]:
        """Return both sides as they are measured; one value everywhere and free text are refused.

        Numbers are in units of the training data's spread, on which no measure depends: Evidently
        replaces a spread below 0.001, so a column in a smaller unit would never drift.
        """
        known = self.values
        if self.kind == "number":
            only = known.min()
            if only == known.max():
                differs = (served != only).mean()
                raise _NotComparable(
                    f"one value in the training data, from which {differs:.1%} of the window differ"
                    if differs
                    else SAME
                )
            with np.errstate(all="ignore"):
                centre, unit = known.mean(), known.std(ddof=0)
                return (known - centre) / unit, (served - centre) / unit
        distinct = len({*known.unique(), *served.unique()})
        if distinct == 1:
            raise _NotComparable(SAME)
        rows = max(len(known), len(served))
        if distinct > max(MAX_CATEGORIES, rows / 2):
            raise _NotComparable(f"{distinct:,} different texts in {rows:,} rows: free text")
        return known, served


@dataclass(frozen=True, slots=True)
class _Side:
    """A sampled table, how often each column name occurs in it, and what the table is called."""

    frame: pd.DataFrame
    names: Counter[str]
    title: str

    @classmethod
    def of(cls, frame: pd.DataFrame, rows: int, title: str) -> Self:
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        if len(frame) > rows:
            frame = frame.sample(rows, random_state=SAMPLE_SEED)
        return cls(frame, Counter(frame.columns), title)

    def read(self, name: str) -> _Values:
        """Return the values of a column."""
        if name not in self.names:
            raise _NotComparable(f"missing in the {self.title}")
        if self.names[name] > 1:
            raise _NotComparable(f"{self.names[name]} columns of this name in the {self.title}")
        column = self.frame[name].dropna()
        if column.empty:
            raise _NotComparable(f"no values in the {self.title}")
        return _Values.of(column, self.title)


@dataclass(frozen=True, slots=True)
class _Measure:
    """One of Evidently's measures, for one kind of column, with its threshold."""

    kind: Kind
    test: StatTest
    threshold: float

    @classmethod
    def of(cls, kind: Kind, method: str, threshold: float) -> Self:
        return cls(kind, get_registered_stattest(method, COLUMN_TYPES[kind]), threshold)

    def apply(self, known: "pd.Series[Any]", served: "pd.Series[Any]") -> tuple[float, bool]:
        """Return the score, and whether it means drift."""
        method = self.test.display_name
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                result = self.test(known, served, COLUMN_TYPES[self.kind], self.threshold)
        # Two dozen measures over three libraries: no list of what they raise would be complete.
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise _NotComparable(f"{method} failed: {reason}") from error
        score = float(result.drift_score)
        if not math.isfinite(score):
            raise _NotComparable(f"{method} gave no number for these values")
        return score, bool(result.drifted)

    def beyond_chance(self, known: "pd.Series[Any]", window_rows: int) -> Self:
        """Return this measure with a threshold that chance alone does not reach.

        With few rows a distance is never 0, however alike the sides are. Windows as large as this
        one, drawn from the training data itself, show what chance does.
        """
        if self.test.name not in DISTANCES or min(len(known), window_rows) >= ENOUGH_ROWS:
            return self
        rng = np.random.default_rng(SAMPLE_SEED)
        values = known.to_numpy()
        scores = []
        for _ in range(CHANCE_DRAWS):
            drawn = pd.Series(rng.choice(values, len(values)))
            scores.append(self.apply(drawn, pd.Series(rng.choice(values, window_rows)))[0])
        chance = float(np.mean(scores) + CHANCE_SPREADS * np.std(scores))
        return replace(self, threshold=max(self.threshold, chance))

    def compare(self, name: str, known: _Values, served: _Values) -> ColumnDrift:
        """Return how far a column moved."""
        if served.kind != self.kind:
            raise _NotComparable(
                f"a {self.kind} in the training data, but a {served.kind} in the window"
            )
        ours, theirs = known.comparable_with(served.values)
        measure = self.beyond_chance(ours, len(theirs))
        score, drifted = measure.apply(ours, theirs)
        return ColumnDrift(
            name=name,
            kind=self.kind,
            method=self.test.display_name,
            score=score,
            threshold=measure.threshold,
            drifted=drifted,
        )


def compare_columns(
    window: pd.DataFrame,
    reference: pd.DataFrame,
    settings: DriftSettings,
    counted: tuple[int, int] = (0, 0),
) -> DriftFacts:
    """Return how far each column moved, most drifted first.

    `counted` is how many rows the two tables stand for, if those are more than they have.
    Only numbers are computed: Evidently's presets build figures for each column, which costs
    twenty times as much.
    """
    measures: dict[Kind, _Measure] = {
        "number": _Measure.of("number", settings.num_method, settings.num_threshold),
        "category": _Measure.of("category", settings.cat_method, settings.cat_threshold),
    }
    known_side = _Side.of(reference, settings.max_rows, "training data")
    served_side = _Side.of(window, settings.max_rows, "window")
    columns = []
    for name in known_side.names | served_side.names:
        kind: Kind = "category"
        try:
            known = known_side.read(name)
            kind = known.kind
            columns.append(measures[kind].compare(name, known, served_side.read(name)))
        except _NotComparable as problem:
            columns.append(ColumnDrift(name=name, kind=kind, problem=str(problem)))
    compared = [column for column in columns if not column.problem]
    columns.sort(key=lambda column: (bool(column.problem), -strength(column), column.name))
    # Distances are of all rows that the tables stand for; tests only see the rows they have.
    sampled = len(served_side.frame)
    is_tested = any(column.method and not settings.is_distance(column.kind) for column in columns)
    return DriftFacts(
        share=sum(column.drifted for column in compared) / len(compared) if compared else None,
        columns=tuple(columns),
        window_rows=max(sampled, counted[0]),
        reference_rows=max(len(known_side.frame), counted[1]),
        tested_rows=sampled if is_tested and counted[0] > sampled else 0,
    )


def strength(column: ColumnDrift) -> float:
    """Return how far a column is beyond its threshold: 1 is at the threshold, more is drift.

    Distances drift upwards and p-values downwards; the outcome shows which of the two it is.
    """
    if column.score is None or not column.threshold:
        return 0.0
    falls = column.drifted == (column.score < column.threshold)
    if falls:
        return column.threshold / max(column.score, 1e-300)
    return column.score / column.threshold
