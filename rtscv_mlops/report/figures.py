"""The pictures of a report, and the bars of a column for pictures and tables.

The report's figures are Plotly's. Two of them are drawn again with matplotlib as files, for pages
that show pictures but no reports.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from rtscv_mlops.facts import ClassComparison, ColumnDrift, Comparison, Evidence, WindowFacts
from rtscv_mlops.report.drift import strength
from rtscv_mlops.text import caption, class_rows, multiple, percent

Numbers = NDArray[np.float64]

BINS = 24
MAX_CATEGORIES = 6


def unique(names: list[str]) -> list[str]:
    """Return the names, with a number behind those that occur more than once."""
    total, seen = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if total[name] == 1 else f"{name} ({seen[name]})")
    return numbered


def rounded(values: Iterable[float]) -> list[float]:
    """Return numbers for a chart: four digits are more than a screen shows."""
    return [float(f"{value:.4g}") for value in values]


def shares(values: Numbers, edges: Numbers) -> Numbers:
    """Return the share of the finite values between each two edges."""
    values = values[np.isfinite(values)]
    return np.histogram(values, edges)[0] / max(len(values), 1)


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of a column: where they stand, and their percentages in training data and window."""

    positions: list[Any]
    known: list[float]
    served: list[float]

    @classmethod
    def of_numbers(cls, window: "pd.Series[Any]", reference: "pd.Series[Any]") -> Self:
        """Return bars of width one for counts and grades, else equal ones.

        Equal bars lie between the outer percentiles: one stray value would squeeze all others
        into a single bar.
        """
        sides = []
        for column in (reference, window):
            numbers = pd.to_numeric(column, errors="coerce").to_numpy(float, na_value=np.nan)
            sides.append(numbers[np.isfinite(numbers)])
        values = np.concatenate(sides[::-1])
        low, high = np.percentile(values, [0.5, 99.5])
        if high - low < BINS and np.all(values == np.round(values)):
            edges = np.arange(np.floor(low), np.ceil(high) + 2) - 0.5
        else:
            if high == low:
                low, high = values.min(), values.max()
            edges = np.linspace(low, high, BINS + 1)
        known, served = (
            rounded(100 * shares(np.clip(side, edges[0], edges[-1]), edges)) for side in sides
        )
        return cls(rounded((edges[:-1] + edges[1:]) / 2), known, served)

    @classmethod
    def of_categories(cls, window: "pd.Series[Any]", reference: "pd.Series[Any]") -> Self:
        """Return bars of the commonest values."""
        sides = [
            side.dropna().astype(str).value_counts(normalize=True) for side in (reference, window)
        ]
        top = sides[0].add(sides[1], fill_value=0).nlargest(MAX_CATEGORIES).index
        known, served = (rounded(100 * side.reindex(top, fill_value=0)) for side in sides)
        return cls(unique([caption(name, 10) for name in top]), known, served)


def draw_bars(columns: Iterable[ColumnDrift], evidence: Evidence) -> dict[str, Bars]:
    """Return the bars of each column that the evidence has on both sides."""
    window, reference = (
        {str(name): frame.iloc[:, index] for index, name in enumerate(frame.columns)}
        for frame in (evidence.window, evidence.reference)
    )
    bars = {}
    for column in columns:
        if column.name in window and column.name in reference:
            draw = Bars.of_categories if column.kind == "category" else Bars.of_numbers
            bars[column.name] = draw(window[column.name], reference[column.name])
    return bars


KNOWN, WINDOW, UNKNOWN = "#8793a3", "#1f77c9", "#c2185b"
CHAMPION, CHALLENGER = "#66727f", "#00796b"
CLASS_COLOURS = (
    *("#4e9fb5", "#e0a030", "#62a85c", "#9a86c9", "#a87b5d"),
    *("#b5b53f", "#8f8f8f", "#5f7fc0", "#d68a6a", "#3f9f87"),
)
INK = "#6f7a88"
"""Readable on white and on black: Evidently's page has both."""

GRID = "rgba(128,140,155,.22)"
OTHER_CLASSES = "#c9ced6"
MAX_POINTS = 1_500
MAX_BARS = 15
MAX_HISTOGRAMS = 6
MOST_CLASSES = 12
"""More classes than this share one colour in a picture: a longer legend would not be readable."""

MAX_STRENGTH = 10.0
"""A bar beyond this many thresholds is cut, so that one column does not flatten the others."""


