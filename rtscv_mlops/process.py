"""What a process that is ours sets up before it loads a library: commands, and tasks of Airflow."""

import gc
import os

SELDOM = (20_000, 20, 50)
"""Thresholds of the garbage collector; Python's own make a fifth of the time to load libraries."""


def prepare_process() -> None:
    """Keep vendors from reporting usage, and look for garbage seldom.

    Libraries make a million objects that stay. A program that merely imports us keeps its own ways.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    gc.set_threshold(*SELDOM)
