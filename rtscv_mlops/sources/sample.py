"""A number for each row, from its content: equal rows have the same, in every batch and run.

Knows Arrow batches in the types that readers make; knows nothing of what the numbers are for.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from rtscv_mlops.sources.columns import STORED, decoded

Hashes = NDArray[np.uint64]
START = np.uint64(0x9E3779B97F4A7C15)
FACTOR = np.uint64(0xD6E8FEB86659FD93)
NOTHING = np.uint64(0xA0761D6478BD642F)
"""What stands for a gap."""


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Return a hash per row, which depends on the values and on the order of the columns."""
    total = np.full(len(batch), START)
    shifted = np.empty_like(total)
    for column in batch.columns:
        # One to one in the total and in the value, so that no column takes from another.
        total ^= _bits(column)
        total *= FACTOR
        np.right_shift(total, np.uint64(32), out=shifted)
        total ^= shifted
    return mixed(total, 0)


def mixed(hashes: Hashes, key: int) -> Hashes:
    """Shuffle the 64-bit numbers by a key: one to one, after splitmix64's finalizer."""
    offset = np.uint64((key + 1) * 0x9E3779B97F4A7C15 % 2**64)
    shuffled = hashes + offset
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        shuffled ^= shuffled >> np.uint64(shift)
        shuffled *= np.uint64(factor)
    shuffled ^= shuffled >> np.uint64(31)
    return shuffled


def _bits(column: pa.Array) -> Hashes:
    """Return 64 bits per value that tell values apart."""
    if kinds.is_dictionary(column.type) or kinds.is_string(column.type):
        bits, places = _of_texts(column)
    elif kinds.is_boolean(column.type):
        bits, places = column.fill_null(False).cast(pa.uint8()).to_numpy().astype(np.uint64), column
    else:
        bits, places = _filled(column).view(pa.uint64()).to_numpy(), column
    if column.null_count == 0:
        return bits
    return np.where(places.is_null().to_numpy(zero_copy_only=False), NOTHING, bits)


def _filled(column: pa.Array) -> pa.Array:
    if column.null_count == 0:
        return column
    return column.fill_null(pa.scalar(0).cast(column.type))


def _of_texts(column: pa.Array) -> tuple[Hashes, pa.Array]:
    if not kinds.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    words = column.dictionary.to_numpy(zero_copy_only=False)
    of_words: Hashes = pd.util.hash_array(words, categorize=False)
    places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return (of_words[places] if len(words) else np.zeros(len(column), np.uint64)), column.indices


Counts = np.ndarray[tuple[int], np.dtype[np.int64]]
LARGEST = np.uint64(2**64 - 1)
BUCKETS = 2**14


@dataclass(slots=True)
class Sketch:
    """The smallest hashes of the rows seen so far, and sums over all of them.

    The column `apart` is kept with the rows, but says nothing about which row it is.
    """

    size: int
    seed: int
    apart: str | None = None
    rows: int = 0
    limit: np.uint64 = LARGEST
    sums: list[int] = field(default_factory=lambda: [0, 0])
    pending: list[tuple[Hashes, Counts, pa.Table]] = field(default_factory=list)
    waiting: int = 0
    buckets: Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))

    def part(self) -> "Sketch":
        """Return an empty sketch for rows that may have to be forgotten again."""
        return Sketch(self.size, self.seed, self.apart, limit=self.limit)

    def add(self, batch: pa.RecordBatch) -> None:
        """See more rows."""
        named = [name for name in batch.schema.names if name != self.apart]
        content = row_hashes(batch.select(named))
        self.rows += len(batch)
        self._sum(int(content.sum(dtype=np.uint64)), int(mixed(content, 0).sum(dtype=np.uint64)))
        places = (content % np.uint64(BUCKETS)).astype(np.int64)
        self.buckets += np.bincount(places, minlength=BUCKETS)
        hashes = mixed(content, 1 + self.seed)
        near = np.flatnonzero(hashes <= self.limit)
        distinct, first, counts = np.unique(hashes[near], return_index=True, return_counts=True)
        if len(distinct):
            # Batches name their texts by dictionaries of their own, which do not go together.
            kept = [decoded(column.take(near[first])) for column in batch.columns]
            rows = pa.Table.from_arrays(kept, batch.schema.names)
            self._keep(distinct, counts.astype(np.int64), rows)

    def merge(self, part: "Sketch") -> None:
        """See all rows that a part has seen."""
        self.rows += part.rows
        self._sum(*part.sums)
        self.buckets += part.buckets
        self.limit = min(self.limit, part.limit)
        for kept in part.pending:
            self._keep(*kept)

    def sample(self) -> pd.DataFrame:
        """Draw the sample, without replacement, in the order of the hashes."""
        self._compact()
        _, counts, rows = self.pending[0]
        if counts.sum() > self.size:
            random = np.random.default_rng(self.seed)
            counts = random.multivariate_hypergeometric(counts, self.size, method="marginals")
        drawn = rows.take(np.repeat(np.arange(len(rows)), counts))
        frame: pd.DataFrame = drawn.to_pandas(types_mapper=STORED.get)
        return frame

    def copies(self) -> int:
        """Count the rows that repeat another; an estimate where not all hashes were kept."""
        self._compact()
        counts = self.pending[0][1]
        return round(self.rows * (1 - len(counts) / int(counts.sum())))

    def crowding(self) -> float:
        """Return the share of rows, by an estimate from below, that the sample shows too seldom.

        Rows fall evenly into buckets by their hash, unless many are the same.
        """
        self._compact()
        if self.pending[0][1].sum() == self.rows:
            return 0.0
        usual = 2 * int(np.median(self.buckets)) + 50
        return float((self.buckets - usual).clip(min=0).sum() / self.rows)

    def digest(self) -> str:
        """Return a name for the rows that depends neither on their order nor on the seed."""
        return hashlib.sha256(f"{self.rows}:{self.sums}".encode()).hexdigest()[:32]

    def _sum(self, *more: int) -> None:
        self.sums = [(old + new) % 2**64 for old, new in zip(self.sums, more, strict=True)]

    def _keep(self, hashes: Hashes, counts: Counts, rows: pa.Table) -> None:
        self.pending.append((hashes, counts, rows))
        self.waiting += len(hashes)
        if self.waiting > 2 * self.size + 1_000:
            self._compact()

    def _compact(self) -> None:
        if len(self.pending) == 1 and self.waiting <= self.size:
            return
        hashes, counts, tables = zip(*self.pending, strict=True)
        every: Hashes = np.concatenate(hashes)
        distinct, first, where = np.unique(every, return_index=True, return_inverse=True)
        total = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(total, where, np.concatenate(counts))
        distinct, first, total = distinct[: self.size], first[: self.size], total[: self.size]
        if len(distinct) == self.size:
            self.limit = min(self.limit, distinct[-1])
        rows = pa.concat_tables(tables).take(first).combine_chunks()
        self.pending = [(distinct, total, rows)]
        self.waiting = len(distinct)
