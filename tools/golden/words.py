"""Text that is alike on every machine and day: JSON with few digits, and names in place of ids."""

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

WIDTH = 100
SHORT = 24
"""Length up to which several things share a line."""
DIGITS = 6
ROOT = Path(__file__).parents[2]
HEXADECIMAL = re.compile(
    r"(?<![0-9a-zA-Z])m-[0-9a-f]{32}(?![0-9a-f])"
    r"|(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{36}|[0-9a-f]{32})(?![0-9a-f])"
)
# The demo's own days are kept: all other moments are those of the recording.
MOMENT = re.compile(
    r"(?!2026-0[12]-)20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:\d\d)?"
)
REPLACED = [
    (re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]"), ""),
    (re.compile(r"\b\d:\d\d:\d\d\b"), "<elapsed>"),
    (re.compile(r"(MLflow|Python|Airflow|scikit-learn) \d+\.\d+(\.\d+)?"), r"\1 <version>"),
    (re.compile(r'"(rectify|describe|compare|canary)": \d+\.\d+'), r'"\1": "<seconds>"'),
    (re.compile(r"\b[0-9a-f]{19}…"), "<key>…"),
    (re.compile(r"localhost:\d{4,5}|127\.0\.0\.1:\d{4,5}"), "<server>"),
    # Log lines and classes are named after inner modules.
    (re.compile(r"^([A-Z]+) rtscv_mlops(\.\w+)*:", re.MULTILINE), r"\1 rtscv_mlops:"),
    (re.compile(r'"_task_module": "rtscv_mlops[\w.]*"'), '"_task_module": "rtscv_mlops"'),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]
VENDOR_LINE = re.compile(
    r"^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )?(INFO|WARNING) (mlflow|alembic)[^\n]*\n", re.M
)


def pretty(value: Any) -> str:
    """Return JSON with sorted keys and rounded numbers, a line for each thing that fits on one."""
    return "\n".join(_lines(rounded(value), "")) + "\n"


def rounded(value: Any) -> Any:
    """Return the value with numbers of few digits, and text of several lines as a list of them."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, str) and "\n" in value:
        return value.splitlines()
    if isinstance(value, dict):
        return {str(name): rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


def _lines(value: Any, indent: str) -> list[str]:
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(indent) + len(flat) <= WIDTH or not isinstance(value, dict | list):
        return [indent + flat]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    named = sorted(value.items()) if isinstance(value, dict) else [(None, one) for one in value]
    entries = [_entry(name, part, indent + " ") for name, part in named]
    for entry in entries[:-1]:
        entry[-1] += ","
    lines = [line for entry in entries for line in entry]
    if all(len(line) - len(indent) <= SHORT for line in lines):
        lines = _packed([line.lstrip() for line in lines], indent + " ")
    return [indent + opened, *lines, indent + closed]


def _packed(parts: list[str], indent: str) -> list[str]:
    lines = [""]
    for part in parts:
        if lines[-1] and len(indent) + len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
    return [indent + line for line in lines]


def _entry(name: str | None, value: Any, indent: str) -> list[str]:
    lines = _lines(value, indent)
    if name is not None:
        lines[0] = f"{indent}{json.dumps(name, ensure_ascii=False)}: {lines[0].lstrip()}"
    return lines


class Placeholders:
    """Stand-ins for what differs from run to run, numbered in each text by first appearance."""

    def __init__(self, folder: Path, names: dict[str, str], kept: Collection[str]) -> None:
        self.folders = {str(folder): "<path>", str(ROOT): "<root>", sys.prefix: "<python>"}
        self.names = names
        """Which kind of thing an id stands for."""
        self.kept = kept
        """Digests of contents, which are the same each time."""
        # A terminal breaks a long path anywhere.
        self.broken = re.compile("|".join("\n?".join(name) for name in names) or r"(?!)")

    def fill(self, text: str) -> str:
        """Return the text as any run on any machine would give it."""
        text = VENDOR_LINE.sub("", text)
        for folder, name in self.folders.items():
            text = text.replace(folder, name)
        text = self.broken.sub(lambda match: match[0].replace("\n", ""), text)
        seen: dict[str, dict[str, int]] = defaultdict(dict)

        def name_of(match: re.Match[str]) -> str:
            found = match[0]
            if found in self.kept:
                return found
            kind = self.names.get(found) or _kind(found)
            number = seen[kind].setdefault(found, len(seen[kind]) + 1)
            return f"<{kind}-{number}>"

        text = MOMENT.sub("<time>", HEXADECIMAL.sub(name_of, text))
        for pattern, replacement in REPLACED:
            text = pattern.sub(replacement, text)
        return text.rstrip("\n") + "\n"


def _kind(found: str) -> str:
    if found.startswith("m-"):
        return "model"
    return "id" if len(found) == 32 else "sha256"
