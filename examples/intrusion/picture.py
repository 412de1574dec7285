"""The fortnight in one picture: how much was new each day, and which attacks were found.

Knows judged days and counted types.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.intrusion.story import BASELINE_DAYS, Story
from examples.intrusion.traffic import N_DAYS

TRUTH, FOUND, UNCLAIMED, INK, PALE = "#9db4c8", "#e4572e", "#8a8f94", "#22313f", "#eef1f4"


def draw_fortnight(story: Story, types: pd.DataFrame, path: Path) -> Path:
    """Draw the days on the left and the new attacks on the right."""
    figure = Figure(figsize=(12, 5.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    _draw_days(left, story)
    _draw_types(right, types)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _draw_days(axes: Axes, story: Story) -> None:
    numbers = np.array([one.day.number for one in story.judged])
    truth = np.array([one.figures["unknown_rate"] for one in story.judged])
    axes.axvspan(0.5, BASELINE_DAYS + 0.5, color=PALE)
    axes.bar(numbers, 100 * truth, color=TRUTH, label="truth: share of new attacks")
    _draw_estimates(axes, story, detected=True)
    _draw_estimates(axes, story, detected=False)
    null = "training data" if story.monitor.baseline is None else f"days 1 to {BASELINE_DAYS}"
    axes.annotate("compared with\ntraining data", (0.6, 143), va="top", fontsize=9)
    axes.annotate(f"compared with\n{null}", (BASELINE_DAYS + 0.6, 143), va="top", fontsize=9)
    axes.set(xlim=(0.5, N_DAYS + 0.5), ylim=(0, 145), xticks=numbers, yticks=range(0, 101, 20))
    axes.set(xlabel="day", ylabel="% of the rows")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    _finish(axes, "How much of the traffic is new")


def _draw_estimates(axes: Axes, story: Story, *, detected: bool) -> None:
    """Draw what was estimated on days with a finding, or how much may be missed on the others."""
    days = [one for one in story.judged if one.facts.detected == detected]
    if not days:
        return
    rate = np.array([one.facts.unknown_rate or 0.0 for one in days])
    limits = np.array([one.facts.unknown_rate_interval or (0.0, 0.0) for one in days])
    axes.errorbar(
        [one.day.number for one in days],
        100 * rate,
        100 * np.abs(limits.T - rate),
        fmt="o",
        color=FOUND if detected else UNCLAIMED,
        capsize=3,
        markersize=5,
        linewidth=1.2,
        clip_on=False,
        label="something new is claimed: estimate, 95 %" if detected else "nothing is claimed",
    )


def _draw_types(axes: Axes, types: pd.DataFrame) -> None:
    places = np.arange(len(types))[::-1]
    rows, found = (types[name].astype(int).to_numpy() for name in ("rows", "found"))
    axes.barh(places, np.full(len(types), 100), color=PALE)
    axes.barh(places, 100 * found / rows, color=FOUND)
    for place, of_type, count in zip(places, rows, found, strict=True):
        axes.annotate(f"{count:,} of {of_type:,}", (101, place), va="center", fontsize=8)
    axes.set_yticks(places, types.index, fontsize=9)
    axes.set(xlim=(0, 122), xticks=range(0, 101, 25), xlabel="% of its rows found")
    _finish(axes, "Which new attacks were found")


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
