"""What a monitor reads: a window of served rows, training data, and labels that arrive later."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config.inputs import (
    LabelSettings,
    ReferenceSettings,
    SourceSettings,
    TableSettings,
)
from rtscv_mlops.errors import Code, NotAssessed, TrainingDataError, WindowError
from rtscv_mlops.sources.columns import (
    FEATURE,
    KEY,
    LABEL,
    ORIGIN,
    TIME,
    SourceColumn,
    feature_columns,
)
from rtscv_mlops.sources.files import find_files
from rtscv_mlops.sources.formats import FORMATS
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.reader import SourceReader
from rtscv_mlops.sources.sample import Sketch
from rtscv_mlops.sources.stream import Budget
from rtscv_mlops.sources.times import Span
from rtscv_mlops.text import counted, listed, shown
from rtscv_mlops.window import Column, Interval, Window

# A smaller share of underrepresented rows is not worth a finding.
CROWDED = 0.01
EVERYTHING = 2**62


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

    The sample depends on the rows and the seed only, not on files or their order. If a large
    window repeats a few rows very often, the sample is not quite uniform, and a finding says so.
    Memory is bounded by the sample and a batch. A `profile` sees all rows. `progress` is called
    with the number of rows read so far.
    """
    reader = SourceReader(
        source,
        source_columns(source, columns),
        # A label that arrives later must not change the window's digest or sample.
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
    features = _select_features(sample, columns, reader)
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
        findings=(
            *reader.findings,
            *_describe_columns(source, columns, reader),
            *_describe_values(features, sketch),
        ),
    )


def source_columns(source: SourceSettings, columns: Sequence[Column]) -> list[SourceColumn]:
    """Return the columns to read for a window: the model's, and those that the source names."""
    wanted = [SourceColumn(TIME, source.timestamp), *feature_columns(columns, source.label)]
    if source.key is not None:
        wanted.append(SourceColumn(KEY, source.key))
    if source.origin is not None:
        wanted.append(SourceColumn(ORIGIN, source.origin))
    if source.label is not None:
        wanted.append(SourceColumn(LABEL, source.label, optional=True))
    return wanted


def _select_features(
    sample: pd.DataFrame, columns: Sequence[Column], reader: SourceReader
) -> pd.DataFrame:
    """Return the model's columns of a sample, in the model's order."""
    features = {column.name: reader.column(sample, FEATURE + column.name) for column in columns}
    return pd.DataFrame(features, index=sample.index)


def _describe_columns(
    source: SourceSettings, columns: Sequence[Column], reader: SourceReader
) -> Iterator[str]:
    names = list(reader.first.types) if reader.first else []
    partitions = reader.first.constants if reader.first else {}
    read = {column.name for column in reader.columns}
    extra = [name for name in names if name not in read and name not in partitions]
    if extra:
        ignored = counted(len(extra), "column")
        yield f"Ignored {ignored} that the model does not use: {listed(extra, 3)}."
    absent = [column.name for column in columns if column.name not in names]
    if absent:
        yield f"Optional columns are absent and read as missing: {listed(absent, 3)}."
    if source.label in names:
        yield f"The label column {shown(source.label)} is kept apart and is not a feature."


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


class Reference(NamedTuple):
    """Training data in an arbitrary but fixed order, and a digest that ignores the order."""

    features: pd.DataFrame
    labels: pd.Series
    digest: str
    findings: tuple[str, ...]


def read_reference(settings: ReferenceSettings, columns: Sequence[Column]) -> Reference:
    """Read training data; a digest other than the expected one is an error."""
    wanted = [*feature_columns(columns, settings.label), SourceColumn(LABEL, settings.label)]
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
        features = _select_features(sample, columns, reader)
        labels = reader.column(sample, LABEL)
    if labels.isna().any():
        raise TrainingDataError(
            f"Column {shown(settings.label)} gives no label to "
            f"{counted(int(labels.isna().sum()), 'training row')}. Label or remove them.",
            code=Code.LABELS_MISSING,
        )
    return Reference(features, labels, digest, tuple(reader.findings))


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
    settings = TableSettings(path=str(path))
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


def read_labels(settings: LabelSettings, keys: pd.Series) -> pd.Series:
    """Read the true labels of these keys, as far as they have arrived; the index is the key.

    Keys are compared as text, so that 7 in a database finds 7 in a CSV file.
    """
    wanted = pa.array(keys.dropna().astype(str).unique(), pa.string())

    def keep(rows: pa.RecordBatch) -> pa.RecordBatch:
        is_wanted = pc.is_in(rows.column(KEY), wanted)
        return rows.filter(pc.and_(is_wanted, rows.column(LABEL).is_valid()))

    columns = [SourceColumn(KEY, settings.key), SourceColumn(LABEL, settings.label)]
    reader = SourceReader(settings, columns, Sketch(EVERYTHING, 0), keep=keep)
    reader.read()
    if reader.sketch.rows == 0:
        raise NotAssessed(
            Code.NO_LABELS, f"No label has arrived for the {len(wanted):,} rows of the window yet."
        )
    sample = reader.sketch.sample()
    pairs = pd.DataFrame({KEY: sample[KEY], LABEL: reader.column(sample, LABEL)}).drop_duplicates()
    repeated = pairs.loc[pairs[KEY].duplicated(), KEY].unique()
    if len(repeated):
        raise WindowError(
            f"Found more than one label for {counted(len(repeated), 'key')}: "
            f"{listed(repeated, 3)}. Keep one label per key.",
            code=Code.SEVERAL_LABELS,
        )
    # The keys in the type that the window has them in.
    by_text = pd.Series(keys.unique(), index=pd.Index(keys.unique()).astype(str))
    index = pd.Index(by_text.loc[pairs[KEY]], name=settings.key)
    return pairs[LABEL].set_axis(index).rename(settings.label)
