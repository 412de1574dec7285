"""Runs a task in fresh processes and keeps the cheapest; knows nothing of goals."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Taken:
    """What one process took: CPU seconds, peak memory, and what else it told."""

    cpu: float
    wall: float
    before_mb: int
    peak_mb: int
    told: dict[str, Any]


def take(task: str, *words: str, times: int = 3) -> Taken:
    """Run a task in fresh processes, one after the other; return the one with the least CPU."""
    runs = [_take(task, *words) for _ in range(times)]
    return min(runs, key=lambda run: run.cpu)


def take_together(
    tasks: Sequence[tuple[str, ...]],
    at_once: int,
    *,
    threads: str | None = "1",
    python: str = sys.executable,
) -> list[Taken]:
    """Run tasks in fresh processes, so many at once; `threads` None leaves them to libraries."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda words: _take(*words, threads=threads, python=python), tasks))


def _take(task: str, *words: str, threads: str | None = "1", python: str = sys.executable) -> Taken:
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    if threads is not None:
        environment |= dict.fromkeys(THREADS, threads)
    done = subprocess.run(
        [python, "-m", "benchmarks.cost.tasks", task, *words],
        cwd=ROOT,
        env={**environment, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{task} {' '.join(words)} failed: {done.stderr[-2_000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    common = {name: told.pop(name) for name in ("cpu", "wall", "before_mb", "peak_mb")}
    return Taken(**common, told=told)


def command_cpu(command: list[str], times: int = 5) -> float:
    """Return the least CPU seconds of a command."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(used.ru_utime + used.ru_stime)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, *command], capture_output=True, text=True, check=True
        )
        for _ in range(times)
    ]
    return min(float(run.stdout) for run in runs)
