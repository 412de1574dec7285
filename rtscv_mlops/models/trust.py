"""The files of a model: how they are fetched, identified by a digest, and loaded safely."""

import hashlib
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any

import mlflow
import numpy as np
import requests
from joblib import Memory
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ModelError, ServiceError
from rtscv_mlops.tracking.client import asking, is_absent

NOT_OF_THE_MODEL = {"registered_model_meta"}  # MLflow adds it to a download.
NOT_FOUND = "404 Client Error"  # MLflow's message for a file that its server does not have.


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a model."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a model; two models with one digest are the same model."""

    files: tuple[StoredFile, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        rows = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in self.files]
        return json.dumps(rows, separators=(",", ":"))


def list_files(folder: Path) -> Manifest:
    """Return the manifest of a model's folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    stored = (
        StoredFile(path.relative_to(folder).as_posix(), path.stat().st_size, file_digest(path))
        for path in files
        if path.name not in NOT_OF_THE_MODEL
    )
    return Manifest(tuple(sorted(stored, key=lambda file: file.path)))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(client: MlflowClient, uri: str) -> str:
    """Return the digest of a model's files as MLflow has them now."""
    with fetched(client, uri) as folder:
        return list_files(folder).digest


@contextmanager
def fetched(client: MlflowClient, uri: str) -> Iterator[Path]:
    """Download a model's files to a folder that is deleted afterwards.

    `uri` is `models:/<model_id>` or `models:/<name>/<version>`.
    """
    with TemporaryDirectory(prefix="rtscv-model-") as folder:
        missing = ModelError(
            f"{uri} is registered, but its files are missing from the artifact store. Restore "
            "them, or log the model again and move the alias.",
            code=Code.ARTIFACTS_MISSING,
        )
        try:
            path = mlflow.artifacts.download_artifacts(
                artifact_uri=_location(client, uri),
                dst_path=folder,
                tracking_uri=client.tracking_uri,
            )
        except (MlflowException, requests.RequestException) as error:
            if not _is_missing(error):
                with asking(f"fetch the files of {uri}"):
                    raise
            raise missing from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing from error
        except OSError as error:
            raise ServiceError(
                f"The files of {uri} could not be written to a temporary folder: "
                f"{error.strerror or type(error).__name__}. Check the disk of this machine, then "
                "try again.",
                code=Code.STORAGE,
            ) from error
        if not (Path(path) / "MLmodel").is_file():
            raise missing
        yield Path(path)


def _is_missing(error: MlflowException | requests.RequestException) -> bool:
    """Return whether the files do not exist; else the store failed."""
    if isinstance(error, MlflowException):
        return is_absent(error) or NOT_FOUND in error.message
    response = error.response
    return response is not None and response.status_code == requests.codes.not_found


def _location(client: MlflowClient, uri: str) -> str:
    """Return where the files are. Ask this client, since MLflow would ask its global server."""
    *name, last = uri.removeprefix("models:/").split("/")
    with asking(f"find the files of {uri}"):
        if name:
            uri = client.get_model_version_download_uri(name[0], last)
        if not uri.startswith("models:/"):
            return uri
        return str(client.get_logged_model(uri.removeprefix("models:/")).artifact_location)


SCHEMA = "schema.json"
MAX_SCHEMA_BYTES = 200_000_000
"""The largest description of objects in a skops file; that of a forest has 15 kB for each tree."""
MAX_EXPANSION = 50
MIN_EXPANDED_BYTES = 10_000_000
"""A file may expand to this size, or to `MAX_EXPANSION` times its own."""
BLOCK = 1 << 16

DISTANCES = ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")

TRUSTED_TYPES = frozenset(
    {
        # Containers of fitted numbers: restored by setting fields; no code of theirs is called.
        "scipy.sparse._csr.csr_array",
        "scipy.sparse._csr.csr_matrix",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.calibration._TemperatureScaling",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in DISTANCES),
        # Settings of searches, selections and encoders.
        "collections.OrderedDict",
        "numpy.dtype",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        # Pure functions. The function that a partial calls must be trusted itself.
        "functools.partial",
        "sklearn.feature_selection._univariate_selection.chi2",
        "sklearn.feature_selection._univariate_selection.f_classif",
        "sklearn.utils.validation.check_array",
        # A champion behind a gate: our own types, restored by setting fields.
        "rtscv_mlops.estimator.gated.GatedClassifier",
        "rtscv_mlops.estimator.gates.FoldsGate",
        "rtscv_mlops.estimator.gates.ForestGate",
        "rtscv_mlops.estimator.kernel.KernelGate",
        "rtscv_mlops.estimator.rows.Numbers",
        "rtscv_mlops.estimator.rows._Columns",
        "rtscv_mlops.estimator.rows._Dense",
        # Boosters store a model in their library's own format, which its own parser reads.
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
    }
)
"""Reviewed types of common models, in addition to those that skops trusts by default."""

ADAPTERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))
"""Parts of scikit-learn without estimators; each would import a large library for seconds."""

PICKLE_RISK = (
    "Loading a pickle runs whatever code its writer put into it, with this process's rights; set "
    "model.allow_pickle: true only if you trust everyone who can write to the model's files."
)


