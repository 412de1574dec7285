"""The training data of a champion: read from its run, split into columns and labels, checked."""

import json
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.data.dataset_source import DatasetSource
from mlflow.data.filesystem_dataset_source import FileSystemDatasetSource
from mlflow.data.pandas_dataset import from_pandas
from mlflow.entities import Dataset, DatasetInput
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT
from pyarrow.lib import ArrowException

from rtscv_mlops.errors import Code, InputError, ServiceError, TrainingDataError
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.signature import describe_difference
from rtscv_mlops.models.trust import file_digest
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, get_or_none
from rtscv_mlops.tracking.runs import DIGEST_LIMIT

USUAL_LABELS = ("label", "target", "class", "y")
MAX_IMBALANCE = 1_000
WHOLE = re.compile(r"-?\d+\.0+")
USE_REFERENCE = "Or name the data in the monitor's reference:."


def find_label(frame: pd.DataFrame, champion: Champion, what: str) -> str:
    others = [str(name) for name in frame.columns if name not in champion.column_names]
    usual = [name for name in others if name.lower() in USUAL_LABELS]
    found = others if len(others) == 1 else usual
    if len(found) != 1:
        raise TrainingDataError(
            f"{what} does not say which column is the label; besides the model's columns it has "
            f"{', '.join(map(repr, others)) or 'none'}. Name the data and its label in the "
            "monitor's reference:.",
            code=Code.LABEL_UNKNOWN,
        )
    return found[0]


def split_labels(
    frame: pd.DataFrame, label: str, champion: Champion, what: str
) -> tuple[pd.DataFrame, pd.Series]:
    """Split a table into the champion's columns, in its order, and the labels."""
    if label not in frame.columns:
        raise TrainingDataError(
            f"{what} has no label column {label!r}; it has {', '.join(map(repr, frame.columns))}.",
            code=Code.LABEL_UNKNOWN,
        )
    _check_columns([name for name in frame.columns if name != label], champion, what)
    rows = frame.reset_index(drop=True)
    return rows.reindex(columns=champion.column_names), rows[label]


def _check_columns(names: Sequence[str], champion: Champion, what: str) -> None:
    required = [column.name for column in champion.columns if not column.optional]
    if any(name not in names for name in required):
        difference = describe_difference(champion.column_names, names)
        raise TrainingDataError(
            f"{what} has other columns than the model takes: {difference}. Log the champion again "
            f"with the data it was fitted on. {USE_REFERENCE}",
            code=Code.COLUMNS_DIFFER,
        )


def check_training_data(
    features: pd.DataFrame, labels: pd.Series, champion: Champion
) -> tuple[str, ...]:
    """Check that a fit can learn from this data; return what is odd about it, as sentences."""
    what = f"The training data of {champion}"
    _check_columns(list(map(str, features.columns)), champion, what)
    if len(features) != len(labels):
        raise TrainingDataError(
            f"{what} has {len(features)} rows and {len(labels)} labels. Give one label per row."
        )
    _check_present(labels, what)
    _check_kind(labels, what)
    _check_written_alike(labels, what)
    counts = labels.value_counts()
    _check_counts(counts, what)
    return (*_near_names(counts, what), *_imbalance(counts, what), *_empty_columns(features, what))


def _check_present(labels: pd.Series, what: str) -> None:
    empty = labels.isna() | labels.map(lambda label: isinstance(label, str) and not label.strip())
    if empty.any():
        raise TrainingDataError(
            f"{what} has {int(empty.sum())} of {len(labels)} rows without a label. Drop these "
            "rows, or label them.",
            code=Code.LABELS_MISSING,
        )


def _check_kind(labels: pd.Series, what: str) -> None:
    kinds = {_kind(label) for label in labels.unique()}
    if len(kinds) > 1:
        raise TrainingDataError(
            f"{what} has labels of several types: {', '.join(sorted(kinds))}, such as "
            f"{_examples(labels, kinds)}. A class must have one name; write all labels alike.",
            code=Code.LABELS_MIXED,
        )
    if (kind := next(iter(kinds), "text")) not in {"text", "integer", "boolean", "float"}:
        raise TrainingDataError(
            f"{what} has labels of the type {kind}. One text, number or truth value per row is "
            "what can be monitored, not several labels a row.",
            code=Code.LABELS_UNUSABLE,
        )
    if kind == "float" and not (labels.astype(float) % 1 == 0).all():
        raise TrainingDataError(
            f"{what} has numbers with fractions as labels, so it is a regression. Only classes "
            "can be new.",
            code=Code.LABELS_UNUSABLE,
        )


