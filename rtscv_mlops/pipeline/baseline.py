"""The null that a window is compared with: training data, or clean windows from deployment.

Windows that a monitor collects by itself are kept as an artifact of their own run, so that they
stay with the champion's version whatever becomes of the source.
"""

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rtscv_mlops.assess import Known
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import InputError, NotAssessed
from rtscv_mlops.rectify import RTSCVClassifier
from rtscv_mlops.registry import (
    Champion,
    MlflowClient,
    RunSummary,
    WindowRun,
    find_runs,
    noted,
    tags,
)
from rtscv_mlops.sources import read_window
from rtscv_mlops.window import Interval, Window

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
    monitor: Monitor, client: MlflowClient, champion: Champion, interval: Interval
) -> Baseline:
    """Return what the window is to be compared with."""
    wanted = monitor.baseline
    if wanted is None:
        return Baseline(None, "training data")
    if wanted.first is not None:
        return _collected(monitor, client, champion, interval)
    assert wanted.start is not None
    assert wanted.end is not None
    clean = Interval(wanted.start, wanted.end)
    try:
        window = read_window(
            monitor.source, clean, champion.columns, max_rows=KEPT_ROWS, seed=monitor.rectify.seed
        )
    except NotAssessed as error:
        raise NotAssessed(
            "no_baseline",
            f"There is nothing to compare with: {error} Correct the baseline's dates.",
        ) from error
    findings = window.findings
    if clean.start < interval.end and interval.start < clean.end:
        findings = (*findings, "This window is part of the baseline: it is compared with itself.")
    return Baseline(window.sample, f"baseline {clean}", findings)


def _collected(
    monitor: Monitor, client: MlflowClient, champion: Champion, interval: Interval
) -> Baseline:
    first = wanted_windows(monitor)
    kept = kept_runs(monitor, client, champion, interval)[:first]
    if len(kept) < first:
        words = f"training data (baseline: {len(kept)} of {first} windows collected so far)"
        return Baseline(None, words)
    with TemporaryDirectory() as folder:
        files = [
            WindowRun(client, run.run_id).download(ARTIFACT, Path(folder, run.run_id))
            for run in kept
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
    monitor: Monitor, client: MlflowClient, champion: Champion, interval: Interval
) -> list[RunSummary]:
    """Return the windows before this one that were kept for the champion, oldest first."""
    return [
        run
        for run in find_runs(client, monitor.model.name, monitor=monitor.name)
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
    client: MlflowClient,
    champion: Champion,
) -> tuple[str, ...]:
    """Warn where the clean period itself differs from the training data.

    It is found out once for a champion and a baseline, and kept as a tag of the version.
    """
    if baseline.rows is None:
        return ()
    name = f"{tags.BASELINE}.{sha256(baseline.words.encode()).hexdigest()[:8]}"
    find_out = partial(_compare, baseline.rows, known, estimator, monitor)
    said = noted(client, monitor.model.name, champion.version, name, find_out)
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
    if model.assessment_.verdict == "no_change":
        return AGREES
    return (
        f"The baseline itself differs from the training data ({model.assessment_.verdict}). "
        "Windows are compared with the baseline, so what it has in common with them is not "
        "reported; retrain the champion on newer rows to take the difference away."
    )
