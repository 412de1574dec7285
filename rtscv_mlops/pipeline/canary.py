"""A canary: a known class, hidden and planted into the window, that RTSCV must find.

A quiet monitor and a blind one look alike. The canary tells them apart, at the price of one more
run of RTSCV. Knows rows and labels; changes no verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops.assess import Known
from rtscv_mlops.config import CanarySettings
from rtscv_mlops.errors import InputError
from rtscv_mlops.facts import CanaryFacts
from rtscv_mlops.rectify import RTSCVClassifier
from rtscv_mlops.window import Interval, Window

ROTATE = "rotate"

FEWEST = 5
"""Fewer planted rows are found or missed by chance."""

FOUND = 0.1
"""Share of the planted rows that must be extracted from a window with unknowns of its own, where
a verdict of unknowns proves nothing."""

Look = Callable[[Any, Known, pd.DataFrame], RTSCVClassifier]
"""Runs RTSCV without a class: given its label, the other training rows, and the window."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Training rows without a class, and a window that holds some rows of it, in the last places.

    Rows that the champion takes for this class are left out of the window, so that the planted
    ones are all of it that there is to find.
    """

    known: Known
    sample: pd.DataFrame
    rows: int


def try_canary(
    settings: CanarySettings,
    window: Window,
    known: Known,
    answers: NDArray[Any],
    look: Look,
    *,
    alone: bool,
    seed: int,
) -> CanaryFacts:
    """Hide a class and see whether it is found; `alone` says that nothing else is there to find.

    `answers` is what the champion says of the window's rows.
    """
    label = hidden_class(settings.hide, known.labels, window.interval)
    planted = plant(label, settings.rate, known, window.sample[answers != label], seed)
    model = look(label, planted.known, planted.sample)
    assessment = model.assessment_
    assert assessment is not None
    first = len(planted.sample) - planted.rows
    recall = float(np.sum(model.unknown_indices_ >= first)) / planted.rows
    return CanaryFacts(
        label=str(label),
        planted=planted.rows,
        found=assessment.detected and (alone or recall >= FOUND),
        recall=recall,
        p_value=assessment.p_value,
    )


def hidden_class(wanted: str | int, labels: NDArray[Any], interval: Interval) -> Any:
    """Return the class to hide; in turn, windows of one length take one class after the other."""
    # Only a canary needs this, and it brings detectors that no other task should load.
    from rtscv_mlops.pipeline.bench.hiding import find_class

    classes = np.unique(labels)
    if len(classes) < 3:
        raise InputError(
            f"The model knows {len(classes)} classes, and hiding one would leave too few. Remove "
            "canary: from this monitor.",
            code="too_few_classes",
        )
    if wanted == ROTATE:
        turn = int(interval.start.timestamp() // (interval.end - interval.start).total_seconds())
        return classes[turn % len(classes)]
    return find_class(str(wanted), list(classes))


def plant(label: Any, rate: float, known: Known, sample: pd.DataFrame, seed: int) -> Planted:
    """Take a class out of the training rows, and put some of its rows into the window."""
    is_hidden = known.labels == label
    places = np.random.default_rng(seed).permutation(np.flatnonzero(is_hidden))
    wanted = round(rate / (1 - rate) * len(sample))
    places = places[:wanted]
    if len(places) < FEWEST:
        raise InputError(
            f"Only {len(places)} rows of class {label!r} can be planted into {len(sample)} rows; "
            f"at least {FEWEST} tell something. Hide a class with more rows, or raise canary.rate.",
            code="too_few_rows",
        )
    rows = known.features.iloc[places][list(sample.columns)].astype(sample.dtypes.to_dict())
    return Planted(
        known=known.take(np.flatnonzero(~is_hidden)),
        sample=pd.concat([sample, rows], ignore_index=True),
        rows=len(places),
    )


def words(canary: CanaryFacts) -> str:
    """Say that a canary was not found."""
    return (
        f"The monitor is blind today: {canary.planted} rows of class {canary.label!r} were hidden "
        f"from it and planted into this window, and it did not find them (p = {canary.p_value:.2g},"
        f" {canary.recall:.0%} extracted). A new class of that size would be missed as well. Take "
        "longer windows, or see what the window is full of."
    )
