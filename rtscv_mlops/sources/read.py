"""A window of deployment data: the rows served in an interval, sampled, in the model's types.

Knows the monitor's source; knows nothing of models and verdicts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config.inputs import LabelSettings, ReferenceSettings, SourceSettings
from rtscv_mlops.errors import Code, NotAssessed, TrainingDataError, WindowError
from rtscv_mlops.sources.columns import FEATURE, KEY, LABEL, ORIGIN, TIME, Field, feature_fields
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.stream import Reader
from rtscv_mlops.sources.times import Span
from rtscv_mlops.text import count, listed, shown
from rtscv_mlops.window import Column, Interval, Window

# A smaller share of rows that are sampled too seldom is not worth a word.
CROWDED = 0.01


def read_window(
    source: SourceSettings,
    interval: Interval,
    columns: Sequence[Column],
    *,
    max_rows: int,
    seed: int,
    profile: Profile | None = None,
    progress: Callable[[int], None] | None = None,
) -> Window:
    """Read the rows served in an interval, and keep a uniform sample of at most `max_rows`.

    The sample is uniform unless a large window repeats a few rows much, which a finding then says.
    It depends on the rows and the seed only, not on files or their order. Memory is that of the
    sample and a batch. A `profile` sees all rows. `progress` is told how many were read so far.
    """
    reader = Reader(
        source,
        source_fields(source, columns),
        # A label that arrives later must neither make another window nor another sample.
        Sketch(max_rows, seed, apart=LABEL),
        span=Span(source.timestamp, source.timezone, interval),
        progress=progress,
        profile=profile,
    )
    reader.read()
    sketch = reader.sketch
    if sketch.rows == 0:
        raise NotAssessed(Code.EMPTY_WINDOW, f"The source has no rows in the window {interval}.")
    sample = sketch.sample()
    features = features_of(sample, columns, reader)
    return Window(
        interval=interval,
        sample=features,
        rows=sketch.rows,
        digest=sketch.digest(),
        copies=sketch.copies(),
        keys=reader.column(sample, KEY) if KEY in sample else None,
        labels=reader.column(sample, LABEL) if LABEL in sample else None,
        times=pd.to_datetime(sample[TIME], utc=True),
        origins=reader.column(sample, ORIGIN) if ORIGIN in sample else None,
        findings=(*reader.findings, *_findings(source, columns, features, reader)),
    )


def features_of(sample: pd.DataFrame, columns: Sequence[Column], reader: Reader) -> pd.DataFrame:
    """Return the model's columns of a sample, in the model's order."""
    found = {column.name: reader.column(sample, FEATURE + column.name) for column in columns}
    return pd.DataFrame(found, index=sample.index)


def source_fields(source: SourceSettings, columns: Sequence[Column]) -> list[Field]:
    fields = [Field(TIME, source.timestamp), *feature_fields(columns, source.label)]
    if source.key is not None:
        fields.append(Field(KEY, source.key))
    if source.origin is not None:
        fields.append(Field(ORIGIN, source.origin))
    if source.label is not None:
        fields.append(Field(LABEL, source.label, optional=True))
    return fields


def _findings(
    source: SourceSettings, columns: Sequence[Column], features: pd.DataFrame, reader: Reader
) -> Iterator[str]:
    names = list(reader.first.types) if reader.first else []
    roles = (source.timestamp, source.key, source.label, source.origin)
    read = {*roles, *(column.name for column in columns)}
    partitions = reader.first.constants if reader.first else {}
    extra = [name for name in names if name not in read and name not in partitions]
    if extra:
        yield f"Ignored {count(len(extra), 'column')} beside the model's: {listed(extra, 3)}."
    absent = [column.name for column in columns if column.name not in names]
    if absent:
        yield f"Optional columns are absent and read as missing: {listed(absent, 3)}."
    if source.label in names:
        yield f"The label column {shown(source.label)} is kept apart and is no feature."
    crowding = reader.sketch.crowding()
    if crowding > CROWDED:
        yield (
            f"About {crowding:.0%} of the rows repeat a few others, time included, and the sample "
            "of this large window holds too few of them. A `key:` would tell them apart."
        )
    yield from _dull(features)


def _dull(features: pd.DataFrame) -> Iterator[str]:
    if len(features) < 2:
        return
    repeats = {name: _repeats(column) for name, column in features.items()}
    empty = [name for name, repeated in repeats.items() if repeated is None]
    constant = [name for name, repeated in repeats.items() if repeated]
    if empty:
        yield f"Found {count(len(empty), 'column')} without any value: {listed(empty, 3)}."
    if constant:
        yield f"Found {count(len(constant), 'column')} with one value only: {listed(constant, 3)}."


def _repeats(column: pd.Series) -> bool | None:
    """Tell whether a column has one value only, or none at all; two rows tell most of them."""
    values = column.array
    first, last = values[0], values[-1]
    if pd.isna(first):
        return None if pd.isna(last) and column.isna().all() else False
    return bool(first == last and (values == first).all())


EVERYTHING = 2**62


class Reference(NamedTuple):
    """Training data, in an order of its own, and a digest that no order changes."""

    features: pd.DataFrame
    labels: pd.Series
    digest: str
    findings: tuple[str, ...]


def read_reference(settings: ReferenceSettings, columns: Sequence[Column]) -> Reference:
    """Read training data; another digest than the expected one is an error."""
    fields = [*feature_fields(columns, settings.label), Field(LABEL, settings.label)]
    reader = Reader(settings, fields, Sketch(EVERYTHING, 0))
    with _as_training_data():
        reader.read()
    sketch = reader.sketch
    if sketch.rows == 0:
        raise TrainingDataError("The training data has no rows.", code=Code.TRAINING_DATA_MISSING)
    _check_digest(settings, sketch.digest())
    sample = sketch.sample()
    with _as_training_data():
        features = features_of(sample, columns, reader)
        labels = reader.column(sample, LABEL)
    if labels.isna().any():
        raise TrainingDataError(
            f"Column {shown(settings.label)} gives no label to "
            f"{count(int(labels.isna().sum()), 'training row')}. Label or remove them.",
            code=Code.LABELS_MISSING,
        )
    return Reference(features, labels, sketch.digest(), tuple(reader.findings))


def read_labels(settings: LabelSettings, keys: pd.Series) -> pd.Series:
    """Read the true labels of these keys, as far as they have arrived; the index is the key.

    Keys are compared as text, so that 7 in a database finds 7 in a CSV file.
    """
    wanted = pa.array(keys.dropna().astype(str).unique(), pa.string())

    def known(rows: pa.RecordBatch) -> pa.RecordBatch:
        asked = pc.is_in(rows.column(KEY), wanted)
        return rows.filter(pc.and_(asked, rows.column(LABEL).is_valid()))

    fields = [Field(KEY, settings.key), Field(LABEL, settings.label)]
    reader = Reader(settings, fields, Sketch(EVERYTHING, 0), keep=known)
    reader.read()
    if reader.sketch.rows == 0:
        raise NotAssessed(
            Code.NO_LABELS, f"No label has arrived for the {len(wanted):,} rows of the window yet."
        )
    found = reader.sketch.sample()
    labels = reader.column(found, LABEL).set_axis(pd.Index(found[KEY], name=settings.key))
    return _one_each(labels, keys)


def _one_each(labels: pd.Series, keys: pd.Series) -> pd.Series:
    pairs = labels.reset_index().drop_duplicates()
    key = pairs.columns[0]
    several = pairs.loc[pairs[key].duplicated(), key].unique()
    if len(several):
        raise WindowError(
            f"Found more than one label for {count(len(several), 'key')}: {listed(several, 3)}. "
            "Keep one label per key.",
            code=Code.SEVERAL_LABELS,
        )
    once = pairs.set_index(key)[labels.name]
    own = pd.Series(keys.unique(), index=pd.Index(keys.unique()).astype(str))
    return once.set_axis(pd.Index(own.loc[once.index], name=key))


def _check_digest(settings: ReferenceSettings, digest: str) -> None:
    if settings.digest is not None and settings.digest != digest:
        raise TrainingDataError(
            f"The training data has changed: its digest is {digest}, expected {settings.digest}. "
            "Restore it, or set the new digest in `reference:` if the change was meant.",
            code=Code.TRAINING_DATA_CHANGED,
        )


@contextmanager
def _as_training_data() -> Iterator[None]:
    """Name failures after what is read: this is not the window."""
    try:
        yield
    except NotAssessed as error:
        raise TrainingDataError(
            f"The training data is missing. {error}", code=Code.TRAINING_DATA_MISSING
        ) from error
    except WindowError as error:
        raise TrainingDataError(f"The training data cannot be used. {error}") from error
