"""The way to MLflow: where it is, and what its failures mean.

Knows addresses and error codes; knows nothing of runs or models.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote, urlsplit

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config import ModelSettings
from rtscv_mlops.errors import ConfigError, ServiceError

REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED")
MANNERS = {
    # MLflow would try for minutes, and a task that hangs looks like one that works.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # Standard output belongs to whoever asked for JSON.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""How MLflow behaves in our processes, unless somebody decided otherwise."""
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")
NO_JSON = "not in a valid JSON format"


def tracking_uri(settings: ModelSettings) -> str:
    """Return where MLflow is: from the monitor, else from the environment."""
    name = settings.tracking_uri_env or "MLFLOW_TRACKING_URI"
    uri = settings.tracking_uri or os.environ.get(name)
    if not uri:
        raise ConfigError(
            f"No MLflow server is named: the environment variable {name} is not set. "
            "Set it, or write model.tracking_uri in the monitor."
        )
    return uri


def connect(settings: ModelSettings) -> MlflowClient:
    """Return a client; MLflow's fluent functions speak to the same server from now on."""
    client = open_client(settings)
    mlflow.set_tracking_uri(client.tracking_uri)
    mlflow.set_registry_uri(client.tracking_uri)
    return client


def open_client(settings: ModelSettings) -> MlflowClient:
    """Return a client to read with, where threads of one process speak to several servers."""
    uri = tracking_uri(settings)
    for name, value in MANNERS.items():
        os.environ.setdefault(name, value)
    return MlflowClient(uri, uri)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn MLflow's failures into ours; `what` completes "MLflow could not ..."."""
    try:
        yield
    except MlflowException as error:
        if error.error_code in REFUSED:
            raise ServiceError(
                f"MLflow refused to {what}: {error.error_code}. Check the user and the rights "
                "behind MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN.",
                code="mlflow_refused",
            ) from error
        if NO_JSON in error.message:
            raise ServiceError(
                f"MLflow could not {what}: its address answered with a page where JSON was "
                "expected, such as that of a login or a proxy. Check the address and the login.",
                code="mlflow",
            ) from error
        raise ServiceError(f"MLflow could not {what}: {error.message}", code="mlflow") from error


def is_absent(error: MlflowException) -> bool:
    """Tell whether MLflow says that a thing does not exist."""
    return error.error_code in ABSENT


def make_experiment(client: MlflowClient, name: str, artifacts: str) -> None:
    """Make an experiment whose artifacts go to a place of choice, unless it exists."""
    with asking(f"make the experiment {name!r}"):
        if client.get_experiment_by_name(name) is None:
            client.create_experiment(name, artifact_location=artifacts)


def greet(client: MlflowClient) -> str:
    """Return which MLflow answers, in words, or raise that none does."""
    with asking("answer"):
        client.search_experiments(max_results=1)
    place = urlsplit(client.tracking_uri)
    where = place.hostname if _is_served(client) else f"{place.scheme} database"
    return f"MLflow {mlflow.__version__} client, {where} answers"


def is_open(client: MlflowClient) -> bool:
    """Tell whether a server answers somebody who shows no credentials."""
    if not _is_served(client):
        return False
    address = f"{client.tracking_uri.rstrip('/')}/api/2.0/mlflow/experiments/search"
    try:
        answer = requests.post(address, json={"max_results": 1}, timeout=10, allow_redirects=False)
    except requests.RequestException:
        return False
    return answer.status_code == HTTPStatus.OK


def links(
    client: MlflowClient, run_id: str, model: str = "", version: str | None = None
) -> dict[str, str]:
    """Return web addresses of a run and a version; none where MLflow is a bare database."""
    if not _is_served(client):
        return {}
    root = client.tracking_uri.rstrip("/")
    experiment = client.get_run(run_id).info.experiment_id
    page = f"{root}/#/experiments/{experiment}/runs/{run_id}"
    found = {"Run": page, "Report": f"{page}/artifacts/report.html"}
    if version:
        found["Version"] = f"{root}/#/models/{quote(model, safe='')}/versions/{version}"
    return found


def _is_served(client: MlflowClient) -> bool:
    return urlsplit(client.tracking_uri).scheme in ("http", "https")
