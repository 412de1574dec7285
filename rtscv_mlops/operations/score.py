"""What was said of each row of a window; and, once labels arrive, how accurate it was."""

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
import pandas as pd

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

COLUMNS = {
    "is_unknown": "unknown",
    "unknown_score": "window_scores",
    "champion_called": "champion_answers",
    "answer": "answers",
}
"""What is told of a row, and the array of the evidence that has it."""


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
                f"Window {interval} has no verdict. Run it first: rtscv-mlops run.",
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
        latest = max(runs, key=lambda run: run.age)
        note = (
            f"Window {interval} was not judged with the monitor's present settings and champion "
            f"(version {champion.version}), so its latest verdict was scored: run {latest.run_id}, "
            f"champion version {latest.champion_version}. For the other, run the window again "
            "first."
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

    def read_answers(self) -> pd.DataFrame:
        """Return what was said of each sampled row, by its key if it has one."""
        if self.window.digest != read_facts(self.run).digest:
            raise WindowError(
                f"The rows of window {self.window.interval} changed since it was judged, so what "
                "was said of them cannot be joined to them. Run the window again first."
            )
        with TemporaryDirectory() as folder, np.load(self.run.download(SCORES, folder)) as stored:
            columns = {name: stored[array] for name, array in COLUMNS.items()}
        keys = self.window.keys
        return pd.DataFrame(columns, index=None if keys is None else pd.Index(keys))

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
        said = self.read_answers()
        answers = said["answer"].to_numpy(dtype=str)
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
            figures["auroc"] = metrics.auroc(is_new, said["unknown_score"].to_numpy()[has_label])
            extracted = said["is_unknown"].to_numpy(dtype=bool)[has_label]
            if extracted.any():
                figures["extracted_precision"] = float(is_new[extracted].mean())
            figures["extracted_recall"] = float(extracted[is_new].mean())
        return {name: value for name, value in figures.items() if np.isfinite(value)}


def read_answers(monitor: Monitor, interval: Interval) -> pd.DataFrame:
    """Return what was said of each sampled row of a window.

    Parameters
    ----------
    monitor : Monitor
        The monitor that judged the window.
    interval : Interval
        A window that has a verdict.

    Returns
    -------
    DataFrame
        For each sampled row `is_unknown`, `unknown_score` (from 0 to 1; extraction began at 0.5),
        `champion_called`, and `answer`, which is that of the rectified model. The index is the
        row's key, or its number in the sample if the monitor has no `source.key`.

    Raises
    ------
    NotAssessed
        If the window has no verdict.
    WindowError
        If the rows of the window changed since it was judged.

    Examples
    --------
    >>> answers = rtscv_mlops.read_answers(monitor, interval)  # doctest: +SKIP
    >>> answers[answers["is_unknown"]].nlargest(10, "unknown_score")  # doctest: +SKIP
    """
    registry = ModelRegistry.connect(monitor.model)
    return _ScoredWindow.find(registry, monitor, interval).read_answers()


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
