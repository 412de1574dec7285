"""Compares the columns of a window with those of the reference, by Evidently's own measures.

Knows tables and Evidently's measures; knows nothing of pages. A column that cannot be compared is
a finding with its reason: Evidently's reports stop at the first one, or leave it out silently.
"""

import math
import warnings
from collections import Counter
from dataclasses import dataclass
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
"""More different values than this, and than half the larger side's rows, are free text."""

ENOUGH_ROWS = 5_000
"""From here on chance stays well below any threshold that makes sense."""

SAME = "one and the same value everywhere"
CHANCE_DRAWS = 10
CHANCE_SPREADS = 3.0
"""Chance explains a distance up to this many spreads above its mean over the draws."""

COLUMN_TYPES = {"number": ColumnType.Numerical, "category": ColumnType.Categorical}


class _NotComparable(Exception):
    """Why a column cannot be compared, in words."""


@dataclass(frozen=True, slots=True)
class _Measure:
    test: StatTest
    threshold: float


@dataclass(frozen=True, slots=True)
class _Side:
    """A sampled table, how often it has each name, and what it is called."""

    frame: pd.DataFrame
    names: Counter[str]
    where: str

    @classmethod
    def of(cls, frame: pd.DataFrame, rows: int, where: str) -> Self:
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        if len(frame) > rows:
            frame = frame.sample(rows, random_state=SAMPLE_SEED)
        return cls(frame, Counter(frame.columns), where)


@dataclass(frozen=True, slots=True)
class _Values:
    kind: Kind
    values: "pd.Series[Any]"


def compare_columns(
    window: pd.DataFrame,
    reference: pd.DataFrame,
    settings: DriftSettings,
    counted: tuple[int, int] = (0, 0),
) -> DriftFacts:
    """Return how far each column moved, most drifted first.

    `counted` says how many rows the two tables stand for, where those are more than they have.
    Only numbers are computed: Evidently's presets build figures for each column, which costs
    twenty times as much.
    """
    measures = _measures(settings)
    known = _Side.of(reference, settings.max_rows, "training data")
    served = _Side.of(window, settings.max_rows, "window")
    columns = [_compare(name, served, known, measures) for name in known.names | served.names]
    compared = [column for column in columns if not column.problem]
    return DriftFacts(
        share=sum(column.drifted for column in compared) / len(compared) if compared else None,
        columns=tuple(sorted(columns, key=_rank)),
        window_rows=max(len(served.frame), counted[0]),
        reference_rows=max(len(known.frame), counted[1]),
        tested_rows=_tested_rows(columns, served, settings, counted[0]),
    )


def _tested_rows(
    columns: list[ColumnDrift], served: _Side, settings: DriftSettings, counted: int
) -> int:
    is_tested = any(column.method and not settings.is_distance(column.kind) for column in columns)
    return len(served.frame) if is_tested and counted > len(served.frame) else 0


def strength(column: ColumnDrift) -> float:
    """Return how far a column is beyond its threshold: 1 is at the threshold, more is drift.

    Distances drift upwards and p-values downwards; which of them it is shows in the outcome.
    """
    if column.score is None or not column.threshold:
        return 0.0
    falls = column.drifted == (column.score < column.threshold)
    if falls:
        return column.threshold / max(column.score, 1e-300)
    return column.score / column.threshold


def _rank(column: ColumnDrift) -> tuple[bool, float, str]:
    return bool(column.problem), -strength(column), column.name


def _measures(settings: DriftSettings) -> dict[Kind, _Measure]:
    numbers = get_registered_stattest(settings.num_method, ColumnType.Numerical)
    categories = get_registered_stattest(settings.cat_method, ColumnType.Categorical)
    return {
        "number": _Measure(numbers, settings.num_threshold),
        "category": _Measure(categories, settings.cat_threshold),
    }


def _compare(
    name: str, window: _Side, reference: _Side, measures: dict[Kind, _Measure]
) -> ColumnDrift:
    kind: Kind = "category"
    try:
        known = _read(name, reference)
        kind = known.kind
        served = _read(name, window)
        _check_alike(known, served)
        return _scored(name, known, served, measures[kind])
    except _NotComparable as problem:
        return ColumnDrift(name=name, kind=kind, problem=str(problem))


def _scored(name: str, known: _Values, served: _Values, measure: _Measure) -> ColumnDrift:
    ours, theirs = _aligned(known, served)
    measure = _beyond_chance(measure, ours, len(theirs), known.kind)
    score, drifted = _apply(measure, ours, theirs, known.kind)
    return ColumnDrift(
        name=name,
        kind=known.kind,
        method=measure.test.display_name,
        score=score,
        threshold=measure.threshold,
        drifted=drifted,
    )


