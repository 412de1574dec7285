"""The picture of the gas story: how champions age, and what was said of each window.

Knows judged windows; knows nothing of sensors or pipelines.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from examples.gas_drift.data import Chapter
from examples.stories import Judged

Told = Sequence[tuple[Chapter, Sequence[Judged]]]

INK, PALE, TRUTH, RIGHT, WRONG = "#22313f", "#9db4c8", "#e4572e", "#2a7f62", "#b23a48"
HUES = ("#1f5f8b", "#7a5195", "#c98a1b")


def draw_story(told: Told, path: Path) -> Path:
    """Draw the champions' accuracy over time, and the estimate for each window beside the truth."""
    figure = Figure(figsize=(12, 7), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.5])
    _draw_accuracy(left, told)
    _draw_estimates(right, told)
    figure.legend(handles=_legend(), frameon=False, loc="outside lower center", ncols=4, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _draw_accuracy(axes: Axes, told: Told) -> None:
    """Draw one line per champion, over the windows that hold nothing new."""
    lines = {
        chapter.title: _accuracy_by_period(chapter.taught, judged)
        for chapter, judged in told
        if chapter.baseline is None  # with one, the champion is the same
    }
    periods = list(next(iter(lines.values())))
    for hue, (title, accuracy) in zip(HUES, lines.items(), strict=False):
        places = [periods.index(name) for name in accuracy]
        axes.plot(places, list(accuracy.values()), "o-", color=hue, label=title)
    axes.set_xticks(range(len(periods)), [name.replace(" ", "\n") for name in periods])
    axes.set(ylim=(0, 103), ylabel="right answers on known gases, %")
    _title(axes, "The sensors age")
    axes.legend(frameon=False, loc="lower left", fontsize=9)


def _accuracy_by_period(taught: str, judged: Sequence[Judged]) -> dict[str, float]:
    clean = [one.window for one in judged if not one.window.is_new.any()]
    return {taught if one.story == "held out" else one.story: 100 * one.accuracy for one in clean}


def _draw_estimates(axes: Axes, told: Told) -> None:
    """Draw the interval of each window's share of unknowns, the truth, and the verdict."""
    place, ticks = 0.0, {}
    for chapter, judged in told:
        axes.text(0, place, chapter.title, color=INK, fontweight="bold", va="center")
        for one in judged:
            place += 1
            ticks[place] = one.window.story
            _draw_window(axes, place, one)
        place += 1.4
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=9)
    axes.set(xlim=(-1, 140), ylim=(place - 0.8, -0.8), xlabel="share of the window, %")
    axes.set_xticks(range(0, 101, 20))
    _title(axes, "What was said of each window")


def _draw_window(axes: Axes, place: float, one: Judged) -> None:
    low, high = (100 * limit for limit in one.facts.unknown_rate_interval or (0, 0))
    axes.plot([low, high], [place, place], color=INK if one.facts.detected else PALE, linewidth=3)
    if one.facts.detected:
        axes.plot(100 * (one.facts.unknown_rate or 0), place, "o", color=INK)
    axes.plot(100 * one.window.true_share, place, "|", color=TRUTH, markersize=12, mew=2.5)
    hue = RIGHT if one.is_right else WRONG
    axes.text(104, place, one.facts.verdict, color=hue, va="center", fontsize=9)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", color=INK, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=INK, marker="o", linewidth=3, label="found: estimate and interval"),
        Line2D([], [], color=PALE, linewidth=3, label="nothing claimed; so much may be there"),
        Line2D([], [], color=TRUTH, ls="", marker="|", markersize=12, mew=2.5, label="truth"),
        Line2D([], [], color=RIGHT, ls="", marker="s", label="verdict right (red: wrong)"),
    ]
