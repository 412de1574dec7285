"""What is unusual about a window but does not stop it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import radius_neighbors_graph

from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.rows import Numbers, find_distinct, fingerprints
from rtscv_mlops.facts import Finding, FindingCode, TrafficFacts
from rtscv_mlops.window import LabelledRows, Window

MANY_COPIES = 0.05
MANY_TRAINING_ROWS = 0.5
MANY_UNKNOWNS = 0.8

CONCENTRATED = 0.5
"""Share of the unknown rows from one hour or origin that is reported ..."""
UNUSUAL = 2
"""... if it is at least this many times the share of all rows from there."""
FEW_UNKNOWNS = 10
SHOWN_CHARACTERS = 60

NEAR = 0.01
"""Rows are near-copies if no column differs by more than this part of its spread ..."""
NEAR_ROWS = 1_000
"""... looked for among so many rows, at most."""
MANY_DISTINCT = 0.5
NATURAL_NEARNESS = 0.5
"""Known rows with as large a part of the unknown rows' near-copies have them by nature."""


@dataclass(frozen=True, slots=True)
class Concentration:
    """The hour or origin that most unknown rows came from: their share, and that of all rows."""

    value: Any
    share: float
    usual: float

    @property
    def is_odd(self) -> bool:
        return self.share >= CONCENTRATED and self.share >= UNUSUAL * self.usual


def find_concentration(values: pd.Series | None, unknown: NDArray[Any]) -> Concentration | None:
    """Return the value that most unknown rows have; None if there are too few unknown rows."""
    if values is None or unknown.sum() < FEW_UNKNOWNS:
        return None
    # Rows without an origin are counted as one origin.
    values = values.astype(object).where(values.notna(), None)
    counts = values[unknown].value_counts(dropna=False)
    value = counts.index[0]
    has_value = values.isna() if pd.isna(value) else values == value
    return Concentration(value, float(counts.iloc[0] / unknown.sum()), float(has_value.mean()))


@dataclass(frozen=True, slots=True)
class Traffic:
    """How the rows of a window are spread: copies, training rows, hours and origins."""

    window: Window
    copies_share: float
    training_share: float
    by_hour: Concentration | None
    by_origin: Concentration | None

    @classmethod
    def measure(cls, window: Window, known: LabelledRows, unknown: NDArray[Any]) -> "Traffic":
        """Measure the spread; `unknown` marks rows of the sample."""
        try:
            taught = fingerprints(known.features.astype(window.sample.dtypes.to_dict()))
        except (TypeError, ValueError):
            # Values that the window's types cannot hold are not in the window.
            taught = fingerprints(known.features)
        prints = fingerprints(window.sample)
        # If rows recur by nature, in the training data too, none counts as a copy.
        distinct = find_distinct(prints, taught)
        hours = None if window.times is None else window.times.dt.floor("h")
        return cls(
            window,
            copies_share=1 - len(distinct) / len(window.sample),
            training_share=float(np.mean(np.isin(prints, taught))),
            by_hour=find_concentration(hours, unknown),
            by_origin=find_concentration(window.origins, unknown),
        )

    @property
    def facts(self) -> TrafficFacts:
        return TrafficFacts(
            copies_share=self.copies_share,
            unknown_hour_share=self.by_hour.share if self.by_hour else None,
            unknown_origin_share=self.by_origin.share if self.by_origin else None,
        )

    def find_concentrations(self, column: str, *, shown: bool) -> Iterator[Finding]:
        """Yield a finding for an hour or origin that most unknown rows came from.

        `shown` means that values of the origin's `column` may leave the source.
        """
        hour, origin = self.by_hour, self.by_origin
        if hour is not None and hour.is_odd:
            yield Finding(
                FindingCode.ONE_HOUR,
                f"{hour.share:.0%} of the unknown rows came within one hour "
                f"({hour.value:%Y-%m-%d %H:%M} UTC), {hour.usual:.0%} of all rows did. See what "
                "happened then before you teach a class from them.",
            )
        if origin is not None and origin.is_odd:
            which = f"one value of {column!r}"
            if shown:
                which = f"{column} {str(origin.value)[:SHOWN_CHARACTERS]!r}"
            yield Finding(
                FindingCode.ONE_ORIGIN,
                f"{origin.share:.0%} of the unknown rows came from {which}, "
                f"{origin.usual:.0%} of all rows did. See who that is before you teach a class "
                "from them.",
            )

    def find_repeats(self) -> Iterator[Finding]:
        """Yield a finding for rows that repeat each other, and for rows of the training data."""
        rows, copies = self.window.rows, self.window.copies
        if copies > MANY_COPIES * rows:
            yield Finding(
                FindingCode.COPIES,
                f"{copies} of {rows} rows ({copies / rows:.0%}) repeat another row of the window. "
                "Each was judged once.",
            )
        elif self.copies_share > MANY_COPIES:
            yield Finding(
                FindingCode.COPIES,
                f"{self.copies_share:.0%} of the sampled rows differ from another one only in "
                "their time. Each was judged once.",
            )
        if self.training_share > MANY_TRAINING_ROWS:
            yield Finding(
                FindingCode.TRAINING_ROWS,
                f"{self.training_share:.0%} of the rows are rows of the training data. A window of "
                "old rows shows nothing about new ones: see whether the source is deployment data.",
            )


