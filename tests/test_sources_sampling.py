"""The sample is uniform, reproducible and blind to order; shown on streams of known law."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from rtscv_mlops.sources.sample import Sketch


def stream(numbers) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array(numbers, pa.int64())})


def sketched(pieces, size, seed=0) -> Sketch:
    """A sketch of pieces, each merged as a part, as files are."""
    sketch = Sketch(size, seed)
    for piece in pieces:
        part = sketch.part()
        part.add(stream(piece))
        sketch.merge(part)
    return sketch


def cut(numbers, places):
    """Pieces of a list, cut at some places; none is empty."""
    edges = sorted({0, len(numbers), *(place % len(numbers) for place in places)})
    return [numbers[start:end] for start, end in pairwise(edges)]


numbers = some.lists(some.integers(0, 60), min_size=1, max_size=400)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    numbers=numbers,
    places=some.lists(some.integers(0, 400), max_size=6),
    size=some.integers(1, 80),
    seed=some.integers(0, 2**32),
    shuffle=some.randoms(use_true_random=False),
)
def test_order_and_cuts_do_not_matter(numbers, places, size, seed, shuffle):
    """Any order of the same rows, cut in any way, gives the same sample and the same digest."""
    shuffled = list(numbers)
    shuffle.shuffle(shuffled)

    whole, pieces = sketched([numbers], size, seed), sketched(cut(shuffled, places), size, seed)

    pd.testing.assert_frame_equal(whole.sample(), pieces.sample())
    assert (whole.rows, whole.digest(), whole.copies()) == (
        pieces.rows,
        pieces.digest(),
        pieces.copies(),
    )


@settings(max_examples=80, deadline=None, derandomize=True)
@given(numbers=numbers, size=some.integers(1, 500), seed=some.integers(0, 2**32))
def test_the_sample_is_drawn_without_replacement(numbers, size, seed):
    """No row is drawn more often than it is there, and a small window is there whole."""
    sample = sketched([numbers], size, seed).sample()["number"]

    assert len(sample) == min(size, len(numbers))
    surplus = sample.value_counts() - pd.Series(numbers).value_counts().reindex(sample.unique())
    assert surplus.max() <= 0
    if size >= len(numbers):
        assert sorted(sample) == sorted(numbers)
        assert sketched([numbers], size, seed).copies() == len(numbers) - len(set(numbers))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(numbers=numbers, other=numbers)
def test_the_digest_names_the_rows(numbers, other):
    """Two streams have the same digest if and only if they hold the same rows."""
    same = sorted(numbers) == sorted(other)

    assert (sketched([numbers], 9).digest() == sketched([other], 9).digest()) == same


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        (np.arange(200), 30),
        (np.concatenate([np.arange(120), np.repeat([1000, 1001, 1002, 1003], 20)]), 130),
    ],
    ids=["more rows than fit", "copies, and all distinct rows fit"],
)
def test_every_row_is_as_likely_as_any_other(rows, size):
    """Over many seeds each row, copy or not, is drawn equally often."""
    seeds = 800
    values, times = np.unique(rows, return_counts=True)
    drawn = pd.Series(0, index=values)
    for seed in range(seeds):
        counts = sketched([rows], size, seed).sample()["number"].value_counts()
        drawn = drawn.add(counts, fill_value=0)

    expected = seeds * size * times / len(rows)
    # Draws without replacement vary less than the multinomial that this test assumes.
    assert stats.chisquare(drawn.astype(float), expected).pvalue > 0.001


def test_long_streams_keep_little():
    """However long the stream, what is kept is bounded by the sample, and copies are exact."""
    sketch = Sketch(100, 0)
    for start in range(0, 200_000, 5_000):
        sketch.add(stream(np.repeat(np.arange(start, start + 2_500), 2)))
        assert sketch.waiting <= 2 * 100 + 1_000

    assert sketch.rows == 200_000
    assert sketch.copies() == 100_000
    assert len(sketch.sample()) == 100


def test_crowds_are_told():
    """Where one row is half of a stream too long to keep, the sample's fault has a number."""
    crowd, others = np.zeros(50_000, dtype=int), np.arange(1, 50_001)

    assert sketched([np.concatenate([crowd, others])], 1_000).crowding() == pytest.approx(0.5, 0.02)
    assert sketched([np.arange(100_000)], 1_000).crowding() == 0
    assert sketched([np.repeat(np.arange(10_000), 10)], 1_000).crowding() < 0.01
    assert sketched([np.concatenate([crowd, others])], 60_000).crowding() == 0
