"""The files of a model: fetched from MLflow, and named by what they hold.

Knows where MLflow keeps a model's files; knows nothing of what is in them.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ModelError, ServiceError
from rtscv_mlops.tracking.client import asking, is_absent

NOT_OF_THE_MODEL = {"registered_model_meta"}  # MLflow writes it into what it downloads.
NOT_FOUND = "404 Client Error"  # How MLflow tells of a file that its server does not have.


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
    """Give a model's files, at `models:/<model_id>` or `models:/<name>/<version>`, for a while."""
    with TemporaryDirectory(prefix="rtscv-model-") as folder:
        missing = f"{uri} is registered, but its files are missing from the artifact store."
        try:
            place = mlflow.artifacts.download_artifacts(
                artifact_uri=_location(client, uri),
                dst_path=folder,
                tracking_uri=client.tracking_uri,
            )
        except (MlflowException, requests.RequestException) as error:
            if not _is_missing(error):
                with asking(f"fetch the files of {uri}"):
                    raise
            raise ModelError(f"{missing} {_AGAIN}", code=Code.ARTIFACTS_MISSING) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ModelError(f"{missing} {_AGAIN}", code=Code.ARTIFACTS_MISSING) from error
        except OSError as error:
            raise ServiceError(
                f"The files of {uri} could not be kept in a temporary folder: "
                f"{error.strerror or type(error).__name__}. Check the disk of this machine, then "
                "try again.",
                code=Code.STORAGE,
            ) from error
        if not (Path(place) / "MLmodel").is_file():
            raise ModelError(f"{missing} {_AGAIN}", code=Code.ARTIFACTS_MISSING)
        yield Path(place)


_AGAIN = "Restore them, or log the model again and move the alias."


def _is_missing(error: MlflowException | requests.RequestException) -> bool:
    """Tell files that are not there from a store that failed."""
    if isinstance(error, MlflowException):
        return is_absent(error) or NOT_FOUND in error.message
    answer = error.response
    return answer is not None and answer.status_code == requests.codes.not_found


def _location(client: MlflowClient, uri: str) -> str:
    """Return where the files are; asked of this client, not of MLflow's global server."""
    *name, last = uri.removeprefix("models:/").split("/")
    with asking(f"find the files of {uri}"):
        if name:
            uri = client.get_model_version_download_uri(name[0], last)
        if not uri.startswith("models:/"):
            return uri
        return str(client.get_logged_model(uri.removeprefix("models:/")).artifact_location)


DISTANCES = ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")

TRUSTED_TYPES = frozenset(
    {
        # Holders of fitted numbers: restored by filling fields, nothing in them is called.
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
        # Pure functions. A partial binds arguments to a function, which must be trusted itself.
        "functools.partial",
        "sklearn.feature_selection._univariate_selection.chi2",
        "sklearn.feature_selection._univariate_selection.f_classif",
        "sklearn.utils.validation.check_array",
        # Boosters hold a model in their library's own format, read by its own parser.
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
    }
)
"""Types beyond those that skops trusts itself, each needed by a common model, each reviewed."""

ADAPTERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))
"""Parts of scikit-learn that hold no estimator, and load seconds of library each."""

PICKLE_RISK = (
    "Loading a pickle runs whatever code its writer put into it, with this process's rights; set "
    "model.allow_pickle: true only if you trust everybody who can write to the model's files."
)


def check_loadable(file: Path, serialization: str, settings: ModelSettings, model: str) -> None:
    """Refuse a model file that could run code nobody agreed to, without loading it."""
    if serialization != "skops":
        if settings.allow_pickle:
            return
        raise ModelError(
            f"{model} is stored by {serialization}, which is not allowed. {PICKLE_RISK} "
            "Or log the model again by rtscv_mlops.log_champion, which stores it by skops.",
            code=Code.PICKLE_NOT_ALLOWED,
        )
    strangers = _types_of_file(file, model) - known_types(settings.trusted_types)
    if strangers:
        raise ModelError(
            f"{model} needs type(s) outside the reviewed list: {', '.join(sorted(strangers))}. "
            "Nothing was loaded. If you know that restoring them runs no harmful code, add them to "
            "model.trusted_types.",
            code=Code.UNTRUSTED_TYPES,
        )


def known_types(extra: Collection[str]) -> frozenset[str]:
    """Return the reviewed list and what the settings add."""
    return TRUSTED_TYPES | frozenset(extra)


def _skops() -> Any:
    """Return skops' module, which is loaded by those who need it only.

    It loads all of scikit-learn, and looks for each of its types in every module there is; some,
    such as Airflow's, answer each look with a warning.
    """
    with warnings.catch_warnings(), _hidden(ADAPTERS):
        warnings.simplefilter("ignore")
        return import_module("skops.io")


@contextmanager
def _hidden(names: Collection[str]) -> Iterator[None]:
    """Let modules that are not loaded yet look as if they could not be."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def load_skops(file: Path, extra: Collection[str]) -> Any:
    """Load a skops file by our list, whatever list lies beside it."""
    return _skops().load(file, trusted=sorted(known_types(extra)))


def _types_of_file(file: Path, model: str) -> set[str]:
    try:
        return set(_skops().get_untrusted_types(file=file))
    except Exception as error:  # a hostile file can fail anywhere in skops' parser
        raise ModelError(
            f"{model} has a file {file.name} that is no skops file: {error}. Log the model again.",
            code=Code.UNREADABLE_MODEL,
        ) from error


def choose_serialization(
    estimator: Any, trusted_types: Collection[str], allow_pickle: bool
) -> tuple[str, list[str]]:
    """Return how to store an estimator, and the types that its reader must trust."""
    name = type(estimator).__name__
    try:
        needed = set(_skops().get_untrusted_types(data=_skops().dumps(estimator)))
        strangers, why = needed - known_types(trusted_types), "it needs type(s) outside the list"
    except Exception as error:  # skops fails in many ways on objects it does not know
        needed, strangers, why = set(), {name}, f"it cannot be stored by skops ({error})"
    if not strangers:
        return "skops", sorted(needed)
    if allow_pickle:
        return "cloudpickle", []
    raise ModelError(
        f"{name} cannot be stored safely, since {why}: {', '.join(sorted(strangers))}. Add types "
        "that you have reviewed to trusted_types, or set allow_pickle: true. " + PICKLE_RISK,
        code=Code.UNTRUSTED_TYPES,
    )