def _check_written_alike(labels: pd.Series, what: str) -> None:
    """Refuse 1 beside 1.0 where both are text, as in a CSV file: they are one class."""
    texts = {label for label in labels.unique() if isinstance(label, str)}
    pairs = [(text.partition(".")[0], text) for text in sorted(texts) if WHOLE.fullmatch(text)]
    twice = [f"{short!r} and {text!r}" for short, text in pairs if short in texts]
    if twice:
        raise TrainingDataError(
            f"{what} has whole numbers as text in two ways: {', '.join(twice[:3])}. A class must "
            "have one name; write all labels alike.",
            code=Code.LABELS_MIXED,
        )


def _kind(label: Any) -> str:
    kinds: dict[str, type | tuple[type, ...]] = {
        "boolean": (bool, np.bool_),
        "integer": (int, np.integer),
        "float": (float, np.floating),
        "text": str,
    }
    return next((kind for kind, is_of in kinds.items() if isinstance(label, is_of)), _name(label))


def _name(label: Any) -> str:
    return type(label).__name__


def _examples(labels: pd.Series, kinds: set[str]) -> str:
    first = {kind: next(label for label in labels if _kind(label) == kind) for kind in kinds}
    return " and ".join(repr(first[kind]) for kind in sorted(kinds))


def _check_counts(counts: pd.Series, what: str) -> None:
    if len(counts) < 2:
        raise TrainingDataError(
            f"{what} has {len(counts)} class(es). At least two are needed to tell a new one from "
            "what is known.",
            code=Code.ONE_CLASS,
        )
    single = [repr(label) for label, count in counts.items() if count == 1]
    if single:
        raise TrainingDataError(
            f"{what} has one example only of {', '.join(single)}. Cross-validation needs two; add "
            "examples, or drop the class.",
            code=Code.TOO_FEW_EXAMPLES,
        )


def _near_names(counts: pd.Series, what: str) -> list[str]:
    """Return a sentence for labels that differ only by case, blanks or Unicode form."""
    names = sorted((label for label in counts.index if isinstance(label, str)), key=_folded)
    groups = [list(group) for _, group in groupby(names, key=_folded)]
    return [
        f"{what} has labels that differ by case, blanks or Unicode form only: "
        f"{', '.join(map(repr, sorted(group)))}. If they mean one class, write them alike."
        for group in groups
        if len(group) > 1
    ]


