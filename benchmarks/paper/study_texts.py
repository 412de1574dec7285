"""What the studies' records say, as Markdown: every sentence is computed, none is remembered."""

from collections.abc import Callable, Iterable, Iterator
from math import isnan, nan
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, t

from benchmarks.paper.boundaries import MODELS
from benchmarks.paper.markdown import spread, table
from benchmarks.paper.studies import FAR, MOST_ROWS
from rtscv_mlops.estimator.search import RATIO

NAMES = {"pendigits": "Pendigits", "coil20": "COIL-20", "letter": "Letter", "digits": "digits"}
PANELS = {
    "one cluster": "one unknown cluster, far away",
    "two clusters": "two unknown clusters, far away",
    "distance": "one unknown cluster, far or near",
}
METHODS = {"csi": "CSI", "paper": "RTSCV, paper mode", "monitor": "RTSCV, monitor"}
EQUAL, PLUNGE = 2, 5
"""Points of F that count as no difference, and as what the supplement calls a plunge."""
PAPER_RATIOS = (0.06, 0.1)
"""Where the paper found the best ratio of sample to training rows."""


def sections(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return a Markdown section for each study that has records."""
    frame = pd.DataFrame(list(records))
    return [
        "\n".join(describe(frame[frame["study"] == study].dropna(axis=1, how="all")))
        for study, describe in SECTIONS.items()
        if (frame["study"] == study).any()
    ]


def mean_interval(values: pd.Series) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval (t distribution)."""
    if len(values) < 2:
        return float(values.mean()), nan
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def rank_correlation(x: pd.Series, y: pd.Series) -> tuple[float, float, float]:
    """Return Spearman's correlation and its 95 % limits (Fisher's transformation)."""
    if x.nunique() < 2 or y.nunique() < 2:
        return nan, nan, nan
    correlation = float(spearmanr(x, y).statistic)
    half = 1.96 * 1.03 / np.sqrt(max(len(x) - 3, 1))
    # A perfect correlation has no finite transform.
    middle = np.arctanh(np.clip(correlation, -0.9999, 0.9999))
    return correlation, float(np.tanh(middle - half)), float(np.tanh(middle + half))


# -- clustering with side information


def describe_csi(frame: pd.DataFrame) -> Iterator[str]:
    yield "### Clustering with side information (CSI)"
    yield ""
    yield (
        "Ten Gaussian classes in the plane; a third of the window is unknown. CSI is Seeded-KMeans "
        f"on the sample that the paper mode drew ({RATIO:g} of the training rows), seeded with the "
        "means of the known classes and of the sample. The rows of the last cluster become the "
        "unknown class of an SVM. RTSCV uses the same learner. Lengths are in standard "
        f"deviations of a known class; far is {FAR:g} from the nearest. "
        f"{frame['seed'].nunique()} random problems per point; F is the macro F in percent."
    )
    yield from _plot("csi", "F of CSI and RTSCV against covariance and distance of the unknowns")
    yield table(
        ("problem", *METHODS.values(), "CSI minus paper mode"),
        (
            (PANELS[panel], *(spread(group[method]) for method in METHODS), _signed(_lag(group)))
            for panel, group in frame.groupby("panel", sort=False)
        ),
    )
    yield ""
    yield (
        "Mean ± standard deviation over all points of a panel; the difference with its 95 % "
        "interval over problems."
    )
    yield ""
    yield _read_csi(frame)


def _lag(group: pd.DataFrame) -> tuple[float, float]:
    """Return CSI minus RTSCV, problem by problem, so that hard draws do not count as noise."""
    return mean_interval((group["csi"] - group["paper"]).groupby(group["seed"]).mean())


def _read_csi(frame: pd.DataFrame) -> str:
    clauses = []
    for panel, group in frame.groupby("panel", sort=False):
        points = (group["csi"] - group["paper"]).groupby(group["value"]).mean()
        clauses.append(
            f"{PANELS[panel]}: {_who_is_ahead(_lag(group)[0])} (CSI's worst point: "
            f"{points.min():+.1f} at {points.idxmin():g})"
        )
    lags = {panel: _lag(group)[0] for panel, group in frame.groupby("panel")}
    claimed = [abs(lags.get("one cluster", 0)) < EQUAL]
    claimed += [lags[panel] < -PLUNGE for panel in ("two clusters", "distance") if panel in lags]
    return (
        f"On average, with {'; with '.join(clauses)}. "
        "The supplement says that CSI is equally good with one far cluster and plunges with two "
        f"or with a near one: {sum(claimed)} of {len(claimed)} panels agree (equal is within "
        f"{EQUAL} points, a plunge is a mean loss of more than {PLUNGE})."
    )


def _who_is_ahead(difference: float) -> str:
    if abs(difference) < 0.5:
        return "CSI and RTSCV are within half a point"
    ahead = "CSI" if difference > 0 else "RTSCV"
    return f"{ahead} is ahead by {abs(difference):.1f} points"


# -- sample ratio


def describe_sample_ratio(frame: pd.DataFrame) -> Iterator[str]:
    yield "### How large the sample should be"
    yield ""
    yield (
        f"{_data_sets(frame)}; an RBF SVM; F on all test rows, "
        f"{frame['seed'].nunique()} random choices of hidden classes. "
        f"At most {MOST_ROWS:,} rows of a data set take part. "
        "The ratio is sample rows over training rows; 0 is the model before rectification. "
        "The best ratio is found with the test labels, which users do not have."
    )
    yield from _plot("sample-ratio", "F against the ratio of sample to training rows")
    curves = {name: _Curve(group) for name, group in frame.groupby("data", sort=False)}
    yield table(
        ("data", "before", "best ratio", "F there", "F at 0.1", "F at the largest", "monitor"),
        (
            (
                NAMES[name],
                spread(curve.before),
                f"{curve.best:g}",
                spread(curve.at(curve.best)),
                spread(curve.at(0.1)) if 0.1 in curve.means.index else "-",
                f"{spread(curve.at(curve.largest))} at {curve.largest:g}",
                spread(curve.monitor),
            )
            for name, curve in curves.items()
        ),
    )
    yield ""
    yield _read_curves(curves)


class _Curve:
    """One data set's F by ratio in paper mode, beside the model before it and the monitor."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._paper = frame[frame["mode"] == "paper"]
        self.means = self._paper.groupby("ratio")["f"].mean()
        self.best, self.largest = float(self.means.idxmax()), float(self.means.index.max())
        self.before = frame.loc[frame["mode"] == "pre", "f"]
        self.monitor = frame.loc[frame["mode"] == "monitor", "f"]

    def at(self, ratio: float) -> pd.Series:
        return self._paper.loc[self._paper["ratio"] == ratio, "f"]


def _read_curves(curves: dict[str, _Curve]) -> str:
    low, high = PAPER_RATIOS
    inside = [NAMES[name] for name, curve in curves.items() if low <= curve.best <= high]
    falling = [NAMES[name] for name, curve in curves.items() if curve.best < curve.largest]
    against = ", ".join(
        f"{curve.monitor.mean() - curve.means.max():+.1f} on {NAMES[name]}"
        for name, curve in curves.items()
    )
    return (
        f"The best ratio lies in the paper's range of {low:g} to {high:g} for {_listed(inside)}; "
        f"F rises and then falls, as the paper describes, for {_listed(falling)}. "
        "Compared with the best ratio, which needs labels, the monitor with its defaults is at "
        f"{against} (points of F)."
    )


# -- folds


def describe_folds(frame: pd.DataFrame) -> Iterator[str]:
    paper = frame[frame["mode"] == "paper"]
    means = paper.pivot_table(index="data", columns="folds", values="f", sort=False)
    before = frame[frame["mode"] == "pre"].groupby("data")["f"]
    yield "### How many folds"
    yield ""
    yield (
        f"{_data_sets(frame)}; an RBF SVM in paper mode with a sample of "
        f"{paper['ratio'].iloc[0]:g} of the training rows; {frame['seed'].nunique()} random "
        f"choices of hidden classes; at most {MOST_ROWS:,} rows of a data set. "
        "Holdout holds out a third of the rows, once."
    )
    yield from _plot("folds", "F against the number of folds")
    cells = paper.groupby(["data", "folds"])["f"]
    yield table(
        ("data", "before", *(_folds_name(folds) for folds in means.columns)),
        (
            (
                NAMES[name],
                spread(before.get_group(name)),
                *(spread(cells.get_group((name, folds))) for folds in means.columns),
            )
            for name in means.index
        ),
    )
    yield ""
    yield _read_folds(means, before.mean())


def _read_folds(means: pd.DataFrame, before: pd.Series) -> str:
    by_count = means.drop(columns="holdout")
    spread = by_count.max(axis=1) - by_count.min(axis=1)
    loss = (by_count.max(axis=1) - by_count["3"]).max()
    gain = (means["holdout"] - before) / (means["3"] - before)
    gains = ", ".join(f"{100 * share:.0f} % on {NAMES[name]}" for name, share in gain.items())
    return (
        f"Between {by_count.columns[0]} and {by_count.columns[-1]} folds F changes by at most "
        f"{spread.max():.1f} points ({NAMES[spread.idxmax()]}), and the paper's choice of 3 is "
        f"never more than {loss:.1f} points below the best. Of the gain of 3 folds over the model "
        f"before rectification, holdout validation reaches {gains}."
    )


def _folds_name(folds: str) -> str:
    return folds if folds == "holdout" else f"k = {folds}"


# -- separability


def describe_j1(frame: pd.DataFrame) -> Iterator[str]:
    yield "### Separability (J1) and F"
    yield ""
    yield (
        "Random problems of ten known Gaussians and an unknown one in the plane, with an SVM. "
        "Known: the distances and covariance of the known classes vary, those of the unknown "
        "class are fixed. Unknown: the reverse. Limits are 95 %. "
        f"{len(frame) // frame['varied'].nunique()} problems each."
    )
    yield from _plot("j1", "F against J1 of the known and of the unknown classes")
    modes = ("paper", "monitor")
    pairs = [(varied, mode) for varied in frame["varied"].unique() for mode in modes]
    yield table(
        ("J1 of", "model", "Spearman with macro F", "with F of the unknown class"),
        (
            (
                f"{varied} classes",
                METHODS[mode],
                _limits(_correlate(frame, varied, mode)),
                _limits(_correlate(frame, varied, f"{mode}_unknown")),
            )
            for varied, mode in pairs
        ),
    )
    yield ""
    found = {pair: _correlate(frame, *pair) for pair in pairs}
    positive = sum(low > 0 for _, low, _ in found.values())
    strongest = max(found, key=lambda pair: found[pair][0])
    yield (
        f"Macro F rises with J1 significantly (95 % limits above 0) in {positive} of {len(found)} "
        "cases. The paper reports a positive correlation for known and unknown classes. "
        f"It is strongest for J1 of the {strongest[0]} classes in {strongest[1]} mode "
        f"({found[strongest][0]:.2f})."
    )


def _correlate(frame: pd.DataFrame, varied: str, column: str) -> tuple[float, float, float]:
    group = frame[frame["varied"] == varied]
    return rank_correlation(group["j1"], group[column])


def _limits(correlation: tuple[float, float, float]) -> str:
    middle, low, high = correlation
    return "-" if isnan(middle) else f"{middle:.2f} ({low:.2f} to {high:.2f})"


# -- decision boundaries


def describe_boundaries(frame: pd.DataFrame) -> Iterator[str]:
    yield "### Decision boundaries"
    yield ""
    yield (
        "Ten known classes and a new one between them. The supplement draws the model that is "
        "fitted to the training rows and the whole sample. Next to it are the two rectified "
        f"models, which keep only the rows found to be unknown. {frame['seed'].nunique()} random "
        "planes; the first ones are drawn."
    )
    yield from _plot("boundaries", "Decision boundaries of SVM, kNN and decision tree")
    cells = frame.groupby(["learner", "model"], sort=False)
    models = frame["model"].unique()
    yield table(
        ("learner", *(f"F, {MODELS[m]}" for m in models), *(f"black, {MODELS[m]}" for m in models)),
        (
            (
                learner,
                *(spread(cells.get_group((learner, model))["f"]) for model in models),
                *(
                    f"{100 * cells.get_group((learner, model))['black'].mean():.0f} %"
                    for model in models
                ),
            )
            for learner in frame["learner"].unique()
        ),
    )
    yield ""
    yield _read_boundaries(frame)


def _read_boundaries(frame: pd.DataFrame) -> str:
    means = frame.pivot_table(index="learner", columns="model", values="f", sort=False)
    best = ", ".join(f"{name} {MODELS[means.loc[name].idxmax()]}" for name in means.index)
    gain = means["monitor"] - means["paper"]
    gains = ", ".join(f"{change:+.1f} points with {name}" for name, change in gain.items())
    return (
        f"Mean F is highest for {best}. Compared with the paper mode, the monitor is at {gains}, "
        f"and the whole sample {_extremes(means['augmented'] - means['paper'])} points."
    )


def _extremes(changes: pd.Series) -> str:
    return f"between {changes.min():+.1f} and {changes.max():+.1f}"


# -- Markdown


def _plot(name: str, alternative: str) -> Iterator[str]:
    yield from ("", f"![{alternative}](images/paper-{name}.png)", "")


def _signed(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.1f} ± {interval[1]:.1f}"


def _data_sets(frame: pd.DataFrame) -> str:
    hidden = frame.groupby("data", sort=False)["hidden"].first()
    return ", ".join(
        f"{NAMES[name]} ({int(count)} classes hidden)" for name, count in hidden.items()
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none of them"


SECTIONS: dict[str, Callable[[pd.DataFrame], Iterator[str]]] = {
    "csi": describe_csi,
    "sample_ratio": describe_sample_ratio,
    "folds": describe_folds,
    "j1": describe_j1,
    "boundaries": describe_boundaries,
}
