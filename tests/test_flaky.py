"""The tool that looks for unsteady tests: its orders, its date, its table and its exit code."""

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest

from tools.flaky import ROOT, offset, read_results
from tools.shuffle import SEED, shuffled


@dataclass(frozen=True)
class Case:
    """A test as the order sees it."""

    path: Path
    name: str


TESTS = [Case(Path(f"test_{file}.py"), f"test_{name}") for file in "abcde" for name in range(6)]


def test_an_order_is_drawn_from_its_seed():
    """The same seed gives the same order in each process, another seed another one."""
    assert shuffled(TESTS, "1") == shuffled(list(TESTS), "1")
    assert len({tuple(shuffled(TESTS, str(seed))) for seed in range(5)}) == 5


def test_an_order_holds_every_test_once_and_files_together():
    """No test is lost or doubled, and the tests of a file follow each other, mixed as well."""
    order = shuffled(TESTS, "1")

    assert sorted(order, key=TESTS.index) == TESTS
    files = [(path, list(tests)) for path, tests in groupby(order, lambda test: test.path)]
    assert len(files) == 5
    assert [path for path, _ in files] != sorted({test.path for test in TESTS})
    assert any(tests != sorted(tests, key=TESTS.index) for _, tests in files)


def test_a_date_is_an_offset():
    """The time of day stays, before and after today."""
    now = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)

    assert offset("2026-03-02", now) == "+86400"
    assert offset("2026-02-28", now) == "-86400"


def test_results_name_what_failed():
    """A failure and an error at set-up both count; what was skipped did not pass."""
    xml = """<testsuites><testsuite>
        <testcase classname="a" name="fine"/>
        <testcase classname="a" name="left"><skipped/></testcase>
        <testcase classname="a" name="bad"><failure/></testcase>
        <testcase classname="b" name="worse"><error/></testcase>
    </testsuite></testsuites>"""

    assert read_results(xml) == (1, ["a::bad", "b::worse"])


UNSTEADY = """
import datetime, subprocess

def test_here():
    assert datetime.date.today().isoformat() == "2031-02-28"

def test_below():
    done = subprocess.run(["date", "+%Y-%m-%d"], capture_output=True, text=True)
    assert done.stdout.strip() == "2031-02-28"

def test_bad():
    assert False
"""


OF_A_RUN = (SEED, "LD_PRELOAD", "FAKETIME")
"""What this test must not inherit where it is itself part of such a run."""


@pytest.mark.skipif(sys.platform != "linux", reason="another date needs Linux")
def test_a_run_has_another_date_and_a_failure_is_named(tmp_path):
    """Tests and the processes they start see the date; a failure is named, and is exit code 1."""
    (tmp_path / "test_unsteady.py").write_text(UNSTEADY)
    words = ["--seed", "7", "--load", "--date", "2031-02-28", "-n", "0", str(tmp_path)]

    done = subprocess.run(
        [sys.executable, "-m", "tools.flaky", *words],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in OF_A_RUN},
        capture_output=True,
        text=True,
        check=False,
    )

    *_, row = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert row.split()[:5] == ["7", "yes", "2031-02-28", "2", "1"]
    assert row.endswith("test_unsteady::test_bad")