def _folded(label: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def _imbalance(counts: pd.Series, what: str) -> list[str]:
    if counts.max() < MAX_IMBALANCE * counts.min():
        return []
    return [
        f"{what} has {counts.max()} rows of {counts.idxmax()!r} and {counts.min()} of "
        f"{counts.idxmin()!r}: rows of the rare class may look unknown."
    ]


def _empty_columns(features: pd.DataFrame, what: str) -> list[str]:
    empty = [repr(str(name)) for name, gone in features.isna().all().items() if gone]
    return [f"{what} has no value in column(s) {', '.join(empty)}."] if empty else []


TRAINING, EVALUATION = "training", "evaluation"
SHA256 = "rtscv.sha256"
LABEL = "rtscv.label"
"""Tags of a dataset input that `log_champion` adds to MLflow's own."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Labelled rows, with the champion's columns in its order.

    `digest` is the SHA-256 of the file. `holdout` are rows and labels that the champion was not
    fitted on. `findings` are sentences about what was odd but could be handled; what a fit needs
    is checked by `check_training_data`, wherever the rows come from.
    """

    features: pd.DataFrame
    labels: pd.Series
    digest: str
    source: str
    holdout: tuple[pd.DataFrame, pd.Series] | None = None
    findings: tuple[str, ...] = ()


def load_training_data(client: MlflowClient, champion: Champion) -> TrainingData:
    """Return the dataset that was logged on the champion's run with the context `training`."""
    inputs = _datasets(client, champion)
    if TRAINING not in inputs:
        raise TrainingDataError(
            f"{champion} has no training data: its run logged no dataset with the context "
            "'training'. Log the model by rtscv_mlops.log_champion, or call mlflow.log_input("
            f"dataset, context='training') on its run. {USE_REFERENCE}",
            code=Code.TRAINING_DATA_MISSING,
        )
    data = _read_input(client, inputs[TRAINING], champion)
    if EVALUATION not in inputs:
        return data
    holdout = _read_input(client, inputs[EVALUATION], champion)
    findings = (*data.findings, *holdout.findings)
    return replace(data, holdout=(holdout.features, holdout.labels), findings=findings)


def is_rectified(client: MlflowClient, champion: Champion) -> bool:
    """Return whether a monitor made this champion from a window."""
    if champion.run_id is None:
        return False
    with asking(f"read the run of {champion}"):
        return bool(client.get_run(champion.run_id).data.tags.get(tags.KIND) == "window")


def _datasets(client: MlflowClient, champion: Champion) -> dict[str, DatasetInput]:
    """Return the run's datasets by context; of several, the first."""
    if champion.run_id is None:
        return {}
    with asking(f"read the run of {champion}"):
        inputs = client.get_run(champion.run_id).inputs
    given = inputs.dataset_inputs if inputs else []
    return {_tags(one).get(MLFLOW_DATASET_CONTEXT, ""): one for one in reversed(given)}


def _tags(given: DatasetInput) -> dict[str, str]:
    return {tag.key: tag.value for tag in given.tags}


def _read_input(client: MlflowClient, given: DatasetInput, champion: Champion) -> TrainingData:
    named, dataset = _tags(given), given.dataset
    what = f"The dataset {dataset.name!r} of {champion}"
    with TemporaryDirectory(prefix="rtscv-data-") as folder:
        path = _fetch(client, _source(given, champion), Path(folder), what)
        digest = file_digest(path)
        if SHA256 in named and digest != named[SHA256]:
            raise _changed(what, f"its SHA-256 is {digest[:12]}, not {named[SHA256][:12]}")
        frame = _read_table(path, what)
    findings = () if SHA256 in named else _compare(dataset, frame, digest, what)
    label = named.get(LABEL) or find_label(frame, champion, what)
    features, labels = split_labels(frame, label, champion, what)
    source = f"dataset {dataset.name!r} on its run"
    return TrainingData(features, labels, digest, source, findings=findings)


def _changed(what: str, how: str) -> TrainingDataError:
    return TrainingDataError(
        f"{what} has changed since it was logged: {how}. Restore the file, or log the champion "
        f"again. {USE_REFERENCE}",
        code=Code.TRAINING_DATA_CHANGED,
    )


# -- files


def data_path(context: str, digest: str) -> str:
    """Return the path at which `log_champion` keeps a table on its run."""
    return f"{context}/{digest}.parquet"


def _source(given: DatasetInput, champion: Champion) -> Dataset:
    """Return the dataset with the address of its rows.

    MLflow keeps one address for all equal datasets of an experiment, which may be that of an older
    champion's run. What `log_champion` logged is on the champion's own run as well.
    """
    named, dataset = _tags(given), given.dataset
    if SHA256 not in named:
        return dataset
    address = f"runs:/{champion.run_id}/{data_path(named[MLFLOW_DATASET_CONTEXT], named[SHA256])}"
    return Dataset(dataset.name, dataset.digest, "local", json.dumps({"uri": address}))


def _fetch(client: MlflowClient, dataset: Dataset, folder: Path, what: str) -> Path:
    """Download the dataset's one file."""
    try:
        path = Path(_download(client, mlflow.data.get_source(dataset), folder))
    except Exception as error:  # each kind of source fails in its own library's way
        if _is_there(client, json.loads(dataset.source).get("uri", "")):
            raise ServiceError(
                f"{what} is in MLflow, which could not send it: {error}. Try again.",
                code=Code.MLFLOW,
            ) from error
        raise TrainingDataError(
            f"{what} cannot be fetched from its source {_short(dataset.source)} "
            f"({dataset.source_type}): {error}. MLflow keeps a dataset's address, not its rows. "
            f"Restore it, or log the champion by rtscv_mlops.log_champion. {USE_REFERENCE}",
            code=Code.TRAINING_DATA_MISSING,
        ) from error
    if path.is_dir():
        path = _only_file(path, what)
    return path


def _is_there(client: MlflowClient, address: str) -> bool:
    """Return whether a file that could not be fetched is in MLflow: its failure does not say."""
    if not address.startswith("runs:/"):
        return False
    run_id, _, path = address.removeprefix("runs:/").partition("/")
    with asking(f"look for {address}"):
        folder = path.rpartition("/")[0] or None
        files = get_or_none(client.list_artifacts, run_id, folder)
    return path in {file.path for file in files or ()}


def _download(client: MlflowClient, source: DatasetSource, folder: Path) -> Any:
    address = getattr(source, "uri", None)
    if isinstance(source, FileSystemDatasetSource) and address:
        # From this client's server: the source itself would ask MLflow's global one.
        return mlflow.artifacts.download_artifacts(
            artifact_uri=address, dst_path=str(folder), tracking_uri=client.tracking_uri
        )
    return source.load()


def _only_file(folder: Path, what: str) -> Path:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if len(files) != 1:
        raise TrainingDataError(
            f"{what} is a folder of {len(files)} files; one Parquet or CSV file can be compared "
            f"with its digest. {USE_REFERENCE}",
            code=Code.TRAINING_DATA_MISSING,
        )
    return files[0]


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _read_table(path: Path, what: str) -> pd.DataFrame:
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            return pd.read_parquet(path)
        if path.suffix.lower() == ".csv":
            return pd.read_csv(
                path, float_precision="round_trip", keep_default_na=False, na_values=[""]
            )
    except (ValueError, OSError, ArrowException) as error:
        raise TrainingDataError(
            f"{what} cannot be read: {error}", code=Code.BAD_TRAINING_DATA
        ) from error
    raise TrainingDataError(
        f"{what} is the file {path.name}, neither Parquet nor CSV. {USE_REFERENCE}",
        code=Code.BAD_TRAINING_DATA,
    )


def described(frame: pd.DataFrame) -> dict[str, str]:
    """Return what MLflow records of a table: its columns, its size, its digest."""
    with _unwarned():
        description: dict[str, str] = from_pandas(frame, source=".").to_dict()
    return description


def _digest(frame: pd.DataFrame) -> str:
    """Return MLflow's digest of a table, without its schema, which would read each value."""
    with _unwarned():
        return str(from_pandas(frame, source=".").digest)


@contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress MLflow's warnings about whole numbers and about a table's source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _compare(dataset: Dataset, frame: pd.DataFrame, digest: str, what: str) -> tuple[str, ...]:
    """Compare rows with what MLflow recorded; return a finding if that proves nothing."""
    rows = json.loads(dataset.profile or "{}").get("num_rows")
    if rows is not None and rows != len(frame):
        raise _changed(what, f"it has {len(frame)} rows, not {rows}")
    now = _digest(frame)
    if dataset.digest in {now, digest, digest[:DIGEST_LIMIT]}:
        return ()
    same_schema = dataset.schema == described(frame)["schema"]
    if same_schema and len(dataset.digest) == len(now):
        raise _changed(what, f"MLflow's digest of it is {now}, not {dataset.digest}")
    return (
        f"{what} carries the digest {dataset.digest}, which cannot be computed from the file, so "
        "nobody knows whether the rows are still those of the fit.",
    )


NAMED_CLASSES = 20


def find_class(text: str, classes: Sequence[Any]) -> Any:
    """Return the class that an argument of the command line means, whatever its label's type."""
    exact = [label for label in classes if str(label) == text]
    found = exact or [label for label in classes if _spelling(label) == _spelling(text)]
    if len(found) > 1:
        raise InputError(
            f"The class {text!r} could be {name_classes(found)}. Write it exactly as one of them.",
            code=Code.UNKNOWN_CLASS,
        )
    if not found:
        raise InputError(
            f"The model was not taught a class {text!r}. Its classes are {name_classes(classes)}.",
            code=Code.UNKNOWN_CLASS,
        )
    return found[0]


def name_classes(classes: Sequence[Any]) -> str:
    """Name classes in a sentence."""
    named = ", ".join(repr(label) for label in classes[:NAMED_CLASSES])
    more = len(classes) - NAMED_CLASSES
    return f"{named} and {more} more" if more > 0 else named


def _spelling(label: Any) -> float | str:
    """Return what makes two spellings equal: `3` and `3.0`, `Cat` and `cat`."""
    text = str(label).strip()
    try:
        return float(text)
    except ValueError:
        return text.casefold()
