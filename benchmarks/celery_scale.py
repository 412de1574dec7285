"""Many monitors on few workers: Airflow with CeleryExecutor on PostgreSQL and Redis.

    python -m benchmarks.celery_scale [--monitors 50] [--windows 3] [--alone 10] [--quick]

Protocol: the first ten monitors on a fresh cluster with one worker, then all of them on another one
with two workers, each worker with one slot. Every monitor has a model of its own in MLflow and a
few days of handwritten digits in an object store (S3 by moto); one window in five holds a digit
that its model was not taught. Airflow catches up from the first day; workers start when all runs
are there. The clock runs from the first task to the last outcome. CPU seconds are those of the
workers with all that they start, from their start on. A worker, and the triggerer, has its own host
name, its own folders and its own view of the disk, in which nothing that another process writes can
be seen; artifacts go through MLflow's server.

Workers share this machine's cores with Airflow's scheduler and API server, with MLflow, PostgreSQL,
Redis and the object store, so that the ratio of the two is a lower bound of what a second machine
would bring. Cores that were busy with other things (the databases, this program, and whatever else
runs here) are told as well: a machine with other work gives no figures worth keeping.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import Cluster, can_be_apart, cluster
from benchmarks.fleet import Watched, make_fleet, prepare
from benchmarks.outcomes import find_problems, right_verdicts, shared_folders, task_instances
from tools.stack import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "celery.json"
PACKAGES = ("apache-airflow", "celery", "redis", "mlflow", "scikit-learn")
QUICK = (4, 2, 4)
LAST_TASK = "raise_alert"
"""Its success is the outcome of a window; a review may stay open for days after it."""
PATIENCE = 300.0
PATIENCE_PER_WINDOW = 240.0


def run_fleet(site: Cluster, fleet: list[Watched], workers: list[str]) -> None:
    """Let workers judge all windows of a fleet, and wait until each has an outcome."""
    windows = sum(len(watched.days) for watched in fleet)
    prepare(site, fleet)
    site.start_airflow()
    _wait(lambda: _count(site, "/dags/~/dagRuns?limit=1") >= windows, "runs", site, PATIENCE)
    for name in workers:
        site.start_worker(name)
    ended = partial(_tell, Progress(windows), site)
    _wait(ended, "outcomes", site, windows * PATIENCE_PER_WINDOW)


@dataclass
class Progress:
    """How many windows have an outcome, told at each tenth."""

    windows: int
    told: int = 0


def _tell(progress: Progress, site: Cluster) -> bool:
    ended = outcomes(site)
    tenth = ended * 10 // progress.windows
    if tenth > progress.told:
        progress.told = tenth
        print(f"  {ended} of {progress.windows} windows", flush=True)
    return ended >= progress.windows


def outcomes(site: Cluster) -> int:
    """Count the windows that have an outcome."""
    what = f"task_id={LAST_TASK}&state=success&limit=1"
    return _count(site, f"/dags/~/dagRuns/~/taskInstances?{what}")


def _count(site: Cluster, path: str) -> int:
    return int(site.call("ada", "GET", path).json()["total_entries"])


def _wait(true: Callable[[], bool], what: str, site: Cluster, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not in {seconds:.0f} s.\n{site.last_words('scheduler')}")
        time.sleep(2)


def measure(monitors: int, windows: int, workers: int) -> dict[str, Any]:
    """Run a fleet on a fresh cluster; return what it took, and what is wrong with it."""
    fleet, names = make_fleet(monitors, windows), [f"worker-{n + 1}" for n in range(workers)]
    print(f"Workers: {workers}", flush=True)
    with cluster() as site:
        started, busy = time.monotonic(), _busy_seconds()
        run_fleet(site, fleet, names)
        busy, passed = _busy_seconds() - busy, time.monotonic() - started
        tasks = task_instances(site)
        cpu = {part: round(site.cpu_seconds(part), 1) for part in site.processes}
        by_worker = Counter(task["hostname"] for task in tasks)
        problems = find_problems(site, fleet)
        apart = can_be_apart()
        problems += shared_folders(site, [*names, "triggerer"]) if apart else []
        problems += [f"{name} did nothing" for name in names if apart and not by_worker[name]]
        right = right_verdicts(site, fleet)
    seconds, judged = _elapsed(tasks), monitors * windows
    return {
        "workers": workers,
        "windows": judged,
        "seconds": round(seconds, 1),
        "windows_per_hour": round(judged * 3600 / seconds, 1),
        "cpu_seconds_per_window": round(sum(cpu[name] for name in names) / judged, 2),
        "tasks_by_worker": dict(by_worker),
        "tasks_tried_again": sum(task["try_number"] > 1 for task in tasks),
        "verdicts_as_expected": right,
        "own_view_of_the_disk": apart,
        "cores_busy_with_other_things": round((busy - sum(cpu.values())) / passed, 2),
        "cpu_seconds_by_part": cpu,
        "problems": problems,
    }


def _busy_seconds() -> float:
    """Return the CPU seconds that this machine has spent on anything."""
    used = psutil.cpu_times()
    return float(used.user + used.nice + used.system)


def _elapsed(tasks: list[dict[str, Any]]) -> float:
    """Return the seconds from the first task to the last outcome."""
    starts = [datetime.fromisoformat(task["start_date"]) for task in tasks]
    ends = [
        datetime.fromisoformat(task["end_date"]) for task in tasks if task["task_id"] == LAST_TASK
    ]
    return (max(ends) - min(starts)).total_seconds()


def show(results: list[dict[str, Any]], console: Console) -> None:
    """Print the runs side by side."""
    table = Table(title="Windows on Celery workers", title_justify="left")
    table.add_column("")
    for one in results:
        table.add_column(f"{one['workers']} worker{'s' * (one['workers'] > 1)}", justify="right")
    rows = {
        "windows": "windows",
        "seconds": "seconds",
        "windows per hour": "windows_per_hour",
        "CPU seconds per window": "cpu_seconds_per_window",
        "tasks tried again": "tasks_tried_again",
        "verdicts as expected": "verdicts_as_expected",
        "cores busy with other things": "cores_busy_with_other_things",
    }
    for words, name in rows.items():
        table.add_row(words, *(str(one[name]) for one in results))
    table.add_row("tasks by worker", *(_by_worker(one["tasks_by_worker"]) for one in results))
    table.add_row("problems", *(str(len(one["problems"])) for one in results))
    console.print(table)
    for one in results:
        for problem in one["problems"]:
            console.print(f"  {one['workers']}: {problem}", highlight=False, markup=False)


def _by_worker(counts: dict[str, int]) -> str:
    return ", ".join(str(count) for _, count in sorted(counts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Many monitors on few Celery workers.")
    parser.add_argument("--monitors", type=int, default=50)
    parser.add_argument("--windows", type=int, default=3, help="windows of each monitor")
    parser.add_argument("--alone", type=int, default=10, help="monitors that one worker is given")
    parser.add_argument("--quick", action="store_true", help="4 monitors, 2 windows; keeps nothing")
    given = parser.parse_args()
    asked = (given.monitors, given.windows, min(given.alone, given.monitors))
    monitors, windows, alone = QUICK if given.quick else asked
    versions = {name: version(name) for name in PACKAGES}
    print(__doc__)
    print(f"{monitors} monitors, {windows} windows each, {psutil.cpu_count()} cores; {versions}")
    results = [measure(alone, windows, workers=1), measure(monitors, windows, workers=2)]
    one, two = (result["windows_per_hour"] for result in results)
    show(results, Console(width=100))
    print(f"Two workers against one: {two / one:.2f} times the windows per hour.")
    if not given.quick:
        written = {
            "versions": versions,
            "cores": psutil.cpu_count(),
            "monitors": monitors,
            "windows_of_each": windows,
            "ratio": round(two / one, 2),
            "runs": results,
        }
        RESULTS.write_text(json.dumps(written, indent=2) + "\n")
    sys.exit(any(result["problems"] for result in results))


if __name__ == "__main__":
    main()
