"""When a row was served: timestamps of any kind to UTC, and which rows are in an interval."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.sources.columns import decode, family
from rtscv_mlops.text import counted, listed, shown
from rtscv_mlops.window import Interval

# Clocks were never set back by more than this, so local bounds widened by it miss no row.
SLACK = timedelta(hours=3)
# The part of ISO 8601 that RFC 3339 keeps; also a blank instead of T, and days alone.
ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
ZONED = r"\d{2}:\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
OFFSET = r"(?P<offset>Z|[+-]\d{2}(?::?\d{2})?)$"


@dataclass(frozen=True, slots=True)
class UtcTimes:
    """Timestamps in UTC. The two arrays differ where clocks changed and a local time is unclear."""

    earliest: pa.Array
    latest: pa.Array
    offsets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Of each row of a batch, its time and whether it is in the interval.

    `missing` counts the rows without a timestamp. `offsets` are the UTC offsets found in text.
    """

    inside: pa.Array
    times: pa.Array
    missing: int
    offsets: frozenset[str]


@dataclass(frozen=True, slots=True)
class Span:
    """The interval to read, by which column, and the zone of timestamps that have none.

    The `name` that methods take is the file or table, for messages.
    """

    column: str
    zone: str | None
    interval: Interval

    def local_bounds(self) -> tuple[datetime, datetime]:
        """Return bounds without a zone that include every local time of the interval, and more."""
        zone = ZoneInfo(self.zone or "UTC")
        start, end = (
            bound.astimezone(zone).replace(tzinfo=None)
            for bound in (self.interval.start, self.interval.end)
        )
        return start - SLACK, end + SLACK

    def text_bounds(self) -> tuple[str, str]:
        """Return days as ISO text that include every spelling of the interval's times."""
        day = timedelta(days=1)
        first, last = self.interval.start.date() - day, self.interval.end.date() + 2 * day
        return first.isoformat(), last.isoformat()

    def require_zone(self, name: str) -> str:
        """Return the zone of timestamps that have none; raise an error if it is not set."""
        if self.zone is None:
            raise WindowError(
                f"The timestamps in column {shown(self.column)} of {name} carry no time zone. Set "
                "`timezone:` in the monitor's source, such as UTC.",
                code=Code.NO_TIMEZONE,
            )
        return self.zone

    def row_filter(self, kind: pa.DataType, name: str) -> pc.Expression | None:
        """Return a filter that may pass too many rows, never too few; None if that is not safe.

        Rows without a timestamp pass, so that they can be counted.
        """
        field = pc.field(self.column)
        if kinds.is_timestamp(kind) and kind.tz:
            unit = "ns" if kind.unit == "ns" else "us"
            start, end = (
                pa.scalar(bound, pa.timestamp(unit, kind.tz))
                for bound in (self.interval.start, self.interval.end)
            )
            return (field >= start) & (field < end) | field.is_null()
        if kinds.is_timestamp(kind) or kinds.is_date(kind):
            self.require_zone(name)
            start, end = (
                pa.scalar(bound.date() if kinds.is_date(kind) else bound)
                for bound in self.local_bounds()
            )
            return (field >= start) & (field <= end) | field.is_null()
        return None

    def read_times(self, column: pa.Array, name: str) -> RowTimes:
        """Read the timestamps of a batch; a local time near the interval must be unambiguous."""
        column = decode(column)
        utc = self._to_utc(column, name)
        start, end = (
            pa.scalar(bound, pa.timestamp("us", "UTC"))
            for bound in (self.interval.start, self.interval.end)
        )
        inside, inside_at_latest = (
            pc.and_(pc.greater_equal(times, start), pc.less(times, end))
            for times in (utc.earliest, utc.latest)
        )
        unclear = pc.and_(pc.not_equal(utc.earliest, utc.latest), pc.or_(inside, inside_at_latest))
        if pc.any(unclear).as_py():
            local = column.filter(pc.fill_null(unclear, False))
            raise WindowError(
                f"Column {shown(self.column)} of {name} has "
                f"{counted(len(local), 'timestamp')} with no unique meaning in {self.zone}, "
                "because clocks changed then: "
                f"{listed([str(value) for value in local.to_pylist()], 3)}. Write timestamps in "
                "UTC or with their offset.",
                code=Code.UNCLEAR_TIME,
            )
        return RowTimes(pc.fill_null(inside, False), utc.earliest, column.null_count, utc.offsets)

    def _to_utc(self, column: pa.Array, name: str) -> UtcTimes:
        kind = column.type
        if kinds.is_null(kind) or (kinds.is_timestamp(kind) and kind.tz):
            times = column.cast(
                pa.timestamp(kind.unit if kinds.is_timestamp(kind) else "us", "UTC")
            )
            return UtcTimes(times, times)
        if kinds.is_timestamp(kind):
            return self._local_to_utc(column, name)
        if kinds.is_date(kind):
            return self._local_to_utc(column.cast(pa.timestamp("s")), name)
        if family(kind) == "text":
            return self._text_to_utc(column.cast(pa.string()), name)
        raise self._unreadable(column.drop_null(), name)

    def _local_to_utc(self, column: pa.Array, name: str) -> UtcTimes:
        if column.null_count == len(column):
            gaps = column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            return UtcTimes(gaps, gaps)
        zone = self.require_zone(name)
        earliest, latest = (
            pc.assume_timezone(column, zone, ambiguous=rule, nonexistent=rule).cast(
                pa.timestamp(column.type.unit, "UTC")
            )
            for rule in ("earliest", "latest")
        )
        return UtcTimes(earliest, latest)

    def _text_to_utc(self, column: pa.Array, name: str) -> UtcTimes:
        not_iso = pc.invert(pc.match_substring_regex(column, ISO))
        if pc.any(not_iso).as_py():
            raise self._unreadable(column.filter(pc.fill_null(not_iso, False)), name)
        unit = "ns" if pc.any(pc.match_substring_regex(column, r"\.\d{7}")).as_py() else "us"
        zoned = pc.match_substring_regex(column, ZONED)
        gap = pa.scalar(None, pa.string())
        try:
            with_zone = pc.if_else(zoned, column, gap).cast(pa.timestamp(unit, "UTC"))
            without_zone = pc.if_else(zoned, gap, column).cast(pa.timestamp(unit))
        except pa.ArrowInvalid as error:
            wrong = [text for text in column.drop_null().to_pylist() if not _is_time(text)]
            raise self._unreadable(pa.array(wrong), name) from error
        local = self._local_to_utc(without_zone, name)
        offsets = pc.extract_regex(pc.if_else(zoned, column, gap), OFFSET).drop_null()
        return UtcTimes(
            pc.coalesce(with_zone, local.earliest),
            pc.coalesce(with_zone, local.latest),
            frozenset(pc.unique(pc.struct_field(offsets, "offset")).to_pylist()),
        )

    def _unreadable(self, examples: pa.Array, name: str) -> WindowError:
        return WindowError(
            f"Column {shown(self.column)} of {name} should hold timestamps, but "
            f"{counted(len(examples), 'value')} of type {examples.type} cannot be read as such, "
            f"like {listed(examples[:3].to_pylist())}. Store timestamps, or text like "
            "2026-01-05T13:00:00+00:00. Epoch numbers are ambiguous: their unit is unknown.",
            code=Code.BAD_TIMESTAMP,
        )


def sorts_by_time(text: str) -> bool:
    """Return whether a timestamp is written so that alphabetical order is order in time."""
    return re.match(ISO, text) is not None


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_past_partition(partitions: Mapping[str, str | None], interval: Interval) -> bool:
    """Return whether a folder such as `date=2026-01-05` is too old to hold rows of the interval.

    Folders are named after the day when rows were served or when they landed, and no row lands
    before it is served. So folders dated before the interval, in any zone, can be left out. Later
    ones may hold late rows, and are always read.
    """
    last = _last_day({name.lower(): value or "" for name, value in partitions.items()})
    return last is not None and last < interval.start.astimezone(UTC).date() - timedelta(days=1)


def _last_day(partitions: Mapping[str, str]) -> date | None:
    try:
        for name in ("date", "day", "dt", "ds"):
            if len(partitions.get(name, "")) >= 8:
                return date.fromisoformat(partitions[name])
        if "year" not in partitions:
            return None
        year, month = int(partitions["year"]), int(partitions.get("month", 12))
        if "month" in partitions and "day" in partitions:
            return date(year, month, int(partitions["day"]))
        return (date(year, month, 1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    except (ValueError, OverflowError):  # The folder is named after something else.
        return None
