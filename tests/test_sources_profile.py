"""All rows of a window in few numbers: what is made of the counts is spread as the rows are."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.report.drift import compare_columns
from rtscv_mlops.sources.profile import MAX_TEXTS, Profile
from rtscv_mlops.window import Column

ROWS = 5_000
LAWS = {
    "normal": lambda rng, n: rng.normal(3, 2, n),
    "skewed": lambda rng, n: rng.lognormal(0, 2, n),
    "far tails": lambda rng, n: rng.standard_t(2, n),
    "two hills": lambda rng, n: np.where(rng.random(n) < 0.3, -8.0, 8.0) + rng.normal(size=n),
    "counts": lambda rng, n: rng.poisson(4, n).astype(float),
    "mostly nothing": lambda rng, n: np.where(rng.random(n) < 0.97, 0.0, rng.exponential(9, n)),
    "tiny unit": lambda rng, n: 1e-9 * rng.random(n),
    "far from zero": lambda rng, n: 1e9 + rng.normal(size=n),
}
ENDLESS = {"far tails"}
"""One value decides where bars stand, and so what measures that count in bars say."""


def batch(frame: pd.DataFrame) -> pa.RecordBatch:
    slots = frame.rename(columns=lambda name: f"feature:{name}")
    return pa.RecordBatch.from_pandas(slots, preserve_index=False)


def condensed(window: pd.DataFrame, known: pd.DataFrame, columns: list[Column]) -> pd.DataFrame:
    """A window that is read in pieces, condensed."""
    profile = Profile.on(known, columns)
    for start in range(0, len(window), 7_000):
        part = profile.part()
        part.add(batch(window.iloc[start : start + 7_000]))
        profile.merge(part)
    return profile.condense(window.head(ROWS), ROWS)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("method", ["wasserstein", "jensenshannon", "psi"])
def test_distances_are_those_of_all_rows(law, method):
    """Moved a little or much, a column has the distance and verdict that all rows give it."""
    rng = np.random.default_rng(5)
    known = pd.DataFrame({"x": LAWS[law](rng, 30_000)})
    every = DriftSettings(num_method=method, max_rows=10**6)
    few = DriftSettings(num_method=method)
    spread = known["x"].std()
    for shift in (0.0, 0.05, 0.3, 40.0):
        window = pd.DataFrame({"x": LAWS[law](rng, 60_000) + shift * spread})

        (exact,) = compare_columns(window, known, every).columns
        served = condensed(window, known, [Column("x", "float")])
        taught = Profile.on(known, [Column("x", "float")]).condense_rows(known, ROWS)
        (ours,) = compare_columns(served, taught, few).columns

        if method == "wasserstein":
            assert ours.score == pytest.approx(exact.score, rel=0.02, abs=0.003)
        # Evidently's bars end at the outermost value, and there are more of them for more rows.
        if law not in ENDLESS and abs(exact.score - exact.threshold) > 0.03:
            assert ours.drifted == exact.drifted


def test_words_and_truths_keep_their_shares():
    """Categories are counted exactly, and gaps keep their share."""
    rng = np.random.default_rng(0)
    words = pd.Series(rng.choice(["a", "b", "c"], 50_000, p=[0.7, 0.29, 0.01]), dtype=object)
    words[rng.random(50_000) < 0.2] = None
    window = pd.DataFrame({"word": words, "truth": rng.random(50_000) < 0.25})
    columns = [Column("word", "text"), Column("truth", "boolean")]

    table = condensed(window, window.head(100), columns)

    assert len(table) == ROWS
    for name in ("word", "truth"):
        whole = window[name].astype(str).str.lower().value_counts(normalize=True)
        drawn = table[name].astype(str).str.lower().value_counts(normalize=True)
        assert drawn.to_dict() == pytest.approx(whole.to_dict(), abs=2e-4)


def test_free_text_is_left_to_the_sample():
    """A column of too many words is not counted, whichever part of the rows has them."""
    window = pd.DataFrame({"text": [f"word {number}" for number in range(MAX_TEXTS + 5_000)]})

    table = condensed(window, window.head(10), [Column("text", "text")])

    assert table["text"].tolist() == window["text"].head(ROWS).tolist()


def test_grades_stay_what_they_are():
    """Whole numbers are not blurred, and none is made up."""
    rng = np.random.default_rng(0)
    known = pd.DataFrame({"grade": rng.integers(1, 7, 20_000)})
    window = pd.DataFrame({"grade": np.append(rng.integers(1, 7, 40_000), [-3, 900])})

    table = condensed(window, known, [Column("grade", "integer")])

    assert set(table["grade"]) - {-3, 900} == {1, 2, 3, 4, 5, 6}
    assert table["grade"].value_counts(normalize=True)[3] == pytest.approx(1 / 6, abs=0.01)


def test_a_column_without_spread_is_counted_too():
    """Of one value in the training data, the share that differs is kept."""
    known = pd.DataFrame({"x": np.full(500, 7.25)})
    window = pd.DataFrame({"x": np.where(np.arange(40_000) % 10 == 0, 7.5, 7.25)})

    table = condensed(window, known, [Column("x", "float")])

    assert (table["x"] == 7.25).mean() == pytest.approx(0.9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    values=some.lists(
        some.floats(allow_nan=False, allow_infinity=False) | some.none(), min_size=1, max_size=200
    ),
    cut=some.integers(0, 200),
    shuffle=some.randoms(use_true_random=False),
)
def test_order_and_cuts_do_not_matter(values, cut, shuffle):
    """Any order of the same numbers, however large, cut in any way, gives the same table."""
    known = pd.DataFrame({"x": [-1.0, 0.0, 0.5, 4.0]})
    columns = [Column("x", "float")]
    shuffled = list(values)
    shuffle.shuffle(shuffled)
    tables = []
    for pieces in ([values], [shuffled[:cut], shuffled[cut:]]):
        profile = Profile.on(known, columns)
        for piece in pieces:
            part = profile.part()
            part.add(pa.record_batch({"feature:x": pa.array(piece, pa.float64())}))
            profile.merge(part)
        tables.append(profile.condense(pd.DataFrame({"x": values}), 50))

    pd.testing.assert_frame_equal(*tables)
    held = [value for value in values if value is not None]
    drawn = tables[0]["x"].dropna()
    assert drawn.between(min(held, default=0), max(held, default=0)).all()
