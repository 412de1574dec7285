"""How the pages write verdicts and times: a word and a sign beside every colour.

Knows verdicts and zones; a verdict that it does not know never looks like health.
"""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from rtscv_mlops.facts import NOT_ASSESSED
from rtscv_mlops.review import plain

QUIET, DRIFT, UNKNOWNS, UNASSESSED, RUNNING = "quiet", "drift", "unknowns", "unassessed", "running"
KINDS = {
    "": RUNNING,
    "no_change": QUIET,
    "drift": DRIFT,
    "unknowns": UNKNOWNS,
    "unknowns_and_drift": UNKNOWNS,
}
SIGNS = {QUIET: "✓", DRIFT: "≈", UNKNOWNS: "!", UNASSESSED: "?", RUNNING: "…"}
TITLES = {
    "": "Being judged",
    "no_change": "Nothing new",
    "drift": "Drift",
    "unknowns": "Unknowns",
    "unknowns_and_drift": "Unknowns and drift",
}
NO_TIME = "at an unknown time"
LONG = 1_500
"""Characters of a sentence that somebody else wrote."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict as people see it: `kind` chooses the colour, `sign` and `title` say the same."""

    kind: str
    sign: str
    title: str


def badge(verdict: str) -> Badge:
    """Return how a verdict is shown."""
    kind = KINDS.get(verdict, UNASSESSED)
    title = TITLES.get(verdict) or _not_assessed(verdict)
    return Badge(kind, SIGNS[kind], title)


def _not_assessed(verdict: str) -> str:
    why = plain(verdict.removeprefix(NOT_ASSESSED).lstrip(":").replace("_", " "))
    return f"Not assessed: {why}" if why else "Not assessed"


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
