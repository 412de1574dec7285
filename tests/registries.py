"""MLflow for tests: databases made from one template, models in them, and rivals who race."""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import mlflow
from mlflow.entities import LoggedModelStatus
from mlflow.tracking import MlflowClient

from rtscv_mlops.tracking import tags

ROUNDS = int(os.environ.get("RTSCV_RACE_ROUNDS", "2"))
"""How often each race is run: few times in a test run, many in a long experiment."""
MODEL = "letters"
KEY = "a" * 64


@cache
def _template() -> Path:
    """An empty MLflow database: making its tables takes longer than most tests."""
    file = Path(mkdtemp()) / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


def new_database(folder: Path) -> str:
    """Return the address of an MLflow of its own."""
    shutil.copy(_template(), folder / "mlflow.db")
    return f"sqlite:///{folder}/mlflow.db"


def client_of(uri: str) -> MlflowClient:
    """Return a client; registering a logged model uses the process's own address as well."""
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    return MlflowClient(uri, uri)


def log_model(client: MlflowClient, run_id: str) -> str:
    """Log a model without content on a run; return its id."""
    experiment = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment, "model", source_run_id=run_id)
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)


def add_champion(client: MlflowClient, model: str = MODEL) -> str:
    """Register a model whose first version is the champion."""
    client.create_registered_model(model)
    run = client.create_run("0")
    model_id = log_model(client, run.info.run_id)
    source = f"models:/{model_id}"
    version = client.create_model_version(model, source, run.info.run_id, model_id=model_id)
    client.set_registered_model_alias(model, "champion", str(version.version))
    return str(version.version)


def version_tags(day: int, champion: str = "1") -> dict[str, str]:
    """The tags of a challenger of one day's window."""
    return {
        tags.WINDOW: f"202601{day:02d}T000000Z-202601{day + 1:02d}T000000Z",
        tags.WINDOW_START: f"2026-01-{day:02d}T00:00:00+00:00",
        tags.WINDOW_END: f"2026-01-{day + 1:02d}T00:00:00+00:00",
        tags.CHAMPION_VERSION: champion,
        tags.REPORT_SHA256: "r" * 64,
        tags.MODEL_SHA256: "m" * 64,
    }


def race(rivals: int, act: Callable[[int], Any]) -> list[Any]:
    """Let threads act at the same moment; return what each got, an exception included."""
    start = threading.Barrier(rivals)

    def run(number: int) -> Any:
        start.wait()
        try:
            return act(number)
        except Exception as error:  # what a rival met is a result, which the test judges
            return error

    with ThreadPoolExecutor(rivals) as pool:
        return list(pool.map(run, range(rivals)))


def race_processes(rivals: int, rounds: int, act: Callable[..., Any], *given: Any) -> list[Any]:
    """Let processes call `act(round, *given)` at the same moment; return results by round."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "tests.registries", act.__module__])
    start, results = context.Barrier(rivals), context.SimpleQueue()
    processes = [
        context.Process(target=_rival, args=(start, results, rounds, act, given))
        for _ in range(rivals)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in range(rivals * rounds)]
    for process in processes:
        process.join()
    return [[what for number, what in found if number == each] for each in range(rounds)]


def _rival(start: Any, results: Any, rounds: int, act: Callable[..., Any], given: Any) -> None:
    for number in range(rounds):
        start.wait()
        try:
            results.put((number, act(number, *given)))
        except Exception as error:  # the same, and a process that dies would hang the others
            results.put((number, repr(error)))
