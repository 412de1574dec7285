"""What people read in MLflow's own pages: the description of a version."""

from mlflow.tracking import MlflowClient

from rtscv_mlops.registry.connection import asking


def describe_version(client: MlflowClient, model: str, version: str, text: str) -> None:
    """Write the Markdown that a version's page shows."""
    with asking(f"describe version {version} of {model!r}"):
        client.update_model_version(model, version, text)


def read_description(client: MlflowClient, model: str, version: str) -> str:
    """Return the Markdown that a version's page shows."""
    with asking(f"read version {version} of {model!r}"):
        return client.get_model_version(model, version).description or ""
