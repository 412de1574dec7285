"""What a process of ours sets up, and what a program that imports us keeps."""

import subprocess
import sys

import pytest

from rtscv_mlops.process import GC_THRESHOLDS

TELL = "; print(gc.get_threshold(), os.environ.get('DO_NOT_TRACK'))"


def told(program: str, **environment: str) -> str:
    """Run a program in a fresh Python with this environment alone; return what it printed last."""
    done = subprocess.run(
        [sys.executable, "-c", f"import gc, os; {program}{TELL}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "module", ["rtscv_mlops", "rtscv_mlops.pipeline", "rtscv_mlops.cli.commands"]
)
def test_an_import_changes_nothing(module):
    """A program that imports us keeps its garbage collector and its environment."""
    assert told(f"import {module}") == told("pass")


def test_a_process_of_ours_is_prepared():
    """The garbage collector runs less often, and vendors do not report usage."""
    prepared = told("from rtscv_mlops.process import prepare_process; prepare_process()")

    assert prepared == f"{GC_THRESHOLDS} true"


def test_what_a_user_has_set_stays():
    """A user's own choice about usage reports is kept."""
    program = "from rtscv_mlops.process import prepare_process; prepare_process()"

    assert told(program, DO_NOT_TRACK="false") == f"{GC_THRESHOLDS} false"
