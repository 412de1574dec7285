"""`make bench`: what a run costs, in ratios that are measured side by side.

Prints every ratio beside its goal and writes `results/cost.json` and `docs/cost.md`. `--quick`
takes a tenth of the rows and writes nothing. Name sections to run only those.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cost import crowd, sections, services
from benchmarks.cost.page import rounded, write_page
from benchmarks.cost.rows import Row, World
from benchmarks.cost.scale import write_scale

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "cost.json"
PACKAGES = ("mlflow", "evidently", "scikit-learn", "pandas", "numpy", "pyarrow", "polars")
LARGE, HUGE = 1_000_000, 10_000_000
SECTIONS: dict[str, Callable[..., Iterator[Row]]] = {
    "reading": sections.reading,
    "drift": sections.drifting,
    "fits": sections.learning,
    "run": sections.whole_runs,
    "mlflow": services.mlflow_traffic,
    "command": sections.command_line,
    "threads": crowd.threads,
    "throughput": crowd.throughput,
    "airflow": services.airflow,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--page-only", action="store_true", help="write the pages again")
    parser.add_argument("--quick", action="store_true", help="fewer rows; nothing is written")
    given = parser.parse_args()
    console = Console()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}, "seconds": {}}
    if not given.page_only:
        names = given.sections or list(SECTIONS)
        protocol = describe(given.quick)
        console.print(protocol)
        measured = measure(names, LARGE // 10 if given.quick else LARGE, given.quick, console)
        stored = {key: {**stored.get(key, {}), **found} for key, found in measured.items()} | {
            "protocol": protocol
        }
    if not given.quick:
        write(stored)
        console.print("wrote benchmarks/results/cost.json, docs/cost.md and docs/scale.md")


def measure(names: list[str], large: int, quick: bool, console: Console) -> dict[str, Any]:
    """Run sections; return their rows, how long each took, and the parts of the large run."""
    rows: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    with TemporaryDirectory(prefix="cost-") as folder:
        world = World(Path(folder))
        for name in names:
            started = time.perf_counter()
            more = (0 if quick else HUGE,) if name == "run" else ()
            found = list(SECTIONS[name](world, large, *more))
            seconds[name] = round(time.perf_counter() - started, 1)
            rows[name] = [asdict(row) for row in found]
            console.print(shown(found, name, seconds[name]))
        profile = world.run(large).told if "run" in names else {}
    return {"rows": rows, "seconds": seconds, "profile": profile}


def write(stored: dict[str, Any]) -> None:
    """Keep what was measured, and write the pages."""
    stored["rows"] = {name: stored["rows"][name] for name in SECTIONS if name in stored["rows"]}
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    write_page(stored, ROOT / "docs")
    if stored["rows"].keys() == SECTIONS.keys():
        write_scale(stored, RESULTS.parent, ROOT / "docs")


def describe(quick: bool) -> str:
    """Return the protocol: what was measured where, and how."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{'QUICK, for a sanity check only. ' if quick else ''}"
        f"Python {platform.python_version()}, {versions}; {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the start. Each figure is the CPU time of a fresh process "
        "and of its children, the least of three tries (of two: whole runs; of one: Evidently's "
        "preset, RTSCV in fits, ten million rows), on one thread; ratios are of figures of the "
        "same run. The window has 20 numbers and 5 texts, 5 % of its rows are of two classes that "
        "the champion was not taught, in Parquet pieces of 250 thousand rows; the champion is an "
        "SVM on 15 000 rows of 24 classes, on MLflow with SQLite; memory is a process's peak."
    )


def shown(rows: list[Row], name: str, seconds: float) -> Table:
    """Return the rows as a table for a terminal."""
    table = Table(
        "what", "measured", "goal", "", "", title=f"{name} ({seconds:.0f} s)", box=box.SIMPLE
    )
    marks = {True: "met", False: "[bold]not met[/bold]", None: ""}
    for row in rows:
        sign = "≥" if row.least else "≤"
        goal = "" if row.goal is None else f"{sign} {rounded(row.goal)}"
        table.add_row(row.what, rounded(row.value), goal, marks[row.met], row.told)
    return table


if __name__ == "__main__":
    main()
