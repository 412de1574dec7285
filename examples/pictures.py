"""The demo's picture: how unknown later rows look, and what was extracted from the window.

Knows a fitted model and images; the story around them is the quickstart's.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

KNOWN, HIDDEN, INK = "#9db4c8", "#e4572e", "#22313f"


def draw_unknowns(model: Any, window: Any, later: Any, path: Path) -> Path:
    """Draw the scores of later rows, and the medoids of each candidate class in the window.

    Both hold images `X` and the truth `is_hidden`. The scores are those of later rows because the
    rows of the window took part in the fit, which makes them look a little less known.
    """
    figure = Figure(figsize=(11, 4.6), dpi=130, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    _draw_scores(left.subplots(), model, later)
    _draw_candidates(right, model, window)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _draw_scores(axes: Axes, model: Any, later: Any) -> None:
    scores = model.unknown_score(later.X)
    axes.hist(
        [scores[~later.is_hidden], scores[later.is_hidden]],
        np.linspace(0, 1, 41),
        stacked=True,
        color=[KNOWN, HIDDEN],
        label=["known digits", "hidden digits"],
    )
    axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.2)
    axes.annotate(
        "where extraction began",
        (0.5, 0.72),
        (5, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=INK,
        fontsize=9,
    )
    axes.set(xlim=(0, 1), xlabel="unknown_score", ylabel="rows that came later")
    axes.set_title(
        "How unknown each row looks, coloured by the truth",
        loc="left",
        color=INK,
        fontweight="bold",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def _draw_candidates(figure: Any, model: Any, window: Any) -> None:
    clusters = model.clusters_
    figure.suptitle(
        "Most typical rows of each candidate class", color=INK, fontweight="bold", fontsize=12
    )
    n_columns = max(len(cluster.medoids) for cluster in clusters)
    grid = figure.subplots(len(clusters), n_columns, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for number, (row, cluster) in enumerate(zip(grid, clusters, strict=True), start=1):
        quality = "" if np.isnan(cluster.quality) else f"\nquality {cluster.quality:.2f}"
        row[0].set_ylabel(
            f"candidate {number}\n{cluster.size} rows{quality}",
            rotation=0,
            ha="right",
            va="center",
            fontsize=9,
            color=INK,
        )
        for axes, index in zip(row, cluster.medoids, strict=False):
            axes.imshow(window.X[index].reshape(8, 8), cmap="gray_r")
