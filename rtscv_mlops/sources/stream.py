"""Rows that are read together or not at all: one file, or the result of one statement.

Knows the formats; knows nothing of what the rows are for.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.sources.columns import (
    NATURAL,
    TARGETS,
    TIME,
    Field,
    Reading,
    Types,
    as_text,
    check_alike,
    check_names,
    conform,
    family,
    from_text,
    plain,
    present,
)
from rtscv_mlops.sources.database import Relation, open_relation, relation_batches
from rtscv_mlops.sources.delimited import csv_batches, csv_header, header_hint
from rtscv_mlops.sources.files import Budget, File, find_files, without_repeats
from rtscv_mlops.sources.parquet import check_statistics, open_parquet, parquet_batches
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.times import Span, partition_is_over, place_rows, pushed_filter
from rtscv_mlops.text import count, listed

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a piece is called and has, and how its columns are read.

    `names` are its columns as they stand there, and may repeat. `constants` are columns that only
    the folder's name holds; an `untyped` piece is all text.
    """

    place: str
    names: Sequence[str]
    types: Types
    read: Callable[[Sequence[str]], Batches]
    constants: Mapping[str, str | None] = field(default_factory=dict)
    hint: str = ""
    untyped: bool = False

    def fields(self, wanted: Sequence[Field]) -> list[Field]:
        """Return the fields that this piece has; doubled, nameless or missing ones are errors."""
        check_names(self.names, self.place)
        return present(wanted, self.types, self.place, self.hint)


def open_file(file: File, settings: TableSettings, span: Span | None, budget: Budget) -> Piece:
    """Return a file as a piece."""
    if file.format == "csv":
        return _open_csv(file, settings, budget)
    return _open_parquet(file, span, budget)


def open_rows(relation: Relation, span: Span | None, budget: Budget) -> Piece:
    """Return a table or query as a piece; its types are known when its rows arrive."""

    def read(names: Sequence[str]) -> Batches:
        return _metered(relation_batches(relation, names, span), budget)

    types = dict.fromkeys(relation.columns, pa.null())
    return Piece(relation.name, list(relation.columns), types, read)


def _open_csv(file: File, settings: TableSettings, budget: Budget) -> Piece:
    header = csv_header(file, settings.csv)

    def read(names: Sequence[str]) -> Batches:
        return csv_batches(file, names, settings.csv, budget)

    types = dict.fromkeys([*file.partitions, *header], pa.string())
    hint = header_hint(header, settings.csv)
    return Piece(file.name, header, types, read, _constants(file, header), hint, untyped=True)


def _open_parquet(file: File, span: Span | None, budget: Budget) -> Piece:
    fragment = open_parquet(file)
    schema = fragment.physical_schema
    names: list[str] = schema.names
    stored = dict(zip(names, schema.types, strict=True))
    timed = span is not None and span.column in stored
    condition = pushed_filter(span, stored[span.column], file.name) if span and timed else None
    if span and condition is not None:
        check_statistics(file, span.column)

    def read(columns: Sequence[str]) -> Batches:
        return _metered(parquet_batches(file, fragment, columns, condition), budget)

    types = {**dict.fromkeys(file.partitions, pa.string()), **stored}
    return Piece(file.name, names, types, read, _constants(file, names))


def _constants(file: File, names: Sequence[str]) -> dict[str, str | None]:
    return {name: value for name, value in file.partitions.items() if name not in names}


def _metered(batches: Batches, budget: Budget) -> Batches:
    for batch in batches:
        budget.spend(sum(_unpacked(column) for column in batch.columns))
        yield batch


def _unpacked(column: pa.Array) -> int:
    """Return the bytes of a column, texts counted as often as a dictionary lets them be named."""
    size: int = column.nbytes
    if kinds.is_dictionary(column.type) and family(column.type) == "text":
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).to_numpy()
        size += int(lengths[column.indices.drop_null().to_numpy()].sum(dtype="int64"))
    return size


