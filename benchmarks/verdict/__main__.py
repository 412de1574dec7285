"""`make bench-verdict`: Table 1, level, power, coverage, verdicts and cost, on real data.

Writes `results/verdict.json` (every record), `docs/verdict.md` and its plots. `--quick` is a
sanity run of under two minutes and writes nothing into `docs/`.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from benchmarks.verdict.pages import print_tables, write_page
from benchmarks.verdict.sections import PLANS, Job, Record

ROOT = Path(__file__).parents[2]
PACKAGES = ("scikit-learn", "numpy", "scipy")


def main() -> None:
    arguments = _parse()
    console = Console()
    protocol = describe(arguments.jobs, arguments.quick)
    console.print(protocol)
    results: dict[str, list[Record]] = {}
    seconds = {}
    for section in arguments.sections:
        start = time.perf_counter()
        results[section] = run(section, list(PLANS[section](arguments.quick)), arguments.jobs)
        seconds[section] = round(time.perf_counter() - start, 1)
        print_tables(console, section, results[section])
    console.print(f"wall seconds by section: {seconds}")
    name = "verdict-quick.json" if arguments.quick else "verdict.json"
    path = ROOT / "benchmarks" / "results" / name
    stored = json.loads(path.read_text()) if path.exists() else {"sections": {}, "seconds": {}}
    stored["protocol"] = protocol
    stored["sections"] |= {section: _columns(results[section]) for section in results}
    stored["seconds"] |= seconds
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(stored, indent=None, separators=(",", ":")) + "\n")
    if not arguments.quick:
        write_page(stored, ROOT / "docs")
        console.print("wrote benchmarks/results/verdict.json and docs/verdict.md")


def run(section: str, jobs: list[Job], n_jobs: int) -> list[Record]:
    """Run the jobs of a section side by side; timings are taken one process at a time."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(section, total=len(jobs))
        records = []
        parallel = Parallel(n_jobs=1 if section == "cost" else n_jobs, return_as="generator")
        for record in parallel(delayed(job)() for job in jobs):
            records.append(record)
            progress.advance(task)
    return records


def _columns(records: list[Record]) -> dict[str, list[Any]]:
    """Return one list per field: a third of the size of a list of records, and as readable."""
    frame = pd.DataFrame(records).round(6)
    return frame.astype(object).where(frame.notna(), None).to_dict("list")


def describe(n_jobs: int, quick: bool) -> str:
    """Return the protocol: what ran where, on what, judged how."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{'QUICK, for a sanity check only. ' if quick else ''}"
        f"Python {platform.python_version()}, {versions}; {n_jobs} processes, one thread each. "
        "Classes are hidden at random per seed; no label of a window is used for any choice. The "
        "method's constants were chosen on other random draws of digits, Pendigits, Letter and "
        "MNIST; section 6 is on data that no choice was made on. "
        "Alpha is 0.01. F is the macro F over known classes and one unknown class, in percent. "
        "Cost is CPU time of one process, measured one at a time."
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-verdict", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sanity run, under two minutes")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--sections", nargs="+", choices=PLANS, default=list(PLANS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
