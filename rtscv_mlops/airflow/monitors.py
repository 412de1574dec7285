"""Which monitors Airflow runs, and how they are called there.

Knows a folder and names; DAG parsing and the plugin's page both begin here, so it stays light.
"""

import os
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from airflow.sdk import Asset

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.window import Interval

FOLDER = "RTSCV_MONITORS_DIR"
"""Environment variable with the folder of monitors; without it, `monitors` in the DAGs folder."""
PREFIX = "rtscv__"


def monitors_folder() -> Path:
    """Return the folder that monitors are read from."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    from airflow.sdk.configuration import conf

    return Path(conf.get("core", "dags_folder")) / "monitors"


def shared_name(path: Path) -> str:
    """Return how other processes find a monitor's file: they may keep the folder elsewhere."""
    folder = monitors_folder()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def find_file(name: str) -> Path:
    """Return the file that another process has named."""
    return monitors_folder() / name


def dag_id_of(monitor: Monitor) -> str:
    """Return the id of a monitor's DAG."""
    return f"{PREFIX}{monitor.name}"


def interval_of(
    monitor: Monitor, window: str | None, start: datetime | None, end: datetime | None
) -> Interval:
    """Return the window of a DAG run: the one it was asked for, else its data interval."""
    zone = monitor.airflow.timezone
    if window:
        first, divided, last = window.strip().partition("/")
        return Interval.parse(first, last, zone) if divided else Interval.day(first, zone)
    if start is None or end is None:
        raise WindowError(
            "This run has no data interval, so it names no window. Trigger it with the param "
            "window, a day such as 2026-01-05 or two moments such as "
            "2026-01-05T00:00Z/2026-01-06T00:00Z, or with a logical date.",
            code=Code.NO_WINDOW,
        )
    return Interval(start, end)


def challenger_asset(model: str) -> Asset:
    """Return the asset that a new challenger of a model updates."""
    return _asset(model, "challenger")


def champion_asset(model: str) -> Asset:
    """Return the asset that a promotion of a model updates."""
    return _asset(model, "champion")


def _asset(model: str, role: str) -> Asset:
    place = quote(model, safe="")
    return Asset(name=f"rtscv {role} of {place}", uri=f"rtscv://{place}/{role}", group="rtscv")
