"""Late labels: how right an earlier verdict was, logged to the run that gave it."""

from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops import metrics, registry
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import ConfigError, NotAssessed, WindowError
from rtscv_mlops.pipeline.evidence import SCORES
from rtscv_mlops.pipeline.record import is_assessed, read_facts
from rtscv_mlops.pipeline.training import find_training
from rtscv_mlops.registry import MlflowClient, RunSummary, WindowRun
from rtscv_mlops.sources import read_labels, read_window
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class Score:
    """True figures of one window, and how many of the looked-at rows had a label by then."""

    run_id: str
    labelled: int
    sampled: int
    figures: dict[str, float]


def score_window(monitor: Monitor, interval: Interval) -> Score:
    """Join true labels to the rows that were looked at, and log how right the verdict was."""
    client = registry.connect(monitor.model)
    summary = _find_run(client, monitor, interval)
    run = WindowRun(client, summary.run_id)
    champion = registry.load_champion(client, monitor.model)
    window = read_window(
        monitor.source,
        interval,
        champion.columns,
        max_rows=monitor.rectify.max_rows,
        seed=monitor.rectify.seed,
    )
    if window.digest != read_facts(run).digest:
        raise WindowError(
            f"The rows of window {interval} changed since it was judged, so that labels cannot be "
            "joined to what was looked at. Run the window again, then score it."
        )
    truth = _true_labels(monitor, window)
    known = set(find_training(monitor, client, champion).known.labels.astype(str))
    figures = _figures(truth, known, run)
    run.log_metrics({f"true_{name}": value for name, value in figures.items()})
    return Score(summary.run_id, int(truth.notna().sum()), len(window.sample), figures)


def _find_run(client: MlflowClient, monitor: Monitor, interval: Interval) -> RunSummary:
    runs = registry.find_runs(client, monitor.model.name, monitor=monitor.name, window=interval.id)
    assessed = [run for run in runs if is_assessed(run)]
    if not assessed:
        raise NotAssessed(
            "no_verdict",
            f"Window {interval} has no verdict to score. Run it first: rtscv-mlops run.",
        )
    return max(assessed, key=lambda run: run.ended.timestamp() if run.ended else 0.0)


def _true_labels(monitor: Monitor, window: Window) -> "pd.Series[str]":
    """Return the true label of each row that was looked at; missing where none arrived."""
    if monitor.labels is None:
        if window.labels is None:
            raise ConfigError(
                "The monitor does not say where true labels come from. Set labels: (with its key "
                "and source.key), or source.label if the window holds them."
            )
        truth = window.labels
    elif window.keys is None:
        raise ConfigError("Labels are joined by key: set source.key to the column that has it.")
    else:
        labels = read_labels(monitor.labels, window.keys)
        truth = window.keys.map(labels)
    if truth.notna().sum() == 0:
        raise NotAssessed("no_labels", f"No label has arrived for window {window.interval} yet.")
    return truth.reset_index(drop=True)


def _figures(truth: "pd.Series[str]", known: set[str], run: WindowRun) -> dict[str, float]:
    with TemporaryDirectory() as folder, np.load(run.download(SCORES, folder)) as stored:
        answers, scores, unknown = (
            stored[name] for name in ("answers", "window_scores", "unknown")
        )
    has_label = truth.notna().to_numpy()
    labels = truth[has_label].map(canonical).to_numpy(dtype=str)
    is_new = ~np.isin(labels, sorted(known))
    # The rectified model may call its unknowns by any name; here they have one that is no class.
    other = "unknown" + "_" * max(map(len, known))
    said = np.where(np.isin(answers, sorted(known)), answers, other)[has_label]
    true = np.where(is_new, other, labels)
    figures = {
        "unknown_rate": float(is_new.mean()),
        "detection_accuracy": metrics.detection_accuracy(true, said, known, other),
        "classification_accuracy": metrics.classification_accuracy(true, said, known, other),
        "macro_f": metrics.macro_f(true, said, known, other),
        "openness": metrics.openness(len(known), len(known) + len(set(labels[is_new]))),
    }
    if is_new.any() and not is_new.all():
        figures["auroc"] = metrics.auroc(is_new, scores[has_label])
        extracted: NDArray[np.bool_] = unknown[has_label]
        figures["extracted_precision"] = _share(is_new[extracted])
        figures["extracted_recall"] = _share(extracted[is_new])
    return {name: value for name, value in figures.items() if np.isfinite(value)}


def canonical(label: object) -> str:
    """Return a label as text, the same for 1, 1.0 and true as a model's own answers have it."""
    if isinstance(label, bool | np.bool_):
        return str(int(label))
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _share(marks: NDArray[np.bool_]) -> float:
    return float(marks.mean()) if len(marks) else float("nan")
