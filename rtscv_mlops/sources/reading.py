"""Pieces into one sample, in the types that were asked for: the part that all readers share.

Knows fields, pieces and sketches; knows nothing of what the rows are for.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config import TableSettings
from rtscv_mlops.errors import WindowError
from rtscv_mlops.sources.budget import Budget
from rtscv_mlops.sources.columns import NATURAL, TIME, Field, check_alike
from rtscv_mlops.sources.database import open_relation
from rtscv_mlops.sources.files import File, find_files, without_repeats
from rtscv_mlops.sources.pieces import Piece, open_file, open_rows
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.relevance import LeftOut, may_matter
from rtscv_mlops.sources.sampling import Sketch
from rtscv_mlops.sources.times import Span, partition_is_over, place_rows
from rtscv_mlops.sources.values import TARGETS, Reading, as_text, conform, from_text, plain
from rtscv_mlops.sources.wording import count, listed

# Errors that say nothing about one file: settings, rights or the whole source are at fault.
NOT_OF_A_FILE = {"no_timezone", "no_access", "size_cap"}


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
