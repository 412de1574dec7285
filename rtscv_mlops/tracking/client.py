"""The connection to MLflow: its address, and what its errors mean."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

import mlflow
import requests
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from mlflow.tracking import MlflowClient as MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ConfigError, ServiceError
from rtscv_mlops.text import redact

REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED")
CLIENT_DEFAULTS = {
    # MLflow would retry for minutes, and a task that hangs looks like one that works.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # Commands with --json print nothing but JSON to standard output.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Environment variables of MLflow's client, where the user has not set them."""
PAGE = 1000
"""Results of a search that are fetched at once."""
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")
NOT_JSON = "not in a valid JSON format"
ERROR_STATUS = re.compile(r"too many (\d+) error responses")
REQUEST_URL = re.compile(r"API request to (\S+) failed")
ARTIFACTS_ROUTE = "/mlflow-artifacts/"
VERSION = re.compile(r"\d+(\.\d+)+\w*")

P = ParamSpec("P")
T = TypeVar("T")

Check = Callable[[], None]
"""Called before a write; raises if the write is no longer allowed."""


def unchecked() -> None:
    """Allow every write."""


def tracking_uri(settings: ModelSettings) -> str:
    """Return MLflow's address from the monitor, else from the environment."""
    name = settings.tracking_uri_env or "MLFLOW_TRACKING_URI"
    uri = settings.tracking_uri or os.environ.get(name)
    if not uri:
        raise ConfigError(
            f"No MLflow server is configured: the environment variable {name} is not set. "
            "Set it, or write model.tracking_uri in the monitor."
        )
    return uri


def connect(settings: ModelSettings, *, create: bool = False) -> MlflowClient:
    """Return a client, and point MLflow's fluent functions at the same server."""
    client = open_client(settings, create=create)
    mlflow.set_tracking_uri(client.tracking_uri)
    mlflow.set_registry_uri(client.tracking_uri)
    return client


def open_client(settings: ModelSettings, *, create: bool = False) -> MlflowClient:
    """Return a client and leave global state alone, for threads that read several servers.

    An SQLite file that does not exist is an error, since MLflow would create it, unless a store is
    to be created.
    """
    uri = tracking_uri(settings)
    scheme, _, name = uri.partition("?")[0].partition(":///")
    is_file = scheme.startswith("sqlite") and name and ":" not in name  # and not in memory
    file = Path(name)
    if is_file and not create and not (file.is_file() and file.stat().st_size):
        raise ConfigError(
            f"There is no MLflow database at {file}; nothing was created. Correct the address in "
            "model.tracking_uri or its variable, or register a champion there first."
        )
    for name, value in CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    return MlflowClient(uri, uri)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn MLflow's errors into ours; `what` completes "MLflow could not ..."."""
    try:
        yield
    except (MlflowException, requests.RequestException) as error:
        raise _service_error(what, error) from error


def _service_error(what: str, error: Exception) -> ServiceError:
    failure = _request_failure(error)
    status = _status(failure) if failure is not None else ""
    if isinstance(error, MlflowException):
        refusal = str(error.error_code) if error.error_code in REFUSED else ""
    else:
        refusal = "the login was refused" if status in ("401", "403") else ""
    if refusal:
        return ServiceError(
            f"MLflow refused to {what}: {refusal}. Check the user and the permissions "
            "behind MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN.",
            code=Code.MLFLOW_REFUSED,
        )
    if NOT_JSON in str(error):
        return ServiceError(
            f"MLflow could not {what}: its address answered with a page where JSON was "
            "expected, such as that of a login or a proxy. Check the address and the login.",
            code=Code.MLFLOW,
        )
    if failure is not None and failure.request is not None:
        address = str(failure.request.url)
    else:
        # The request of a truncated answer is known only from MLflow's message.
        named = REQUEST_URL.search(str(error))
        address = named.group(1) if named else ""
    if failure is None or not address:
        return ServiceError(f"MLflow could not {what}: {redact(error)}", code=Code.MLFLOW)
    url = urlsplit(address)
    if status and ARTIFACTS_ROUTE in url.path:
        return ServiceError(
            f"MLflow's artifact store could not {what}: the server answered {status}. Check the "
            "store's space and permissions; the server's log says more.",
            code=Code.STORAGE,
        )
    host = f"{url.hostname}:{url.port}" if url.port else url.hostname
    why = f"answered {status} to every try" if status else _why_silent(failure)
    return ServiceError(
        f"MLflow could not {what}: the server at {host} {why}. Check that it runs and that the "
        "address is right, then try again.",
        code=Code.MLFLOW,
    )


