"""Photographs of CIFAR-10 and house numbers of SVHN, dealt out to a champion and to its windows.

`RTSCV_DATA_DIR` names the folder that holds both, as in docs/estimator.md. Without it OpenML is
asked, which has both sets in full, as tables of 3 072 pixels: some gigabytes, once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml

from benchmarks.paper.images import load_images, load_known
from examples.stories import Champion, Window, make_window
from rtscv_mlops import InputError

SIDE = 32
TAUGHT, HELD_OUT, WINDOW = 6_000, 1_000, 1_000
"""Photographs: to teach, to compare champion and challenger on, and in each window."""
SHARE = 0.15
"""House numbers in a window that has some."""
LAMP = 0.7
"""On drift days photographs come with this part of their light."""
HOUSE_NUMBER = "house number"

FEWER_ROWS = """\
drift:
  max_rows: 500  # 3 072 columns are compared, one pixel each
"""


@dataclass(frozen=True, slots=True)
class Images:
    """Photographs with their classes, and house numbers; float32 in [0, 1], channels first."""

    photographs: NDArray[Any]
    classes: NDArray[Any]
    house_numbers: NDArray[Any]


def load() -> Images:
    """Return both sets in a random order, from a folder or from OpenML."""
    try:
        known, house_numbers = load_known("CIFAR-10"), load_images("SVHN")
    except InputError as absent:
        return _fetch(absent)
    photographs = np.concatenate([known.X, known.later])
    classes = np.concatenate([known.y, known.truth])
    order = np.random.default_rng(0).permutation(len(classes))
    return Images(photographs[order], classes[order], house_numbers)


def _fetch(absent: InputError) -> Images:
    try:
        photographs, classes = fetch_openml(
            "CIFAR_10", version=1, return_X_y=True, as_frame=False, parser="auto"
        )
        house_numbers, _ = fetch_openml(
            "SVHN", version=1, return_X_y=True, as_frame=False, parser="auto"
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{absent} OpenML has both sets, but did not answer ({error}).") from error
    rng = np.random.default_rng(0)
    some = rng.permutation(len(classes))[:20_000]
    others = rng.permutation(len(house_numbers))[:5_000]
    return Images(
        as_images(photographs[some]),
        classes[some].astype(np.int64),
        as_images(house_numbers[others]),
    )


def as_images(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return rows of pixels as images, whether their channels come first or last.

    Which of the two it is shows in the pixels: neighbours are alike.
    """
    first = pixels.reshape(-1, 3, SIDE, SIDE)
    last = pixels.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2)
    images = min(first, last, key=lambda read: np.abs(np.diff(read[:200].astype(float))).mean())
    return np.ascontiguousarray(images, dtype=np.float32) / 255


def make_champion(images: Images, network: Any, taught: int, held_out: int) -> Champion:
    """Teach a network the first photographs; the next ones are held out."""
    X, y = images.photographs, images.classes
    network.fit(X[:taught], y[:taught])
    end = taught + held_out
    return Champion(
        "photographs",
        network,
        X[:taught],
        y[:taught],
        holdout=(X[taught:end], y[taught:end]),
        allow_pickle=True,
        settings=FEWER_ROWS,
    )


def make_windows(images: Images, champion: Champion, size: int) -> Iterator[Window]:
    """Make four windows of images that were never taught: as they are, dimmed, with others."""
    assert champion.holdout is not None
    start = len(champion.y) + len(champion.holdout[1])
    stories = {
        "photographs": (False, 0.0, "no_change"),
        "dimmed photographs": (True, 0.0, "drift"),
        "photographs + house numbers": (False, SHARE, "unknowns"),
        "dimmed, + house numbers": (True, SHARE, "unknowns_and_drift"),
    }
    for number, (story, (is_dim, share, expected)) in enumerate(stories.items()):
        n_new = round(share * size)
        known = slice(start + number * size, start + (number + 1) * size - n_new)
        new = slice(number * size, number * size + n_new)
        rows = np.concatenate([images.photographs[known], images.house_numbers[new]])
        labels = images.classes[known].astype(str)
        rows = rows * np.float32(LAMP if is_dim else 1)
        yield make_window(
            number,
            story,
            expected,
            as_table(rows),
            np.concatenate([labels, np.full(n_new, HOUSE_NUMBER)]),
            np.arange(len(rows)) >= len(labels),
            champion.model.predict(rows),
        )


def as_table(images: NDArray[Any]) -> pd.DataFrame:
    """Return images as rows of pixels, with the names that `log_champion` gives to an array."""
    flat = images.reshape(len(images), -1)
    return pd.DataFrame(flat, columns=[f"f{place}" for place in range(flat.shape[1])])
