"""What a window costs in Airflow: the CPU of its tasks, against the same window in one process.

    python -m benchmarks.airflow_cost

Protocol: one Celery worker with one slot on the cluster of `benchmarks.cluster` (PostgreSQL, Redis,
S3, MLflow over HTTP). A model of handwritten digits, windows of 300 rows; each window is run by
Airflow, task after task, and then once more by `rtscv-mlops run`, in a fresh process and for a
monitor of another name. Figures are CPU seconds, user and system, of all processes that a task
started; medians over windows. The first window warms up and is not counted. Imports are measured
inside of the task, by package, each without what it imports in turn. Peak memory is the resident
set of a process and of the programs that it started, looked at four times a second.
"""

import argparse
import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal

import psutil
from rich.console import Console
from rich.table import Table
from sqlalchemy import create_engine, inspect, text

from benchmarks.cluster import Cluster, cluster
from benchmarks.fleet import Watched, prepare
from rtscv_mlops.window import Interval
from tools.stack import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "airflow_cost.json"
PROBE = f"{ROOT / 'benchmarks' / 'probe'}{os.pathsep}{ROOT}"
VERSIONS = ("apache-airflow", "celery", "mlflow", "scikit-learn", "evidently")
WATCHED = Watched(0, windows=16)
QUIET, NEW = "nothing new", "unknowns"
TASKS = (
    "rectify_window",
    "write_report",
    "register_challenger",
    "raise_alert",
    "review_challenger",
)
COLUMNS: dict[str, Literal["left", "right"]] = {
    "process": "left",
    "CPU s": "right",
    "peak MB": "right",
    "imports, CPU s": "left",
}
PATIENCE = 600.0
JUDGED = (0, 10, 11)
"""How `rtscv-mlops run` ends where the window was judged."""


class MemoryWatch:
    """Notes how large the processes below a program become, each with what it has started."""

    def __init__(self) -> None:
        self.peaks: Counter[int] = Counter()
        self.tops: list[psutil.Process] = []
        threading.Thread(target=self._look, daemon=True).start()

    def watch(self, pid: int) -> None:
        self.tops.append(psutil.Process(pid))

    def _look(self) -> None:
        while True:
            for top in list(self.tops):
                with suppress(psutil.Error):  # It has just ended.
                    for process in (top, *top.children(recursive=True)):
                        self._note(process)
            time.sleep(0.25)

    def _note(self, process: psutil.Process) -> None:
        together = (process, *process.children(recursive=True))
        size = sum(one.memory_info().rss for one in together)
        self.peaks[process.pid] = max(self.peaks[process.pid], size)

    def peak_mb(self, note: dict[str, Any]) -> int:
        return round(self.peaks[note["pid"]] / 2**20)


def windows(times: int) -> Iterator[tuple[str, Interval]]:
    """Return the windows that are measured: some of each kind."""
    for kind in (QUIET, NEW):
        days = [
            day
            for number, day in enumerate(WATCHED.days[:-1])
            if WATCHED.is_new(number) == (kind == NEW)
        ]
        yield from ((kind, day) for day in days[:times])


def run_in_airflow(site: Cluster, run_id: str, interval: Interval) -> float:
    """Let Airflow run a window; return the CPU seconds of the worker with all that it started."""
    before = site.cpu_seconds("worker")
    conf = {"window": f"{interval.start.isoformat()}/{interval.end.isoformat()}"}
    body = {"logical_date": None, "dag_run_id": run_id, "conf": conf}
    done = site.call("ada", "POST", f"/dags/{WATCHED.dag_id}/dagRuns", json=body)
    done.raise_for_status()
    _wait_for_window(site, run_id)
    return site.cpu_seconds("worker") - before