def _laid_out(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 16, "t": 36, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 13, "family": "inherit", "color": INK},
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        hoverlabel={"namelength": -1},
        **layout,
    )
    # Invisible ticks keep the numbers off the axis.
    axes = {"gridcolor": GRID, "zeroline": False, "automargin": True, "title_standoff": 8}
    axes |= {"ticks": "outside", "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}
    figure.update_xaxes(**axes)
    figure.update_yaxes(**axes)
    return figure


def draw_scores(evidence: Evidence) -> go.Figure:
    """Draw the scores of the window against those of held-out known rows."""
    edges = np.linspace(0, 1, 41)
    figure = go.Figure()
    sides = (
        ("Known rows", evidence.known_scores, KNOWN),
        ("Window", evidence.window_scores, WINDOW),
    )
    for name, scores, colour in sides:
        figure.add_bar(
            x=rounded((edges[:-1] + edges[1:]) / 2),
            y=rounded(100 * shares(np.asarray(scores, dtype=float), edges)),
            name=name,
            marker={"color": colour},
            opacity=0.65,
            hovertemplate="score %{x:.2f}: %{y:.1f} %",
        )
    figure.add_vline(x=0.5, line={"color": UNKNOWN, "dash": "dash", "width": 2})
    figure.add_annotation(
        x=0.5, y=1, yref="paper", text="threshold", showarrow=False, xanchor="left", xshift=5,
        font={"color": UNKNOWN},
    )  # fmt: skip
    return _laid_out(
        figure,
        400,
        barmode="overlay",
        bargap=0,
        xaxis={"title": "Score: 0 looks known, 1 looks unknown", "range": [0, 1]},
        yaxis={"title": "Share of rows", "ticksuffix": " %"},
    )


def draw_projection(evidence: Evidence, unknown: NDArray[np.bool_]) -> go.Figure:
    """Draw the rows on a plane: known classes pale, the window on top, unknown rows in red."""
    figure = go.Figure()
    labels = np.array([caption(label, 12) for label in evidence.point_labels], dtype=object)
    points = np.asarray(evidence.reference_points, dtype=float)
    kept = _some(np.arange(len(points)))
    for name, colour, rows in _by_class(labels[kept]):
        _scatter(figure, points[kept][rows], name, colour, size=5, opacity=0.7)
    points = np.asarray(evidence.window_points, dtype=float)
    rest, found = _some(np.flatnonzero(~unknown)), _some(np.flatnonzero(unknown))
    _scatter(figure, points[rest], "Window", INK, size=6, opacity=0.8, symbol="circle-open")
    _scatter(figure, points[found], "Unknown", UNKNOWN, size=8, opacity=0.9, symbol="diamond")
    hidden = {"showticklabels": False}
    return _laid_out(figure, 400, xaxis=hidden, yaxis=hidden)


def _by_class(labels: NDArray[Any]) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Return name, colour and rows of each class; of many classes the smallest share a colour."""
    names, counts = np.unique(labels.astype(str), return_counts=True)
    shown = names
    if len(names) > len(CLASS_COLOURS):
        shown = np.sort(names[np.argsort(-counts, kind="stable")[: len(CLASS_COLOURS) - 1]])
    groups = [
        (f"Known {name}", colour, labels == name)
        for name, colour in zip(shown, CLASS_COLOURS, strict=False)
    ]
    others = ~np.isin(labels.astype(str), shown)
    return [*groups, ("Other known", OTHER_CLASSES, others)] if others.any() else groups


def _scatter(figure: go.Figure, points: Numbers, name: str, colour: str, **marker: Any) -> None:
    if len(points) == 0:
        return
    figure.add_scatter(
        x=rounded(points[:, 0]),
        y=rounded(points[:, 1]),
        mode="markers",
        name=name,
        marker={"color": colour, **marker},
        hoverinfo="name",
    )


def draw_strengths(columns: Sequence[ColumnDrift]) -> go.Figure:
    """Draw how far the most drifted columns moved, each in units of its own threshold."""
    shown = list(reversed(columns[:MAX_BARS]))
    strengths = [strength(column) for column in shown]
    figure = go.Figure(
        go.Bar(
            x=rounded(np.minimum(strengths, MAX_STRENGTH)),
            y=unique([caption(column.name, 22) for column in shown]),
            orientation="h",
            marker={"color": [UNKNOWN if column.drifted else KNOWN for column in shown]},
            hovertext=[multiple(factor) for factor in strengths],
            hoverinfo="y+text",
        )
    )
    figure.add_vline(x=1, line={"color": "#263238", "dash": "dash", "width": 2})
    # In a column of their own: at the ends of the bars they would lie under the dashed line.
    for row, factor in enumerate(strengths):
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", xshift=8, y=row,
            text=multiple(factor), showarrow=False, font={"size": 12},
        )  # fmt: skip
    drawn = _laid_out(
        figure,
        max(200, 90 + 24 * len(shown)),
        xaxis={"title": "Score, as a multiple of its threshold", "rangemode": "tozero"},
        yaxis={"type": "category"},
    )
    return drawn.update_layout(margin={"r": 72})


def draw_distributions(bars: Mapping[str, Bars]) -> go.Figure:
    """Draw small histograms of the first columns, training data and window over each other."""
    shown = dict(islice(bars.items(), MAX_HISTOGRAMS))
    rows = (len(shown) + 1) // 2
    # Text below the bars is slanted and needs room.
    has_text = any(
        isinstance(position, str) for drawn in shown.values() for position in drawn.positions
    )
    figure = make_subplots(
        rows,
        2,
        subplot_titles=[caption(name, 26) for name in shown],
        vertical_spacing=(0.6 if has_text else 0.42) / rows,
        horizontal_spacing=0.12,
    )
    for index, drawn in enumerate(shown.values()):
        for name, colour, heights in (
            ("Training data", KNOWN, drawn.known),
            ("Window", WINDOW, drawn.served),
        ):
            figure.add_bar(
                x=drawn.positions, y=heights, name=name, marker={"color": colour}, opacity=0.65,
                legendgroup=name, showlegend=index == 0, hovertemplate="%{x}: %{y:.1f} %",
                row=index // 2 + 1, col=index % 2 + 1,
            )  # fmt: skip
    figure.update_annotations(font={"size": 13})
    figure.update_yaxes(ticksuffix=" %", nticks=4)
    figure.update_xaxes(nticks=6, tickfont={"size": 11})
    height = 70 + (210 if has_text else 150) * rows
    laid_out = _laid_out(figure, height, barmode="overlay", bargap=0)
    # The titles of the first row take the legend's usual position.
    laid_out.update_layout(legend={"y": 1.09 if rows > 1 else 1.2}, margin={"t": 70})
    return laid_out


def draw_recalls(comparison: Comparison) -> go.Figure:
    """Draw the recall by class, those that lose most first."""
    classes = [row.known for row in class_rows(comparison)[:MAX_BARS]][::-1]
    labels = unique([caption(one.label, 22) for one in classes])
    figure = go.Figure()
    # Bars are drawn from below: the challenger's comes first to stand under the champion's.
    for name, field, colour in (
        ("Challenger", "challenger", CHALLENGER),
        ("Champion", "champion", CHAMPION),
    ):
        recalls = [getattr(one, field) for one in classes]
        noise = noise_bars(classes) if field == "challenger" else None
        figure.add_bar(
            x=rounded(100 * np.array(recalls)), y=labels, name=name, orientation="h",
            marker={"color": colour}, text=[percent(recall) for recall in recalls],
            # At the start of the bar: the noise is drawn over its end.
            textposition="inside", insidetextanchor="start", constraintext="none", textangle=0,
            textfont={"size": 12, "color": "white"}, hoverinfo="name+y+text", error_x=noise,
        )  # fmt: skip
    return _laid_out(
        figure,
        max(220, 100 + 44 * len(classes)),
        barmode="group",
        bargap=0.25,
        xaxis={"title": "Rows of the class recognised", "ticksuffix": " %", "range": [0, 100]},
        yaxis={"type": "category"},
        legend_traceorder="reversed",
    )


def noise_bars(classes: list[ClassComparison]) -> dict[str, Any] | None:
    """Return what chance may add to or take from the challenger's recall; None if not measured."""
    limits = [one.loss_interval for one in classes]
    if not classes or None in limits:
        return None
    least, most = np.array(limits, dtype=float).T
    losses = np.array([one.loss for one in classes])
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(100 * np.maximum(losses - least, 0)),
        "arrayminus": rounded(100 * np.maximum(most - losses, 0)),
        "color": "#333333",
        "thickness": 1.2,
        "width": 3,
    }