def _beyond_chance(
    measure: _Measure, known: "pd.Series[Any]", n_window: int, kind: Kind
) -> _Measure:
    """Return the measure with a threshold that chance alone does not reach.

    A distance of few rows is never 0, however alike the sides.
    Windows as large as this one, drawn from the reference itself, show what chance does.
    """
    if measure.test.name not in DISTANCES or min(len(known), n_window) >= ENOUGH_ROWS:
        return measure
    rng = np.random.default_rng(SAMPLE_SEED)
    values = known.to_numpy()
    scores = [
        _apply(
            measure,
            pd.Series(rng.choice(values, len(values))),
            pd.Series(rng.choice(values, n_window)),
            kind,
        )[0]
        for _ in range(CHANCE_DRAWS)
    ]
    chance = float(np.mean(scores) + CHANCE_SPREADS * np.std(scores))
    return _Measure(measure.test, max(measure.threshold, chance))


def _apply(
    measure: _Measure, known: "pd.Series[Any]", served: "pd.Series[Any]", kind: Kind
) -> tuple[float, bool]:
    method = measure.test.display_name
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = measure.test(known, served, COLUMN_TYPES[kind], measure.threshold)
    # Two dozen measures over three libraries: no list of what they raise would be complete.
    except Exception as error:
        words = (str(error) or type(error).__name__).splitlines()[0]
        raise _NotComparable(f"{method} failed: {words}") from error
    score = float(result.drift_score)
    if not math.isfinite(score):
        raise _NotComparable(f"{method} gave no number for these values")
    return score, bool(result.drifted)


def _read(name: str, side: _Side) -> _Values:
    if name not in side.names:
        raise _NotComparable(f"missing in the {side.where}")
    if side.names[name] > 1:
        raise _NotComparable(f"{side.names[name]} columns of this name in the {side.where}")
    column = side.frame[name].dropna()
    if column.empty:
        raise _NotComparable(f"no values in the {side.where}")
    return _typed(column, side.where)


def _typed(column: "pd.Series[Any]", where: str) -> _Values:
    if types.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return _categories(column)
    if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
        return _numbers(column, where)
    if types.is_object_dtype(column) or types.is_string_dtype(column):
        return _by_values(column, where)
    raise _NotComparable(f"holds {column.dtype} values in the {where}, which are not compared")


def _by_values(column: "pd.Series[Any]", where: str) -> _Values:
    held = {type(value) for value in column}
    if held <= {str, bool, np.bool_} and len(held) == 1:
        return _categories(column)
    if bool not in held and all(issubclass(kind, Real | Decimal) for kind in held):
        return _numbers(column, where)
    names = ", ".join(sorted(kind.__name__ for kind in held))
    problem = f"mixes types ({names})" if len(held) > 1 else f"holds {names} values"
    raise _NotComparable(f"{problem} in the {where}")


def _numbers(column: "pd.Series[Any]", where: str) -> _Values:
    numbers = column.astype("float64").to_numpy()
    finite = numbers[np.isfinite(numbers)]
    if len(finite) == 0:
        raise _NotComparable(f"no finite values in the {where}")
    return _Values("number", pd.Series(finite))


def _categories(column: "pd.Series[Any]") -> _Values:
    return _Values("category", column.astype(str).astype(object))


def _check_alike(known: _Values, served: _Values) -> None:
    if known.kind != served.kind:
        raise _NotComparable(
            f"a {known.kind} in the training data, but a {served.kind} in the window"
        )
    if known.kind == "number":
        _check_numbers(known.values, served.values)
    else:
        _check_texts(known.values, served.values)


def _check_numbers(known: "pd.Series[Any]", served: "pd.Series[Any]") -> None:
    only = known.min()
    if only != known.max():
        return
    # A distance is measured in the spread of the training data, and here is none.
    differs = (served != only).mean()
    raise _NotComparable(
        f"one value in the training data, from which {differs:.1%} of the window differ"
        if differs
        else SAME
    )


def _check_texts(known: "pd.Series[Any]", served: "pd.Series[Any]") -> None:
    distinct = len({*known.unique(), *served.unique()})
    if distinct == 1:
        raise _NotComparable(SAME)
    rows = max(len(known), len(served))
    if distinct > max(MAX_CATEGORIES, rows / 2):
        raise _NotComparable(f"{distinct:,} different texts in {rows:,} rows: free text")


def _aligned(known: _Values, served: _Values) -> tuple["pd.Series[Any]", "pd.Series[Any]"]:
    """Numbers in the reference's own unit, which no measure depends on.

    Evidently takes no spread below 0.001, so that a column of smaller unit would never drift.
    """
    if known.kind == "category":
        return known.values, served.values
    with np.errstate(all="ignore"):
        centre = known.values.mean()
        unit = known.values.std(ddof=0)
        return (known.values - centre) / unit, (served.values - centre) / unit
