"""A first look at a source for `check`, from headers, footers and catalogues alone."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.database import open_relation
from rtscv_mlops.sources.files import find_files
from rtscv_mlops.sources.read import FORMATS, source_columns
from rtscv_mlops.sources.stream import Budget, RowStream
from rtscv_mlops.sources.times import Span
from rtscv_mlops.text import shown
from rtscv_mlops.window import Column, Interval

# Files to open: half of them the first by name, half the last.
MAX_OPENED = 20
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a source holds, as far as that is known without reading its rows.

    `columns` maps names to types as the source calls them. `rows` is an estimate unless `exact`.
    `first` and `last` are the bounds of the timestamps in the opened files, as stored. Each is
    None if only reading everything would tell.
    """

    name: str
    columns: dict[str, str]
    files: tuple[str, ...] = ()
    size: int | None = None
    rows: int | None = None
    exact: bool = False
    first: date | str | None = None
    last: date | str | None = None
    findings: tuple[str, ...] = ()


def peek(source: SourceSettings, columns: Sequence[Column] = ()) -> SourceSummary:
    """Look at a source. What would stop a run, such as a missing column, is an error here too.

    Of several files, this holds for the last by name. Other unusable ones are findings.
    """
    if source.path is not None:
        return _peek_files(source, columns)
    with open_relation(source, _any_span(source)) as relation:
        stream = relation.stream(None, Budget())
        findings = tuple(_check(stream, source, columns))
        first, last = relation.indexed_bounds(source.timestamp)
        return SourceSummary(
            relation.name, relation.columns, first=first, last=last, findings=findings
        )


def _peek_files(source: SourceSettings, columns: Sequence[Column]) -> SourceSummary:
    listing = find_files(source, FORMATS)
    files = listing.files
    newest = files[-1].open(source, None, Budget())
    label_findings = _check(newest, source, columns)
    needed = [column for column in source_columns(source, columns) if not column.optional]
    half = MAX_OPENED // 2
    findings, summaries, summarized_bytes = [], [], 0
    for file in files if len(files) <= MAX_OPENED else [*files[:half], *files[-half:]]:
        try:
            stream = file.open(source, None, Budget())
            names = [column.name for column in stream.find(needed)]
            newest.check_alike(stream, names)
            if stream.summarize is not None:
                summaries.append(stream.summarize(source.timestamp))
                summarized_bytes += file.size
        except WindowError as error:
            findings.append(f"{shown(file.relative_path)} cannot be used: {error}")
    size = sum(file.size for file in files)
    rows = sum(summary.rows for summary in summaries)
    bounds = [bound for summary in summaries for bound in summary.bounds]
    return SourceSummary(
        name=source.path or "",
        columns={name: str(kind) for name, kind in newest.types.items()},
        files=tuple(file.path for file in files),
        size=size,
        rows=round(rows / (summarized_bytes / max(1, size))) if summaries else None,
        exact=len(summaries) == len(files),
        first=min(bounds, default=None),
        last=max(bounds, default=None),
        findings=(*listing.findings, *findings, *label_findings),
    )


def _check(stream: RowStream, source: SourceSettings, columns: Sequence[Column]) -> list[str]:
    """Check the columns, and one batch of timestamps, as a run would."""
    stream.find(source_columns(source, columns))
    if source.timestamp not in stream.constants:
        with closing(stream.read([source.timestamp])) as batches:
            batch = next(batches, None)
            if batch is not None:
                _any_span(source).read_times(batch.column(source.timestamp), stream.name)
    if source.label is None or source.label in stream.types:
        return []
    # A run does without labels, so a misspelt name would go unnoticed until `score`.
    return [
        f"There is no column {shown(source.label)}, which source.label names. Correct it if it "
        "is misspelt; without it `score` has no labels."
    ]


def _any_span(source: SourceSettings) -> Span:
    interval = Interval(LONG_AGO, LONG_AGO + timedelta(days=1))
    return Span(source.timestamp, source.timezone, interval)
