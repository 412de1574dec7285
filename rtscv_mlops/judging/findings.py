"""What is odd about a window but does not stop it: said in one sentence each.

Knows rows and shares; decides nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops.config.monitor import CanarySettings
from rtscv_mlops.errors import Code, InputError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.rows import find_distinct, fingerprints
from rtscv_mlops.facts import CanaryFacts
from rtscv_mlops.judging.describe import Known
from rtscv_mlops.window import Interval, Window

MANY_COPIES = 0.05
KNOWN_ALREADY = 0.5
NOTHING_KNOWN = 0.8

CONCENTRATED = 0.5
"""Share of the unknown rows from one hour or origin that is worth a sentence ..."""
UNUSUAL = 2
"""... if it is at least so many times the share of all rows from there."""
FEW_UNKNOWNS = 10
SHOWN_CHARACTERS = 60


def find_oddities(
    window: Window, taught: NDArray[Any], unknown_rate: float, model: RTSCVClassifier
) -> Iterator[str]:
    """Yield a sentence for each thing that a person should know beside the verdict.

    `taught` are the fingerprints of the training rows.
    """
    yield from _copies(window, taught)
    yield from _training_again(window, taught)
    # Also where the verdict is drift: a window without known rows looks as if all of them moved.
    if max(unknown_rate, float(np.mean(model.window_scores_ > 0.5))) > NOTHING_KNOWN:
        yield (
            "Hardly any row of this window looks like a known one. See whether the source is the "
            "one that this model serves."
        )
    if model.assessment_ and model.assessment_.detected and not len(model.unknown_indices_):
        yield (
            "The window as a whole shows something new, but no single row could be told apart, "
            "so there is no challenger. A longer window would show the rows."
        )


def volume_jump(rows: int, usual: list[int]) -> Iterator[str]:
    """Yield a sentence if a window is far larger or smaller than those before it."""
    if len(usual) < 3:
        return
    median = float(np.median(usual))
    if rows > 10 * median or rows * 10 < median:
        yield (
            f"This window has {rows} rows; the windows before it had {median:.0f} in the middle. "
            "See whether the source repeats itself or lost something."
        )


def copied_share(window: Window, taught: NDArray[Any]) -> float:
    """Return the share of rows that differ from another in nothing but their time.

    Where rows recur by nature, in the training data too, none counts as a copy.
    """
    distinct = find_distinct(fingerprints(window.sample), taught)
    return 1 - len(distinct) / len(window.sample)


@dataclass(frozen=True, slots=True)
class Concentration:
    """The hour or origin that most unknown rows came from: their share, and that of all rows."""

    place: Any
    share: float
    usual: float

    @property
    def is_odd(self) -> bool:
        return self.share >= CONCENTRATED and self.share >= UNUSUAL * self.usual


def concentration(values: pd.Series | None, unknown: NDArray[Any]) -> Concentration | None:
    """Return where the unknown rows come from most; None if there are too few to tell."""
    if values is None or unknown.sum() < FEW_UNKNOWNS:
        return None
    # A row without an origin has one as well: nowhere.
    values = values.astype(object).where(values.notna(), None)
    counts = values[unknown].value_counts(dropna=False)
    place = counts.index[0]
    is_there = values.isna() if pd.isna(place) else values == place
    return Concentration(place, float(counts.iloc[0] / unknown.sum()), float(is_there.mean()))


def find_concentrations(
    by_hour: Concentration | None, by_origin: Concentration | None, column: str, *, shown: bool
) -> Iterator[str]:
    """Yield a sentence for an hour or origin that most unknown rows came from.

    `shown` says whether values of the origin's `column` may leave the source.
    """
    if by_hour is not None and by_hour.is_odd:
        yield (
            f"{by_hour.share:.0%} of the unknown rows came within one hour "
            f"({by_hour.place:%Y-%m-%d %H:%M} UTC), {by_hour.usual:.0%} of all rows did. See what "
            "happened then before you teach a class from them."
        )
    if by_origin is not None and by_origin.is_odd:
        which = f"one value of {column!r}"
        if shown:
            which = f"{column} {str(by_origin.place)[:SHOWN_CHARACTERS]!r}"
        yield (
            f"{by_origin.share:.0%} of the unknown rows came from {which}, "
            f"{by_origin.usual:.0%} of all rows did. See who that is before you teach a class "
            "from them."
        )


def _copies(window: Window, taught: NDArray[Any]) -> Iterator[str]:
    if window.copies > MANY_COPIES * window.rows:
        yield (
            f"{window.copies} of {window.rows} rows ({window.copies / window.rows:.0%}) repeat "
            "another row of the window. Each was judged once."
        )
        return
    share = copied_share(window, taught)
    if share > MANY_COPIES:
        yield (
            f"{share:.0%} of the rows looked at differ from another one in nothing but their time. "
            "Each was judged once."
        )


def _training_again(window: Window, taught: NDArray[Any]) -> Iterator[str]:
    share = float(np.mean(np.isin(fingerprints(window.sample), taught)))
    if share > KNOWN_ALREADY:
        yield (
            f"{share:.0%} of the rows are rows of the training data. A window of old rows shows "
            "nothing about new ones: see whether the source is deployment data."
        )


def taught_fingerprints(known: Known, window: Window) -> NDArray[Any]:
    """Return the fingerprints of the training rows, written in the window's types."""
    try:
        return fingerprints(known.features.astype(window.sample.dtypes.to_dict()))
    except (TypeError, ValueError):
        # Values that the window's types cannot hold are not in the window.
        return fingerprints(known.features)


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
    from rtscv_mlops.models.training import find_class

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
            code=Code.TOO_FEW_ROWS,
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
