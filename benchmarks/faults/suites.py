"""Promises whose experiment is a suite of tests: each case is a trial."""

import os
from collections.abc import Iterator

import pytest

from benchmarks.faults.tally import Tally


class _Counter:
    """Counts the cases of a run of pytest."""

    def __init__(self) -> None:
        self.trials, self.failed = 0, []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case when it was called; one that could not even be set up has failed."""
        if report.when == "call" and not report.skipped:
            self.trials += 1
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2])
            self.trials += report.when == "setup"


def _suite(promise: str, what: str, quick: bool, *arguments: str, **environment: str) -> Tally:
    os.environ.update(environment)
    counter = _Counter()
    few = ["--maxfail=1"] if quick else []
    pytest.main(["-q", "-p", "no:cacheprovider", *few, *arguments], plugins=[counter])
    return Tally(promise, what, counter.trials, len(counter.failed), "; ".join(counter.failed[:3]))


def bad_input(quick: bool) -> Iterator[Tally]:
    """Every row of the catalogue of bad input."""
    yield _suite(
        "input",
        "a case of the catalogue of 114 bad inputs: its outcome, and a sentence with place and fix",
        quick,
        "tests/test_catalogue.py",
    )
