"""The null that a window is compared with: training data, or clean windows from deployment.

Windows that a monitor collects by itself are kept as an artifact of their own run, so that they
stay with the champion's version whatever becomes of the source.
"""

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, InputError, NotAssessed, TrainingDataError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.judging.describe import Known
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.training import (
    TrainingData,
    check_training_data,
    is_rectified,
    load_training_data,
)
from rtscv_mlops.sources.read import read_reference, read_window
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class Training:
    """What the champion was fitted on, and rows held out from that where they were logged."""

    known: Known
    digest: str
    source: str
    holdout: Known | None = None
    findings: tuple[str, ...] = ()
    unknown_label: str | int | None = None
    """How unknowns are to be called; None leaves it to the labels."""


ARTIFACT = "baseline.parquet"
QUIET, APPROVED = "quiet", "approved"
AGREES = "agrees with the training data"

KEPT_ROWS = 5_000
"""Rows of a window that a baseline keeps."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Rows of the clean period, or None for the training data itself; `words` says which."""

    rows: pd.DataFrame | None
    words: str
    findings: tuple[str, ...] = ()


def find_baseline(
    monitor: Monitor, registry: ModelRegistry, champion: Champion, interval: Interval
) -> Baseline:
    """Return what the window is to be compared with."""
    wanted = monitor.baseline
    if wanted is None:
        return Baseline(None, "training data")
    if wanted.first is not None:
        return _collected(monitor, registry, champion, interval)
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
    findings = window.findings
    if clean.start < interval.end and interval.start < clean.end:
        findings = (*findings, "This window is part of the baseline: it is compared with itself.")
    return Baseline(window.sample, f"baseline {clean}", findings)


def _collected(
    monitor: Monitor, registry: ModelRegistry, champion: Champion, interval: Interval
) -> Baseline:
    first = wanted_windows(monitor)
    kept = kept_runs(monitor, registry, champion, interval)[:first]
    if len(kept) < first:
        words = f"training data (baseline: {len(kept)} of {first} windows collected so far)"
        return Baseline(None, words)
    with TemporaryDirectory() as folder:
        files = [
            registry.run(run.run_id).download(ARTIFACT, Path(folder, run.run_id)) for run in kept
        ]
        rows = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    if len(rows) > KEPT_ROWS:
        rows = rows.sample(KEPT_ROWS, random_state=monitor.rectify.seed, ignore_index=True)
    span = f"{kept[0].window} to {kept[-1].window}"
    return Baseline(rows, f"baseline of {first} quiet or approved windows, {span}")


def wanted_windows(monitor: Monitor) -> int:
    """Return how many windows the monitor is to collect by itself."""
    return monitor.baseline.first or 0 if monitor.baseline else 0


def kept_runs(
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
    """Keep rows of a clean window with its run."""
    rows = window.sample
    if len(rows) > KEPT_ROWS:
        rows = rows.sample(KEPT_ROWS, random_state=seed)
    with TemporaryDirectory() as folder:
        path = Path(folder, ARTIFACT)
        rows.to_parquet(path, index=False)
        run.write_file(path)
    run.set_tags({tags.BASELINE: how})


def disagreement(
    baseline: Baseline,
    known: Known,
    estimator: object,
    monitor: Monitor,
    registry: ModelRegistry,
    champion: Champion,
) -> tuple[str, ...]:
    """Warn where the clean period itself differs from the training data.

    It is found out once for a champion and a baseline, and kept as a tag of the version.
    """
    if baseline.rows is None:
        return ()
    name = f"{tags.BASELINE}.{sha256(baseline.words.encode()).hexdigest()[:8]}"
    find_out = partial(_compare, baseline.rows, known, estimator, monitor)
    said = registry.versions.tag_once(champion.version, name, find_out)
    return () if said == AGREES else (said,)


def _compare(rows: pd.DataFrame, known: Known, estimator: object, monitor: Monitor) -> str:
    settings = monitor.rectify
    model = RTSCVClassifier(
        estimator, alpha=settings.alpha, gate=settings.gate, random_state=settings.seed
    )
    try:
        model.fit(known.rows(), known.labels, deployment=known.rows(rows))
    except InputError as error:
        return f"The baseline could not be compared with the training data: {error}"
    assert model.assessment_ is not None
    if model.assessment_.verdict.is_quiet:
        return AGREES
    return (
        f"The baseline itself differs from the training data ({model.assessment_.verdict}). "
        "Windows are compared with the baseline, so what it has in common with them is not "
        "reported; retrain the champion on newer rows to take the difference away."
    )


BOOLEANS = (
    "The labels are true and false, and there is no third boolean: a rectified model answers 0 and "
    "1 for them, and 2 for unknown."
)


def find_training(monitor: Monitor, client: MlflowClient, champion: Champion) -> Training:
    """Return what the champion was fitted on, checked against the model."""
    rectified = is_rectified(client, champion)
    data = _read(monitor, client, champion, rectified)
    findings = (*data.findings, *check_training_data(data.features, data.labels, champion))
    if np.asarray(data.labels).dtype == bool:
        findings = (*findings, BOOLEANS)
    known = _known(data.features, data.labels, champion)
    label = monitor.rectify.unknown_label
    if rectified:
        label = _next_unknown_label(known, label)
    _check_unknown_label(known, label)
    holdout = None if data.holdout is None else _known(*data.holdout, champion)
    return Training(known, data.digest, data.source, holdout, findings, label)


def _read(
    monitor: Monitor, client: MlflowClient, champion: Champion, rectified: bool
) -> TrainingData:
    place = monitor.reference
    # A champion that we made was taught unknowns, which the monitor's reference does not have.
    if place is None or rectified:
        return load_training_data(client, champion)
    table = read_reference(place, champion.columns)
    source = place.path or place.table or "the query of the monitor's reference"
    return TrainingData(table.features, table.labels, table.digest, source, findings=table.findings)


def _known(features: pd.DataFrame, labels: pd.Series, champion: Champion) -> Known:
    values = np.asarray(labels)
    return Known(features, values.astype(int) if values.dtype == bool else values, champion.rows)


def _next_unknown_label(known: Known, name: str | int | None) -> str | int | None:
    """Return a name for what is unknown now, where an earlier unknown has become a class."""
    labels = set(known.labels.tolist())
    if not all(isinstance(label, str) for label in labels):
        return None if name in labels else name
    first = "unknown" if name is None else str(name)
    numbered = (f"{first}_{number}" for number in count(2))
    return name if first not in labels else next(one for one in numbered if one not in labels)


def _check_unknown_label(known: Known, name: str | int | None) -> None:
    """Refuse a name for unknowns that could be mistaken for a class, or has another type."""
    labels = known.labels.tolist()
    if name is None and "unknown" in labels:
        raise TrainingDataError(
            "A known class is called 'unknown' already, so unknowns need another name. "
            "Choose one as rectify.unknown_label.",
            code=Code.UNKNOWN_LABEL_TAKEN,
        )
    if name is not None and isinstance(name, str) != isinstance(labels[0], str):
        kind = "text" if isinstance(labels[0], str) else "whole numbers"
        raise TrainingDataError(
            f"rectify.unknown_label is {name!r}, but the model's labels are {kind}. Whoever reads "
            "the model's answers expects one type: choose a label of that type, or leave it out.",
            code=Code.UNKNOWN_LABEL_TYPE,
        )
