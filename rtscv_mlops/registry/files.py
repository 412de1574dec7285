"""The files of a model: fetched from MLflow, and named by what they hold.

Knows where MLflow keeps a model's files; knows nothing of what is in them.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.errors import ModelError, ServiceError
from rtscv_mlops.registry.connection import asking, is_absent

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
            raise ModelError(f"{missing} {_AGAIN}", code="artifacts_missing") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ModelError(f"{missing} {_AGAIN}", code="artifacts_missing") from error
        except OSError as error:
            raise ServiceError(
                f"The files of {uri} could not be kept in a temporary folder: "
                f"{error.strerror or type(error).__name__}. Check the disk of this machine, then "
                "try again.",
                code="storage",
            ) from error
        if not (Path(place) / "MLmodel").is_file():
            raise ModelError(f"{missing} {_AGAIN}", code="artifacts_missing")
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