def check_loadable(file: Path, serialization: str, settings: ModelSettings, model: str) -> None:
    """Raise if loading a model file could run code that the settings do not allow."""
    if serialization != "skops":
        if settings.allow_pickle:
            return
        raise ModelError(
            f"{model} is stored with {serialization}, which is not allowed. {PICKLE_RISK} "
            "Or log the model again with rtscv_mlops.log_champion, which uses skops.",
            code=Code.PICKLE_NOT_ALLOWED,
        )
    try:
        _check_size(file, model)
        needed = set(import_skops().get_untrusted_types(file=file))
    except ModelError:
        raise
    except Exception as error:  # a hostile file can fail anywhere in skops' parser
        raise ModelError(
            f"{model} has a file {file.name} that is not a valid skops file: {error}. Log the "
            "model again.",
            code=Code.UNREADABLE_MODEL,
        ) from error
    unknown = needed - known_types(settings.trusted_types)
    if unknown:
        raise ModelError(
            f"{model} needs type(s) outside the reviewed list: {', '.join(sorted(unknown))}. "
            "Nothing was loaded. If you know that restoring them runs no harmful code, add them to "
            "model.trusted_types.",
            code=Code.UNTRUSTED_TYPES,
        )


def _check_size(file: Path, model: str) -> None:
    """Raise if a skops file expands to more than a model needs, without expanding it."""
    allowed = max(MIN_EXPANDED_BYTES, MAX_EXPANSION * file.stat().st_size)
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile("it is compressed in an unusual way")
            limit = min(allowed, MAX_SCHEMA_BYTES) if member.filename == SCHEMA else allowed
            # The directory may lie, so its size does not end this.
            member.file_size = limit + 2 * BLOCK
            expanded = 0
            with archive.open(member) as stream:
                while block := stream.read(BLOCK):
                    expanded += len(block)
                    if expanded > limit:
                        raise ModelError(
                            f"{model} has a file {file.name} whose {member.filename} expands to "
                            f"more than {limit:,} bytes. Nothing was loaded. Log the model again.",
                            code=Code.UNREADABLE_MODEL,
                        )
            allowed -= expanded


def check_uncached(estimator: Any, model: str) -> None:
    """Raise if a part of a model has a cache, since joblib unpickles what lies in its folder.

    A refit would read it. Every part is looked at, down to the grids of searches.
    """
    seen: set[int] = set()
    parts: list[tuple[str, Any]] = [("", estimator)]
    while parts:
        name, part = parts.pop()
        is_cached = isinstance(part, Memory)
        if name == "memory" or name.endswith("__memory"):
            values = part if isinstance(part, list | tuple) else np.ravel([part])
            # What scikit-learn takes as the place of a cache.
            is_cached = any(isinstance(v, str | os.PathLike) or hasattr(v, "cache") for v in values)
        if is_cached:
            raise ModelError(
                f"{model} keeps a cache ({name or 'memory'}), and fitting it again would unpickle "
                "what others put there. Set memory=None, and log the model again.",
                code=Code.UNTRUSTED_TYPES,
            )
        if id(part) not in seen:
            seen.add(id(part))
            parts += _parts_of(part)


def _parts_of(part: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(part, Mapping):
        return [(str(name), value) for name, value in part.items()]
    if isinstance(part, list | tuple | set | frozenset):
        return [("", value) for value in part]
    if isinstance(part, np.ndarray):
        return [("", value) for value in part.flat] if part.dtype == object else []
    if isinstance(part, partial):
        return [*part.keywords.items(), *(("", value) for value in (part.func, *part.args))]
    if isinstance(part, type | ModuleType | FunctionType):
        return []
    return list(getattr(part, "__dict__", {}).items())


def known_types(extra: Collection[str]) -> frozenset[str]:
    """Return the reviewed types and those of the settings."""
    return TRUSTED_TYPES | frozenset(extra)


def import_skops() -> Any:
    """Return skops' module, without the slow imports and warnings that it causes.

    It imports all of scikit-learn, and looks up each of its types in every loaded module; some of
    these, such as Airflow's, answer each lookup with a warning.
    """
    absent = [name for name in ADAPTERS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None blocks an import
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module("skops.io")
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def load_skops(file: Path, extra: Collection[str]) -> Any:
    """Load a skops file with the reviewed types, and ignore the list stored beside it."""
    return import_skops().load(file, trusted=sorted(known_types(extra)))


def choose_serialization(
    estimator: Any, trusted_types: Collection[str], allow_pickle: bool
) -> tuple[str, list[str]]:
    """Return the format to store an estimator in, and the types that its reader must trust."""
    name = type(estimator).__name__
    check_uncached(estimator, name)
    try:
        skops = import_skops()
        needed = set(skops.get_untrusted_types(data=skops.dumps(estimator)))
        unknown, why = needed - known_types(trusted_types), "it needs type(s) outside the list"
    except Exception as error:  # skops fails in many ways on objects it does not know
        needed, unknown, why = set(), {name}, f"skops cannot store it ({error})"
    if not unknown:
        return "skops", sorted(needed)
    if allow_pickle:
        return "cloudpickle", []
    raise ModelError(
        f"{name} cannot be stored safely, since {why}: {', '.join(sorted(unknown))}. Add types "
        "that you have reviewed to trusted_types, or set allow_pickle: true. " + PICKLE_RISK,
        code=Code.UNTRUSTED_TYPES,
    )
