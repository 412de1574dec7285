"""Set up a process of ours, a command or an Airflow task, before it loads libraries.

Apart from `runtime` because importing this must not load any library.
"""

import gc
import os

GC_THRESHOLDS = (20_000, 20, 50)
"""Thresholds of the garbage collector. Python's defaults cost about 20 % of import time."""


def prepare_process() -> None:
    """Disable the usage reports of vendors, and run the garbage collector less often.

    Libraries create a million objects that stay. Programs that only import us are not changed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    gc.set_threshold(*GC_THRESHOLDS)
