"""The champion's training data: from its own run, or from where the monitor says it is."""

from itertools import count

import numpy as np
import pandas as pd

from rtscv_mlops import registry
from rtscv_mlops.assess import Known
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import TrainingDataError
from rtscv_mlops.pipeline.rectification import Training
from rtscv_mlops.registry import Champion, MlflowClient, TrainingData
from rtscv_mlops.sources import read_reference

BOOLEANS = (
    "The labels are true and false, and there is no third boolean: a rectified model answers 0 and "
    "1 for them, and 2 for unknown."
)


def find_training(monitor: Monitor, client: MlflowClient, champion: Champion) -> Training:
    """Return what the champion was fitted on, checked against the model."""
    rectified = registry.is_rectified(client, champion)
    data = _read(monitor, client, champion, rectified)
    findings = (*data.findings, *registry.check_training_data(data.features, data.labels, champion))
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
        return registry.load_training_data(client, champion)
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
            code="unknown_label_taken",
        )
    if name is not None and isinstance(name, str) != isinstance(labels[0], str):
        kind = "text" if isinstance(labels[0], str) else "whole numbers"
        raise TrainingDataError(
            f"rectify.unknown_label is {name!r}, but the model's labels are {kind}. Whoever reads "
            "the model's answers expects one type: choose a label of that type, or leave it out.",
            code="unknown_label_type",
        )
