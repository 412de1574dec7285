"""Rows: those of a window, which is a half-open interval in UTC, and labelled ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self
from zoneinfo import ZoneInfo

from rtscv_mlops.errors import Code, NotAssessed, WindowError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The time of a window, `[start, end)` in UTC.

    Parameters
    ----------
    start : datetime
        First moment of the window; must have a time zone.
    end : datetime
        First moment after the window; must have a time zone.

    Examples
    --------
    >>> from rtscv_mlops import Interval
    >>> str(Interval.day("2026-01-05"))
    '2026-01-05'
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            bound = getattr(self, name)
            if bound.tzinfo is None:
                raise WindowError(
                    f"The window's {name} {bound} has no time zone. Add one, such as +00:00."
                )
            object.__setattr__(self, name, bound.astimezone(UTC))
        if self.start == self.end:
            raise NotAssessed(Code.EMPTY_INTERVAL, f"The window {self} has no length.")
        if self.start > self.end:
            raise WindowError(f"The window's start {self.start} is after its end {self.end}.")

    @classmethod
    def parse(cls, start: str, end: str, zone: str = "UTC") -> Self:
        """Read two ISO 8601 times; `zone` applies to those without one."""
        return cls(parse_time(start, zone), parse_time(end, zone))

    @classmethod
    def day(cls, day: str, zone: str = "UTC") -> Self:
        """Return a calendar day in a zone. It has 23 or 25 hours when clocks change."""
        try:
            first = date.fromisoformat(day)
        except ValueError as error:
            raise WindowError(f"{day!r} is not a valid day. Write it like 2026-01-05.") from error
        midnight = [
            datetime.combine(first + timedelta(days=ahead), time(), ZoneInfo(zone))
            for ahead in (0, 1)
        ]
        return cls(*midnight)

    @property
    def id(self) -> str:
        """Name of the window. It sorts by time and is safe in file names and tags."""
        return f"{self.start:%Y%m%dT%H%M%SZ}-{self.end:%Y%m%dT%H%M%SZ}"

    @property
    def is_over(self) -> bool:
        return self.end <= datetime.now(UTC)

    def __str__(self) -> str:
        if self.start.time() == time() and self.end - self.start == timedelta(days=1):
            return f"{self.start:%Y-%m-%d}"
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


def parse_time(text: str, zone: str) -> datetime:
    """Read an ISO 8601 time; `zone` applies if it has none."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise WindowError(
            f"{text!r} is not a valid time. Write it like 2026-01-05T13:00:00+00:00."
        ) from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=ZoneInfo(zone))


@dataclass(frozen=True, slots=True)
class Window:
    """A uniform sample of the rows served in an interval, and counts of all of them.

    Attributes
    ----------
    sample
        The model's columns, in the model's order and types. If a large window repeats a few rows
        very often, they may be underrepresented; a finding then says so.
    rows
        Number of rows in the whole window.
    digest
        Changes if and only if the rows change. Their order does not matter.
    copies
        Rows that repeat another row. Estimated from the sample if the window is larger.
    keys, labels, times, origins
        Of each sampled row: its identifier, its true label, when it was served (UTC) and where it
        came from. None if the source has no such column.
    findings
        Sentences about problems that could be handled.
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


def _as_given(table: "pd.DataFrame") -> "pd.DataFrame":
    return table


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """A table of features, and one label for each of its rows.

    Attributes
    ----------
    label
        Name of the column that the labels come from.
    source, digest
        Where the rows come from, and a digest of all of them; empty if they have none.
    findings
        Sentences about problems that could be handled.
    as_rows
        Turns a table into what the model takes, such as an array.
    """

    features: "pd.DataFrame"
    labels: "NDArray[Any]"
    label: str = "label"
    source: str = ""
    digest: str = ""
    findings: tuple[str, ...] = ()
    as_rows: Callable[["pd.DataFrame"], Any] = _as_given

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, table: "pd.DataFrame | None" = None) -> Any:
        """Return rows as the model takes them: these, or those of another table."""
        return self.as_rows(self.features if table is None else table)

    def take(self, indices: "NDArray[Any]") -> Self:
        """Return some of the rows; the digest and the findings are those of all."""
        features = self.features.iloc[indices].reset_index(drop=True)
        return replace(self, features=features, labels=self.labels[indices])


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the model needs; `kind` decides how a source reads it."""

    name: str
    kind: Literal["integer", "float", "boolean", "text", "datetime"]
    optional: bool = False
