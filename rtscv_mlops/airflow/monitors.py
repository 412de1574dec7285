"""Which monitors Airflow runs, and the names of their DAGs, tasks and assets.

DAG parsing and the plugin's page both begin here, so this must import quickly.
"""

import os
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

from airflow.sdk import Asset

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, WindowError
from rtscv_mlops.window import Interval

FOLDER = "RTSCV_MONITORS_DIR"
"""Environment variable with the folder of monitors; without it, `monitors` in the DAGs folder."""
PREFIX = "rtscv__"


class Task(StrEnum):
    """The id of a task in the DAG of a monitor."""

    RECTIFY = "rectify_window"
    REPORT = "write_report"
    REGISTER = "register_challenger"
    ALERT = "raise_alert"
    REVIEW = "review_challenger"
    PROMOTE = "promote_challenger"
    ASK_AGAIN = "ask_again"


APPROVE, REJECT = "Approve", "Reject"
QUESTION = "question"
"""Name of the param of a review that binds an answer to what the reviewer saw."""
SIGNING_CONNECTION = "rtscv_signing"
"""The connection whose password is the key that signs the record of decisions."""


def monitors_folder() -> Path:
    """Return the folder that monitors are read from."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    from airflow.sdk.configuration import conf

    return Path(conf.get("core", "dags_folder")) / "monitors"


def shared_name(path: Path) -> str:
    """Return a monitor's file as other processes find it: their folder may be another one."""
    folder = monitors_folder()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def find_file(name: str) -> Path:
    """Return the file behind a shared name."""
    return monitors_folder() / name


def reviewer_name(name: str, user_id: str) -> str:
    """Return how the record names a user: with the id, since users may choose their names."""
    return name if name == user_id else f"{name} ({user_id})"


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
            "This run has no data interval, so its window is not known. Trigger it with the param "
            "window, a day such as 2026-01-05 or two times such as "
            "2026-01-05T00:00Z/2026-01-06T00:00Z, or with a logical date.",
            code=Code.NO_WINDOW,
        )
    return Interval(start, end)


def challenger_asset(model: str) -> Asset:
    """Return the asset that is updated when a model has a new challenger."""
    return _asset(model, "challenger")


def champion_asset(model: str) -> Asset:
    """Return the asset that is updated when a challenger becomes the champion."""
    return _asset(model, "champion")


def _asset(model: str, role: str) -> Asset:
    name = quote(model, safe="")
    return Asset(name=f"rtscv {role} of {name}", uri=f"rtscv://{name}/{role}", group="rtscv")


def use_signing_key() -> None:
    """Take the key of the connection `rtscv_signing`, unless the environment has one."""
    from rtscv_mlops.tracking.signing import KEY_VARIABLE

    if os.environ.get(KEY_VARIABLE):
        return
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    # A connection that does not exist has either error, by whether Airflow or a test asks for it.
    with suppress(AirflowNotFoundException, AirflowRuntimeError):
        key = BaseHook.get_connection(SIGNING_CONNECTION).password
        if key:
            os.environ[KEY_VARIABLE] = key
