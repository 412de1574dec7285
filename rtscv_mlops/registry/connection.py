"""The way to MLflow: where it is, and what its failures mean.

Knows addresses and error codes; knows nothing of runs or models.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config import ModelSettings
from rtscv_mlops.errors import ConfigError, ServiceError

REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")


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
    uri = tracking_uri(settings)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
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
        raise ServiceError(f"MLflow could not {what}: {error.message}", code="mlflow") from error


def is_absent(error: MlflowException) -> bool:
    """Tell whether MLflow says that a thing does not exist."""
    return error.error_code in ABSENT
