"""How the pages write verdicts and times: a word and a sign beside every colour.

Knows verdicts and zones; a verdict that it does not know never looks like health.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from math import ceil, isfinite
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rtscv_mlops.outcomes import Kind, Verdict
from rtscv_mlops.text import percent, plain, rate

if TYPE_CHECKING:
    from rtscv_mlops.operations.overview import WindowPoint


NO_TIME = "at an unknown time"
LONG = 1_500
"""Characters of a sentence that somebody else wrote."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict as people see it: `kind` chooses the colour, `sign` and `title` say the same."""

    kind: Kind
    title: str

    @property
    def sign(self) -> str:
        return self.kind.sign


def badge(recorded: str) -> Badge:
    """Return how a recorded verdict is shown; a window without one is still being judged."""
    if not recorded:
        return Badge(Kind.RUNNING, "Being judged")
    verdict = Verdict.of(recorded)
    why = plain(Verdict.reason(recorded).replace("_", " "))
    label = verdict.traits.label
    return Badge(verdict.traits.kind, f"{label}: {why}" if why else label)


def window_label(start: datetime | None, end: datetime | None, zone: str) -> str:
    """Write when a window was, in the monitor's zone; a whole day is written as that day."""
    if start is None or end is None:
        return NO_TIME
    first, last = (moment.astimezone(ZoneInfo(zone)) for moment in (start, end))
    if first.time() == last.time() == time() and last.date() - first.date() == timedelta(days=1):
        return f"{first:%Y-%m-%d}"
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {zone}"


def moment_label(moment: datetime | None, zone: str) -> str:
    """Write a moment in the monitor's zone."""
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}" if moment else NO_TIME


def day_label(start: datetime | None, zone: str) -> str:
    """Write the day on which a window began, short enough for an axis."""
    return f"{start.astimezone(ZoneInfo(zone)):%d %b}" if start else "?"


MOST_WINDOWS = 60
# In a box of 960 by 176, which the template lays out by the same numbers.
WIDTH, LEFT, RIGHT = 960.0, 62.0, 8.0
TOP, FLOOR = 10.0, 116.0
DRIFT_TOP, DRIFT_FLOOR = 130.0, 152.0
WIDEST_SLOT = 62.0
SHORTEST_BAR = 2.5
SCALES = (0.04, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
LABELS = 8


@dataclass(frozen=True, slots=True)
class Whisker:
    """The interval of an estimate; `is_cut` where it goes on beyond the scale."""

    low: float
    high: float
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """One window: a bar of its unknown rate, or a hatched block where there is no number."""

    run_id: str
    kind: str
    title: str
    left: float
    middle: float
    width: float
    top: float
    height: float
    whisker: Whisker | None
    drift_top: float | None
    label: str

    @property
    def has_number(self) -> bool:
        return self.kind not in (Kind.UNASSESSED, Kind.RUNNING)


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the template needs to draw."""

    marks: tuple[Mark, ...]
    scale: float
    left_out: int

    @property
    def grid(self) -> tuple[tuple[float, str], ...]:
        """Lines of the unknown rate, with what they stand for."""
        return tuple((_height_of(part, 1), percent(part * self.scale)) for part in (0, 0.5, 1))


def draw(points: "Sequence[WindowPoint]", zone: str) -> Timeline:
    """Place the latest windows."""
    shown = points[-MOST_WINDOWS:]
    scale = _scale(shown)
    slot = min(WIDEST_SLOT, (WIDTH - LEFT - RIGHT) / max(len(shown), 1))
    every = ceil(len(shown) / LABELS) if shown else 1
    marks = tuple(
        _mark(
            point, LEFT + slot * number, slot, scale, zone, (len(shown) - 1 - number) % every == 0
        )
        for number, point in enumerate(shown)
    )
    return Timeline(marks, scale, len(points) - len(shown))


def _scale(points: "Sequence[WindowPoint]") -> float:
    """Return the share at the top: that of what was found, not of how wide a quiet guess is."""
    found = [point for point in points if badge(point.verdict).kind is Kind.UNKNOWNS]
    tops = [top for point in found for top in (point.unknown_rate, point.high) if _known(top)]
    tops += [rate for point in points if _known(rate := point.unknown_rate)]
    highest = max((top for top in tops if top is not None), default=0.0)
    return next((scale for scale in SCALES if scale >= highest), 1.0)


def _known(number: float | None) -> bool:
    return number is not None and isfinite(number)


def _mark(
    point: "WindowPoint", left: float, slot: float, scale: float, zone: str, is_labelled: bool
) -> Mark:
    shown, gap = badge(point.verdict), min(6.0, slot * 0.25)
    measured = point.unknown_rate if shown.kind not in (Kind.UNASSESSED, Kind.RUNNING) else None
    top = TOP if measured is None else _height_of(measured, scale)
    top = min(top, FLOOR - SHORTEST_BAR)
    return Mark(
        run_id=point.run_id,
        kind=shown.kind if measured is not None else _without_number(shown.kind),
        title=_title(point, shown.title, zone),
        left=left + gap / 2,
        middle=left + slot / 2,
        width=slot - gap,
        top=top,
        height=FLOOR - top,
        whisker=_whisker(point, scale) if measured is not None else None,
        drift_top=_drift_top(point.drift_share),
        label=day_label(point.start, zone) if is_labelled else "",
    )


def _without_number(kind: str) -> str:
    return Kind.RUNNING if kind == Kind.RUNNING else Kind.UNASSESSED


def _height_of(share: float, scale: float) -> float:
    return FLOOR - (FLOOR - TOP) * min(share / scale, 1.0)


def _whisker(point: "WindowPoint", scale: float) -> Whisker | None:
    if point.low is None or point.high is None or not _known(point.low + point.high):
        return None
    return Whisker(_height_of(point.low, scale), _height_of(point.high, scale), point.high > scale)


def _drift_top(share: float | None) -> float | None:
    if share is None or not isfinite(share):
        return None
    return DRIFT_FLOOR - max(1.0, (DRIFT_FLOOR - DRIFT_TOP) * min(share, 1.0))


def _title(point: "WindowPoint", verdict: str, zone: str) -> str:
    parts = [f"{window_label(point.start, point.end, zone)}: {verdict}"]
    if point.unknown_rate is not None:
        limits = None if point.low is None or point.high is None else (point.low, point.high)
        parts.append(f"unknown {rate(point.unknown_rate, limits)}")
    if point.drift_share is not None:
        parts.append(f"{percent(point.drift_share)} of columns moved")
    return "; ".join(parts)
