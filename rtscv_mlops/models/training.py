"""The training data of a champion: read from its run, split into columns and labels, checked."""

import json
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.data.filesystem_dataset_source import FileSystemDatasetSource
from mlflow.data.pandas_dataset import from_pandas
from mlflow.entities import Dataset, DatasetInput
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from rtscv_mlops.errors import Code, InputError, ServiceError, TrainingDataError
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.signature import describe_difference
from rtscv_mlops.models.trust import file_digest
from rtscv_mlops.sources.read import FORMATS, read_training_file
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, get_or_none
from rtscv_mlops.tracking.runs import DIGEST_LIMIT
from rtscv_mlops.window import LabelledRows

TRAINING, EVALUATION = "training", "evaluation"
"""Contexts of the datasets of a champion's run: what it was fitted on, and held-out rows."""

SHA256 = "rtscv.sha256"
LABEL = "rtscv.label"
"""Tags that `log_champion` adds to a dataset: the digest of its file, and its label column."""

USUAL_LABELS = ("label", "target", "class", "y")
MAX_IMBALANCE = 1_000
NAMED_CLASSES = 20
WHOLE = re.compile(r"-?\d+\.0+")
USE_REFERENCE = "Or name the data in the monitor's reference:."

KINDS: dict[str, type | tuple[type, ...]] = {  # A bool is an int too, so it comes first.
    "boolean": (bool, np.bool_),
    "integer": (int, np.integer),
    "float": (float, np.floating),
    "text": str,
}
"""Types that a label may have."""


def load_training_data(
    client: MlflowClient, champion: Champion
) -> tuple[LabelledRows, LabelledRows | None]:
    """Return the rows that the champion was fitted on, and its held-out rows if there are any.

    They are the datasets that were logged on its run with the contexts `training` and
    `evaluation`.
    """
    given: list[DatasetInput] = []
    if champion.run_id is not None:
        with asking(f"read the run of {champion}"):
            inputs = client.get_run(champion.run_id).inputs
        given = inputs.dataset_inputs if inputs else []
    # Of several datasets with the same context, the first one counts.
    logged = [_LoggedDataset(client, champion, each) for each in reversed(given)]
    by_context = {each.tags.get(MLFLOW_DATASET_CONTEXT, ""): each for each in logged}
    if TRAINING not in by_context:
        raise TrainingDataError(
            f"{champion} has no training data: its run logged no dataset with the context "
            "'training'. Log the model with rtscv_mlops.log_champion, or call mlflow.log_input("
            f"dataset, context='training') on its run. {USE_REFERENCE}",
            code=Code.TRAINING_DATA_MISSING,
        )
    held_out = by_context.get(EVALUATION)
    return by_context[TRAINING].read(), None if held_out is None else held_out.read()


def is_rectified(client: MlflowClient, champion: Champion) -> bool:
    """Return whether a monitor made this champion from a window."""
    if champion.run_id is None:
        return False
    with asking(f"read the run of {champion}"):
        return bool(client.get_run(champion.run_id).data.tags.get(tags.KIND) == "window")


def data_path(context: str, digest: str) -> str:
    """Return the path at which `log_champion` keeps a table on its run."""
    return f"{context}/{digest}.parquet"


def describe_table(frame: pd.DataFrame) -> dict[str, str]:
    """Return what MLflow records of a table: its columns, its size, its digest."""
    with _unwarned():
        description: dict[str, str] = from_pandas(frame, source=".").to_dict()
    return description


@contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress MLflow's warnings about whole numbers and about a table's source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


# -- a dataset that was logged on the champion's run