@dataclass(slots=True)
class LeftOut:
    """Files left out: `skipped` though they may have rows, or without rows, `beside` the window."""

    skipped: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    first: WindowError | None = None

    def add(self, file: File, error: WindowError, *, matters: bool) -> None:
        """Note a file and, of the first that matters most, why it cannot be used."""
        if self.first is None or (matters and not self.skipped):
            self.first = error
        (self.skipped if matters else self.beside).append(file.below)

    def findings(self, files: int, *, empty: bool) -> Iterator[str]:
        """Tell what was left out, of so many files; nothing but that is an error."""
        if self.first and not self.skipped and len(self.beside) == files:
            raise self.first  # what all files lack is no fault of a file
        if self.skipped and (empty or len(self.skipped) == files):
            raise WindowError(  # this must not look like a quiet day
                f"No file can be read, of {len(self.skipped)} that may have rows: "
                f"{listed(self.skipped, 3)}. The first error: {self.first}"
            )
        if self.skipped:
            yield (
                f"Skipped {count(len(self.skipped), 'file')} of {files} "
                f"({len(self.skipped) / files:.0%}) that cannot be read: {listed(self.skipped, 3)}."
            )
        if self.beside:
            yield (
                f"Went on without {count(len(self.beside), 'file')}, unusable but without "
                f"rows in this window: {listed(self.beside, 3)}."
            )


def may_matter(file: File, settings: TableSettings, span: Span) -> bool:
    """Tell whether a file may hold rows of the interval; it may unless all its times are read."""
    try:
        piece = open_file(file, settings, span, Budget(settings.max_bytes))
        if [*piece.names, *piece.constants].count(span.column) != 1:
            return True
        placed = (place_rows(times, span, piece.place) for times in _times(piece, span.column))
        return any(pc.any(rows.inside).as_py() for rows in placed)
    except WindowError:
        return True


def _times(piece: Piece, name: str) -> Iterator[pa.Array]:
    if name in piece.constants:
        yield pa.array([piece.constants[name]], pa.string())
        return
    for batch in piece.read([name]):
        yield batch.column(name)


# Errors that say nothing about one file: settings, rights or the whole source are at fault.
NOT_OF_A_FILE = {Code.NO_TIMEZONE, Code.NO_ACCESS, Code.SIZE_CAP}


