"""What a monitor reads: a window of served rows, training data, and labels that arrive later.

A source is read file by file into a bounded sample; unusable files are sorted out on the way.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config import inputs
from rtscv_mlops.errors import Code, NotAssessed, TrainingDataError, WindowError
from rtscv_mlops.sources.columns import TARGETS, Converter, Slot, SourceColumn, restore
from rtscv_mlops.sources.database import open_relation
from rtscv_mlops.sources.delimited import open_csv
from rtscv_mlops.sources.files import File, Format, drop_copies, find_files
from rtscv_mlops.sources.parquet import open_parquet
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.stream import Budget, RowStream
from rtscv_mlops.sources.times import Span, is_past_partition
from rtscv_mlops.text import counted, listed, shown
from rtscv_mlops.window import Column, Interval, LabelledRows, Window

FORMATS = (
    Format("parquet", "Parquet", (".parquet", ".pq"), open_parquet),
    Format("csv", "CSV", (".csv", ".csv.gz", ".tsv", ".tsv.gz"), open_csv),
)
"""The file formats that can be read. To add one, write its module and add its line here."""

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


def may_have_rows(file: File, settings: inputs.TableSettings, span: Span) -> bool:
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

    settings: inputs.TableSettings
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
        return restore(values, self.observations.kinds.get(slot))

    def features(self, sample: pd.DataFrame) -> pd.DataFrame:
        """Return the model's columns of a sample, in the model's order."""
        features = {
            column.name: self.column(sample, column.slot)
            for column in self.columns
            if column.is_feature
        }
        return pd.DataFrame(features, index=sample.index)

    def describe_columns(self) -> Iterator[str]:
        """Report the columns that are ignored, absent or kept apart."""
        names = list(self.first.types) if self.first else []
        partitions = self.first.constants if self.first else {}
        wanted = {column.name for column in self.columns}
        extra = [name for name in names if name not in wanted and name not in partitions]
        if extra:
            ignored = counted(len(extra), "column")
            yield f"Ignored {ignored} that the model does not use: {listed(extra, 3)}."
        features = [column.name for column in self.columns if column.is_feature]
        absent = [name for name in features if name not in names]
        if absent:
            yield f"Optional columns are absent and read as missing: {listed(absent, 3)}."
        for column in self.columns:
            if column.slot == Slot.LABEL and column.name in names:
                yield f"The label column {shown(column.name)} is kept apart and is not a feature."

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
            self.first.check_alike(stream, [column.name for column in self.columns])
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
            batch, slots[Slot.TIME] = self._select(batch, self.span, stream.name)
            if len(batch) == 0:  # The types of rows outside the span do not matter.
                return None
        present = dict(zip(batch.schema.names, batch.columns, strict=True))
        for wanted in self.columns:
            if wanted.slot == Slot.TIME:
                continue
            column = present.get(wanted.name)
            converter = Converter(wanted, stream.name, self.settings.csv.decimal, stream.untyped)
            if column is not None and wanted.is_natural:
                slots[wanted.slot], kind = converter.to_text(column)
                self.observations.kinds[wanted.slot].add(kind)
            elif column is not None:
                slots[wanted.slot] = converter.convert(column)
            elif not wanted.is_natural:
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


# A smaller share of underrepresented rows is not worth a finding.
CROWDED = 0.01
EVERYTHING = 2**62


def read_window(
    source: inputs.SourceSettings,
    interval: Interval,
    columns: Sequence[Column],
    *,
    max_rows: int,
    seed: int,
    profile: Profile | None = None,
    progress: Callable[[int], None] | None = None,
) -> Window:
    """Read the rows served in an interval, and keep a uniform sample of at most `max_rows`.

    The sample depends on the rows and the seed only, not on files or their order. If a large
    window repeats a few rows very often, the sample is not quite uniform, and a finding says so.
    Memory is bounded by the sample and a batch. A `profile` sees all rows. `progress` is called
    with the number of rows read so far.
    """
    reader = SourceReader(
        source,
        source_columns(source, columns),
        # A label that arrives later must not change the window's digest or sample.
        Sketch(max_rows, seed, apart=Slot.LABEL),
        span=Span(source.timestamp, source.timezone, interval),
        progress=progress,
        profile=profile,
    )
    reader.read()
    sketch = reader.sketch
    if sketch.rows == 0:
        raise NotAssessed(Code.EMPTY_WINDOW, f"The source has no rows in the window {interval}.")
    sample = sketch.sample()
    features = reader.features(sample)
    return Window(
        interval=interval,
        sample=features,
        rows=sketch.rows,
        digest=sketch.digest(),
        copies=sketch.copies(),
        keys=reader.column(sample, Slot.KEY) if Slot.KEY in sample else None,
        labels=reader.column(sample, Slot.LABEL) if Slot.LABEL in sample else None,
        times=pd.to_datetime(sample[Slot.TIME], utc=True),
        origins=reader.column(sample, Slot.ORIGIN) if Slot.ORIGIN in sample else None,
        findings=(
            *reader.findings,
            *reader.describe_columns(),
            *_describe_values(features, sketch),
        ),
    )


def source_columns(source: inputs.SourceSettings, columns: Sequence[Column]) -> list[SourceColumn]:
    """Return the columns to read for a window: the model's, and those that the source names."""
    wanted = [
        SourceColumn(Slot.TIME, source.timestamp),
        *SourceColumn.of_features(columns, source.label),
    ]
    if source.key is not None:
        wanted.append(SourceColumn(Slot.KEY, source.key))
    if source.origin is not None:
        wanted.append(SourceColumn(Slot.ORIGIN, source.origin))
    if source.label is not None:
        wanted.append(SourceColumn(Slot.LABEL, source.label, optional=True))
    return wanted


