"""`make bench-paper`: every system of the paper, side by side, and the supplement's studies.

Writes `results/paper-*.json` (every record, as it comes: stop it whenever you like, the next run
goes on), `docs/benchmarks.md` and its plots. `--quick` is a sanity run and writes into a folder of
its own.
"""

import argparse
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from benchmarks.paper import studies, tables
from benchmarks.paper.pages import write_page
from benchmarks.paper.store import ROOT, Store, name_of, run
from benchmarks.verdict.sections import Job

PACKAGES = ("scikit-learn", "numpy", "scipy", "pyod", "torch", "skorch", "pytorch-ood")
PARTS = ("tabular", "networks", "studies")


def main() -> None:
    arguments = _parse()
    console = Console()
    folder = Path(mkdtemp(prefix="rtscv-bench-")) if arguments.quick else ROOT
    protocol = describe(arguments.jobs, arguments.quick)
    console.print(protocol)
    results = folder / "benchmarks" / "results"
    stores = {part: Store(results / f"paper-{part}.json") for part in PARTS}
    for part in () if arguments.page_only else arguments.parts:
        run(stores[part], part, dict(jobs_of(part, arguments)), arguments.jobs)
    records = {part: list(store.records.values()) for part, store in stores.items()}
    write_page(records, folder / "docs", protocol)
    console.print(f"wrote {folder / 'docs' / 'benchmarks.md'}")


def jobs_of(part: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Job]]:
    """List the jobs of a part."""
    if part == "tabular":
        return tables.plan(arguments.seeds, arguments.quick)
    if part == "studies":
        return ((name_of(job), job) for job in studies.plan(arguments.quick))
    from benchmarks.paper import networks  # torch takes a while

    return networks.plan(arguments.quick)


def describe(n_jobs: int, quick: bool) -> str:
    """Return the protocol: what ran where, on what, judged how."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{'QUICK, for a sanity check only. ' if quick else ''}"
        f"Python {platform.python_version()}, {versions}; {n_jobs} processes, one thread each. "
        "Classes are hidden at random per seed, the same for every method; no label of a window is "
        "used for any choice. Every method gets the same known rows, the same window and the same "
        "base model, and sets its threshold by its own rule, with known rows only. "
        "F is the macro F over the known classes and one unknown class, in percent."
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sanity run of some minutes")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--seeds", type=int, default=tables.SEEDS, help="removals per table row")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page-only", action="store_true", help="write the page from the records")
    return parser.parse_args()


if __name__ == "__main__":
    main()
