"""The report's two main pictures as files, for pages that show pictures but no reports.

Knows facts and evidence; draws with matplotlib, without a display.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rtscv_mlops.facts import Evidence, WindowFacts
from rtscv_mlops.text import caption

KNOWN, WINDOW, UNKNOWN = "#8a94a6", "#3b7ddd", "#c2185b"
MOST_CLASSES = 12
"""More classes than this share one colour: a legend of a hundred names helps nobody."""


def draw_plots(facts: WindowFacts, evidence: Evidence, folder: Path) -> list[Path]:
    """Draw the scores and the projection; return the files."""
    drawn = {"scores.png": _draw_scores, "projection.png": _draw_projection}
    files = []
    for name, draw in drawn.items():
        figure = Figure(figsize=(7, 4.5))
        # A layout engine would draw everything twice to find the same margins.
        figure.subplots_adjust(left=0.1, right=0.82, bottom=0.12, top=0.92)
        axes = figure.add_subplot()
        axes.set_title(
            caption(facts.headline, 200), fontsize=10, loc="left", wrap=True, parse_math=False
        )
        draw(axes, evidence)
        # Without a fixed creator the file would change from version to version of matplotlib.
        figure.savefig(folder / name, dpi=110, metadata={"Software": None})
        files.append(folder / name)
    return files


def _draw_scores(axes: Axes, evidence: Evidence) -> None:
    bins = np.linspace(0, 1, 41).tolist()
    sides = (
        (evidence.known_scores, KNOWN, "known rows, held out"),
        (evidence.window_scores, WINDOW, "this window"),
    )
    for scores, colour, name in sides:
        if len(scores):
            weights = np.full(len(scores), 1 / len(scores))
            axes.hist(scores, bins, weights=weights, color=colour, alpha=0.6, label=name)
    axes.axvline(0.5, color=UNKNOWN, linestyle="--", label="extraction begins")
    axes.set(xlabel="unknown score", ylabel="share of rows")
    axes.legend(frameon=False)


def _draw_projection(axes: Axes, evidence: Evidence) -> None:
    names = sorted(set(evidence.point_labels.tolist()))
    for number, name in enumerate(names if len(names) <= MOST_CLASSES else []):
        places = evidence.reference_points[evidence.point_labels == name]
        colour = f"C{number % 10}"
        label = caption(name, 20)
        x, y = places.T
        axes.scatter(x, y, s=9, color=colour, alpha=0.5, label=label.replace("$", r"\$"))
    if len(names) > MOST_CLASSES:
        label = f"{len(names)} known classes"
        x, y = evidence.reference_points.T
        axes.scatter(x, y, s=9, color=KNOWN, label=label)
    unknown, (x, y) = evidence.unknown, evidence.window_points.T
    axes.scatter(
        x[~unknown], y[~unknown], s=9, color="black", alpha=0.35, label="window", marker="x"
    )
    axes.scatter(x[unknown], y[unknown], s=18, color=UNKNOWN, label="unknown", marker="D")
    axes.set(xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
