"""Plots of the measurements, as the page shows them."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.verdict.sections import PAPER, openness_of

VERDICTS = ("no_change", "drift", "unknowns", "unknowns_and_drift")
BLUE, ORANGE, GREY, GREEN = "#2563eb", "#ea580c", "#9ca3af", "#059669"


def plot_table(frame: pd.DataFrame, path: Path) -> None:
    means = frame.groupby(["data", "hidden"], sort=False).mean(numeric_only=True)
    labels = [f"{name}\n{openness_of(name, hidden):.1f} %" for name, hidden in means.index]
    figure, axes = plt.subplots(figsize=(10, 4))
    x = np.arange(len(means))
    columns = ("pre", "paper_fixed", "monitor", "ceiling")
    names = ("pre-rectified", "paper mode, ratio 0.2", "monitor", "ceiling")
    for i, (column, name, colour) in enumerate(
        zip(columns, names, (GREY, ORANGE, BLUE, GREEN), strict=True)
    ):
        axes.bar(x + (i - 1.5) * 0.2, means[column], 0.19, label=name, color=colour)
    published = [
        row[2] for name, hidden in means.index for row in PAPER[name][1] if row[0] == hidden
    ]
    axes.plot(x, published, "k_", markersize=26, label="paper's RTSCV")
    axes.set(xticks=x, xticklabels=labels, ylim=(20, 101), ylabel="macro F, %")
    axes.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    _finish(figure, axes, path)


def plot_power(frame: pd.DataFrame, path: Path) -> None:
    names = frame["data"].unique()
    figure, axes = plt.subplots(1, len(names), figsize=(10, 3.4), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        group = frame[frame["data"] == name]
        sizes = sorted(group["n_window"].unique())
        for size, colour in zip(sizes, (GREY, BLUE, GREEN), strict=False):
            power = group[group["n_window"] == size].groupby("rate")["p_value"]
            values = power.apply(lambda p: (p < 0.01).mean())
            axis.plot(100 * values.index, values, "o-", color=colour, label=f"{size} rows")
        axis.set(title=name, xscale="log", xlabel="unknowns in the window, %", ylim=(-0.03, 1.03))
        axis.set_xticks([1, 2, 5, 10, 20], labels=["1", "2", "5", "10", "20"])
        axis.axhline(0.01, color=GREY, linewidth=0.7)
    axes[0][0].set_ylabel("windows found, alpha .01")
    axes[0][-1].legend(frameon=False)
    _finish(figure, axes[0], path)


def plot_verdicts(frame: pd.DataFrame, path: Path) -> None:
    label = frame["change"] + np.where(frame["rate"] > 0, " + new class", "")
    shares = pd.crosstab(label, frame["verdict"], normalize="index").reindex(
        index=label.unique(), columns=VERDICTS, fill_value=0
    )
    figure, axis = plt.subplots(figsize=(9.5, 4.2))
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(shares.to_numpy()):
        colour = "white" if share > 0.6 else "black"
        axis.text(column, row, f"{100 * share:.0f} %", ha="center", va="center", color=colour)
    axis.set_xticks(range(len(VERDICTS)), labels=VERDICTS)
    axis.set_yticks(range(len(shares)), labels=shares.index)
    axis.set_title("what was said about what the window held")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_cost(frame: pd.DataFrame, path: Path) -> None:
    growing = frame[frame["data"] == "gaussians"]
    figure, axes = plt.subplots(figsize=(8.5, 4))
    for learner, group in growing.groupby("learner", sort=False):
        passes = (group["whole"] / (group["fit"] + group["predict"])).groupby(group["n_training"])
        axes.plot(passes.min().index, passes.min(), "o-", label=str(learner))
    axes.axhline(2.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="training rows")
    axes.set_ylabel("cost; plain fit and one prediction = 1")
    sizes = sorted(growing["n_training"].unique())
    axes.set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
    axes.set_yticks([1, 2, 3, 5, 10], labels=["1", "2", "3", "5", "10"])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    _finish(figure, axes, path)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    for axis in np.atleast_1d(axes):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


PLOTS = {
    "table": plot_table,
    "power": plot_power,
    "verdicts": plot_verdicts,
    "cost": plot_cost,
}
