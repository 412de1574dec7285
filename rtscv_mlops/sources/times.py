"""When a row was served: timestamps of any writing to UTC, and the rows inside an interval.

Knows moments and zones; knows nothing of files and tables.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.sources.columns import decoded
from rtscv_mlops.text import count, listed, shown
from rtscv_mlops.window import Interval

# Clocks were never set back by more than this, so local bounds this much wider miss no row.
SLACK = timedelta(hours=3)
# The part of ISO 8601 that RFC 3339 keeps, with blanks and days alone.
ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
ZONED = r"\d{2}:\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
OFFSET = r"(?P<offset>Z|[+-]\d{2}(?::?\d{2})?)$"


@dataclass(frozen=True, slots=True)
class Span:
    """Which column says when, in which zone if it does not say, and the moments asked for."""

    column: str
    zone: str | None
    interval: Interval

    def local_bounds(self) -> tuple[datetime, datetime]:
        """Return bounds without a zone that hold every local time of the interval, and more."""
        zone = ZoneInfo(self.zone or "UTC")
        start, end = (
            moment.astimezone(zone).replace(tzinfo=None)
            for moment in (self.interval.start, self.interval.end)
        )
        return start - SLACK, end + SLACK

    def text_bounds(self) -> tuple[str, str]:
        """Return days as ISO text that hold every writing of the interval's moments."""
        day = timedelta(days=1)
        first, last = self.interval.start.date() - day, self.interval.end.date() + 2 * day
        return first.isoformat(), last.isoformat()

    def need_zone(self, place: str) -> str:
        """Return the zone of timestamps that carry none."""
        if self.zone is None:
            raise WindowError(
                f"The timestamps in column {shown(self.column)} of {place} carry no time zone, so "
                "they name no moment. Set `timezone:` in the monitor's source, such as UTC.",
                code=Code.NO_TIMEZONE,
            )
        return self.zone


@dataclass(frozen=True, slots=True)
class Moments:
    """Timestamps in UTC; the two differ where a local time names no moment, or two."""

    earliest: pa.Array
    latest: pa.Array
    offsets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placed:
    """Which rows of a batch are inside the interval, and what was seen on the way."""

    inside: pa.Array
    moments: pa.Array
    without: int
    offsets: frozenset[str]


def is_written_clearly(text: str) -> bool:
    """Tell whether a text is a timestamp of the kind whose order is that of its characters."""
    return re.match(ISO, text) is not None


def pushed_filter(span: Span, kind: pa.DataType, place: str) -> pc.Expression | None:
    """Return a filter for the reader, never narrower than the interval; None where none is safe.

    Rows without a timestamp pass, so that they can be counted.
    """
    field = pc.field(span.column)
    if kinds.is_timestamp(kind) and kind.tz:
        unit = "ns" if kind.unit == "ns" else "us"
        start, end = (
            pa.scalar(moment, pa.timestamp(unit, kind.tz))
            for moment in (span.interval.start, span.interval.end)
        )
    elif kinds.is_timestamp(kind) or kinds.is_date(kind):
        span.need_zone(place)
        start, end = (
            pa.scalar(moment.date() if kinds.is_date(kind) else moment)
            for moment in span.local_bounds()
        )
        return (field >= start) & (field <= end) | field.is_null()
    else:
        return None
    return (field >= start) & (field < end) | field.is_null()


def place_rows(column: pa.Array, span: Span, place: str) -> Placed:
    """Tell which rows are inside the interval; local times that name no moment are an error."""
    column = decoded(column)
    moments = _moments(column, span, place)
    inside = [_inside(bound, span.interval) for bound in (moments.earliest, moments.latest)]
    unclear = pc.and_(pc.not_equal(moments.earliest, moments.latest), pc.or_(inside[0], inside[1]))
    if pc.any(unclear).as_py():
        local = column.filter(pc.fill_null(unclear, False))
        raise WindowError(
            f"Column {shown(span.column)} of {place} has {count(len(local), 'timestamp')} with no "
            f"single moment in {span.zone}, since clocks changed then: "
            f"{listed(_texts(local), 3)}. Write timestamps in UTC or with their offset.",
            code=Code.UNCLEAR_TIME,
        )
    return Placed(
        pc.fill_null(inside[0], False), moments.earliest, column.null_count, moments.offsets
    )


