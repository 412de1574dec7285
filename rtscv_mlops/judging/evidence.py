"""Rows and scores of a window as artifacts: what is kept, and what one stage hands to the next.

Only columns that may leave the source are written. Rows that only the report needs are deleted
once it is drawn.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from rtscv_mlops.config.monitor import DriftSettings, Monitor
from rtscv_mlops.errors import ServiceError
from rtscv_mlops.facts import Evidence
from rtscv_mlops.judging.judge import Rectification, shown_columns
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Column, Window

UNKNOWNS, SCORES = "unknowns.parquet", "evidence.npz"
HANDED_OVER = "handed_over"
"""Folder of the rows that the report is drawn from."""
TABLES = ("window", "reference")
ARRAYS = (
    "unknown",
    "window_scores",
    "known_scores",
    "window_points",
    "reference_points",
    "point_labels",
    "counted",
)

log = logging.getLogger(__name__)


def spread_as_all_rows(
    evidence: Evidence,
    drift: DriftSettings,
    window: Window,
    known: pd.DataFrame,
    profile: Profile,
    columns: Sequence[Column],
) -> Evidence:
    """Return the evidence with columns that are spread as all rows are, known and served.

    Only distances are measured on them. Tests depend on the number of rows, so they use rows of
    the sample.
    """
    most = drift.max_rows
    if max(window.rows, len(known)) <= most:
        return evidence
    sides = (
        (evidence.window, profile.condense(window.sample, most)),
        (evidence.reference, profile.condense_rows(known, most)),
    )
    by_distance = [
        column.name
        for column in columns
        if column.name in evidence.window
        and drift.is_distance("number" if column.kind in ("float", "integer") else "category")
    ]
    served, taught = (
        rows.head(most).reset_index(drop=True).assign(**condensed[by_distance])
        for rows, condensed in sides
    )
    return replace(evidence, window=served, reference=taught, counted=(window.rows, len(known)))


def write_rows(run: WindowRun, monitor: Monitor, window: Window, done: Rectification) -> None:
    """Write scores and points, and the unknown rows and columns that may leave the source."""
    evidence, unknown = done.evidence, done.evidence.unknown
    arrays = {name: getattr(evidence, name) for name in ARRAYS}
    arrays["point_labels"] = evidence.point_labels.astype(str)
    with TemporaryDirectory() as folder:
        scores = Path(folder, SCORES)
        np.savez_compressed(
            scores,
            **arrays,
            answers=done.answers.astype(str),
            champion_answers=done.champion_answers.astype(str),
        )
        run.write_file(scores)
        rows, key = window.sample[shown_columns(monitor, window.sample)], monitor.source.key
        allowed = monitor.report.columns
        has_key = monitor.report.key or (not isinstance(allowed, str) and key in allowed)
        if window.keys is not None and key not in rows and has_key:
            rows = pd.concat([window.keys.rename(key), rows], axis="columns")
        if rows.empty or not unknown.any() or not monitor.report.max_unknowns:
            return
        clusters = np.zeros(len(unknown), dtype=int)
        for number, cluster in enumerate(done.model.clusters_, start=1):
            clusters[cluster.rows] = number
        rows = rows[unknown].assign(
            **{
                "rtscv.champion_called": done.champion_answers[unknown].astype(str),
                "rtscv.unknown_score": evidence.window_scores[unknown],
                "rtscv.cluster": clusters[unknown],
            }
        )
        if len(rows) > monitor.report.max_unknowns:
            rows = rows.sample(monitor.report.max_unknowns, random_state=monitor.rectify.seed)
        unknowns = Path(folder, UNKNOWNS)
        rows.to_parquet(unknowns, index=False)
        run.write_file(unknowns)


def hand_over(run: WindowRun, evidence: Evidence) -> None:
    """Store the rows that the report is drawn from, for a stage in another process."""
    with TemporaryDirectory() as folder:
        for name in TABLES:
            path = Path(folder, f"{name}.parquet")
            # The index is kept: without columns, nothing else shows the number of rows.
            getattr(evidence, name).reset_index(drop=True).to_parquet(path)
            run.write_file(path, HANDED_OVER)


def take_over(run: WindowRun) -> Evidence | None:
    """Return what an earlier stage handed over; None if the rows are gone."""
    files = {f"{HANDED_OVER}/{name}.parquet" for name in TABLES}
    if not files <= run.list_artifacts(HANDED_OVER) or not run.has(SCORES):
        return None
    with TemporaryDirectory() as folder:
        rows = run.download(HANDED_OVER, folder)
        parts: dict[str, Any] = {name: pd.read_parquet(rows / f"{name}.parquet") for name in TABLES}
        with np.load(run.download(SCORES, folder)) as scores:
            parts |= {name: scores[name] for name in ARRAYS}
    parts["counted"] = tuple(parts["counted"].tolist())
    return Evidence(**parts)


def delete_handed_over(run: WindowRun) -> None:
    """Delete the rows that were handed over; if the store cannot, `purge` tries again."""
    try:
        if run.list_artifacts(HANDED_OVER):
            run.delete_artifacts(HANDED_OVER)
    except ServiceError as error:
        log.warning("write_report: rows are left in %s of the run: %s", HANDED_OVER, error)
