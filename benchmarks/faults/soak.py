"""Hours in one process: window after window, while one request in a hundred to MLflow fails.

A long-lived process judges a new day every half minute, two quiet ones for each with unknowns, and
rejects every other challenger. A proxy before MLflow hurts one request in a hundred: it is refused,
or its answer is lost, cut in half or a 502 after it was done. A window whose try fails is tried
again, as Airflow would. Memory, open files and threads are those of that process after each window;
what they grow by is the median of the last third less that of the second: caches fill first.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from datetime import date, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.progress import track

from benchmarks.deployments import KNOWN, WITH_FIGS, Deployment, leaves
from benchmarks.faults.proxy import LossyProxy
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import World, world_on
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ReviewError, ServiceError
from rtscv_mlops.tracking.promotion import read_history
from rtscv_mlops.tracking.runs import find_runs

HOURS, QUICK_HOURS = 1.1, 0.02
PAUSE = 30.0
FAULTS = 0.01
HURTS = ("drop", "502", "half", "refuse")
MOST_TRIES = 5
FIRST_DAY = date(2024, 1, 1)


def run(quick: bool) -> Iterator[Tally]:
    """Judge windows for an hour."""
    seconds = 3600 * (QUICK_HOURS if quick else HOURS)
    with sqlite_server() as server, world_on(server) as world:
        trial = world.trial(RandomlyLossyProxy(server.address).address)
        notes = world.folder / "notes.jsonl"
        context = get_context("spawn")
        process = context.Process(target=live, args=(trial.file, notes, seconds))
        process.start()
        for _ in track(range(100), "soak"):
            process.join(seconds / 100)
        process.join(300)
        ended = process.exitcode == 0
        process.kill()
        seen = [json.loads(line) for line in notes.read_text().splitlines()]
        yield outcomes(world, trial.model, seen, ended)
    yield from _growth(seen)


class RandomlyLossyProxy(LossyProxy):
    """Hurts one request in a hundred, reads as well as writes."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self._chance = random.Random(0)

    def fault_of(self, method: str, path: str) -> str:
        """Return what is to happen to a request; mostly nothing."""
        return self._chance.choice(HURTS) if self._chance.random() < FAULTS else ""


def live(file: Path, notes: Path, seconds: float) -> None:
    """Judge one day after the other, and note what the process holds after each."""
    ends, day = time.monotonic() + seconds, FIRST_DAY
    days = Deployment(file.parent)
    while time.monotonic() < ends:
        began = time.monotonic()
        number = (day - FIRST_DAY).days
        days.write_day(str(day), *leaves(number, KNOWN if number % 3 else WITH_FIGS))
        tries = judge(file, str(day), reject=number % 2 == 0)
        process = psutil.Process()
        note = {
            "day": str(day),
            "tries": tries,
            "seconds": time.monotonic() - began,
            "at": time.monotonic(),
            "memory": process.memory_info().rss / 2**20,
            "files": process.num_fds(),
            "threads": threading.active_count(),
        }
        with notes.open("a") as out:
            out.write(json.dumps(note) + "\n")
        day += timedelta(days=1)
        time.sleep(max(0.0, min(began + PAUSE, ends) - time.monotonic()))


def judge(file: Path, day: str, reject: bool) -> int:
    """Judge a day, again after each failure; return the number of tries."""
    from rtscv_mlops.pipeline.run import run_window
    from rtscv_mlops.review.answers import review_challenger
    from rtscv_mlops.window import Interval

    monitor = load_monitor(file)
    for number in range(1, MOST_TRIES + 1):
        try:
            outcome = run_window(monitor, Interval.day(day))
            if reject and outcome.version:
                review_challenger(
                    monitor, outcome.version, approve=False, reviewer="ann", reason="seen before"
                )
            return number
        except ServiceError:
            continue
        except ReviewError:  # the answer to the first try was lost, and the decision stands
            return number
    return MOST_TRIES + 1


def outcomes(world: World, model: str, seen: list[dict[str, Any]], ended: bool) -> Tally:
    """Count the windows that did not come to their one outcome."""
    runs = find_runs(world.client, model)
    states = {run.window[:8]: run.state for run in runs}
    days = [note["day"].replace("-", "") for note in seen]
    failed = [day for day in days if states.get(day) != "complete"]
    doubled = len(runs) - len(states)
    problems = read_history(world.client, model).problems
    again = sum(note["tries"] > 1 for note in seen)
    if not ended:
        failed.append("the process")
    wrong = [*problems, *(f"{day} is {states.get(day, 'stuck')}" for day in failed)]
    if doubled:
        wrong.append(f"{doubled} runs too many")
    told = "; ".join([f"{again} windows needed more than one try", *wrong])
    return Tally(
        "soak", "a window, with 1 % of requests failing", len(seen), len(failed) + doubled, told
    )


def _growth(seen: list[dict[str, Any]]) -> Iterator[Tally]:
    _, middle, last = np.array_split(np.array(seen), 3)
    hours = (seen[-1]["at"] - seen[0]["at"]) / 3600
    for name, unit, limit in (("memory", " MB", 25.0), ("files", "", 3.0), ("threads", "", 3.0)):
        before, after = (np.median([note[name] for note in part]) for part in (middle, last))
        told = f"{before:.0f}{unit}, then {after:.0f}{unit}; {len(seen)} windows, {hours:.1f} hours"
        yield Tally("soak", f"{name} of the process: flat", 1, int(after - before > limit), told)
