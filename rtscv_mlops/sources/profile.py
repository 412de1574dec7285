"""How all rows of a window are spread, column by column, in bounded memory and one pass.

Knows Arrow batches and the training data's values; knows nothing of drift measures.

Numbers are counted in cells that the training data lays out: equal ones over its bulk, and ever
wider ones beyond on either side. Words are counted exactly, unless a column has too many of them.
The counts become a table again: few rows, each column of which is spread as all rows are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from rtscv_mlops.sources.columns import FEATURE
from rtscv_mlops.window import Column

Numbers = NDArray[np.float64]

BULK = (0.005, 0.995)
"""Shares of the training data between which cells are equal."""
MOST_CELLS, LEAST_CELLS = 4_096, 256
ALL_CELLS = 2_000_000
"""Over all columns: a model of thousands of columns has fewer cells in each."""
PER_OCTAVE = 16
BEYOND = 64 * PER_OCTAVE
"""Cells on either side of the bulk; each is 4 % further out than the one before."""
LAID_OUT_BY = 50_000
MOST_GRADES = 200
"""A number with no more different values is a grade or a small count."""
MOST_WORDS = 10_000
"""A column of more different words is free text, and is not counted."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the values of a number are counted, and which value stands for each cell."""

    low: float
    step: float
    equal: int
    values: Numbers

    @classmethod
    def of(cls, known: Numbers, equal: int) -> "Cells":
        """Lay cells out over known values, of which there must be some; few of many do."""
        known = np.sort(known[:: len(known) // LAID_OUT_BY + 1])
        low, high = known[[int(share * (len(known) - 1)) for share in BULK]]
        if low == high:
            low, high = known[0], known[-1]
        if low == high:
            high = low + max(abs(low), 1.0) * 1e-9
        # A little wider, so that the highest value falls into the last cell.
        step = (high - low) / equal * (1 + 1e-9)
        outside = step * (2 ** ((np.arange(BEYOND) + 0.5) / PER_OCTAVE) - 1)
        inside = low + step * (np.arange(equal) + 0.5)
        centres = np.concatenate([low - outside[::-1], inside, low + step * equal + outside])
        cells = cls(float(low), float(step), equal, centres)
        cells._choose_values(known)
        return cells

    def in_bulk(self, places: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Tell which cells are the equal ones."""
        return (places >= BEYOND) & (places < BEYOND + self.equal)

    @np.errstate(over="ignore")
    def count(self, values: Numbers) -> NDArray[np.int64]:
        """Return how many values each cell holds."""
        near = self._near(values)
        counts = np.bincount(near, minlength=self.equal + 2)
        spread = np.zeros(len(self.values), np.int64)
        spread[BEYOND : BEYOND + self.equal] = counts[1:-1]
        if counts[0] or counts[-1]:
            outside = values[(near < 1) | (near > self.equal)]
            spread += np.bincount(self._outside(outside), minlength=len(spread))
        return spread

    def _choose_values(self, ordered: Numbers) -> None:
        """Let a known value stand for its cell, so that grades and counts stay what they are."""
        near = self._near(ordered)
        inside = (near > 0) & (near <= self.equal)
        places = np.where(inside, near - 1 + BEYOND, self._outside(ordered))
        cells, first, counts = np.unique(places, return_index=True, return_counts=True)
        self.values[cells] = ordered[first + counts // 2]

    def _near(self, values: Numbers) -> NDArray[np.intp]:
        """Return the cell of the bulk, from 1; 0 is below it and one more than the last above."""
        steps = values - (self.low - self.step)
        steps *= 1 / self.step
        np.clip(steps, 0, self.equal + 1, out=steps)
        near: NDArray[np.intp] = steps.astype(np.intp)
        return near

    def _outside(self, values: Numbers) -> NDArray[np.intp]:
        """Return the cells of values beyond the bulk."""
        top = self.low + self.step * self.equal
        is_below = values < self.low
        steps = np.maximum(np.where(is_below, self.low - values, values - top) / self.step, 0)
        out = np.minimum(PER_OCTAVE * np.log2(1 + steps), BEYOND - 1).astype(np.intp)
        places: NDArray[np.intp] = np.where(is_below, BEYOND - 1 - out, BEYOND + self.equal + out)
        return places


@dataclass(slots=True)
class Spread:
    """How often each cell of a number was met, and the outermost values."""

    cells: Cells
    counts: NDArray[np.int64]
    gaps: int = 0
    ends: tuple[float, float] = (np.inf, -np.inf)

    @classmethod
    def on(cls, cells: Cells) -> "Spread":
        return cls(cells, np.zeros(len(cells.values), np.int64))

    def add(self, column: pa.Array) -> None:
        self.gaps += column.null_count
        values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
        if len(values):
            self.counts += self.cells.count(values)
            self.ends = min(self.ends[0], values.min()), max(self.ends[1], values.max())

    def merge(self, other: "Spread") -> None:
        self.counts += other.counts
        self.gaps += other.gaps
        self.ends = min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])

    def values(self, rows: int) -> "pd.Series[float]":
        """Return so many values, spread as all are.

        Far out, where few values weigh much, each is the mean of those that it stands for; but
        grades stay grades.
        """
        gaps, places = _drawn(self.counts, self.gaps, rows)
        held = np.clip(self.cells.values, *self.ends)
        values = held[places]
        is_far = ~self.cells.in_bulk(places)
        if is_far.any() and np.count_nonzero(self.counts) > MOST_GRADES:
            values[is_far] = self._means(held, len(values))[is_far]
            self._widen(values, held)
        return pd.Series(np.concatenate([values, np.full(gaps, np.nan)]))

    def _means(self, held: Numbers, slices: int) -> Numbers:
        """Return the mean of each of so many equal slices of all values, in their order."""
        counts = np.concatenate([[0], np.cumsum(self.counts)])
        sums = np.concatenate([[0.0], np.cumsum(self.counts * held)])
        at = np.linspace(0, counts[-1], slices + 1)
        means: Numbers = np.diff(np.interp(at, counts, sums)) / (counts[-1] / slices)
        return np.clip(means, *self.ends)

    def _widen(self, values: Numbers, held: Numbers) -> None:
        """Move the outermost value so far that the variance, which means lower, is right again."""
        centre = np.average(held, weights=self.counts)
        variance = np.average((held - centre) ** 2, weights=self.counts)
        lost = variance * len(values) - np.sum((values - centre) ** 2)
        end = 0 if centre - values[0] > values[-1] - centre else -1
        if lost > 0:
            distance = np.sqrt((values[end] - centre) ** 2 + lost)
            values[end] = np.clip(centre + np.copysign(distance, values[end] - centre), *self.ends)


@dataclass(slots=True)
class Words:
    """How often each word of a column was met; None once there are too many."""

    counts: Counter[str] | None = field(default_factory=Counter)
    gaps: int = 0

    def add(self, column: pa.Array) -> None:
        self.gaps += column.null_count
        if self.counts is None:
            return
        if not kinds.is_dictionary(column.type):
            column = pc.dictionary_encode(column.cast(pa.string()))
        places = column.indices.drop_null().to_numpy(zero_copy_only=False)
        times = np.bincount(places, minlength=len(column.dictionary))
        self._count(dict(zip(column.dictionary.to_pylist(), times.tolist(), strict=True)))

    def merge(self, other: "Words") -> None:
        self.gaps += other.gaps
        if other.counts is None:
            self.counts = None
        elif self.counts is not None:
            self._count(other.counts)

    def values(self, rows: int) -> "pd.Series[str] | None":
        """Return so many words, spread as all are; None where they were too many to count."""
        if self.counts is None:
            return None
        words = sorted(self.counts)
        counts = np.array([self.counts[word] for word in words], np.int64)
        gaps, places = _drawn(counts, self.gaps, rows)
        return pd.Series([*(words[place] for place in places), *[None] * gaps], dtype=object)

    def _count(self, times: Mapping[str, int]) -> None:
        assert self.counts is not None
        self.counts.update({word: count for word, count in times.items() if count})
        if len(self.counts) > MOST_WORDS:
            self.counts = None


@dataclass(slots=True)
class Profile:
    """The spread of each column that can be counted; others are left to the sample."""

    numbers: dict[str, Spread]
    words: dict[str, Words]

    @classmethod
    def on(cls, known: pd.DataFrame, columns: Iterable[Column]) -> "Profile":
        """Return an empty profile, laid out for windows that are compared with known rows."""
        kind = {column.name: column.kind for column in columns}
        equal = int(np.clip(ALL_CELLS // max(len(kind), 1), LEAST_CELLS, MOST_CELLS))
        numbers = {
            name: Spread.on(Cells.of(values, equal))
            for name in kind
            if kind[name] in ("float", "integer") and len(values := _finite(known[name]))
        }
        words = {name: Words() for name in kind if kind[name] in ("text", "boolean")}
        return cls(numbers, words)

    def part(self) -> "Profile":
        """Return an empty profile for rows that may have to be forgotten again."""
        numbers = {name: Spread.on(spread.cells) for name, spread in self.numbers.items()}
        return Profile(numbers, {name: Words() for name in self.words})

    def add(self, batch: pa.RecordBatch) -> None:
        """See more rows."""
        for name, spread in self.numbers.items():
            spread.add(batch.column(FEATURE + name))
        for name, words in self.words.items():
            words.add(batch.column(FEATURE + name))

    def merge(self, part: "Profile") -> None:
        """See all rows that a part has seen."""
        for name, spread in part.numbers.items():
            self.numbers[name].merge(spread)
        for name, words in part.words.items():
            self.words[name].merge(words)

    def condense(self, sample: pd.DataFrame, rows: int) -> pd.DataFrame:
        """Return at most so many rows, each column of which is spread as all rows are.

        A row of it is no row that was served. Columns that are not counted come from the sample.
        """
        rows = min(rows, len(sample))
        found = {}
        for name in sample.columns:
            spread = self.numbers.get(name) or self.words.get(name)
            values = None if spread is None else spread.values(rows)
            found[name] = sample[name].iloc[:rows].reset_index(drop=True)
            if values is not None:
                found[name] = values
        return pd.DataFrame(found)

    def condense_rows(self, rows: pd.DataFrame, most: int) -> pd.DataFrame:
        """Return rows that are there whole as `condense` would, counted in the same cells."""
        if len(rows) <= most:
            return rows
        part = self.part()
        slots = rows.rename(columns=lambda name: FEATURE + name)
        part.add(pa.RecordBatch.from_pandas(slots, preserve_index=False))
        return part.condense(rows, most)


def _finite(column: "pd.Series[float]") -> Numbers:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    finite: Numbers = numbers[np.isfinite(numbers)]
    return finite


def _drawn(counts: NDArray[np.int64], gaps: int, rows: int) -> tuple[int, NDArray[np.intp]]:
    """Return how many of so many rows are gaps, and the places of the others, evenly drawn."""
    total = int(counts.sum())
    n_gaps = round(rows * gaps / (total + gaps)) if total else rows
    at = (np.arange(rows - n_gaps) + 0.5) / max(rows - n_gaps, 1) * total
    return n_gaps, np.searchsorted(np.cumsum(counts), at, side="right")
