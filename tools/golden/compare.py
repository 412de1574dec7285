"""Recorded and fresh golden files side by side: numbers may differ by little, all else not."""

import difflib
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.golden.words import ROOT

GOLDEN = ROOT / "tests" / "golden"
PARTS = ("help", "public", "dags", "story")
QUICK = PARTS[:3]
"""Parts that take seconds; the story takes more than a minute."""

FRACTION = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])")
RELATIVE, ABSOLUTE = 1e-4, 1e-9
PASSED_ON = ("PATH", "HOME", "TMPDIR", "MPLCONFIGDIR", "VIRTUAL_ENV")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def make(out: Path, parts: Iterable[str] = PARTS) -> None:
    """Make golden files below a folder, in a process with a plain environment."""
    kept = {name: os.environ[name] for name in (*PASSED_ON, *THREADS) if name in os.environ}
    environment = {
        **kept,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "LOGNAME": "golden",
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "OPENBLAS_CORETYPE": "Haswell",  # its rounding differs from processor to processor
    }
    # Not by -m: help would then name that module in place of the console script.
    program = "from tools.golden.play import main; main()"
    words = [sys.executable, "-c", program, str(out), *parts]
    subprocess.run(words, env=environment, cwd=ROOT, check=True)


def part_of(name: str) -> str:
    """Return which part makes a golden file."""
    first = name.partition("/")[0].removesuffix(".json")
    return first if first in QUICK else "story"


def names_of(folder: Path, parts: Iterable[str] = PARTS) -> list[str]:
    """Return the golden files of some parts."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = (path.relative_to(folder).as_posix() for path in files)
    return sorted(name for name in names if part_of(name) in parts)


def difference(name: str, fresh_folder: Path, *, exact: bool = False) -> str:
    """Return how a fresh file differs from the recorded one; nothing if it does not."""
    recorded, fresh = _lines(GOLDEN / name), _lines(fresh_folder / name)
    if not exact:
        fresh = settle(recorded, fresh)
    return "".join(difflib.unified_diff(recorded, fresh, f"recorded/{name}", f"fresh/{name}", n=2))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.is_file() else []


def settle(recorded: list[str], fresh: list[str]) -> list[str]:
    """Return the fresh lines, as recorded where only the last digits of fractions differ."""
    if len(recorded) != len(fresh):
        return fresh
    return [old if _is_close(old, new) else new for old, new in zip(recorded, fresh, strict=True)]


def _is_close(old: str, new: str) -> bool:
    if FRACTION.sub("#", old) != FRACTION.sub("#", new):
        return False
    pairs = zip(FRACTION.findall(old), FRACTION.findall(new), strict=True)
    return all(
        math.isclose(float(one), float(other), rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for one, other in pairs
    )
