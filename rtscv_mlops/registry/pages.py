"""What people read in MLflow's own pages: the description of a version, and notes on it."""

from collections.abc import Callable

from mlflow.tracking import MlflowClient

from rtscv_mlops.registry.connection import asking
from rtscv_mlops.registry.ledger import repeat

TAG_LIMIT = 5000


def describe_version(client: MlflowClient, model: str, version: str, text: str) -> None:
    """Write the Markdown that a version's page shows."""
    with asking(f"describe version {version} of {model!r}"):
        client.update_model_version(model, version, text)


def read_description(client: MlflowClient, model: str, version: str) -> str:
    """Return the Markdown that a version's page shows."""
    with asking(f"read version {version} of {model!r}"):
        return client.get_model_version(model, version).description or ""


def noted(
    client: MlflowClient, model: str, version: str, name: str, find_out: Callable[[], str]
) -> str:
    """Return what a tag of a version says; it is found out and written if there is none."""
    with asking(f"read the tags of version {version} of {model!r}"):
        tags = client.get_model_version(model, version).tags
    if name in tags:
        return str(tags[name])
    text = find_out()[:TAG_LIMIT]
    with asking(f"write the tag {name} of version {version} of {model!r}"):
        repeat(client.set_model_version_tag, model, version, name, text)
    return text