def _wait_for_window(site: Cluster, run_id: str) -> None:
    """Wait until nothing of a run is left to do but a person's answer."""
    end = time.monotonic() + PATIENCE
    place = f"/dags/{WATCHED.dag_id}/dagRuns/{run_id}/taskInstances"
    while time.monotonic() < end:
        found = site.call("ada", "GET", place).json().get("task_instances", [])
        states = {one["task_id"]: one["state"] for one in found}
        waits = states.get("review_challenger") in ("deferred", "skipped")
        if waits and states.get("raise_alert") == "success":
            time.sleep(2)  # The worker sums up what its last process took.
            return
        time.sleep(1)
    raise RuntimeError(f"{run_id} did not come to an end: {states}")


def run_alone(site: Cluster, interval: Interval, memory: MemoryWatch) -> dict[str, Any]:
    """Run a window in one process; return its notes."""
    notes = site.folder / "notes" / interval.id
    notes.mkdir(parents=True)
    file = site.folder / "alone.yaml"
    file.write_text((site.monitors / f"{WATCHED.name}.yaml").read_text())
    words = ("--start", interval.start.isoformat(), "--end", interval.end.isoformat())
    site.start(
        "alone",
        *("rtscv-mlops", "run", str(file), *words),
        more={"PYTHONPATH": PROBE, "COST_NOTES": str(notes)},
    )
    memory.watch(site.processes["alone"].pid)
    code = site.processes.pop("alone").wait(PATIENCE)
    if code not in JUDGED:
        raise RuntimeError(f"rtscv-mlops run ended with {code}:\n{site.last_words('alone')}")
    (note,) = read_notes(notes)
    return {**note, "peak_mb": memory.peak_mb(note)}


