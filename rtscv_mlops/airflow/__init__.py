"""Airflow: a DAG for each monitor, the wait for a person, and the page to decide on."""

from rtscv_mlops.airflow.monitors import challenger_asset, champion_asset, monitors_folder

__all__ = ["build_dags", "challenger_asset", "champion_asset", "monitors_folder"]


def __getattr__(name: str) -> object:
    # The page and the triggerer build no DAGs, and need not load what does.
    if name != "build_dags":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rtscv_mlops.airflow.dags import build_dags

    return build_dags