def count_distinct(unknowns: pd.DataFrame, known: pd.DataFrame) -> int:
    """Return how many unknown rows there are, near-copies of each other counted once.

    Rows that recur by nature, as in columns with few values, do so among known rows too; then all
    of them count.
    """
    rows, others = unknowns[:NEAR_ROWS], known.sample(min(NEAR_ROWS, len(known)), random_state=0)
    both = Numbers().fit(pd.concat([others, rows], ignore_index=True))
    known_numbers, numbers = both.transform(others), both.transform(rows)
    spread = known_numbers.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)

    def share_of_copies(table: NDArray[Any]) -> float:
        near = radius_neighbors_graph(
            table / spread, NEAR, metric="chebyshev", include_self=False, mode="connectivity"
        )
        return 1 - int(connected_components(near, directed=False)[0]) / len(table)

    copied = share_of_copies(numbers)
    natural = share_of_copies(known_numbers[: len(numbers)])
    if natural > NATURAL_NEARNESS * copied:
        return len(unknowns)
    return round((1 - copied) * len(unknowns))


def find_near_copies(unknowns: int, distinct: int) -> Iterator[Finding]:
    """Yield a finding if most unknown rows are near-copies of each other."""
    if distinct < MANY_DISTINCT * unknowns:
        yield Finding(
            FindingCode.NEAR_COPIES,
            f"The {unknowns:,} unknown rows are near-copies of {distinct:,}: they differ by less "
            f"than {NEAR:.0%} of a column's spread. Only those count as rows to teach a class "
            "from. See who sends them.",
        )


def find_doubts(model: RTSCVClassifier) -> Iterator[Finding]:
    """Yield a finding if hardly any row is known, or if a new class has no single row."""
    assessment = model.assessment_
    assert assessment is not None
    # Even if the verdict is drift: a window without known rows looks as if all of them moved.
    if max(assessment.unknown_rate, float(np.mean(model.window_scores_ > 0.5))) > MANY_UNKNOWNS:
        yield Finding(
            FindingCode.FEW_KNOWN_ROWS,
            "Hardly any row of this window looks like a known one. See whether the source is the "
            "one that this model serves.",
        )
    if assessment.detected and not len(model.unknown_indices_):
        yield Finding(
            FindingCode.NO_SINGLE_ROW,
            "The window as a whole shows something new, but no single row could be identified, "
            "so there is no challenger. A longer window would show the rows.",
        )


def find_volume_jump(rows: int, usual: list[int]) -> Iterator[Finding]:
    """Yield a finding if a window is far larger or smaller than those before it."""
    if len(usual) < 3:
        return
    median = float(np.median(usual))
    if rows > 10 * median or rows * 10 < median:
        yield Finding(
            FindingCode.VOLUME,
            f"This window has {rows} rows; the windows before it had a median of {median:.0f}. "
            "See whether the source repeats rows or lost some.",
        )
