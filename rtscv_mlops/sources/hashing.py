"""A number for each row, from its content: equal rows have the same, in every batch and run.

Knows Arrow batches in the types that readers make; knows nothing of what the numbers are for.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

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