def _inside(moments: pa.Array, interval: Interval) -> pa.Array:
    start, end = (
        pa.scalar(bound, pa.timestamp("us", "UTC")) for bound in (interval.start, interval.end)
    )
    return pc.and_(pc.greater_equal(moments, start), pc.less(moments, end))


def _moments(column: pa.Array, span: Span, place: str) -> Moments:
    kind = column.type
    if kinds.is_timestamp(kind) and kind.tz:
        moments = column.cast(pa.timestamp(kind.unit, "UTC"))
        return Moments(moments, moments)
    if kinds.is_timestamp(kind):
        return _local(column, span, place)
    if kinds.is_date(kind):
        return _local(column.cast(pa.timestamp("s")), span, place)
    if kinds.is_null(kind):
        moments = column.cast(pa.timestamp("us", "UTC"))
        return Moments(moments, moments)
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return _parsed(column.cast(pa.string()), span, place)
    raise _no_moments(column.drop_null(), span, place)


def _local(column: pa.Array, span: Span, place: str) -> Moments:
    if column.null_count == len(column):
        nothing = column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        return Moments(nothing, nothing)
    zone = span.need_zone(place)
    earliest, latest = (
        pc.assume_timezone(column, zone, ambiguous=rule, nonexistent=rule).cast(
            pa.timestamp(column.type.unit, "UTC")
        )
        for rule in ("earliest", "latest")
    )
    return Moments(earliest, latest)


def _parsed(column: pa.Array, span: Span, place: str) -> Moments:
    odd = pc.invert(pc.match_substring_regex(column, ISO))
    if pc.any(odd).as_py():
        raise _no_moments(column.filter(pc.fill_null(odd, False)), span, place)
    unit = "ns" if pc.any(pc.match_substring_regex(column, r"\.\d{7}")).as_py() else "us"
    zoned = pc.match_substring_regex(column, ZONED)
    nothing = pa.scalar(None, pa.string())
    try:
        with_zone = pc.if_else(zoned, column, nothing).cast(pa.timestamp(unit, "UTC"))
        without = pc.if_else(zoned, nothing, column).cast(pa.timestamp(unit))
    except pa.ArrowInvalid as error:
        raise _no_moments(_unreadable(column), span, place) from error
    local = _local(without, span, place)
    offsets = pc.extract_regex(pc.if_else(zoned, column, nothing), OFFSET).drop_null()
    return Moments(
        pc.coalesce(with_zone, local.earliest),
        pc.coalesce(with_zone, local.latest),
        frozenset(pc.unique(pc.struct_field(offsets, "offset")).to_pylist()),
    )


def _unreadable(column: pa.Array) -> pa.Array:
    return pa.array([text for text in column.drop_null().to_pylist() if not _is_moment(text)])


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _no_moments(examples: pa.Array, span: Span, place: str) -> WindowError:
    return WindowError(
        f"Column {shown(span.column)} of {place} should hold timestamps, but "
        f"{count(len(examples), 'value')} of type {examples.type} cannot be read as such, like "
        f"{listed(examples[:3].to_pylist())}. Store timestamps, or text like "
        "2026-01-05T13:00:00+00:00; epoch numbers do not say their unit.",
        code=Code.BAD_TIMESTAMP,
    )


def _texts(column: pa.Array) -> list[str]:
    return [str(value) for value in column.to_pylist()]


def partition_is_over(keys: dict[str, str | None], interval: Interval) -> bool:
    """Tell whether a folder such as `date=2026-01-05` cannot hold rows of the interval.

    Folders are named after when rows were served or when they landed, and no row lands before it
    is served: folders dated before the interval, in whatever zone, are over. Later ones may hold
    late rows, and are never left out.
    """
    last = _last_day(keys)
    return last is not None and last < interval.start.astimezone(UTC).date() - timedelta(days=1)


def _last_day(keys: dict[str, str | None]) -> date | None:
    lowered = {name.lower(): value or "" for name, value in keys.items()}
    try:
        for name in ("date", "day", "dt", "ds"):
            if len(lowered.get(name, "")) >= 8:
                return date.fromisoformat(lowered[name])
        if "year" not in lowered:
            return None
        return _last_of(lowered)
    except ValueError:  # such a folder is named after something else
        return None


def _last_of(keys: dict[str, str]) -> date:
    year = int(keys["year"])
    if "month" not in keys:
        return date(year, 12, 31)
    month = int(keys["month"])
    if "day" in keys:
        return date(year, month, int(keys["day"]))
    return (date(year, month, 1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