def _some(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    if len(rows) <= MAX_POINTS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, MAX_POINTS, replace=False))


def draw_plots(facts: WindowFacts, evidence: Evidence, folder: Path) -> list[Path]:
    """Write the scores and the projection as pictures; return the files."""
    plots = {"scores.png": _plot_scores, "projection.png": _plot_projection}
    files = []
    for name, plot in plots.items():
        figure = Figure(figsize=(7, 4.5))
        # A layout engine would draw everything twice to find the same margins.
        figure.subplots_adjust(left=0.1, right=0.82, bottom=0.12, top=0.92)
        axes = figure.add_subplot()
        axes.set_title(
            caption(facts.headline, 200), fontsize=10, loc="left", wrap=True, parse_math=False
        )
        plot(axes, evidence)
        # Without a fixed creator the file would change from version to version of matplotlib.
        figure.savefig(folder / name, dpi=110, metadata={"Software": None})
        files.append(folder / name)
    return files


def _plot_scores(axes: Axes, evidence: Evidence) -> None:
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


def _plot_projection(axes: Axes, evidence: Evidence) -> None:
    names = sorted(set(evidence.point_labels.tolist()))
    for number, name in enumerate(names if len(names) <= MOST_CLASSES else []):
        points = evidence.reference_points[evidence.point_labels == name]
        colour = f"C{number % 10}"
        label = caption(name, 20)
        x, y = points.T
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
