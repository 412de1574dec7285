"""Verdicts and times as the pages show them, and the timeline of a monitor."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from math import ceil, isfinite
from typing import TYPE_CHECKING, Self
from zoneinfo import ZoneInfo

from rtscv_mlops.outcomes import Tone, Verdict
from rtscv_mlops.text import UNTOLD_BEHIND_DRIFT, Label, percent, plain, rate

if TYPE_CHECKING:
    from rtscv_mlops.operations.overview import WindowPoint


NO_TIME = "at an unknown time"
LONG = 1_500
"""Characters of a sentence from outside."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict on a page: `tone` is the CSS class; sign and title say the same without colour."""

    tone: Tone
    title: str

    @property
    def sign(self) -> str:
        return self.tone.sign


def badge(recorded: str) -> Badge:
    """Return how a recorded verdict is shown; a window without one is still being judged."""
    if not recorded:
        return Badge(Tone.RUNNING, "Being judged")
    verdict = Verdict.of(recorded)
    why = plain(Verdict.reason(recorded).replace("_", " "))
    label = verdict.traits.label
    return Badge(verdict.traits.tone, f"{label}: {why}" if why else label)


def window_label(start: datetime | None, end: datetime | None, zone: str) -> str:
    """Return when a window was, in the monitor's zone; a whole day is written as that day."""
    if start is None or end is None:
        return NO_TIME
    first, last = (moment.astimezone(ZoneInfo(zone)) for moment in (start, end))
    if first.time() == last.time() == time() and last.date() - first.date() == timedelta(days=1):
        return f"{first:%Y-%m-%d}"
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {zone}"


def moment_label(moment: datetime | None, zone: str) -> str:
    """Return a time in the monitor's zone."""
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}" if moment else NO_TIME


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
    """One window: a bar of its unknown rate, or a hatched block if there is no number."""

    run_id: str
    tone: Tone
    title: str
    left: float
    middle: float
    width: float
    top: float
    height: float
    whisker: Whisker | None
    drift_top: float | None
    label: str
    later: Tone | None
    """How a later judgement by another champion is shown, beside this one."""
    sign: str
    """What stands in a block without a number."""

    @classmethod
    def of(
        cls, point: "WindowPoint", left: float, slot: float, scale: float, zone: str, label: str
    ) -> Self:
        """Return the mark of a window in a slot of the timeline."""
        shown, gap = badge(point.verdict), min(6.0, slot * 0.25)
        title = [f"{window_label(point.start, point.end, zone)}: {shown.title}"]
        tone, top, whisker, drift_top = shown.tone, TOP, None, None
        low, high, share, drift = point.low, point.high, point.unknown_rate, point.drift_share
        is_told = Verdict.of(point.verdict).tells_share
        if not is_told:  # Runs of earlier versions have a number that says nothing.
            share = None
            title.append(f"{Label.UNKNOWN_RATE.lower()} {UNTOLD_BEHIND_DRIFT}")
        elif share is not None and tone.has_number:
            limits = None if low is None or high is None else (low, high)
            title.append(f"{Label.UNKNOWN_RATE.lower()} {rate(share, limits)}")
        if tone.has_number and share is None and is_told:
            tone = Tone.BLANK
        elif tone.has_number and share is not None:
            top = _height_of(share, scale)
            if low is not None and high is not None and isfinite(low + high):
                whisker = Whisker(_height_of(low, scale), _height_of(high, scale), high > scale)
        later = badge(point.later_verdict) if point.later_verdict else None
        if later is not None:
            champion = plain(point.later_champion)
            title.append(f"judged again by version {champion}: {later.title}")
        top = min(top, FLOOR - SHORTEST_BAR)
        if drift is not None:
            title.append(f"{percent(drift)} of columns moved")
            if isfinite(drift):
                drift_top = DRIFT_FLOOR - max(1.0, (DRIFT_FLOOR - DRIFT_TOP) * min(drift, 1.0))
        return cls(
            run_id=point.run_id,
            tone=tone,
            title="; ".join(title),
            left=left + gap / 2,
            middle=left + slot / 2,
            width=slot - gap,
            top=top,
            height=FLOOR - top,
            whisker=whisker,
            drift_top=drift_top,
            label=label,
            later=later.tone if later else None,
            sign=tone.sign if share is None or not tone.has_number else "",
        )


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the template needs to draw."""

    marks: tuple[Mark, ...]
    scale: float
    left_out: int

    @property
    def grid(self) -> tuple[tuple[float, str], ...]:
        """Lines of the unknown rate, with their labels."""
        return tuple((_height_of(part, 1), percent(part * self.scale)) for part in (0, 0.5, 1))


def draw(points: "Sequence[WindowPoint]", zone: str) -> Timeline:
    """Return the timeline of the latest windows."""
    shown = points[-MOST_WINDOWS:]
    # Fits all rates, but of intervals only those of detected unknowns: quiet ones can be wide.
    rates = [one.unknown_rate for one in shown if Verdict.of(one.verdict).tells_share]
    rates += [one.high for one in shown if Verdict.of(one.verdict).claims_unknowns]
    highest = max((one for one in rates if one is not None and isfinite(one)), default=0.0)
    scale = next((scale for scale in SCALES if scale >= highest), 1.0)
    slot = min(WIDEST_SLOT, (WIDTH - LEFT - RIGHT) / max(len(shown), 1))
    every = ceil(len(shown) / LABELS) if shown else 1
    marks = []
    for index, point in enumerate(shown):
        start, label = point.start, ""
        if (len(shown) - 1 - index) % every == 0:
            label = f"{start.astimezone(ZoneInfo(zone)):%d %b}" if start else "?"
        marks.append(Mark.of(point, LEFT + slot * index, slot, scale, zone, label))
    return Timeline(tuple(marks), scale, len(points) - len(shown))


def _height_of(share: float, scale: float) -> float:
    return FLOOR - (FLOOR - TOP) * min(share / scale, 1.0)
