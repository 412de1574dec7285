"""Late labels: how right an earlier verdict was, logged to the run that gave it."""

from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops import metrics
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, WindowError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.judging.evidence import SCORES
from rtscv_mlops.judging.judge import MOST_ROWS, SEED
from rtscv_mlops.judging.reference import find_training
from rtscv_mlops.models.load import Champion, load_champion
from rtscv_mlops.pipeline.stages import window_key
from rtscv_mlops.sources.read import read_labels, read_window
from rtscv_mlops.tracking.record import is_assessed, read_facts
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class Score:
    """True figures of one window, and how many of the looked-at rows had a label by then.

    `note` says which verdict was scored where that is not the one of the present settings.
    """

    run_id: str
    labelled: int
    sampled: int
    figures: dict[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A run that came to a verdict, the champion that it was about, and the rows as of now."""

    summary: RunSummary
    champion: Champion
    window: Window
    note: str = ""


def score_window(monitor: Monitor, interval: Interval) -> Score:
    """Join true labels to the rows that were looked at, and log how right the verdict was."""
    registry = ModelRegistry.connect(monitor.model)
    judged = _find_judged(registry, monitor, interval)
    run, window = registry.run(judged.summary.run_id), judged.window
    if window.digest != read_facts(run).digest:
        raise WindowError(
            f"The rows of window {interval} changed since it was judged, so that labels cannot be "
            "joined to what was looked at. Run the window again, then score it."
        )
    truth = _true_labels(monitor, window)
    known = set(find_training(monitor, registry.client, judged.champion).known.labels.astype(str))
    figures = _figures(truth, known, run)
    run.log_metrics({f"true_{name}": value for name, value in figures.items()})
    return Score(
        run.run_id, int(truth.notna().sum()), len(window.sample), figures, note=judged.note
    )


def _find_judged(registry: ModelRegistry, monitor: Monitor, interval: Interval) -> _Judged:
    """Return the run of the present settings and champion; else the latest, and say so."""
    runs = _assessed_runs(registry, monitor, interval)
    champion = load_champion(registry.client, monitor.model)
    window = _read(monitor, interval, champion)
    key = window_key(monitor, champion, window)
    for run in runs:
        if run.key == key:
            return _Judged(run, champion, window)
    latest = max(runs, key=lambda run: run.ended.timestamp() if run.ended else 0.0)
    note = (
        f"Window {interval} was not judged with the monitor's present settings and champion "
        f"(version {champion.version}), so its latest verdict was scored: run {latest.run_id}, "
        f"champion version {latest.champion_version}. For the other, run the window again first."
    )
    then = _as_sampled_then(monitor, read_facts(registry.run(latest.run_id)))
    if (then, latest.champion_version) != (monitor, champion.version):
        # What is new depends on what that champion was taught, and the rows on its columns.
        champion = load_champion(registry.client, monitor.model, latest.champion_version)
        window = _read(then, interval, champion)
    return _Judged(latest, champion, window, note)


def _as_sampled_then(monitor: Monitor, facts: WindowFacts) -> Monitor:
    """Return the monitor with the settings that chose the rows which a verdict looked at."""
    now, then = monitor.rectify, facts.settings
    chosen = {
        "seed": then.get(SEED, now.seed),
        "max_rows": then.get(MOST_ROWS, now.max_rows),
    }
    return monitor.model_copy(update={"rectify": now.model_copy(update=chosen)})


def _assessed_runs(
    registry: ModelRegistry, monitor: Monitor, interval: Interval
) -> list[RunSummary]:
    runs = registry.runs.find(monitor=monitor.name, window=interval.id)
    assessed = [run for run in runs if is_assessed(run)]
    if not assessed:
        raise NotAssessed(
            Code.NO_VERDICT,
            f"Window {interval} has no verdict to score. Run it first: rtscv-mlops run.",
        )
    return assessed


def _read(monitor: Monitor, interval: Interval, champion: Champion) -> Window:
    settings = monitor.rectify
    return read_window(
        monitor.source,
        interval,
        champion.columns,
        max_rows=settings.max_rows,
        seed=settings.seed,
    )


def _labels_within(monitor: Monitor, window: Window) -> "pd.Series[str]":
    """Return the labels that came with the rows themselves."""
    if window.labels is not None:
        return window.labels
    if monitor.source.label is not None:
        raise ConfigError(
            f"The rows of window {window.interval} have no column {monitor.source.label!r}, which "
            "source.label names. Correct it, or set labels: where they come from elsewhere."
        )
    raise ConfigError(
        "The monitor does not say where true labels come from. Set labels: (with its key "
        "and source.key), or source.label if the window holds them."
    )


def _true_labels(monitor: Monitor, window: Window) -> "pd.Series[str]":
    """Return the true label of each row that was looked at; missing where none arrived."""
    if monitor.labels is None:
        truth = _labels_within(monitor, window)
    elif window.keys is None:
        raise ConfigError("Labels are joined by key: set source.key to the column that has it.")
    else:
        labels = read_labels(monitor.labels, window.keys)
        truth = window.keys.map(labels)
    if truth.notna().sum() == 0:
        raise NotAssessed(Code.NO_LABELS, f"No label has arrived for window {window.interval} yet.")
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
