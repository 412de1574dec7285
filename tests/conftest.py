"""What every test shares: no vendor reports usage, no test changes what others log, a browser."""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, on a busy machine too; `RTSCV_PROPERTIES=long` looks for more.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# At import, not in a fixture: the vendors read these when they are imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
# OpenBLAS rounds differently on each kind of processor, enough to move a row across a threshold.
os.environ["OPENBLAS_CORETYPE"] = "Haswell"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = "no browser"


@pytest.fixture(autouse=True)
def _own_log_levels() -> Iterator[None]:
    """Commands choose how much their process logs; a test of one must not choose for the next."""
    before = {name: logging.getLogger(name).level for name in ("rtscv_mlops", "mlflow", "alembic")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command as a terminal would; return its exit code and both outputs."""
    from rtscv_mlops.cli import commands

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rtscv-mlops", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            commands.main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The machine's own Chromium; without one a test is skipped, unless one is required."""
    found = os.environ.get("RTSCV_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        why = f"{NO_BROWSER}: none of {', '.join(BROWSERS)} found, RTSCV_BROWSER is not set"
        (pytest.fail if os.environ.get("RTSCV_REQUIRE_BROWSER") else pytest.skip)(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Within a container the sandbox cannot start, and the pages are our own.
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what was not run for lack of a browser."""
    skipped = terminalreporter.stats.get("skipped", [])
    missed = [one for one in skipped if NO_BROWSER in str(one.longrepr)]
    if missed:
        terminalreporter.write_line(
            f"Not run: {len(missed)} tests that need a browser. Install chromium to run them."
        )
