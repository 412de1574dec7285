"""What enters: a half-open interval of time in UTC, and a sample of the rows served within it.

Knows time and tables; knows nothing of where rows come from.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Literal, Self
from zoneinfo import ZoneInfo

from rtscv_mlops.errors import Code, NotAssessed, WindowError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """`[start, end)` in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            bound = getattr(self, name)
            if bound.tzinfo is None:
                raise WindowError(
                    f"The window's {name} {bound} has no time zone, so it names no moment. "
                    "Add one, such as +00:00."
                )
            object.__setattr__(self, name, bound.astimezone(UTC))
        if self.start == self.end:
            raise NotAssessed(Code.EMPTY_INTERVAL, f"The window {self} has no length.")
        if self.start > self.end:
            raise WindowError(f"The window's start {self.start} is after its end {self.end}.")

    @classmethod
    def parse(cls, start: str, end: str, zone: str = "UTC") -> Self:
        """Read two moments in ISO 8601; those without a zone are in `zone`."""
        return cls(moment(start, zone), moment(end, zone))

    @classmethod
    def day(cls, day: str, zone: str = "UTC") -> Self:
        """Return one calendar day of a zone; it may have 23 or 25 hours."""
        try:
            first = date.fromisoformat(day)
        except ValueError as error:
            raise WindowError(f"{day!r} is no day. Write it like 2026-01-05.") from error
        midnight = [
            datetime.combine(first + timedelta(days=ahead), time(), ZoneInfo(zone))
            for ahead in (0, 1)
        ]
        return cls(*midnight)

    @property
    def id(self) -> str:
        """Name of the window: sorts by time, and is safe in file names and tags."""
        return f"{self.start:%Y%m%dT%H%M%SZ}-{self.end:%Y%m%dT%H%M%SZ}"

    @property
    def is_over(self) -> bool:
        return self.end <= datetime.now(UTC)

    def __str__(self) -> str:
        if self.start.time() == time() and self.end - self.start == timedelta(days=1):
            return f"{self.start:%Y-%m-%d}"
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


def moment(text: str, zone: str) -> datetime:
    """Read a moment in ISO 8601; one without a zone is in `zone`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise WindowError(
            f"{text!r} is no moment in time. Write it like 2026-01-05T13:00:00+00:00."
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))


@dataclass(frozen=True, slots=True)
class Window:
    """A uniform sample of the rows served in an interval, and what is known of all of them.

    `sample` has the model's columns in the model's order and types; rows that a large window
    repeats very often may be too few in it, which a finding then says. `keys` is the row
    identifier of each sampled row, `labels` the true label and `origins` where it came from, where
    the source has such columns; `times` says when it was served, in UTC. `rows` counts the whole
    window, `copies` the rows that repeat another one (estimated from the sample where the window
    is larger). `digest` changes if and only if the rows change, and does not depend on their
    order. `findings` are sentences about what was odd but could be handled.
    """

    interval: Interval
    sample: "pd.DataFrame"
    rows: int
    digest: str
    copies: int = 0
    keys: "pd.Series | None" = None
    labels: "pd.Series | None" = None
    times: "pd.Series | None" = None
    origins: "pd.Series | None" = None
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the model needs; `kind` decides how a source reads it."""

    name: str
    kind: Literal["integer", "float", "boolean", "text", "datetime"]
    optional: bool = False