def _describe_values(features: pd.DataFrame, sketch: Sketch) -> Iterator[str]:
    crowding = sketch.crowding()
    if crowding > CROWDED:
        yield (
            f"About {crowding:.0%} of the rows repeat a few others, time included, and the sample "
            "of this large window holds too few of them. A `key:` would tell them apart."
        )
    if len(features) < 2:
        return
    empty, constant = [], []
    for name, column in features.items():
        values = column.array
        first, last = values[0], values[-1]
        # Two rows settle most columns; only the others are looked at in full.
        if pd.isna(first):
            if pd.isna(last) and column.isna().all():
                empty.append(name)
        elif first == last and (values == first).all():
            constant.append(name)
    if empty:
        yield f"Found {counted(len(empty), 'column')} without any value: {listed(empty, 3)}."
    if constant:
        columns = counted(len(constant), "column")
        yield f"Found {columns} with one value only: {listed(constant, 3)}."


def read_reference(settings: inputs.ReferenceSettings, columns: Sequence[Column]) -> LabelledRows:
    """Read training data in an arbitrary but fixed order, with a digest that ignores the order.

    A digest other than the expected one is an error.
    """
    wanted = [
        *SourceColumn.of_features(columns, settings.label),
        SourceColumn(Slot.LABEL, settings.label),
    ]
    reader = SourceReader(settings, wanted, Sketch(EVERYTHING, 0))
    with _as_training_data():
        reader.read()
    sketch = reader.sketch
    if sketch.rows == 0:
        raise TrainingDataError("The training data has no rows.", code=Code.TRAINING_DATA_MISSING)
    digest = sketch.digest()
    if settings.digest not in (None, digest):
        raise TrainingDataError(
            f"The training data has changed: its digest is {digest}, expected {settings.digest}. "
            "Restore it, or set the new digest in `reference:` if the change was meant.",
            code=Code.TRAINING_DATA_CHANGED,
        )
    sample = sketch.sample()
    with _as_training_data():
        features = reader.features(sample)
        labels = reader.column(sample, Slot.LABEL)
    if labels.isna().any():
        raise TrainingDataError(
            f"Column {shown(settings.label)} gives no label to "
            f"{counted(int(labels.isna().sum()), 'training row')}. Label or remove them.",
            code=Code.LABELS_MISSING,
        )
    return LabelledRows(
        features,
        labels.to_numpy(),
        label=settings.label,
        source=settings.path or settings.table or "the query of the monitor's reference",
        digest=digest,
        findings=tuple(reader.findings),
    )


def read_training_file(path: Path) -> pd.DataFrame:
    """Read a table of features and labels from a Parquet or CSV file, in the file's order.

    Formats, checks and errors are those of `reference:`. A Parquet file has the types that pandas
    gives it. A CSV file has no types, so each column becomes numbers or booleans if all its values
    are; else it is text. Only an empty field of a text column is missing: a label `NA` is text.
    """
    if not path.is_file():
        raise TrainingDataError(
            f"There is no file {path}. Name a Parquet or CSV file.",
            code=Code.TRAINING_DATA_MISSING,
        )
    settings = inputs.TableSettings(path=str(path))
    with _as_training_data():
        (file,) = find_files(settings, FORMATS).files
        stream = file.open(settings, None, Budget(settings.max_bytes))
        table = stream.read_table()
    if table.empty:
        raise TrainingDataError(f"{path} has no rows.", code=Code.TRAINING_DATA_MISSING)
    return table


@contextmanager
def _as_training_data() -> Iterator[None]:
    """Turn errors about a window into errors about training data."""
    try:
        yield
    except NotAssessed as error:
        raise TrainingDataError(
            f"The training data is missing. {error}", code=Code.TRAINING_DATA_MISSING
        ) from error
    except WindowError as error:
        raise TrainingDataError(f"The training data cannot be used. {error}") from error


def read_labels(settings: inputs.LabelSettings, keys: pd.Series) -> pd.Series:
    """Read the true labels of these keys, as far as they have arrived; the index is the key.

    Keys are compared as text, so that 7 in a database finds 7 in a CSV file.
    """
    wanted = pa.array(keys.dropna().astype(str).unique(), pa.string())

    def keep(rows: pa.RecordBatch) -> pa.RecordBatch:
        is_wanted = pc.is_in(rows.column(Slot.KEY), wanted)
        return rows.filter(pc.and_(is_wanted, rows.column(Slot.LABEL).is_valid()))

    columns = [SourceColumn(Slot.KEY, settings.key), SourceColumn(Slot.LABEL, settings.label)]
    reader = SourceReader(settings, columns, Sketch(EVERYTHING, 0), keep=keep)
    reader.read()
    if reader.sketch.rows == 0:
        raise NotAssessed(
            Code.NO_LABELS, f"No label has arrived for the {len(wanted):,} rows of the window yet."
        )
    sample = reader.sketch.sample()
    pairs = pd.DataFrame(
        {Slot.KEY: sample[Slot.KEY], Slot.LABEL: reader.column(sample, Slot.LABEL)}
    ).drop_duplicates()
    repeated = pairs.loc[pairs[Slot.KEY].duplicated(), Slot.KEY].unique()
    if len(repeated):
        raise WindowError(
            f"Found more than one label for {counted(len(repeated), 'key')}: "
            f"{listed(repeated, 3)}. Keep one label per key.",
            code=Code.SEVERAL_LABELS,
        )
    # The keys in the type that the window has them in.
    by_text = pd.Series(keys.unique(), index=pd.Index(keys.unique()).astype(str))
    index = pd.Index(by_text.loc[pairs[Slot.KEY]], name=settings.key)
    return pairs[Slot.LABEL].set_axis(index).rename(settings.label)
