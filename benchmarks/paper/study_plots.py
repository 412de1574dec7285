"""Plots of the studies' records, one picture each."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.paper.boundaries import MODELS, fit_model
from benchmarks.paper.study_texts import METHODS, NAMES, mean_interval, rank_correlation
from examples.boundaries import draw_model

BLUE, ORANGE, GREY, GREEN = "#2563eb", "#ea580c", "#9ca3af", "#059669"
COLOURS = {"csi": GREY, "paper": ORANGE, "monitor": BLUE, "pre": GREY}
DATA_COLOURS = {"letter": BLUE, "pendigits": ORANGE, "coil20": GREEN, "digits": GREY}
DRAWN_PLANES = 2


def draw(records: Iterable[dict[str, Any]], folder: Path) -> None:
    """Draw a picture for each study that has records."""
    frame = pd.DataFrame(list(records))
    folder.mkdir(parents=True, exist_ok=True)
    for study, plot in PLOTS.items():
        of_study = frame[frame["study"] == study].dropna(axis=1, how="all")
        if len(of_study):
            _save(plot(of_study), folder / f"paper-{study.replace('_', '-')}.png")


def plot_csi(frame: pd.DataFrame) -> Figure:
    labels = {
        "one cluster": ("one unknown cluster, far away", "variance of the unknown cluster"),
        "two clusters": ("two unknown clusters, far away", "variance of each unknown cluster"),
        "distance": ("one unknown cluster", "distance to the nearest known class, sd"),
    }
    figure, axes = _panels(3, width=11.5)
    for axis, (panel, (title, label)) in zip(axes, labels.items(), strict=True):
        group = frame[frame["panel"] == panel]
        for method, name in METHODS.items():
            # Larger, so that it can be seen beneath the others where all are equal.
            size = 7 if method == "csi" else 4
            _curve(axis, group, "value", method, COLOURS[method], name, size)
        axis.set(title=title, xlabel=label)
    axes[0].set_ylabel("macro F, %")
    axes[0].legend(frameon=False, loc="lower left")
    return figure


def plot_sample_ratio(frame: pd.DataFrame) -> Figure:
    names = list(frame["data"].unique())
    figure, axes = _panels(len(names), width=11.5)
    for axis, name in zip(axes, names, strict=True):
        group = frame[frame["data"] == name]
        monitor, half = mean_interval(group.loc[group["mode"] == "monitor", "f"])
        axis.axhspan(monitor - half, monitor + half, color=BLUE, alpha=0.12, linewidth=0)
        axis.axhline(monitor, color=BLUE, label=METHODS["monitor"])
        axis.axvspan(0.06, 0.1, color=GREY, alpha=0.25, linewidth=0, label="paper's best ratios")
        curve = group[group["mode"].isin(["pre", "paper"])]
        _curve(axis, curve, "ratio", "f", ORANGE, METHODS["paper"])
        hidden = int(group["hidden"].iloc[0])
        axis.set(title=f"{NAMES[name]}, {hidden} hidden", xlabel="sample rows / training rows")
    axes[0].set_ylabel("macro F, %")
    axes[-1].legend(frameon=False, loc="lower right")
    return figure


def plot_folds(frame: pd.DataFrame) -> Figure:
    figure, (axis,) = _panels(1, width=7.5, height=4)
    paper = frame[frame["mode"] == "paper"]
    ticks = list(paper["folds"].unique())
    paper = paper.assign(place=paper["folds"].map(ticks.index))
    names = list(paper["data"].unique())
    for number, name in enumerate(names):
        group = paper[paper["data"] == name]
        # Side by side: intervals of neighbours would hide each other.
        shifted = group.assign(place=group["place"] + 0.06 * (number - (len(names) - 1) / 2))
        counts = shifted[shifted["folds"] != "holdout"]
        _curve(axis, counts, "place", "f", DATA_COLOURS[name], NAMES[name])
        holdout = shifted[shifted["folds"] == "holdout"]
        _curve(axis, holdout, "place", "f", DATA_COLOURS[name], None)
    axis.set_xticks(range(len(ticks)), labels=ticks)
    axis.set(xlabel="folds", ylabel="macro F, %")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def plot_j1(frame: pd.DataFrame) -> Figure:
    figure, axes = _panels(2, width=10, height=4)
    for axis, varied in zip(axes, ("known", "unknown"), strict=True):
        group = frame[frame["varied"] == varied]
        for mode in ("paper", "monitor"):
            correlation, _, _ = rank_correlation(group["j1"], group[mode])
            label = f"{METHODS[mode]}: Spearman {correlation:.2f}"
            axis.scatter(
                group["j1"], group[mode], s=18, color=COLOURS[mode], alpha=0.6, label=label, lw=0
            )
        axis.set(title=f"J1 of the {varied} class{'es' * (varied == 'known')}", xscale="log")
        axis.set_xlabel("J1")
        axis.legend(frameon=False, loc="lower right")
    axes[0].set_ylabel("macro F, %")
    return figure


def plot_boundaries(frame: pd.DataFrame) -> Figure:
    """Draw the first planes. The models are fitted again: a plane is too large for a record."""
    learners = list(frame["learner"].unique())
    seeds = sorted(frame["seed"].unique())[:DRAWN_PLANES]
    columns = [(int(seed), model) for seed in seeds for model in MODELS]
    figure = Figure(figsize=(2.5 * len(columns), 2.7 * len(learners)), layout="constrained")
    grid = figure.subplots(len(learners), len(columns), squeeze=False)
    scores = frame.set_index(["learner", "model", "seed"])["f"]
    for learner, row in zip(learners, grid, strict=True):
        for axis, (seed, model) in zip(row, columns, strict=True):
            draw_model(axis, *fit_model(learner, model, seed), "")
            axis.set_xlabel(f"macro F {scores[learner, model, seed]:.1f} %")
        row[0].set_ylabel(learner, fontsize=12)
    for axis, (_, model) in zip(grid[0], columns, strict=True):
        axis.set_title(MODELS[model], fontsize=11)
    figure.supxlabel(
        "squares: training rows; triangles: the window, yellow where extracted as unknown; "
        "black: answered with “unknown”",
        fontsize=11,
    )
    return figure


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=105)
    # Few colours suffice, and halve what a reader of the page has to load.
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(128)
    few.save(path, optimize=True)


def _panels(count: int, *, width: float, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, count, sharey=True, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _curve(
    axis: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    colour: str,
    label: str | None,
    size: float = 4,
) -> None:
    """Draw the means and their 95 % intervals over repeats."""
    points = frame.groupby(x)[y].apply(mean_interval)
    means, halves = zip(*points, strict=True)
    axis.errorbar(
        points.index, means, halves, fmt="o-", color=colour, markersize=size, capsize=2, label=label
    )


PLOTS: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "csi": plot_csi,
    "sample_ratio": plot_sample_ratio,
    "folds": plot_folds,
    "j1": plot_j1,
    "boundaries": plot_boundaries,
}
