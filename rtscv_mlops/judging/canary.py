"""The canary: hide a known class, plant some of its rows into the window, and look for them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops.config.monitor import CanarySettings
from rtscv_mlops.errors import Code, InputError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.facts import CanaryFacts, Finding, FindingCode
from rtscv_mlops.models.training import find_class
from rtscv_mlops.text import estimate, probability
from rtscv_mlops.window import Interval, LabelledRows, Window

ROTATE = "rotate"

FEWEST_ROWS = 5
"""Fewer planted rows are found or missed by chance."""

LEAST_RECALL = 0.1
"""Share of the planted rows that must be extracted if the window has unknowns of its own. There, a
verdict of unknowns proves nothing."""

Look = Callable[[Any, LabelledRows, pd.DataFrame], RTSCVClassifier]
"""Runs RTSCV without a class: given its label, the other training rows, and the window."""


def try_canary(
    settings: CanarySettings,
    window: Window,
    known: LabelledRows,
    answers: NDArray[Any],
    look: Look,
    *,
    alone: bool,
    seed: int,
) -> CanaryFacts:
    """Hide a class and return whether it is found.

    `answers` are the champion's labels for the window. Rows that it takes for the hidden class are
    left out, so only the planted rows can be found. `alone` means that the window has no unknowns
    of its own.
    """
    label = hidden_class(settings.hide, known.labels, window.interval)
    is_hidden = known.labels == label
    sample = window.sample[answers != label]
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(is_hidden))
    rows = rows[: round(settings.rate / (1 - settings.rate) * len(sample))]
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"Only {len(rows)} rows of class {label!r} can be planted into {len(sample)} rows; "
            f"at least {FEWEST_ROWS} are needed. Hide a class with more rows, or raise "
            "canary.rate.",
            code=Code.TOO_FEW_ROWS,
        )
    planted = known.features.iloc[rows][list(sample.columns)].astype(sample.dtypes.to_dict())
    model = look(
        label,
        known.take(np.flatnonzero(~is_hidden)),
        pd.concat([sample, planted], ignore_index=True),
    )
    assessment = model.assessment_
    assert assessment is not None
    recall = float(np.sum(model.unknown_indices_ >= len(sample))) / len(rows)
    return CanaryFacts(
        label=str(label),
        planted=len(rows),
        found=assessment.detected and (alone or recall >= LEAST_RECALL),
        recall=recall,
        p_value=assessment.p_value,
    )


def hidden_class(wanted: str | int, labels: NDArray[Any], interval: Interval) -> Any:
    """Return the class to hide; `rotate` takes each class in turn, window by window."""
    classes = np.unique(labels)
    if len(classes) < 3:
        raise InputError(
            f"The model knows {len(classes)} classes, and hiding one would leave too few. Remove "
            "canary: from this monitor.",
            code=Code.TOO_FEW_CLASSES,
        )
    if wanted == ROTATE:
        turn = int(interval.start.timestamp() // (interval.end - interval.start).total_seconds())
        return classes[turn % len(classes)]
    return find_class(str(wanted), list(classes))


def missed_canary(canary: CanaryFacts) -> Finding:
    """Return the finding that a canary was not found."""
    return Finding(
        FindingCode.CANARY_MISSED,
        f"The monitor is blind today: {canary.planted} rows of class {canary.label!r} were hidden "
        "from it and planted into this window, and it did not find them "
        f"({probability(canary.p_value)}, {estimate(canary.recall)} extracted). A new class of "
        "that size would be missed as well. Take longer windows, or see what the window is full "
        "of.",
    )
