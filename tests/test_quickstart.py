"""The quickstart works as it stands: its blocks run in order, and print what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```(python|yaml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    "python": sys.executable,
    "rtscv-mlops": str(Path(sys.executable).with_name("rtscv-mlops")),
}
LEFT_OUT = "…"
"""Stands on the page for what differs from run to run: times, ids, paths."""
WIDTH = "100"


def blocks() -> list[tuple[str, str]]:
    """The blocks of the page that are run, with their kind; others are for services."""
    return BLOCK.findall(PAGE.read_text())


def write_file(text: str, folder: Path) -> None:
    """Write a block to the file that its first line names."""
    named = re.match(r"# (\S+)\n", text)
    assert named, f"a block that names no file:\n{text}"
    (folder / named[1]).write_text(text)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, with the lines that it prints on the page."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line.rstrip() for line in shown if line.strip()]


def environment() -> dict[str, str]:
    """What a new user has: no server of MLflow, and a terminal of a usual width."""
    mine = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if name not in mine}
    return kept | {"COLUMNS": WIDTH, "PYTHONUTF8": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


def missing(shown: list[str], printed: str) -> list[str]:
    """The lines of the page that were not printed; where they are wrapped hangs on paths."""
    found = " ".join(printed.split())
    said = (" ".join(line.split()) for line in shown)
    patterns = [".*".join(map(re.escape, line.split(LEFT_OUT))) for line in said]
    return [
        line for line, pattern in zip(shown, patterns, strict=True) if not re.search(pattern, found)
    ]


def run(command: str, folder: Path) -> tuple[int, str, str]:
    """Run a command of the page; return its exit code and both outputs."""
    program, *words = shlex.split(command)
    done = subprocess.run(
        [PROGRAMS[program], *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder; the paths of pytest's own are too long for a line."""
    with TemporaryDirectory() as name:
        yield Path(name)


def test_the_quickstart_runs_as_written(folder):
    """Files are written, commands run in order, and outputs and exit codes are as shown."""
    code, explained = 0, True
    for kind, text in blocks():
        if kind != "console":
            write_file(text, folder)
            continue
        for command, shown in commands(text):
            if command == "echo $?":
                assert shown == [str(code)]
                explained = True
                continue
            assert explained, "a command failed, and the page does not say so"
            code, printed, errors = run(command, folder)
            assert missing(shown, printed) == [], f"{command} printed:\n{printed}\n{errors}"
            explained = code == 0
    assert explained


def test_every_command_is_on_the_page():
    """The story is whole: check, run, review, score, decision, rollback and audit."""
    run_here = [command for kind, text in blocks() for command, _ in commands(text)]

    said = " ".join(run_here)
    for word in ("check", "run", "review show", "score", "review approve", "rollback", "audit"):
        assert f"rtscv-mlops {word} " in said
