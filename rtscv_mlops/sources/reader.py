"""Reading a whole source, file by file, into a sample; unusable files are sorted out on the way."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.sources.columns import (
    NATURAL,
    TARGETS,
    TIME,
    Converter,
    SourceColumn,
    check_alike,
    from_text,
    to_plain,
)
from rtscv_mlops.sources.database import open_relation
from rtscv_mlops.sources.files import File, drop_copies, find_files
from rtscv_mlops.sources.formats import FORMATS
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.stream import Budget, RowStream
from rtscv_mlops.sources.times import Span, is_past_partition
from rtscv_mlops.text import counted, listed

# Errors of the settings, the access rights or the whole source, not of a single file.
SOURCE_ERRORS = {Code.NO_TIMEZONE, Code.NO_ACCESS, Code.SIZE_CAP}


@dataclass(slots=True)
class UnusableFiles:
    """Unusable files: `skipped` ones may have rows of the window, `irrelevant` ones do not."""

    skipped: list[str] = field(default_factory=list)
    irrelevant: list[str] = field(default_factory=list)
    error: WindowError | None = None
    """The first error, preferably of a skipped file."""

    def add(self, file: File, error: WindowError, *, relevant: bool) -> None:
        """Note a file and why it cannot be used."""
        if self.error is None or (relevant and not self.skipped):
            self.error = error
        (self.skipped if relevant else self.irrelevant).append(file.relative_path)

    def findings(self, files: int, *, empty: bool) -> Iterator[str]:
        """Report the files left out, out of `files`; raise an error if that leaves no rows."""
        if self.error and not self.skipped and len(self.irrelevant) == files:
            raise self.error  # Every file has the problem, so it is one of the source.
        if self.skipped and (empty or len(self.skipped) == files):
            raise WindowError(  # An empty window here must not look like a quiet day.
                f"No file can be read, of {len(self.skipped)} that may have rows: "
                f"{listed(self.skipped, 3)}. The first error: {self.error}"
            )
        if self.skipped:
            yield (
                f"Skipped {counted(len(self.skipped), 'file')} of {files} "
                f"({len(self.skipped) / files:.0%}) that cannot be read: {listed(self.skipped, 3)}."
            )
        if self.irrelevant:
            yield (
                f"Ignored {counted(len(self.irrelevant), 'unusable file')} without rows in this "
                f"window: {listed(self.irrelevant, 3)}."
            )


def may_have_rows(file: File, settings: TableSettings, span: Span) -> bool:
    """Return whether a file may have rows in the span: False only if all its times can be read."""
    try:
        stream = file.open(settings, span, Budget(settings.max_bytes))
        if [*stream.columns, *stream.constants].count(span.column) != 1:
            return True
        if span.column in stream.constants:
            constant = pa.array([stream.constants[span.column]], pa.string())
            return bool(pc.any(span.read_times(constant, stream.name).inside).as_py())
        with closing(stream.read([span.column])) as batches:
            times = (span.read_times(batch.column(span.column), stream.name) for batch in batches)
            return any(pc.any(rows.inside).as_py() for rows in times)
    except WindowError:
        return True


@dataclass(slots=True)
class Observations:
    """What was noticed about the rows so far. `kinds` are the kinds met in each natural column."""

    kinds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    without_time: int = 0
    offsets: set[str] = field(default_factory=set)


@dataclass(slots=True)
class SourceReader:
    """Reads every file of a source, or its table, into a sketch and a profile.

    `keep` may drop rows of a batch before they count. `first` is the first file with rows in the
    span; the others must match it. An unusable file matters only if it may have such rows.
    """

    settings: TableSettings
    columns: Sequence[SourceColumn]
    sketch: Sketch
    span: Span | None = None
    progress: Callable[[int], None] | None = None
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    profile: Profile | None = None
    first: RowStream | None = None
    findings: list[str] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    observations: Observations = field(default_factory=Observations)
    unusable: UnusableFiles = field(default_factory=UnusableFiles)

    def read(self) -> None:
        """Read everything once."""
        self.budget.allowed = self.settings.max_bytes
        if self.settings.path is None:
            with open_relation(self.settings, self.span) as relation:
                self._read_stream(relation.stream(self.span, self.budget))
        else:
            self._read_files()
        if self.observations.without_time:
            rows = counted(self.observations.without_time, "row")
            self.findings.append(f"Left out {rows} without a timestamp.")
        if len(self.observations.offsets) > 1:
            offsets = listed(sorted(self.observations.offsets))
            self.findings.append(
                f"Timestamps have several offsets, all converted to UTC: {offsets}."
            )
        # Arrow's pool would keep the memory of the last batches, which others need now.
        pa.default_memory_pool().release_unused()

    def column(self, sample: pd.DataFrame, slot: str) -> pd.Series:
        """Return a slot of the sample in plain types, named as in the source."""
        name = next(column.name for column in self.columns if column.slot == slot)
        values = sample[slot].rename(name)
        kinds = self.observations.kinds
        return from_text(values, kinds[slot]) if slot in kinds else to_plain(values)

    def _read_files(self) -> None:
        listing = find_files(self.settings, FORMATS)
        files = listing.files
        if self.span is not None:
            interval = self.span.interval
            files = tuple(
                file for file in files if not is_past_partition(file.partitions, interval)
            )
        distinct = drop_copies(files)
        self.findings += [*listing.findings, *distinct.findings]
        for file in distinct.files:
            self._read_file(file)
        empty = self.span is not None and self.sketch.rows == 0
        self.findings += self.unusable.findings(len(distinct.files), empty=empty)

    def _read_file(self, file: File) -> None:
        """Read a whole file, or nothing of it."""
        before = copy.deepcopy(self.observations)
        try:
            self._read_stream(file.open(self.settings, self.span, self.budget))
        except WindowError as error:
            if error.code in SOURCE_ERRORS:
                raise
            relevant = self.span is None or may_have_rows(file, self.settings, self.span)
            if relevant and self.settings.on_bad_file == "fail":
                raise
            self.unusable.add(file, error, relevant=relevant)
            self.observations = before
        file.check_unchanged()

    def _read_stream(self, stream: RowStream) -> None:
        names = dict.fromkeys(column.name for column in stream.find(self.columns))
        if self.first is not None:
            wanted = [column.name for column in self.columns]
            check_alike(self.first.types, stream.types, wanted, (self.first.name, stream.name))
        # Merged at the end only, so that a file that turns out to be bad leaves no trace.
        sketch, profile = self.sketch.part(), self.profile and self.profile.part()
        stored = [name for name in names if name not in stream.constants]
        with closing(stream.read(stored)) as batches:
            for batch in batches:
                rows = self._convert(batch, stream)
                if rows is not None and len(rows):
                    sketch.add(rows)
                    if profile is not None:
                        profile.add(rows)
                if self.progress is not None:
                    self.progress(self.sketch.rows + sketch.rows)
        self.sketch.merge(sketch)
        if self.profile is not None and profile is not None:
            self.profile.merge(profile)
        if self.first is None and (self.span is None or sketch.rows):
            self.first = stream

    def _convert(self, batch: pa.RecordBatch, stream: RowStream) -> pa.RecordBatch | None:
        """Return the rows of the span in the wanted types; None if there are none."""
        for name, value in stream.constants.items():
            batch = batch.append_column(name, pa.array([value] * len(batch), pa.string()))
        slots: dict[str, pa.Array] = {}
        if self.span is not None:
            batch, slots[TIME] = self._select(batch, self.span, stream.name)
            if len(batch) == 0:  # The types of rows outside the span do not matter.
                return None
        present = dict(zip(batch.schema.names, batch.columns, strict=True))
        for wanted in self.columns:
            column = present.get(wanted.name)
            converter = Converter(wanted, stream.name, self.settings.csv.decimal, stream.untyped)
            if wanted.slot == TIME:
                continue
            if column is not None and wanted.kind == NATURAL:
                slots[wanted.slot], kind = converter.to_text(column)
                self.observations.kinds[wanted.slot].add(kind)
            elif column is not None:
                slots[wanted.slot] = converter.convert(column)
            elif wanted.kind != NATURAL:
                slots[wanted.slot] = pa.nulls(len(batch), TARGETS[wanted.kind])
        rows = pa.RecordBatch.from_pydict(slots)
        return rows if self.keep is None else self.keep(rows)

    def _select(
        self, batch: pa.RecordBatch, span: Span, name: str
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the rows of the span, and their times in nanoseconds."""
        rows = span.read_times(batch.column(span.column), name)
        self.observations.without_time += rows.missing
        self.observations.offsets |= rows.offsets
        times = rows.times
        if not pc.all(rows.inside).as_py():
            batch, times = batch.filter(rows.inside), times.filter(rows.inside)
        return batch, times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
