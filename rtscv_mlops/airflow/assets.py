"""What other DAGs can be scheduled on: a model's challenger, and its champion.

An event carries the model, the version and the MLflow run in its `extra`.
"""

from urllib.parse import quote

from airflow.sdk import Asset


def challenger_asset(model: str) -> Asset:
    """Return the asset that a new challenger of a model updates."""
    return _asset(model, "challenger")


def champion_asset(model: str) -> Asset:
    """Return the asset that a promotion of a model updates."""
    return _asset(model, "champion")


def _asset(model: str, role: str) -> Asset:
    place = quote(model, safe="")
    return Asset(name=f"rtscv {role} of {place}", uri=f"rtscv://{place}/{role}", group="rtscv")