@dataclass(slots=True)
class Traits:
    """What was noticed about the rows read so far; `natural` are the types of free columns."""

    natural: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    timeless: int = 0
    offsets: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Reader:
    """Reads every piece of a source into a sketch and a profile, and remembers what was odd.

    `keep` may drop rows of a batch before they count. `first` is the first piece with rows of the
    span; others must match it. A file that cannot be used matters only if it may have such rows.
    """

    settings: TableSettings
    fields: Sequence[Field]
    sketch: Sketch
    span: Span | None = None
    progress: Callable[[int], None] | None = None
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    profile: Profile | None = None
    first: Piece | None = None
    findings: list[str] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    traits: Traits = field(default_factory=Traits)
    left_out: LeftOut = field(default_factory=LeftOut)
    names: dict[str, str] = field(init=False)
    """Of each slot, the column that fills it."""

    def __post_init__(self) -> None:
        self.names = {field.slot: field.name for field in self.fields}

    def read(self) -> None:
        """Read everything once."""
        self.budget.allowed = self.settings.max_bytes
        if self.settings.path is None:
            with open_relation(self.settings, self.span) as relation:
                self._absorb(open_rows(relation, self.span, self.budget))
        else:
            self._read_files()
        self.findings += self._oddities()
        # Arrow keeps the memory of the last batches for more; what comes next is not Arrow's.
        pa.default_memory_pool().release_unused()

    def column(self, sample: pd.DataFrame, slot: str) -> pd.Series:
        """Return a slot of the sample in plain types, named as in the source."""
        column = sample[slot].rename(self.names[slot])
        natural = self.traits.natural
        return from_text(column, natural[slot]) if slot in natural else plain(column)

    def _read_files(self) -> None:
        found = find_files(self.settings)
        distinct = without_repeats(file for file in found.files if not self._is_over(file))
        self.findings += [*found.findings, *distinct.findings]
        for file in distinct.files:
            self._read_file(file)
        empty = self.span is not None and self.sketch.rows == 0
        self.findings += self.left_out.findings(len(distinct.files), empty=empty)

    def _is_over(self, file: File) -> bool:
        keys = dict(file.partitions)
        return self.span is not None and partition_is_over(keys, self.span.interval)

    def _read_file(self, file: File) -> None:
        """Read a file wholly, or leave no trace of it."""
        before = copy.deepcopy(self.traits)
        try:
            self._absorb(open_file(file, self.settings, self.span, self.budget))
        except WindowError as error:
            if not self._goes_without(file, error):
                raise
            self.traits = before
        file.check_unchanged()

    def _goes_without(self, file: File, error: WindowError) -> bool:
        if error.code in NOT_OF_A_FILE:
            return False
        matters = self.span is None or may_matter(file, self.settings, self.span)
        if matters and self.settings.on_bad_file == "fail":
            return False
        self.left_out.add(file, error, matters=matters)
        return True

    def _absorb(self, piece: Piece) -> None:
        names = dict.fromkeys(field.name for field in piece.fields(self.fields))
        self._compare(piece)
        part, profile = self.sketch.part(), self.profile and self.profile.part()
        for batch in piece.read([name for name in names if name not in piece.constants]):
            rows = self._rows(batch, piece)
            if rows is not None and len(rows):
                part.add(rows)
                if profile is not None:
                    profile.add(rows)
            if self.progress is not None:
                self.progress(self.sketch.rows + part.rows)
        self.sketch.merge(part)
        if self.profile is not None and profile is not None:
            self.profile.merge(profile)
        if self.first is None and (self.span is None or part.rows):
            self.first = piece

    def _compare(self, piece: Piece) -> None:
        if self.first is not None:
            names = [field.name for field in self.fields]
            places = self.first.place, piece.place
            check_alike(self.first.types, piece.types, names, places)

    def _rows(self, batch: pa.RecordBatch, piece: Piece) -> pa.RecordBatch | None:
        """Return the rows of the span, in the types asked for; None if there is none."""
        for name, value in piece.constants.items():
            batch = batch.append_column(name, pa.array([value] * len(batch), pa.string()))
        columns: dict[str, pa.Array] = {}
        if self.span is not None:
            batch, columns[TIME] = self._within(batch, self.span, piece.place)
            if len(batch) == 0:  # types of rows outside do not matter
                return None
        reading = Reading(piece.place, self.settings.csv.decimal, piece.untyped)
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        for wanted in self.fields:
            if wanted.slot != TIME:
                columns |= self._converted(found.get(wanted.name), len(batch), wanted, reading)
        rows = pa.RecordBatch.from_pydict(columns)
        return rows if self.keep is None else self.keep(rows)

    def _within(
        self, batch: pa.RecordBatch, span: Span, place: str
    ) -> tuple[pa.RecordBatch, pa.Array]:
        placed = place_rows(batch.column(span.column), span, place)
        self.traits.timeless += placed.without
        self.traits.offsets |= placed.offsets
        moments = placed.moments
        if not pc.all(placed.inside).as_py():
            batch, moments = batch.filter(placed.inside), moments.filter(placed.inside)
        return batch, moments.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())

    def _converted(
        self, column: pa.Array | None, rows: int, wanted: Field, reading: Reading
    ) -> dict[str, pa.Array]:
        if column is None:
            gaps = pa.nulls(rows, TARGETS.get(wanted.kind, pa.string()))
            return {wanted.slot: gaps} if wanted.kind != NATURAL else {}
        if wanted.kind != NATURAL:
            return {wanted.slot: conform(column, wanted, reading)}
        texts, source = as_text(column, wanted, reading)
        self.traits.natural[wanted.slot].add(source)
        return {wanted.slot: texts}

    def _oddities(self) -> Iterable[str]:
        if self.traits.timeless:
            yield f"Left out {count(self.traits.timeless, 'row')} without a timestamp."
        if len(self.traits.offsets) > 1:
            offsets = listed(sorted(self.traits.offsets))
            yield f"Timestamps have several offsets, all turned to UTC: {offsets}."
