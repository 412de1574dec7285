"""The way to MLflow: where it is, and what its failures mean.

Knows addresses and error codes; knows nothing of runs or models.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote, urlsplit

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient as MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ConfigError, ServiceError
from rtscv_mlops.text import redact

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
TOO_MANY = re.compile(r"too many (\d+) error responses")
ASKED = re.compile(r"API request to (\S+) failed")
FILES = "/mlflow-artifacts/"
VERSION = re.compile(r"\d+(\.\d+)+\w*")

Check = Callable[[], None]
"""What is asked before a write, and raises where that must not be."""


def unchecked() -> None:
    """Let everything be written."""


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
    except (MlflowException, requests.RequestException) as error:
        raise _in_our_words(what, error) from error


def _in_our_words(what: str, error: Exception) -> ServiceError:
    failure = _failure_on_the_way(error)
    if _is_refusal(error, failure):
        return ServiceError(
            f"MLflow refused to {what}: {_refusal(error)}. Check the user and the rights "
            "behind MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN.",
            code=Code.MLFLOW_REFUSED,
        )
    if NO_JSON in str(error):
        return ServiceError(
            f"MLflow could not {what}: its address answered with a page where JSON was "
            "expected, such as that of a login or a proxy. Check the address and the login.",
            code=Code.MLFLOW,
        )
    address = _address(error, failure)
    if failure is None or not address:
        return ServiceError(f"MLflow could not {what}: {redact(error)}", code=Code.MLFLOW)
    place = urlsplit(address)
    status = _status(failure)
    if status and FILES in place.path:
        return ServiceError(
            f"MLflow's artifact store could not {what}: the server answered {status}. Check the "
            "store's space and rights; the server's log says more.",
            code=Code.STORAGE,
        )
    where = f"{place.hostname}:{place.port}" if place.port else place.hostname
    why = f"answered {status} whenever it was asked" if status else _silence(failure)
    return ServiceError(
        f"MLflow could not {what}: the server at {where} {why}. See that it runs and that the "
        "address is right, then try again.",
        code=Code.MLFLOW,
    )


def _failure_on_the_way(error: BaseException | None) -> requests.RequestException | None:
    """Return what went wrong below MLflow's client, which says it in the middle of addresses."""
    while error is not None:
        if isinstance(error, requests.RequestException):
            return error
        error = error.__cause__ or error.__context__
    return None


def _address(error: Exception, failure: requests.RequestException | None) -> str:
    """Return the address that was asked; of half an answer only MLflow's words tell it."""
    if failure is not None and failure.request is not None:
        return str(failure.request.url)
    named = ASKED.search(str(error))
    return named.group(1) if named else ""


def _is_refusal(error: Exception, failure: requests.RequestException | None) -> bool:
    if isinstance(error, MlflowException):
        return error.error_code in REFUSED
    return failure is not None and _status(failure) in ("401", "403")


def _refusal(error: Exception) -> str:
    return str(error.error_code) if isinstance(error, MlflowException) else "the login was refused"


def _status(failure: requests.RequestException) -> str:
    """Return the HTTP status that a server answered with; nothing if it did not answer."""
    if failure.response is not None:
        return str(failure.response.status_code)
    found = TOO_MANY.search(str(failure))
    return found.group(1) if found else ""


def _silence(failure: requests.RequestException) -> str:
    """Say why there was no answer."""
    if isinstance(failure, requests.exceptions.SSLError):
        return f"does not speak TLS as it should (SSL): {_innermost(failure)}"
    if isinstance(failure, requests.Timeout) or "timed out" in str(failure):
        seconds = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "some")
        return f"does not answer: it timed out after {seconds} seconds each time"
    return f"does not answer: {_innermost(failure)}"


def _innermost(failure: BaseException) -> str:
    """Return the words of the operating system, or of whatever else was the first to fail."""
    while (inner := _cause(failure)) is not None:
        failure = inner
    words = failure.strerror if isinstance(failure, OSError) else None
    return redact(words or failure).rstrip(".").lower()


def _cause(failure: BaseException) -> BaseException | None:
    told = (getattr(failure, "reason", None), *failure.args, failure.__cause__)
    return next((each for each in told if isinstance(each, BaseException)), None)


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
    address = f"{public_address(client)}/api/2.0/mlflow/experiments/search"
    try:
        answer = requests.post(address, json={"max_results": 1}, timeout=10, allow_redirects=False)
    except requests.RequestException:
        return False
    return answer.status_code == HTTPStatus.OK


def server_version(client: MlflowClient) -> str:
    """Return the version that a server says it has; nothing if it does not say."""
    if not _is_served(client):
        return ""
    try:
        page = f"{public_address(client)}/version"
        answer = requests.get(page, timeout=10, allow_redirects=False)
    except requests.RequestException:
        return ""
    told = answer.text.strip()
    return told if answer.ok and VERSION.fullmatch(told) else ""


def make_links(
    client: MlflowClient, run_id: str, model: str = "", version: str | None = None
) -> dict[str, str]:
    """Return web addresses of a run and a version; none where MLflow is a bare database."""
    if not _is_served(client):
        return {}
    root = public_address(client)
    experiment = client.get_run(run_id).info.experiment_id
    page = f"{root}/#/experiments/{experiment}/runs/{run_id}"
    found = {"Run": page, "Report": f"{page}/artifacts/report.html"}
    if version:
        found["Version"] = f"{root}/#/models/{quote(model, safe='')}/versions/{version}"
    return found


def public_address(client: MlflowClient) -> str:
    """Return a server's address as anybody may see it."""
    return redact(client.tracking_uri).rstrip("/")


def _is_served(client: MlflowClient) -> bool:
    return urlsplit(client.tracking_uri).scheme in ("http", "https")
