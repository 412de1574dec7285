"""Notes what a process spent: its CPU time, and how much of it went into which imports.

Python loads this in every process whose PYTHONPATH names its folder. Airflow runs a task in a
process that is forked from its worker and left by `os._exit`, so both are watched. A forked
process counts from its fork on.
"""

import atexit
import json
import os
import time
from collections import Counter
from importlib import _bootstrap_external
from pathlib import Path

FOLDER = os.environ.pop("COST_NOTES", None)
"""Taken away, so that a program that this process starts is part of it."""
NAMES = ("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID", "AIRFLOW_CTX_TASK_ID")

imports: "Counter[str]" = Counter()
inner = [0.0]
"""CPU time of imports that the present one has made in turn."""
noted: list[bool] = []


def forget():
    imports.clear()
    inner[:] = [0.0]
    noted.clear()


def note():
    if noted:
        return
    noted.append(True)
    used = os.times()
    notes = {
        "task": [os.environ.get(name, "") for name in NAMES],
        "pid": os.getpid(),
        "own": used.user + used.system,
        "children": used.children_user + used.children_system,
        "imports": dict(imports),
    }
    Path(FOLDER, f"{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(notes))


def timed(load):
    def loaded(loader, module):
        name = getattr(module, "__name__", None) or module.name
        started, outer = time.process_time(), inner[0]
        inner[0] = 0.0
        try:
            return load(loader, module)
        finally:
            took = time.process_time() - started
            imports[name.partition(".")[0]] += took - inner[0]
            inner[0] = outer + took

    return loaded


def leave(code):
    if os.environ.get(NAMES[-1]):
        note()
    _exit(code)


if FOLDER:
    source, extension = _bootstrap_external._LoaderBasics, _bootstrap_external.ExtensionFileLoader
    source.exec_module = timed(source.exec_module)
    extension.create_module = timed(extension.create_module)
    extension.exec_module = timed(extension.exec_module)
    os.register_at_fork(after_in_child=forget)
    _exit, os._exit = os._exit, leave
    atexit.register(note)