@dataclass(frozen=True, slots=True)
class _LoggedDataset:
    """A dataset of the champion's run. MLflow keeps its address and its digest, not its rows."""

    client: MlflowClient
    champion: Champion
    given: DatasetInput

    @property
    def tags(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.given.tags}

    def __str__(self) -> str:
        return f"The dataset {self.given.dataset.name!r} of {self.champion}"

    def read(self) -> LabelledRows:
        """Return the rows, with the champion's columns in its order; refuse a changed file."""
        sealed = self.tags.get(SHA256)
        with TemporaryDirectory(prefix="rtscv-data-") as folder:
            path = self._fetch(Path(folder))
            digest = file_digest(path)
            if sealed is not None and digest != sealed:
                raise self._changed(f"its SHA-256 is {digest[:12]}, not {sealed[:12]}")
            frame = self._read_file(path)
        findings = () if sealed is not None else self._compare(frame, digest)
        label = self.tags.get(LABEL) or self._find_label(frame)
        if label not in frame.columns:
            raise TrainingDataError(
                f"{self} has no label column {label!r}; it has "
                f"{', '.join(map(repr, frame.columns))}.",
                code=Code.LABEL_UNKNOWN,
            )
        _check_columns([name for name in frame.columns if name != label], self.champion, str(self))
        rows = frame.reset_index(drop=True)
        return LabelledRows(
            rows.reindex(columns=self.champion.column_names),
            rows[label].to_numpy(),
            label=label,
            source=f"dataset {self.given.dataset.name!r} on its run",
            digest=digest,
            findings=findings,
        )

    def _fetch(self, folder: Path) -> Path:
        """Download the dataset's one file."""
        dataset = self.given.dataset
        if SHA256 in self.tags:
            # MLflow keeps one address for all equal datasets of an experiment, which may be that
            # of an older champion's run. What `log_champion` logged is on the champion's own run.
            kept = data_path(self.tags[MLFLOW_DATASET_CONTEXT], self.tags[SHA256])
            address = f"runs:/{self.champion.run_id}/{kept}"
            dataset = Dataset(dataset.name, dataset.digest, "local", json.dumps({"uri": address}))
        try:
            source = mlflow.data.get_source(dataset)
            uri = getattr(source, "uri", None)
            if isinstance(source, FileSystemDatasetSource) and uri:
                # From this client's server: the source itself would ask MLflow's global one.
                path = Path(
                    mlflow.artifacts.download_artifacts(
                        artifact_uri=uri,
                        dst_path=str(folder),
                        tracking_uri=self.client.tracking_uri,
                    )
                )
            else:
                path = Path(source.load())
        except Exception as error:  # each kind of source fails in its own library's way
            if self._is_in_mlflow(json.loads(dataset.source).get("uri", "")):
                raise ServiceError(
                    f"{self} is in MLflow, but could not be downloaded: {error}. Try again.",
                    code=Code.MLFLOW,
                ) from error
            raise TrainingDataError(
                f"{self} cannot be fetched from its source {plain(dataset.source, 200)} "
                f"({dataset.source_type}): {error}. MLflow keeps a dataset's address, not its "
                "rows. Restore it, or log the champion with rtscv_mlops.log_champion. "
                f"{USE_REFERENCE}",
                code=Code.TRAINING_DATA_MISSING,
            ) from error
        if path.is_file():
            return path
        files = sorted(file for file in path.rglob("*") if file.is_file())
        if len(files) != 1:
            raise TrainingDataError(
                f"{self} is a folder of {len(files)} files, but only a single Parquet or CSV file "
                f"can be compared with its digest. {USE_REFERENCE}",
                code=Code.TRAINING_DATA_MISSING,
            )
        return files[0]

    def _is_in_mlflow(self, address: str) -> bool:
        """Return whether a file that could not be fetched exists; the failure does not say."""
        if not address.startswith("runs:/"):
            return False
        run_id, _, path = address.removeprefix("runs:/").partition("/")
        with asking(f"list the files of run {run_id}"):
            folder = path.rpartition("/")[0] or None
            files = get_or_none(self.client.list_artifacts, run_id, folder)
        return path in {file.path for file in files or ()}

    def _read_file(self, path: Path) -> pd.DataFrame:
        if not any(path.name.lower().endswith(format_.suffixes) for format_ in FORMATS):
            raise TrainingDataError(
                f"{self} is the file {path.name}, neither Parquet nor CSV. {USE_REFERENCE}",
                code=Code.BAD_TRAINING_DATA,
            )
        try:
            return read_training_file(path)
        except TrainingDataError as error:
            raise TrainingDataError(f"{self} cannot be read. {error}", code=error.code) from error

    def _find_label(self, frame: pd.DataFrame) -> str:
        names = [str(name) for name in frame.columns if name not in self.champion.column_names]
        usual = [name for name in names if name.lower() in USUAL_LABELS]
        candidates = names if len(names) == 1 else usual
        if len(candidates) != 1:
            raise TrainingDataError(
                f"{self} does not say which column is the label; besides the model's columns it "
                f"has {', '.join(map(repr, names)) or 'none'}. Name the data and its label in the "
                "monitor's reference:.",
                code=Code.LABEL_UNKNOWN,
            )
        return candidates[0]

    def _compare(self, frame: pd.DataFrame, digest: str) -> tuple[str, ...]:
        """Compare rows with what MLflow recorded; return a finding if that proves nothing."""
        recorded = self.given.dataset
        rows = json.loads(recorded.profile or "{}").get("num_rows")
        if rows is not None and rows != len(frame):
            raise self._changed(f"it has {len(frame)} rows, not {rows}")
        with _unwarned():  # The digest alone: a schema would read each value.
            now = str(from_pandas(frame, source=".").digest)
        if recorded.digest in {now, digest, digest[:DIGEST_LIMIT]}:
            return ()
        same_schema = recorded.schema == describe_table(frame)["schema"]
        if same_schema and len(recorded.digest) == len(now):
            raise self._changed(f"MLflow's digest of it is {now}, not {recorded.digest}")
        return (
            f"{self} has the digest {recorded.digest}, which cannot be computed from the file. So "
            "the rows may have changed since the fit.",
        )

    def _changed(self, how: str) -> TrainingDataError:
        return TrainingDataError(
            f"{self} has changed since it was logged: {how}. Restore the file, or log the champion "
            f"again. {USE_REFERENCE}",
            code=Code.TRAINING_DATA_CHANGED,
        )