def traces(site: Cluster) -> Counter[str]:
    """Count what Airflow and MLflow keep: rows of each table, and bytes of artifacts."""
    found: Counter[str] = Counter()
    for service, address in (("Airflow", site.sql), ("MLflow", site.mlflow_store)):
        engine = create_engine(address)
        with engine.connect() as connection:
            for table in inspect(connection).get_table_names():
                count = f'select count(*) from "{table}"'
                found[f"{service} {table}"] = connection.scalar(text(count)) or 0
        engine.dispose()
    files = (site.folder / "artifacts").rglob("*")
    found["artifact bytes"] = sum(file.stat().st_size for file in files if file.is_file())
    return found


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """Return what processes wrote down at their end."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def cpu(note: dict[str, Any]) -> float:
    """Return the CPU seconds of a process with all that it started."""
    return float(note["own"] + note["children"])


def heaviest(notes: Iterable[dict[str, Any]], least: float = 0.1) -> dict[str, float]:
    """Return the packages whose imports took longest, in CPU seconds; the others together."""
    every: Counter[str] = Counter()
    for note in notes:
        every.update(note["imports"])
    named = {name: took for name, took in every.most_common() if took >= least}
    named["others"] = every.total() - sum(named.values())
    return {name: round(took, 2) for name, took in named.items()}


def measure(times: int) -> dict[str, Any]:
    """Run windows both ways; return the notes of every process, by kind of window."""
    found: dict[str, Any] = {kind: defaultdict(list) for kind in (QUIET, NEW)}
    with cluster() as site:
        prepare(site, [WATCHED], catchup=False)
        notes = site.folder_of("worker") / "notes"
        notes.mkdir(parents=True)
        site.start_airflow()
        site.start_worker("worker", {"PYTHONPATH": PROBE, "COST_NOTES": str(notes)})
        memory = MemoryWatch()
        memory.watch(site.processes["worker"].pid)
        _wait_for_dag(site)
        run_in_airflow(site, "warm-up", WATCHED.days[-1])
        run_alone(site, WATCHED.days[-1], memory)
        for number, (kind, interval) in enumerate(windows(times)):
            run_id, before = f"measured-{number}", sum(map(cpu, read_notes(notes)))
            left = traces(site)
            worker = run_in_airflow(site, run_id, interval)
            found[kind]["traces"].append(traces(site) - left)
            every = read_notes(notes)
            tasks = {
                note["task"][2]: {**note, "peak_mb": memory.peak_mb(note)}
                for note in every
                if note["task"][1] == run_id
            }
            found[kind]["tasks"].append(tasks)
            # Tasks of other runs may have gone on meanwhile: a review that was superseded.
            found[kind]["worker"].append(worker - sum(map(cpu, every)) + before)
            found[kind]["alone"].append(run_alone(site, interval, memory))
            print(
                f"{kind}: tasks {sum(map(cpu, tasks.values())):.1f} s, the worker's own work "
                f"{found[kind]['worker'][-1]:.1f} s, one process "
                f"{cpu(found[kind]['alone'][-1]):.1f} s",
                flush=True,
            )
    return found


def _wait_for_dag(site: Cluster) -> None:
    """Wait until Airflow has parsed the monitor."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if site.call("ada", "GET", f"/dags/{WATCHED.dag_id}").ok:
            return
        time.sleep(1)
    raise RuntimeError("Airflow found no DAG.")


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return medians over windows of one kind."""
    tasks = {
        task: {
            "cpu": round(median(cpu(one[task]) for one in found["tasks"]), 2),
            "peak_mb": max(one[task]["peak_mb"] for one in found["tasks"]),
            "imports": heaviest([found["tasks"][-1][task]]),
        }
        for task in TASKS
        if task in found["tasks"][-1]
    }
    together = median(sum(map(cpu, one.values())) for one in found["tasks"])
    worker, alone = together + median(found["worker"]), median(map(cpu, found["alone"]))
    left = found["traces"][-1]
    return {
        "windows": len(found["tasks"]),
        "rows_left": {
            service: sum(rows for table, rows in left.items() if table.startswith(service))
            for service in ("Airflow", "MLflow")
        },
        "rows_by_table": {name: n for name, n in sorted(left.items()) if "bytes" not in name},
        "artifact_bytes": left["artifact bytes"],
        "tasks": tasks,
        "tasks_together": round(together, 2),
        "worker": round(worker, 2),
        "one_process": round(alone, 2),
        "one_process_peak_mb": max(one["peak_mb"] for one in found["alone"]),
        "one_process_imports": heaviest(found["alone"][-1:]),
        "ratio_tasks": round(together / alone, 2),
        "ratio_worker": round(worker / alone, 2),
    }


def show(kind: str, result: dict[str, Any], console: Console) -> None:
    """Print where the CPU of one kind of window goes."""
    table = Table(title=f"A window with {kind}: CPU seconds", title_justify="left")
    for name, side in COLUMNS.items():
        table.add_column(name, justify=side)
    for task, one in result["tasks"].items():
        _row(table, task, one["cpu"], one["peak_mb"], one["imports"])
    table.add_section()
    _row(table, "tasks together", result["tasks_together"])
    _row(table, "with the worker's own work", result["worker"])
    _row(
        table,
        "the same in one process",
        result["one_process"],
        result["one_process_peak_mb"],
        result["one_process_imports"],
    )
    _row(table, "tasks / one process", result["ratio_tasks"])
    _row(table, "worker / one process", result["ratio_worker"])
    console.print(table)


def _row(
    table: Table, name: str, figure: float, peak: int = 0, imports: dict[str, float] | None = None
) -> None:
    table.add_row(name, f"{figure:.2f}", str(peak or ""), _words(imports or {}))


def _words(imports: dict[str, float]) -> str:
    if not imports:
        return ""
    total = sum(imports.values())
    parts = [f"{name} {took:.1f}" for name, took in imports.items()]
    return f"{total:.1f}: {', '.join(parts)}"


def measure_and_keep(times: int) -> dict[str, dict[str, Any]]:
    """Run windows both ways; write down and return the medians by kind of window."""
    results = {kind: summary(one) for kind, one in measure(times).items()}
    written = {
        "versions": {name: version(name) for name in VERSIONS},
        "cores": psutil.cpu_count(),
        **results,
    }
    RESULTS.write_text(json.dumps(written, indent=2) + "\n")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="windows of each kind, at most 3")
    given = parser.parse_args()
    print(__doc__)
    console = Console(width=140)
    for kind, result in measure_and_keep(given.times).items():
        show(kind, result, console)


if __name__ == "__main__":
    main()
