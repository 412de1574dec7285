"""What is odd about a window but does not stop it: said in one sentence each.

Knows rows and shares; decides nothing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtscv_mlops.assess import Known
from rtscv_mlops.rectify import RTSCVClassifier
from rtscv_mlops.rectify.copies import find_distinct, fingerprints
from rtscv_mlops.window import Window

MANY_COPIES = 0.05
KNOWN_ALREADY = 0.5
NOTHING_KNOWN = 0.8


def find_oddities(
    window: Window, known: Known, unknown_rate: float, model: RTSCVClassifier
) -> Iterator[str]:
    """Yield a sentence for each thing that a person should know beside the verdict."""
    taught = _fingerprints(known, window)
    yield from _copies(window, taught)
    yield from _training_again(window, taught)
    # Also where the verdict is drift: a window without known rows looks as if all of them moved.
    if max(unknown_rate, float(np.mean(model.window_scores_ > 0.5))) > NOTHING_KNOWN:
        yield (
            "Hardly any row of this window looks like a known one. See whether the source is the "
            "one that this model serves."
        )
    if model.assessment_ and model.assessment_.detected and not len(model.unknown_indices_):
        yield (
            "The window as a whole shows something new, but no single row could be told apart, "
            "so there is no challenger. A longer window would show the rows."
        )


def volume_jump(rows: int, usual: list[int]) -> Iterator[str]:
    """Yield a sentence if a window is far larger or smaller than those before it."""
    if len(usual) < 3:
        return
    median = float(np.median(usual))
    if rows > 10 * median or rows * 10 < median:
        yield (
            f"This window has {rows} rows; the windows before it had {median:.0f} in the middle. "
            "See whether the source repeats itself or lost something."
        )


def _copies(window: Window, taught: NDArray[Any]) -> Iterator[str]:
    if window.copies > MANY_COPIES * window.rows:
        yield (
            f"{window.copies} of {window.rows} rows ({window.copies / window.rows:.0%}) repeat "
            "another row of the window. Each was judged once."
        )
        return
    distinct = find_distinct(fingerprints(window.sample), taught)
    share = 1 - len(distinct) / len(window.sample)
    if share > MANY_COPIES:
        yield (
            f"{share:.0%} of the rows looked at differ from another one in nothing but their time. "
            "Each was judged once."
        )


def _training_again(window: Window, taught: NDArray[Any]) -> Iterator[str]:
    share = float(np.mean(np.isin(fingerprints(window.sample), taught)))
    if share > KNOWN_ALREADY:
        yield (
            f"{share:.0%} of the rows are rows of the training data. A window of old rows shows "
            "nothing about new ones: see whether the source is deployment data."
        )


def _fingerprints(known: Known, window: Window) -> NDArray[Any]:
    """Return the fingerprints of the training rows, written in the window's types."""
    try:
        return fingerprints(known.features.astype(window.sample.dtypes.to_dict()))
    except (TypeError, ValueError):
        # Values that the window's types cannot hold are not in the window.
        return fingerprints(known.features)
