"""The distribution of all rows of a window, column by column, in bounded memory and one pass.

Numbers are counted in histograms. The training data sets the bins: equal ones over its bulk, and
ever wider ones on either side. Texts are counted exactly, unless a column has too many of them.
`Profile.condense` turns the counts into a small table with the same distributions.
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

from rtscv_mlops.sources.columns import Slot
from rtscv_mlops.window import Column

Numbers = NDArray[np.float64]

# Quantiles of the training data between which bins are equal.
BULK = (0.005, 0.995)
MAX_BINS, MIN_BINS = 4_096, 256
# Over all columns: a model of thousands of columns has fewer bins in each.
TOTAL_BINS = 2_000_000
PER_OCTAVE = 16
# Bins on either side of the bulk; each is 4 % further out than the one before.
OUTER_BINS = 64 * PER_OCTAVE
# Rows of the training data that set the bins.
LAYOUT_ROWS = 50_000
# A number with no more distinct values is a grade or a small count.
MAX_GRADES = 200
# A column with more distinct texts is free text, and is not counted.
MAX_TEXTS = 10_000


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins for the values of a number, and the value that represents each."""

    low: float
    step: float
    equal: int
    values: Numbers

    @classmethod
    def of(cls, known: Numbers, equal: int) -> "Bins":
        """Set bins by known values, of which there must be at least one."""
        known = np.sort(known[:: len(known) // LAYOUT_ROWS + 1])
        low, high = known[[int(share * (len(known) - 1)) for share in BULK]]
        if low == high:
            low, high = known[0], known[-1]
        if low == high:
            high = low + max(abs(low), 1.0) * 1e-9
        # A little wider, so that the highest value falls into the last bin.
        step = (high - low) / equal * (1 + 1e-9)
        outside = step * (2 ** ((np.arange(OUTER_BINS) + 0.5) / PER_OCTAVE) - 1)
        inside = low + step * (np.arange(equal) + 0.5)
        centres = np.concatenate([low - outside[::-1], inside, low + step * equal + outside])
        bins = cls(float(low), float(step), equal, centres)
        bins._choose_values(known)
        return bins

    def in_bulk(self, indices: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which bins are the equal ones."""
        return (indices >= OUTER_BINS) & (indices < OUTER_BINS + self.equal)

    @np.errstate(over="ignore")
    def count(self, values: Numbers) -> NDArray[np.int64]:
        """Return how many values each bin holds."""
        near = self._near(values)
        counts = np.bincount(near, minlength=self.equal + 2)
        totals = np.zeros(len(self.values), np.int64)
        totals[OUTER_BINS : OUTER_BINS + self.equal] = counts[1:-1]
        if counts[0] or counts[-1]:
            outside = values[(near < 1) | (near > self.equal)]
            totals += np.bincount(self._outside(outside), minlength=len(totals))
        return totals

    def _choose_values(self, ordered: Numbers) -> None:
        """Let a known value represent its bin, so that grades and counts keep their values."""
        near = self._near(ordered)
        inside = (near > 0) & (near <= self.equal)
        indices = np.where(inside, near - 1 + OUTER_BINS, self._outside(ordered))
        used, first, counts = np.unique(indices, return_index=True, return_counts=True)
        self.values[used] = ordered[first + counts // 2]

    def _near(self, values: Numbers) -> NDArray[np.intp]:
        """Return the bin in the bulk, from 1; 0 is below the bulk, one more than the last above."""
        steps = values - (self.low - self.step)
        steps *= 1 / self.step
        np.clip(steps, 0, self.equal + 1, out=steps)
        near: NDArray[np.intp] = steps.astype(np.intp)
        return near

    def _outside(self, values: Numbers) -> NDArray[np.intp]:
        """Return the bins of values outside the bulk."""
        top = self.low + self.step * self.equal
        is_below = values < self.low
        steps = np.maximum(np.where(is_below, self.low - values, values - top) / self.step, 0)
        out = np.minimum(PER_OCTAVE * np.log2(1 + steps), OUTER_BINS - 1).astype(np.intp)
        bins: NDArray[np.intp] = np.where(
            is_below, OUTER_BINS - 1 - out, OUTER_BINS + self.equal + out
        )
        return bins


@dataclass(slots=True)
class Histogram:
    """How often each bin of a number was hit, and the extreme values."""

    bins: Bins
    counts: NDArray[np.int64]
    gaps: int = 0
    ends: tuple[float, float] = (np.inf, -np.inf)

    @classmethod
    def on(cls, bins: Bins) -> "Histogram":
        return cls(bins, np.zeros(len(bins.values), np.int64))

    def add(self, column: pa.Array) -> None:
        self.gaps += column.null_count
        values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
        if len(values):
            self.counts += self.bins.count(values)
            self.ends = min(self.ends[0], values.min()), max(self.ends[1], values.max())

    def merge(self, other: "Histogram") -> None:
        self.counts += other.counts
        self.gaps += other.gaps
        self.ends = min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])

    def values(self, rows: int) -> "pd.Series[float]":
        """Return `rows` values with the distribution of all values.

        Outside the bulk, where few values weigh much, each is the mean of those it represents.
        Grades keep their values.
        """
        gaps, indices = _draw(self.counts, self.gaps, rows)
        held = np.clip(self.bins.values, *self.ends)
        values = held[indices]
        is_far = ~self.bins.in_bulk(indices)
        if is_far.any() and np.count_nonzero(self.counts) > MAX_GRADES:
            values[is_far] = self._means(held, len(values))[is_far]
            self._widen(values, held)
        return pd.Series(np.concatenate([values, np.full(gaps, np.nan)]))

    def _means(self, held: Numbers, slices: int) -> Numbers:
        """Return the means of equal slices of all values, in order."""
        counts = np.concatenate([[0], np.cumsum(self.counts)])
        sums = np.concatenate([[0.0], np.cumsum(self.counts * held)])
        at = np.linspace(0, counts[-1], slices + 1)
        means: Numbers = np.diff(np.interp(at, counts, sums)) / (counts[-1] / slices)
        return np.clip(means, *self.ends)

    def _widen(self, values: Numbers, held: Numbers) -> None:
        """Move the most extreme value so that the variance, which means lower, is right again."""
        centre = np.average(held, weights=self.counts)
        variance = np.average((held - centre) ** 2, weights=self.counts)
        lost = variance * len(values) - np.sum((values - centre) ** 2)
        end = 0 if centre - values[0] > values[-1] - centre else -1
        if lost > 0:
            distance = np.sqrt((values[end] - centre) ** 2 + lost)
            values[end] = np.clip(centre + np.copysign(distance, values[end] - centre), *self.ends)


@dataclass(slots=True)
class TextCounts:
    """How often each text of a column was met; None once there are too many texts."""

    counts: Counter[str] | None = field(default_factory=Counter)
    gaps: int = 0

    def add(self, column: pa.Array) -> None:
        self.gaps += column.null_count
        if self.counts is None:
            return
        if not kinds.is_dictionary(column.type):
            column = pc.dictionary_encode(column.cast(pa.string()))
        indices = column.indices.drop_null().to_numpy(zero_copy_only=False)
        times = np.bincount(indices, minlength=len(column.dictionary))
        self._count(dict(zip(column.dictionary.to_pylist(), times.tolist(), strict=True)))

    def merge(self, other: "TextCounts") -> None:
        self.gaps += other.gaps
        if other.counts is None:
            self.counts = None
        elif self.counts is not None:
            self._count(other.counts)

    def values(self, rows: int) -> "pd.Series[str] | None":
        """Return `rows` texts with the distribution of all; None if there are too many."""
        if self.counts is None:
            return None
        texts = sorted(self.counts)
        counts = np.array([self.counts[text] for text in texts], np.int64)
        gaps, indices = _draw(counts, self.gaps, rows)
        return pd.Series([*(texts[index] for index in indices), *[None] * gaps], dtype=object)

    def _count(self, times: Mapping[str, int]) -> None:
        assert self.counts is not None
        self.counts.update({text: count for text, count in times.items() if count})
        if len(self.counts) > MAX_TEXTS:
            self.counts = None


@dataclass(slots=True)
class Profile:
    """The distribution of each column that can be counted; others are left to the sample."""

    numbers: dict[str, Histogram]
    texts: dict[str, TextCounts]

    @classmethod
    def on(cls, known: pd.DataFrame, columns: Iterable[Column]) -> "Profile":
        """Return an empty profile for windows that are compared with known rows."""
        kind = {column.name: column.kind for column in columns}
        equal = int(np.clip(TOTAL_BINS // max(len(kind), 1), MIN_BINS, MAX_BINS))
        numbers = {}
        for name in kind:
            if kind[name] in ("float", "integer"):
                values = pd.to_numeric(known[name], errors="coerce").to_numpy(
                    float, na_value=np.nan
                )
                finite = values[np.isfinite(values)]
                if len(finite):
                    numbers[name] = Histogram.on(Bins.of(finite, equal))
        texts = {name: TextCounts() for name in kind if kind[name] in ("text", "boolean")}
        return cls(numbers, texts)

    def part(self) -> "Profile":
        """Return an empty profile for rows that may have to be discarded."""
        numbers = {name: Histogram.on(counted.bins) for name, counted in self.numbers.items()}
        return Profile(numbers, {name: TextCounts() for name in self.texts})

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        for name, counted in (self.numbers | self.texts).items():
            counted.add(batch.column(Slot.FEATURE + name))

    def merge(self, part: "Profile") -> None:
        """Add all rows of a part."""
        for name, histogram in part.numbers.items():
            self.numbers[name].merge(histogram)
        for name, texts in part.texts.items():
            self.texts[name].merge(texts)

    def condense(self, sample: pd.DataFrame, rows: int) -> pd.DataFrame:
        """Return at most `rows` rows whose columns have the distributions of all rows.

        These are not rows that were served: each column is drawn by itself. Columns that are not
        counted come from the sample.
        """
        rows = min(rows, len(sample))
        columns = {}
        for name in sample.columns:
            counted = self.numbers.get(name) or self.texts.get(name)
            values = None if counted is None else counted.values(rows)
            columns[name] = sample[name].iloc[:rows].reset_index(drop=True)
            if values is not None:
                columns[name] = values
        return pd.DataFrame(columns)

    def condense_rows(self, rows: pd.DataFrame, most: int) -> pd.DataFrame:
        """Return the rows as `condense` would, counted in the same bins."""
        if len(rows) <= most:
            return rows
        part = self.part()
        slots = rows.rename(columns=lambda name: Slot.FEATURE + name)
        part.add(pa.RecordBatch.from_pandas(slots, preserve_index=False))
        return part.condense(rows, most)


def _draw(counts: NDArray[np.int64], gaps: int, rows: int) -> tuple[int, NDArray[np.intp]]:
    """Return how many of the rows are gaps, and evenly drawn bins of the others."""
    total = int(counts.sum())
    n_gaps = round(rows * gaps / (total + gaps)) if total else rows
    at = (np.arange(rows - n_gaps) + 0.5) / max(rows - n_gaps, 1) * total
    return n_gaps, np.searchsorted(np.cumsum(counts), at, side="right")
