"""Promises whose experiment is a suite of tests: each case is a trial."""

import os
import re
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


class _Strings(_Counter):
    """Counts what tests say that they tried, such as strings times fields; else each case."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the trials that a test has noted, in place of its one case."""
        super().pytest_runtest_logreport(report)
        if report.when == "call":
            noted = [int(count) for name, count in report.user_properties if name == "trials"]
            self.trials += sum(noted) - bool(noted)


class _Examples(_Counter):
    """Counts the examples that Hypothesis tried, as its own statistics tell them."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count each example that was tried; what was drawn and did not apply is no trial."""
        if report.when == "teardown":
            told = vars(report).get("_hypothesis_stats", "")
            self.trials += sum(map(int, re.findall(r"(\d+) passing", told)))
        if report.failed:
            self.trials += 1
            self.failed.append(report.nodeid.rpartition("::")[2])


def _suite(
    promise: str,
    what: str,
    quick: bool,
    *arguments: str,
    counter: _Counter | None = None,
    **environment: str,
) -> Tally:
    os.environ.update(environment, RTSCV_REQUIRE_BROWSER="1")
    counter = counter or _Counter()
    few = ["--maxfail=1"] if quick else []
    code = pytest.main(["-q", "-p", "no:cacheprovider", *few, *arguments], plugins=[counter])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not counter.trials:
        raise RuntimeError(f"pytest ended with {code!r} and {counter.trials} trials: nothing shown")
    return Tally(promise, what, counter.trials, len(counter.failed), "; ".join(counter.failed[:3]))


def bad_input(quick: bool) -> Iterator[Tally]:
    """Every row of the catalogue of bad input."""
    yield _suite(
        "input",
        "a case of the catalogue of 114 bad inputs: its outcome, and a sentence with place and fix",
        quick,
        "tests/test_catalogue.py",
    )


def properties(quick: bool) -> Iterator[Tally]:
    """Every property, and the machine that crashes and retries, on many examples."""
    profile = "quick" if quick else "long"
    files = ("", "_reading", "_registry")
    yield _suite(
        "input",
        "an example of a property: any text, table, label, setting, time or record",
        quick,
        *(f"tests/test_properties{name}.py" for name in files),
        counter=_Examples(),
        RTSCV_PROPERTIES=profile,
    )
    yield _suite(
        "input",
        "a random course of claims, crashes, retries, decisions and moves by hand",
        quick,
        "tests/test_registry_machine.py",
        counter=_Examples(),
        RTSCV_PROPERTIES=profile,
    )


def hostile(quick: bool) -> Iterator[Tally]:
    """Script strings in every text, in a real browser; hostile addresses, paths, bounds, sizes."""
    few = ["-k", "corpus or jinja or e_mail or alert"] if quick else []
    yield _suite(
        "hostile",
        "a script string in a text field of report, description, question, alert or terminal",
        quick,
        "tests/test_hostile.py",
        *few,
        counter=_Strings(),
    )
    if not quick:
        yield _suite(
            "hostile",
            "a script string on a page that Airflow serves, or live in a report that it serves",
            quick,
            "tests/test_airflow_page.py",
            *("-k", "hostile or stays_text"),
            counter=_Strings(),
        )
    yield _suite(
        "hostile",
        "an address, path, bound, name or size bomb in a source",
        quick,
        *("tests/test_hostile_sources.py", "tests/test_sources_database.py"),
        *("-k", "address or bound" if quick else "hostile_sources or names or only_reads"),
        counter=_Strings(),
    )


def secrets(quick: bool) -> Iterator[Tally]:
    """Canaries, searched in everything that whole windows leave."""
    yield _suite(
        "secrets",
        "a canary in a place: a log, an output, a result, an alert, a table or file of MLflow",
        quick,
        "tests/test_secrets.py",
        *(["-k", "file_s_other_columns"] if quick else []),
        counter=_Strings(),
    )


def models(quick: bool) -> Iterator[Tally]:
    """Planted models, and the process that tries a challenger."""
    planted = "planted or pickle or list_beside or elsewhere or secrets or changed"
    yield _suite(
        "models",
        "a planted model or changed file: refused with its reason, and nothing of it has run",
        quick,
        *("tests/test_model_loading.py", "tests/test_registry_champion.py"),
        *(() if quick else ("tests/test_registry_models.py",)),
        *("-k", "marker or by_pickle" if quick else f"model_loading or {planted}"),
    )


def time(quick: bool) -> Iterator[Tally]:
    """Clock changes, leap days, rows at a boundary, and rows that come late."""
    chosen = ["-k", "Zurich or leap"] if quick else []
    yield _suite(
        "time",
        "clocks that change, in four zones and both ways, or rows that come late: a gap, an "
        "overlap or a silent change",
        quick,
        "tests/test_time.py",
        *chosen,
    )


def clocks(quick: bool) -> Iterator[Tally]:
    """Workers whose clocks are ahead or behind, and tags that hold no time."""
    yield _suite(
        "time",
        "a worker's clock that is ahead or behind, or a tag that holds no time: an alert held "
        "back, a review closed, an old judgement shown or a window lost",
        quick,
        *("tests/test_registry_server.py", "tests/test_pipeline_alerts.py"),
        *(() if quick else ("tests/test_pipeline_repeat.py",)),
        *("-k", "clock or cannot_be_true"),
    )
