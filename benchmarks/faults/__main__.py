"""`make faults`: every promise about faults, concurrent work and hostile data, tried many times.

Writes `results/faults.json` as each experiment ends, and the tables of `docs/reliability.md`. Name
experiments to run only those; `--quick` is a sanity run that writes nothing.
"""

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version

from rich.console import Console

from benchmarks.faults import page
from benchmarks.faults.tally import Store, Tally

EXPERIMENTS = {
    "kill-points-sqlite": "benchmarks.faults.kills:points_on_sqlite",
    "kill-points-postgres": "benchmarks.faults.kills:points_on_postgres",
    "kill-times-sqlite": "benchmarks.faults.kills:times_on_sqlite",
    "kill-times-postgres": "benchmarks.faults.kills:times_on_postgres",
    "lost-answers": "benchmarks.faults.lost:run",
    "outages": "benchmarks.faults.outages:run",
    "rival-promoters": "benchmarks.faults.concurrency:promoters",
    "rival-windows": "benchmarks.faults.concurrency:windows",
    "frozen-tasks": "benchmarks.faults.concurrency:frozen",
    "human-races": "benchmarks.faults.humans:run",
    "decisions-lost": "benchmarks.faults.decisions:run",
    "bad-input": "benchmarks.faults.suites:bad_input",
    "properties": "benchmarks.faults.suites:properties",
    "fuzz": "benchmarks.faults.fuzz:run",
    "hostile-text": "benchmarks.faults.suites:hostile",
    "secrets": "benchmarks.faults.suites:secrets",
    "models": "benchmarks.faults.suites:models",
    "audit": "benchmarks.faults.audits:run",
    "poisoning": "benchmarks.faults.poisoning:run",
    "challengers": "benchmarks.faults.challengers:run",
    "time": "benchmarks.faults.suites:time",
    "clocks": "benchmarks.faults.suites:clocks",
    "false-alarms": "benchmarks.faults.false_alarms:run",
    "soak": "benchmarks.faults.soak:run",
}
"""Where each experiment is: module and function. It is told whether to be quick, yields tallies."""
PACKAGES = ("mlflow", "apache-airflow", "evidently", "scikit-learn", "hypothesis")


def main() -> None:
    arguments = _parse()
    console = Console()
    store = Store()
    console.print(protocol(), markup=False)
    found: list[Tally] = []
    for name in arguments.experiments or EXPERIMENTS:
        if arguments.page_only:
            break
        console.rule(name)
        began = time.monotonic()
        tallies = list(load(name)(arguments.quick))
        found += tallies
        console.print(page.show(tallies))
        if not arguments.quick:
            store.keep(name, tallies, time.monotonic() - began)
    if not arguments.quick:
        found = store.tallies()
        page.write(found, protocol())
    console.rule("all")
    console.print(page.show(found))


def load(name: str) -> Callable[[bool], Iterator[Tally]]:
    """Return an experiment; what it needs is imported only now."""
    module, _, function = EXPERIMENTS[name].partition(":")
    experiment: Callable[[bool], Iterator[Tally]] = getattr(import_module(module), function)
    return experiment


def protocol() -> str:
    """Return what ran on what."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"Python {platform.python_version()}, {versions}; one machine with two cores. The upper "
        "bound is the largest failure rate that is consistent with the trials (Clopper-Pearson, "
        "95 %, one-sided): 300 trials without a failure show a rate below 1 %, not a rate of zero."
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("experiments", nargs="*", choices=[[], *EXPERIMENTS], metavar="experiment")
    parser.add_argument("--quick", action="store_true", help="few trials; nothing is written")
    parser.add_argument("--page-only", action="store_true", help="write the page from the records")
    return parser.parse_args()


if __name__ == "__main__":
    main()
