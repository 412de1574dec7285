"""Run the fast tests again and again as they may be run elsewhere: order, load and date differ.

`python -m tools.flaky --runs 3 --load --date 2027-02-28 -k sources`: what is not known here goes to
pytest. A table says of each run what was different and which tests failed; one failure is exit
code 1.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from tools.shuffle import SEED

ROOT = Path(__file__).parents[1]
FAST = ("-m", "not slow", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-q")
BUSY = "while True: pass"
HEADER = ("order", "load", "date", "passed", "failed", "seconds", "which")


@dataclass(frozen=True, slots=True)
class Run:
    """What was different in a run, and how it ended; `failed` are the names of tests."""

    seed: int
    load: bool
    date: str
    passed: int
    failed: Sequence[str]
    seconds: float
    code: int

    def row(self) -> Sequence[str]:
        """Return the run as a row of the table."""
        which = ", ".join(self.failed) or ("" if self.code == 0 else f"pytest ended by {self.code}")
        load, count = "yes" if self.load else "no", str(len(self.failed))
        numbers = str(self.passed), count, f"{self.seconds:.0f}"
        return str(self.seed), load, self.date or "today", *numbers, which


def main() -> None:
    """Do all runs, print their table, and end by 1 if any failed."""
    options, more = _options(sys.argv[1:])
    # Without it the busy loops would go on after `kill` or a time limit of CI.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs = [
        _run(options.seed + number, options.load, options.date, more)
        for number in range(options.runs)
    ]
    print_table(runs)
    sys.exit(any(run.code for run in runs))


def _options(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tools.flaky", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="how many runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first order; then +1")
    parser.add_argument("--load", action="store_true", help="keep each core busy")
    parser.add_argument("--date", default="", help="the day that every process takes for today")
    return parser.parse_known_args(words)


def _run(seed: int, load: bool, date: str, more: Sequence[str]) -> Run:
    environment = {**os.environ, SEED: str(seed), **(_at(date) if date else {})}
    with tempfile.TemporaryDirectory() as folder, _busy(load):
        results = Path(folder, "results.xml")
        command = (sys.executable, "-m", "pytest", "-p", "tools.shuffle", *FAST)
        start = time.monotonic()
        done = subprocess.run(
            [*command, f"--junitxml={results}", *more], cwd=ROOT, env=environment, check=False
        )
        seconds = time.monotonic() - start
        passed, failed = read_results(results.read_text()) if results.exists() else (0, [])
    return Run(seed, load, date, passed, failed, seconds, done.returncode)


def _at(date: str) -> Mapping[str, str]:
    """Return the environment in which every process, and what it starts, has another date.

    An offset, not a moment: a moment would begin anew in each process. Clocks that measure waiting
    stay as they are, and so do the times of files, which the system gives.
    """
    found = find_spec("libfaketime")
    if found is None or found.origin is None or sys.platform != "linux":
        sys.exit("--date needs Linux and the package libfaketime, of the dev extra.")
    library = Path(found.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": offset(date, datetime.now(UTC)),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def offset(date: str, now: datetime) -> str:
    """Return how far a day is from now, at the same time of day, in the words of libfaketime."""
    days = (datetime.fromisoformat(date).date() - now.date()).days
    return f"{days * 86_400:+d}"


@contextmanager
def _busy(load: bool) -> Iterator[None]:
    cores = len(os.sched_getaffinity(0)) if load else 0
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def read_results(text: str) -> tuple[int, list[str]]:
    """Return how many tests passed and which failed, of the XML that pytest writes."""
    passed, failed = 0, []
    for case in ElementTree.fromstring(text).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed


def print_table(runs: Sequence[Run]) -> None:
    """Print a line for each run."""
    rows = [HEADER, *(run.row() for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    main()
