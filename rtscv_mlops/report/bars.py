"""Bars of a column, before and now, for the pictures and for the cells of a table.

Knows columns and counts; knows nothing of Plotly or Evidently.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops.facts import ColumnDrift, Evidence
from rtscv_mlops.report.text import plain, rounded, unique

Numbers = NDArray[np.float64]

BINS = 24
MAX_CATEGORIES = 6


@dataclass(frozen=True, slots=True)
class Bars:
    """Where bars stand, and how many percent of the training data and of the window they hold."""

    places: list[Any]
    known: list[float]
    served: list[float]


def draw_bars(columns: Iterable[ColumnDrift], evidence: Evidence) -> dict[str, Bars]:
    """Return the bars of every column that the evidence shows; the others have none."""
    window, reference = _by_name(evidence.window), _by_name(evidence.reference)
    return {
        column.name: _bars(column, window[column.name], reference[column.name])
        for column in columns
        if column.name in window and column.name in reference
    }


def _by_name(frame: pd.DataFrame) -> dict[str, "pd.Series[Any]"]:
    return {str(name): frame.iloc[:, place] for place, name in enumerate(frame.columns)}


def _bars(column: ColumnDrift, window: "pd.Series[Any]", reference: "pd.Series[Any]") -> Bars:
    if column.kind == "category":
        return _of_categories(window, reference)
    return _of_numbers(_finite(window), _finite(reference))


def _of_numbers(window: Numbers, reference: Numbers) -> Bars:
    edges = _edges(np.concatenate([window, reference]))
    known, served = (
        rounded(100 * shares(np.clip(side, edges[0], edges[-1]), edges))
        for side in (reference, window)
    )
    return Bars(rounded((edges[:-1] + edges[1:]) / 2), known, served)


def _edges(values: Numbers) -> Numbers:
    """Bars of one for counts and grades, else equal ones between the outer percentiles.

    One stray value would squeeze all others into a single bar.
    """
    low, high = np.percentile(values, [0.5, 99.5])
    if high - low < BINS and np.all(values == np.round(values)):
        return np.arange(np.floor(low), np.ceil(high) + 2) - 0.5
    if high == low:
        low, high = values.min(), values.max()
    return np.linspace(low, high, BINS + 1)


def _finite(column: "pd.Series[Any]") -> Numbers:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    finite: Numbers = numbers[np.isfinite(numbers)]
    return finite


def _of_categories(window: "pd.Series[Any]", reference: "pd.Series[Any]") -> Bars:
    sides = [side.dropna().astype(str).value_counts(normalize=True) for side in (reference, window)]
    top = sides[0].add(sides[1], fill_value=0).nlargest(MAX_CATEGORIES).index
    known, served = (rounded(100 * side.reindex(top, fill_value=0)) for side in sides)
    return Bars(unique([plain(name, 10) for name in top]), known, served)


def shares(values: Numbers, edges: Numbers) -> Numbers:
    """Return the share of the finite values between each two edges."""
    values = values[np.isfinite(values)]
    return np.histogram(values, edges)[0] / max(len(values), 1)
