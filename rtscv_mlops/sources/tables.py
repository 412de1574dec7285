"""Training data and late labels: tables that are read whole, whatever their time.

Knows the monitor's places; knows nothing of models and scores.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rtscv_mlops.config import LabelSettings, ReferenceSettings
from rtscv_mlops.errors import NotAssessed, TrainingDataError, WindowError
from rtscv_mlops.sources.columns import KEY, LABEL, Field, feature_fields
from rtscv_mlops.sources.reading import Reader
from rtscv_mlops.sources.sampling import Sketch
from rtscv_mlops.sources.windows import features_of
from rtscv_mlops.sources.wording import count, listed, shown
from rtscv_mlops.window import Column

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
        raise TrainingDataError("The training data has no rows.", code="training_data_missing")
    _check_digest(settings, sketch.digest())
    sample = sketch.sample()
    with _as_training_data():
        features = features_of(sample, columns, reader)
        labels = reader.column(sample, LABEL)
    if labels.isna().any():
        raise TrainingDataError(
            f"Column {shown(settings.label)} gives no label to "
            f"{count(int(labels.isna().sum()), 'training row')}. Label or remove them.",
            code="labels_missing",
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
            "no_labels", f"No label has arrived for the {len(wanted):,} rows of the window yet."
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
            code="several_labels",
        )
    once = pairs.set_index(key)[labels.name]
    own = pd.Series(keys.unique(), index=pd.Index(keys.unique()).astype(str))
    return once.set_axis(pd.Index(own.loc[once.index], name=key))


def _check_digest(settings: ReferenceSettings, digest: str) -> None:
    if settings.digest is not None and settings.digest != digest:
        raise TrainingDataError(
            f"The training data has changed: its digest is {digest}, expected {settings.digest}. "
            "Restore it, or set the new digest in `reference:` if the change was meant.",
            code="training_data_changed",
        )


@contextmanager
def _as_training_data() -> Iterator[None]:
    """Name failures after what is read: this is not the window."""
    try:
        yield
    except NotAssessed as error:
        raise TrainingDataError(
            f"The training data is missing. {error}", code="training_data_missing"
        ) from error
    except WindowError as error:
        raise TrainingDataError(f"The training data cannot be used. {error}") from error
