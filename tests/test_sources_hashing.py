"""A row's hash is its content: equal rows share it, different rows do not, however they look."""

import numpy as np
import pyarrow as pa
import pytest

from rtscv_mlops.sources.sample import hash_rows

HARD = {
    "whole numbers as floats": np.arange(400_000, dtype=float),
    "powers of two": np.ldexp(1.0, np.arange(-1000, 1000)),
    "neighbours": np.nextafter(1.0, 2.0) + np.arange(400_000) * np.finfo(float).eps,
    "whole numbers": np.arange(400_000),
}


@pytest.mark.parametrize("kind", HARD)
def test_alike_values_have_different_hashes(kind):
    """Values that share most of their bits are told apart, in one column or in several."""
    values = HARD[kind]
    side = int(np.sqrt(len(values)))
    first, second = np.meshgrid(values[:side], values[:side])

    alone = hash_rows(pa.record_batch({"x": values}))
    pairs = hash_rows(pa.record_batch({"x": first.ravel(), "y": second.ravel()}))

    assert len(np.unique(alone)) == len(values)
    assert len(np.unique(pairs)) == side**2
    assert len(np.unique(pairs % 2**14)) > 0.6 * min(side**2, 2**14)


def test_a_dictionary_is_only_a_way_to_write():
    """Words have one hash, named by a dictionary of any order or written out."""
    plain = pa.array(["a", None, "b", "a", ""], pa.string())
    turned = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 1, 2, 0], pa.int32()), pa.array(["", "b", "a"])
    )

    hashes = [hash_rows(pa.record_batch({"x": texts})) for texts in (plain, turned)]

    assert hashes[0].tolist() == hashes[1].tolist()
    assert len(set(hashes[0].tolist())) == 4


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), 0), (pa.float64(), 0.0), (pa.bool_(), False), (pa.string(), "")],
)
def test_a_gap_is_not_nothing(kind, value):
    """A gap has a hash of its own, the same in every batch."""
    mixed, alone = pa.array([value, None], kind), pa.array([None], kind)

    whole, gap = (hash_rows(pa.record_batch({"x": column})) for column in (mixed, alone))

    assert whole[0] != whole[1]
    assert whole[1] == gap[0]


def test_the_place_of_a_value_counts():
    """The same values in other columns are another row."""
    one, other = pa.array([1, 0]), pa.array([0, 1])

    hashes = hash_rows(pa.record_batch({"x": one, "y": other}))

    assert hashes[0] != hashes[1]
