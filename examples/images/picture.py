"""The picture of the story of images: which images were flagged, and which were not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.stories import Judged
from rtscv_mlops import Monitor, read_answers

INK, KNOWN, NEW = "#22313f", "#9db4c8", "#e4572e"
SHOWN = 8
"""Images in a row."""


def draw_story(monitor: Monitor, judged: Sequence[Judged], path: Path) -> Path:
    """Draw scores by truth, and images by what became of them, for the last window with finds."""
    found = [one for one in judged if one.facts.unknowns and one.window.is_new.any()]
    shown = next((one for one in found if not one.window.story.startswith("dimmed")), None)
    one = shown or (found or list(judged))[-1]
    marks = read_marks(monitor, one)
    figure = Figure(figsize=(12, 4.4), dpi=100, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.25])
    _draw_scores(left.subplots(), marks)
    _draw_images(right, marks, one)
    figure.suptitle(f"Window: {one.window.story}", color=INK, x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def read_marks(monitor: Monitor, one: Judged) -> pd.DataFrame:
    """Return score, mark and truth of each row of a window, in the order of its rows."""
    answers = read_answers(monitor, one.window.interval)
    return answers.loc[one.window.rows["row"]].assign(is_new=one.window.is_new)


def _draw_scores(axes: Axes, marks: pd.DataFrame) -> None:
    by_truth = [marks.loc[marks["is_new"] == truth, "unknown_score"] for truth in (False, True)]
    axes.hist(
        by_truth,
        np.linspace(0, 1, 41),
        stacked=True,
        color=[KNOWN, NEW],
        label=["photographs", "house numbers"],
    )
    axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.2)
    axes.set(xlim=(0, 1), xlabel="score: how unknown a row looks", ylabel="images")
    axes.set_title("Flagged are those right of the dotted line", loc="left", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def _draw_images(figure: Any, marks: pd.DataFrame, one: Judged) -> None:
    """Draw a row of images for each thing that can become of one."""
    flagged, is_new = (marks[name].to_numpy() for name in ("is_unknown", "is_new"))
    kinds = {
        "house numbers,\nflagged": flagged & is_new,
        "house numbers,\nmissed": ~flagged & is_new,
        "photographs,\nflagged": flagged & ~is_new,
        "photographs,\nnot flagged": ~flagged & ~is_new,
    }
    images = _as_images(one)
    grid = figure.subplots(len(kinds), SHOWN)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for row, (kind, chosen) in zip(grid, kinds.items(), strict=True):
        label = f"{kind}\n({chosen.sum()})"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=INK)
        for axes, image in zip(row, images[chosen], strict=False):
            axes.imshow(image, interpolation="nearest")


def _as_images(one: Judged) -> NDArray[Any]:
    pixels = one.window.rows.filter(regex=r"^f\d+$").to_numpy()
    side = round((pixels.shape[1] / 3) ** 0.5)
    return np.clip(pixels.reshape(-1, 3, side, side).transpose(0, 2, 3, 1), 0, 1)
