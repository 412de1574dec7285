"""What a window is compared with: the training data, or clean windows from deployment.

A monitor that collects clean windows by itself keeps each as an artifact of its own run. They stay
with the champion's version, whatever happens to the source.
"""

from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed, TrainingDataError
from rtscv_mlops.facts import Finding, FindingCode
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.training import check_training_data, is_rectified, load_training_data
from rtscv_mlops.sources.read import read_reference, read_window
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary, WindowRun
from rtscv_mlops.window import Interval, LabelledRows, Window

ARTIFACT = "baseline.parquet"
QUIET, APPROVED = "quiet", "approved"

KEPT_ROWS = 5_000
"""Rows of a window that a baseline keeps."""

# -- the baseline


@dataclass(frozen=True, slots=True)
class Baseline:
    """Rows of the clean period, or None for the training data itself."""

    rows: pd.DataFrame | None
    description: str
    findings: tuple[Finding, ...] = ()


def find_baseline(
    monitor: Monitor, registry: ModelRegistry, champion: Champion, interval: Interval
) -> Baseline:
    """Return what the window is to be compared with."""
    wanted = monitor.baseline
    if wanted is None:
        return Baseline(None, "training data")
    if wanted.first is not None:
        return _collect_baseline(monitor, registry, champion, interval)
    assert wanted.start is not None
    assert wanted.end is not None
    clean = Interval(wanted.start, wanted.end)
    try:
        window = read_window(
            monitor.source, clean, champion.columns, max_rows=KEPT_ROWS, seed=monitor.rectify.seed
        )
    except NotAssessed as error:
        raise NotAssessed(
            Code.NO_BASELINE,
            f"There is nothing to compare with: {error} Correct the baseline's dates.",
        ) from error
    findings = Finding.all_of(FindingCode.SOURCE, window.findings)
    if clean.start < interval.end and interval.start < clean.end:
        text = "This window is part of the baseline: it is compared with itself."
        findings = (*findings, Finding(FindingCode.BASELINE_OVERLAPS, text))
    return Baseline(window.sample, f"baseline {clean}", findings)


def _collect_baseline(
    monitor: Monitor, registry: ModelRegistry, champion: Champion, interval: Interval
) -> Baseline:
    """Return the rows of the windows that were kept, once there are enough of them."""
    wanted = wanted_windows(monitor)
    kept = find_kept_runs(monitor, registry, champion, interval)[:wanted]
    if len(kept) < wanted:
        so_far = f"{len(kept)} of {wanted} windows collected so far"
        return Baseline(None, f"training data (baseline: {so_far})")
    with TemporaryDirectory() as folder:
        files = [
            registry.run(run.run_id).download(ARTIFACT, Path(folder, run.run_id)) for run in kept
        ]
        rows = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    if len(rows) > KEPT_ROWS:
        rows = rows.sample(KEPT_ROWS, random_state=monitor.rectify.seed, ignore_index=True)
    span = f"{kept[0].window} to {kept[-1].window}"
    return Baseline(rows, f"baseline of {wanted} quiet or approved windows, {span}")


def wanted_windows(monitor: Monitor) -> int:
    """Return how many windows the monitor is to collect by itself."""
    return monitor.baseline.first or 0 if monitor.baseline else 0


def find_kept_runs(
    monitor: Monitor, registry: ModelRegistry, champion: Champion, interval: Interval
) -> list[RunSummary]:
    """Return the windows before this one that were kept for the champion, oldest first."""
    return [
        run
        for run in registry.runs.find(monitor=monitor.name)
        if run.champion_version == champion.version
        and run.baseline in (QUIET, APPROVED)
        and run.window_end is not None
        and run.window_end <= interval.start
    ]


def keep_for_baseline(run: WindowRun, window: Window, how: str, seed: int) -> None:
    """Keep rows of a clean window with its run; `how` is `QUIET` or `APPROVED`."""
    rows = window.sample
    if len(rows) > KEPT_ROWS:
        rows = rows.sample(KEPT_ROWS, random_state=seed)
    with TemporaryDirectory() as folder:
        path = Path(folder, ARTIFACT)
        rows.to_parquet(path, index=False)
        run.write_file(path)
    run.set_tags({tags.BASELINE: how})


# -- the training data


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What the champion was fitted on, and held-out rows if they were logged."""

    known: LabelledRows
    holdout: LabelledRows | None = None
    findings: tuple[Finding, ...] = ()
    unknown_label: str | int | None = None
    """The label of unknown rows; None derives it from the labels."""

    @property
    def had_boolean_labels(self) -> bool:
        """Whether the labels were true and false before they became 0 and 1."""
        return any(finding.code is FindingCode.BOOLEAN_LABELS for finding in self.findings)


def find_training(monitor: Monitor, client: MlflowClient, champion: Champion) -> TrainingData:
    """Return what the champion was fitted on, checked against the model."""
    rectified = is_rectified(client, champion)
    held_out: LabelledRows | None = None
    # A champion that was a challenger was taught unknowns, which the reference does not have.
    if monitor.reference is None or rectified:
        data, held_out = load_training_data(client, champion)
    else:
        data = read_reference(monitor.reference, champion.columns)
    texts = [*data.findings, *(() if held_out is None else held_out.findings)]
    texts += check_training_data(data, champion)
    findings = Finding.all_of(FindingCode.TRAINING_DATA, texts)
    if data.labels.dtype == bool:
        text = (
            "The labels are true and false, and there is no third boolean: a rectified model "
            "answers 0 and 1 for them, and 2 for unknown."
        )
        findings = (*findings, Finding(FindingCode.BOOLEAN_LABELS, text))
    known = _for_model(data, champion)
    return TrainingData(
        known,
        None if held_out is None else _for_model(held_out, champion),
        findings,
        _choose_unknown_label(known, monitor.rectify.unknown_label, rectified=rectified),
    )


def _for_model(data: LabelledRows, champion: Champion) -> LabelledRows:
    """Return the rows with the champion's conversion, and boolean labels as 0 and 1."""
    labels = data.labels.astype(int) if data.labels.dtype == bool else data.labels
    return replace(data, labels=labels, as_rows=champion.rows)


def _choose_unknown_label(
    known: LabelledRows, name: str | int | None, *, rectified: bool
) -> str | int | None:
    """Return the label of unknown rows; refuse one that is a class, or has another type.

    If the champion is rectified, an earlier unknown may have become a class. Then the next name
    with a number is taken.
    """
    labels = set(known.labels.tolist())
    is_text = all(isinstance(label, str) for label in labels)
    if rectified and not is_text:
        name = None if name in labels else name
    elif rectified:
        first = "unknown" if name is None else str(name)
        if first in labels:
            numbered = (f"{first}_{number}" for number in count(2))
            name = next(label for label in numbered if label not in labels)
    if name is None and "unknown" in labels:
        raise TrainingDataError(
            "A known class is called 'unknown' already, so unknowns need another name. "
            "Choose one as rectify.unknown_label.",
            code=Code.UNKNOWN_LABEL_TAKEN,
        )
    if name is not None and isinstance(name, str) != is_text:
        kind = "text" if is_text else "whole numbers"
        raise TrainingDataError(
            f"rectify.unknown_label is {name!r}, but the model's labels are {kind}. Programs that "
            "read the model's answers expect one type: choose a label of that type, or leave it "
            "out.",
            code=Code.UNKNOWN_LABEL_TYPE,
        )
    return name