def _request_failure(error: BaseException | None) -> requests.RequestException | None:
    """Return the failed request behind an error of MLflow, whose message hides it in addresses."""
    while error is not None:
        if isinstance(error, requests.RequestException):
            return error
        error = error.__cause__ or error.__context__
    return None


def _status(failure: requests.RequestException) -> str:
    """Return the HTTP status of the server's answer; empty if it did not answer."""
    if failure.response is not None:
        return str(failure.response.status_code)
    status = ERROR_STATUS.search(str(failure))
    return status.group(1) if status else ""


def _why_silent(failure: requests.RequestException) -> str:
    """Return why there was no answer, after "the server"."""
    if isinstance(failure, requests.exceptions.SSLError):
        return f"does not speak TLS as it should (SSL): {_first_cause(failure)}"
    if isinstance(failure, requests.Timeout) or "timed out" in str(failure):
        seconds = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "some")
        return f"does not answer: it timed out after {seconds} seconds each time"
    return f"does not answer: {_first_cause(failure)}"


def _first_cause(failure: BaseException) -> str:
    """Return the message of the first error of a chain, often the operating system's."""
    while True:
        causes = (getattr(failure, "reason", None), *failure.args, failure.__cause__)
        cause = next((each for each in causes if isinstance(each, BaseException)), None)
        if cause is None:
            break
        failure = cause
    message = failure.strerror if isinstance(failure, OSError) else None
    return redact(message or failure).rstrip(".").lower()


def is_absent(error: MlflowException) -> bool:
    """Return whether MLflow says that something does not exist."""
    return error.error_code in ABSENT


def get_or_none(get: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what a read of MLflow returns; None if MLflow says that it does not exist."""
    try:
        return get(*args, **kwargs)
    except MlflowException as error:
        if not is_absent(error):
            raise
        return None


def read_pages(search: Callable[[str | None], PagedList[T]]) -> Iterator[T]:
    """Yield the results of all pages of a search, which takes the token of a page."""
    token: str | None = None
    while True:
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return


def search_versions(client: MlflowClient, model: str, condition: str) -> Iterator[ModelVersion]:
    """Yield a model's versions that meet a condition, which may be empty; names may have quotes."""
    quote = "'" if "'" not in model else '"'
    named = f"name = {quote}{model}{quote}" if quote not in model else ""
    wanted = " and ".join(filter(None, (condition, named)))
    versions: Iterator[ModelVersion] = read_pages(
        lambda token: client.search_model_versions(wanted, PAGE, page_token=token)
    )
    yield from (version for version in versions if version.name == model)


def make_experiment(client: MlflowClient, name: str, artifacts: str) -> None:
    """Create an experiment that stores its artifacts at this address, unless it exists."""
    with asking(f"create the experiment {name!r}"):
        if client.get_experiment_by_name(name) is None:
            client.create_experiment(name, artifact_location=artifacts)


def greet(client: MlflowClient) -> str:
    """Return a phrase on which MLflow answers; raise if none does."""
    with asking("answer"):
        client.search_experiments(max_results=1)
    url = urlsplit(client.tracking_uri)
    server = url.hostname if has_server(client) else f"{url.scheme} database"
    return f"MLflow {mlflow.__version__} client, {server} answers"


def is_open(client: MlflowClient) -> bool:
    """Return whether a server answers requests without credentials."""
    if not has_server(client):
        return False
    address = f"{public_address(client)}/api/2.0/mlflow/experiments/search"
    try:
        answer = requests.post(address, json={"max_results": 1}, timeout=10, allow_redirects=False)
    except requests.RequestException:
        return False
    return answer.status_code == HTTPStatus.OK


def server_version(client: MlflowClient) -> str:
    """Return the version that a server reports; empty if it reports none."""
    if not has_server(client):
        return ""
    try:
        page = f"{public_address(client)}/version"
        answer = requests.get(page, timeout=10, allow_redirects=False)
    except requests.RequestException:
        return ""
    version = answer.text.strip()
    return version if answer.ok and VERSION.fullmatch(version) else ""


def server_time(client: MlflowClient) -> datetime | None:
    """Return the time of the server's clock; None where there is no server, or it does not tell."""
    if not has_server(client):
        return None
    try:
        answer = requests.get(f"{public_address(client)}/version", timeout=10)
        return parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
    except (requests.RequestException, KeyError, ValueError):
        return None


def public_address(client: MlflowClient) -> str:
    """Return a server's address without credentials."""
    return redact(client.tracking_uri).rstrip("/")


def has_server(client: MlflowClient) -> bool:
    """Return whether MLflow is a server, and not a database that we open ourselves."""
    return urlsplit(client.tracking_uri).scheme in ("http", "https")
