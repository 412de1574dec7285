"""A uniform sample and a digest of rows that arrive in any order, by the hash of each row.

Equal rows have the same hash in every batch and run.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from rtscv_mlops.sources.columns import STORED, decode

Hashes = NDArray[np.uint64]
START = np.uint64(0x9E3779B97F4A7C15)
FACTOR = np.uint64(0xD6E8FEB86659FD93)
GAP = np.uint64(0xA0761D6478BD642F)


def hash_rows(batch: pa.RecordBatch) -> Hashes:
    """Return a hash per row, which depends on the values and on the order of the columns."""
    total = np.full(len(batch), START)
    shifted = np.empty_like(total)
    for column in batch.columns:
        # Each step is one-to-one in the total and in the value, so no column cancels another.
        total ^= _hash_values(column)
        total *= FACTOR
        np.right_shift(total, np.uint64(32), out=shifted)
        total ^= shifted
    return mix(total, 0)


def mix(hashes: Hashes, key: int) -> Hashes:
    """Permute the 64-bit numbers by a key, with the finalizer of splitmix64."""
    offset = np.uint64((key + 1) * 0x9E3779B97F4A7C15 % 2**64)
    shuffled = hashes + offset
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        shuffled ^= shuffled >> np.uint64(shift)
        shuffled *= np.uint64(factor)
    shuffled ^= shuffled >> np.uint64(31)
    return shuffled


def _hash_values(column: pa.Array) -> Hashes:
    """Return 64 bits per value that differ if the values do."""
    gaps = column
    if kinds.is_dictionary(column.type) or kinds.is_string(column.type):
        # Each distinct text is hashed once only.
        encoded = column if kinds.is_dictionary(column.type) else pc.dictionary_encode(column)
        texts = encoded.dictionary.to_numpy(zero_copy_only=False)
        of_texts: Hashes = pd.util.hash_array(texts, categorize=False)
        gaps = encoded.indices
        indices = gaps.fill_null(0).to_numpy(zero_copy_only=False)
        bits = of_texts[indices] if len(texts) else np.zeros(len(column), np.uint64)
    elif kinds.is_boolean(column.type):
        bits = column.fill_null(False).cast(pa.uint8()).to_numpy().astype(np.uint64)
    else:
        filled = column.fill_null(pa.scalar(0).cast(column.type)) if column.null_count else column
        bits = filled.view(pa.uint64()).to_numpy()
    if column.null_count == 0:
        return bits
    return np.where(gaps.is_null().to_numpy(zero_copy_only=False), GAP, bits)


Counts = np.ndarray[tuple[int], np.dtype[np.int64]]
LARGEST = np.uint64(2**64 - 1)
BUCKETS = 2**14


@dataclass(slots=True)
class Sketch:
    """The rows with the smallest hashes so far, and sums of the hashes of all rows.

    The column `apart` is kept with the rows, but is not part of their hash.
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
        """Return an empty sketch for rows that may have to be discarded."""
        return Sketch(self.size, self.seed, self.apart, limit=self.limit)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        hashed = [name for name in batch.schema.names if name != self.apart]
        content = hash_rows(batch.select(hashed))
        self.rows += len(batch)
        self._sum(int(content.sum(dtype=np.uint64)), int(mix(content, 0).sum(dtype=np.uint64)))
        bucket = (content % np.uint64(BUCKETS)).astype(np.int64)
        self.buckets += np.bincount(bucket, minlength=BUCKETS)
        hashes = mix(content, 1 + self.seed)
        near = np.flatnonzero(hashes <= self.limit)
        distinct, first, counts = np.unique(hashes[near], return_index=True, return_counts=True)
        if len(distinct):
            # Each batch has its own dictionaries, which cannot be concatenated.
            kept = [decode(column.take(near[first])) for column in batch.columns]
            rows = pa.Table.from_arrays(kept, batch.schema.names)
            self._keep(distinct, counts.astype(np.int64), rows)

    def merge(self, part: "Sketch") -> None:
        """Add all rows of a part."""
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
        """Count the rows that repeat another. It is an estimate if not all hashes were kept."""
        self._compact()
        counts = self.pending[0][1]
        return round(self.rows * (1 - len(counts) / int(counts.sum())))

    def crowding(self) -> float:
        """Return a lower estimate of the share of rows that are underrepresented in the sample.

        Hashes spread rows evenly over buckets, unless many rows are the same.
        """
        self._compact()
        if self.pending[0][1].sum() == self.rows:
            return 0.0
        usual = 2 * int(np.median(self.buckets)) + 50
        return float((self.buckets - usual).clip(min=0).sum() / self.rows)

    def digest(self) -> str:
        """Return a digest of the rows that depends neither on their order nor on the seed."""
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
