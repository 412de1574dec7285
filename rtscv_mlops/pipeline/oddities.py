"""What is odd about a window but does not stop it: said in one sentence each.

Knows rows and shares; decides nothing.
"""

from collections.abc import Iterator

import numpy as np

from rtscv_mlops.assess import Known
from rtscv_mlops.rectify import RTSCVClassifier
from rtscv_mlops.rectify.copies import fingerprints
from rtscv_mlops.window import Window

MANY_COPIES = 0.05
KNOWN_ALREADY = 0.5
NOTHING_KNOWN = 0.95


def find_oddities(
    window: Window, known: Known, unknown_rate: float, model: RTSCVClassifier
) -> Iterator[str]:
    """Yield a sentence for each thing that a person should know beside the verdict."""
    yield from _copies(window)
    yield from _training_again(window, known)
    if unknown_rate > NOTHING_KNOWN:
        yield (
            f"Nearly all of this window ({unknown_rate:.0%}) looks unknown: no known rows. "
            "See whether the source is the one that this model serves."
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


def _copies(window: Window) -> Iterator[str]:
    if window.copies > MANY_COPIES * window.rows:
        yield (
            f"{window.copies} of {window.rows} rows ({window.copies / window.rows:.0%}) repeat "
            "another row of the window. Each was judged once."
        )


def _training_again(window: Window, known: Known) -> Iterator[str]:
    try:
        seen = fingerprints(known.features.astype(window.sample.dtypes.to_dict()))
    except (TypeError, ValueError):
        return  # Values that the window's types cannot hold are not in the window.
    share = float(np.mean(np.isin(fingerprints(window.sample), seen)))
    if share > KNOWN_ALREADY:
        yield (
            f"{share:.0%} of the rows are rows of the training data. A window of old rows shows "
            "nothing about new ones: see whether the source is deployment data."
        )