# -- what a fit needs


def check_training_data(data: LabelledRows, champion: Champion) -> tuple[str, ...]:
    """Check that a fit can learn from this data; return sentences about what is unusual."""
    what, features, labels = f"The training data of {champion}", data.features, data.labels
    _check_columns(list(map(str, features.columns)), champion, what)
    if len(features) != len(labels):
        raise TrainingDataError(
            f"{what} has {len(features)} rows and {len(labels)} labels. Give one label per row."
        )
    _check_labels(pd.Series(labels), what)
    counts = pd.Series(labels).value_counts()
    if len(counts) < 2:
        raise TrainingDataError(
            f"{what} has {len(counts)} class(es). At least two are needed to tell a new class "
            "from the known ones.",
            code=Code.ONE_CLASS,
        )
    single = [repr(label) for label, count in counts.items() if count == 1]
    if single:
        raise TrainingDataError(
            f"{what} has only one example of {', '.join(single)}. Cross-validation needs two; add "
            "examples, or drop the class.",
            code=Code.TOO_FEW_EXAMPLES,
        )
    names = sorted((label for label in counts.index if isinstance(label, str)), key=_fold)
    findings = [
        f"{what} has labels that differ only by case, blanks or Unicode form: "
        f"{', '.join(map(repr, sorted(alike)))}. If they mean one class, write them alike."
        for alike in (list(group) for _, group in groupby(names, key=_fold))
        if len(alike) > 1
    ]
    if counts.max() >= MAX_IMBALANCE * counts.min():
        findings.append(
            f"{what} has {counts.max()} rows of {counts.idxmax()!r} and {counts.min()} of "
            f"{counts.idxmin()!r}: rows of the rare class may look unknown."
        )
    empty = [repr(str(name)) for name, is_empty in features.isna().all().items() if is_empty]
    if empty:
        findings.append(f"{what} has no value in column(s) {', '.join(empty)}.")
    return tuple(findings)


def _check_columns(names: Sequence[str], champion: Champion, what: str) -> None:
    required = [column.name for column in champion.columns if not column.optional]
    if any(name not in names for name in required):
        difference = describe_difference(champion.column_names, names)
        raise TrainingDataError(
            f"{what} has other columns than the model takes: {difference}. Log the champion again "
            f"with the data it was fitted on. {USE_REFERENCE}",
            code=Code.COLUMNS_DIFFER,
        )


def _check_labels(labels: pd.Series, what: str) -> None:
    """Raise unless every row has a label, and all labels are of one usable type."""
    empty = labels.isna() | labels.map(lambda label: isinstance(label, str) and not label.strip())
    if empty.any():
        raise TrainingDataError(
            f"{what} has {int(empty.sum())} of {len(labels)} rows without a label. Drop these "
            "rows, or label them.",
            code=Code.LABELS_MISSING,
        )
    # The first label of each kind.
    examples = {_kind(label): label for label in reversed(labels.unique().tolist())}
    if len(examples) > 1:
        kinds = sorted(examples)
        raise TrainingDataError(
            f"{what} has labels of several types: {', '.join(kinds)}, such as "
            f"{' and '.join(repr(examples[kind]) for kind in kinds)}. A class must have one name; "
            "write all labels alike.",
            code=Code.LABELS_MIXED,
        )
    kind = next(iter(examples), "text")
    if kind not in KINDS:
        raise TrainingDataError(
            f"{what} has labels of the type {kind}. Each row needs a single label: text, a number "
            "or a boolean.",
            code=Code.LABELS_UNUSABLE,
        )
    if kind == "float" and not (labels.astype(float) % 1 == 0).all():
        raise TrainingDataError(
            f"{what} has numbers with fractions as labels, so it is for a regression. Only a "
            "classifier can be monitored.",
            code=Code.LABELS_UNUSABLE,
        )
    # In a CSV file, 1 and 1.0 may both be text, but they are one class.
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
    kinds = (kind for kind, types in KINDS.items() if isinstance(label, types))
    return next(kinds, type(label).__name__)


def _fold(label: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


# -- classes by name


def find_class(text: str, classes: Sequence[Any]) -> Any:
    """Return the class that an argument of the command line means, whatever its label's type."""
    exact = [label for label in classes if str(label) == text]
    matches = exact or [label for label in classes if _spelling(label) == _spelling(text)]
    if len(matches) > 1:
        raise InputError(
            f"The class {text!r} could be {name_classes(matches)}. Write it exactly as one of "
            "them.",
            code=Code.UNKNOWN_CLASS,
        )
    if not matches:
        raise InputError(
            f"The model was not taught a class {text!r}. Its classes are {name_classes(classes)}.",
            code=Code.UNKNOWN_CLASS,
        )
    return matches[0]


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
