"""Late labels: how accurate an earlier verdict was, logged to the run that gave it."""

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops import metrics
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, WindowError
from rtscv_mlops.judging.evidence import SCORES
from rtscv_mlops.judging.reference import find_training
from rtscv_mlops.models.load import Champion, load_champion
from rtscv_mlops.pipeline.stages import window_key
from rtscv_mlops.sources.read import read_labels, read_window
from rtscv_mlops.tracking.registry import ModelRegistry, is_assessed, read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class Score:
    """How accurate a verdict was.

    Attributes
    ----------
    run_id : str
        The run of the verdict, to which the figures were logged.
    labelled, sampled : int
        Sampled rows whose true label has arrived, and all sampled rows.
    figures : dict
        Figures by name, such as `macro_f` and `detection_accuracy`.
    note : str
        Which verdict was scored, if it is not the one of the present settings.
    """

    run_id: str
    labelled: int
    sampled: int
    figures: dict[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _ScoredWindow:
    """A run with a verdict, the champion that it was about, and the rows as they are now."""

    run: WindowRun
    champion: Champion
    window: Window
    note: str = ""

    @classmethod
    def find(cls, registry: ModelRegistry, monitor: Monitor, interval: Interval) -> Self:
        """Return the verdict of the present settings and champion; else the latest one."""
        runs = registry.runs.find(monitor=monitor.name, window=interval.id)
        runs = [run for run in runs if is_assessed(run)]
        if not runs:
            raise NotAssessed(
                Code.NO_VERDICT,
                f"Window {interval} has no verdict to score. Run it first: rtscv-mlops run.",
            )
        settings = monitor.rectify

        def read(champion: Champion, max_rows: int, seed: int) -> Window:
            columns = champion.columns
            return read_window(monitor.source, interval, columns, max_rows=max_rows, seed=seed)

        champion = load_champion(registry.client, monitor.model)
        window = read(champion, settings.max_rows, settings.seed)
        key = window_key(monitor, champion, window)
        for run in runs:
            if run.key == key:
                return cls(registry.run(run.run_id), champion, window)
        latest = max(runs, key=lambda run: run.ended.timestamp() if run.ended else 0.0)
        note = (
            f"Window {interval} was not judged with the monitor's present settings and champion "
            f"(version {champion.version}), so its latest verdict was scored: run {latest.run_id}, "
            f"champion version {latest.champion_version}. To score the present ones, run the "
            "window again first."
        )
        scored = registry.run(latest.run_id)
        # The settings that chose the sample then.
        then = read_facts(scored).settings
        max_rows, seed = then.get("max_rows", settings.max_rows), then.get("seed", settings.seed)
        changed = (max_rows, seed) != (settings.max_rows, settings.seed)
        if changed or latest.champion_version != champion.version:
            # What is new depends on that champion's training data, and the rows on its columns.
            champion = load_champion(registry.client, monitor.model, latest.champion_version)
            window = read(champion, max_rows, seed)
        return cls(scored, champion, window, note)

    def true_labels(self, monitor: Monitor) -> "pd.Series[str]":
        """Return the true label of each sampled row; missing if none has arrived."""
        window = self.window
        if monitor.labels is not None:
            if window.keys is None:
                raise ConfigError(
                    "Labels are joined by key: set source.key to the column that has it."
                )
            truth = window.keys.map(read_labels(monitor.labels, window.keys))
        elif window.labels is not None:
            truth = window.labels
        elif monitor.source.label is not None:
            raise ConfigError(
                f"The rows of window {window.interval} have no column {monitor.source.label!r}, "
                "which source.label names. Correct it, or set labels: if they come from elsewhere."
            )
        else:
            raise ConfigError(
                "The monitor does not say where true labels come from. Set labels: (with its key "
                "and source.key), or source.label if the window holds them."
            )
        if truth.notna().sum() == 0:
            raise NotAssessed(
                Code.NO_LABELS, f"No label has arrived for window {window.interval} yet."
            )
        return truth.reset_index(drop=True)

    def figures(self, truth: "pd.Series[str]", known: set[str]) -> dict[str, float]:
        """Compare the stored predictions with the true labels, as far as these have arrived."""
        with TemporaryDirectory() as folder, np.load(self.run.download(SCORES, folder)) as stored:
            answers, scores, unknown = (
                stored[name] for name in ("answers", "window_scores", "unknown")
            )
        has_label = truth.notna().to_numpy()
        labels = truth[has_label].map(canonical).to_numpy(dtype=str)
        is_new = ~np.isin(labels, sorted(known))
        # The rectified model may call its unknowns by any name. This one cannot be a class.
        other = "unknown" + "_" * max(map(len, known))
        predicted = np.where(np.isin(answers, sorted(known)), answers, other)[has_label]
        true = np.where(is_new, other, labels)
        figures = {
            "unknown_rate": float(is_new.mean()),
            "detection_accuracy": metrics.detection_accuracy(true, predicted, known, other),
            "classification_accuracy": metrics.classification_accuracy(
                true, predicted, known, other
            ),
            "macro_f": metrics.macro_f(true, predicted, known, other),
            "openness": metrics.openness(len(known), len(known) + len(set(labels[is_new]))),
        }
        if is_new.any() and not is_new.all():
            figures["auroc"] = metrics.auroc(is_new, scores[has_label])
            extracted: NDArray[np.bool_] = unknown[has_label]
            if extracted.any():
                figures["extracted_precision"] = float(is_new[extracted].mean())
            figures["extracted_recall"] = float(extracted[is_new].mean())
        return {name: value for name, value in figures.items() if np.isfinite(value)}


def score_window(monitor: Monitor, interval: Interval) -> Score:
    """Join true labels to the sampled rows, and log how accurate the verdict was.

    Parameters
    ----------
    monitor : Monitor
        The monitor, which says where true labels come from.
    interval : Interval
        A window that has a verdict.

    Returns
    -------
    Score
        The figures that were logged to the run of the verdict.
    """
    registry = ModelRegistry.connect(monitor.model)
    scored = _ScoredWindow.find(registry, monitor, interval)
    run, window = scored.run, scored.window
    if window.digest != read_facts(run).digest:
        raise WindowError(
            f"The rows of window {interval} changed since it was judged, so labels cannot be "
            "joined to the sampled rows. Run the window again, then score it."
        )
    truth = scored.true_labels(monitor)
    known = set(find_training(monitor, registry.client, scored.champion).known.labels.astype(str))
    figures = scored.figures(truth, known)
    run.log_metrics({f"true_{name}": value for name, value in figures.items()})
    labelled = int(truth.notna().sum())
    return Score(run.run_id, labelled, len(window.sample), figures, note=scored.note)


def canonical(label: object) -> str:
    """Return a label as text; 1, 1.0 and true become "1", as in a model's own answers."""
    if isinstance(label, bool | np.bool_) or (isinstance(label, float) and label.is_integer()):
        return str(int(label))
    return str(label)
