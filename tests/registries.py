"""MLflow for tests: what the benchmarks use, and threads and processes that act at once."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.registries import (
    MODEL,
    add_champion,
    client_of,
    log_model,
    new_database,
    seal_window,
)

__all__ = [
    "KEY",
    "MODEL",
    "ROUNDS",
    "add_champion",
    "client_of",
    "log_model",
    "new_database",
    "race",
    "race_processes",
    "seal_window",
]

ROUNDS = int(os.environ.get("RTSCV_RACE_ROUNDS", "2"))
"""How often each race is run: few times in a test run, many in a long experiment."""
KEY = "a" * 64


def race(workers: int, act: Callable[[int], Any]) -> list[Any]:
    """Let threads act at the same moment; return what each got, an exception included."""
    start = threading.Barrier(workers)

    def run(number: int) -> Any:
        start.wait()
        try:
            return act(number)
        except Exception as error:  # an error is a result, which the test judges
            return error

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


def race_processes(workers: int, rounds: int, act: Callable[..., Any], *given: Any) -> list[Any]:
    """Let processes call `act(round, *given)` at the same moment; return results by round."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "tests.registries", act.__module__])
    start, results = context.Barrier(workers), context.SimpleQueue()
    processes = [
        context.Process(target=_work_rounds, args=(start, results, rounds, act, given))
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in range(workers * rounds)]
    for process in processes:
        process.join()
    return [[what for number, what in found if number == each] for each in range(rounds)]


def _work_rounds(
    start: Any, results: Any, rounds: int, act: Callable[..., Any], given: Any
) -> None:
    for number in range(rounds):
        start.wait()
        try:
            results.put((number, act(number, *given)))
        except Exception as error:  # the same, and a process that dies would hang the others
            results.put((number, repr(error)))
