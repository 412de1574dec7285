"""Plain English, kept by a list of the habits that made the prose hard to read."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    *sorted((ROOT / "rtscv_mlops").rglob("*.py")),
    *sorted((ROOT / "rtscv_mlops").rglob("*.html")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "README.md",
    ROOT / "SECURITY.md",
]

HABITS = {
    r'"""(Tell|Say)\b': 'write "Return whether" or "Return a message"',
    r"\b(some|no|any)body\b|\bwhoever\b": "name the agent: another process, a reviewer, the user",
    r"\b(likewise|lest|mend(s|ed|ing)?|seldom|foretells?|foresaw|dearest)\b": "use a common word",
    r"\bbut for\b": 'write "except for"',
    r"(?<!there )\bis no (?!(longer|more|less|need|evidence|way|such|better)\b)[a-z]+": (
        'write "is not a …"'
    ),
    r"\bnames no\b": 'write "is not a valid …"',
    r"\bknows? nothing of\b": "drop the formula; the architecture test says who knows whom",
    r"\bof rivals?\b|\brivals?\b": 'write "another process" or "concurrent writer"',
    r"\bcrew\b|\bmanners\b": "use the ecosystem's term",
}


def find_habits(text):
    """Return each match of a habit with its line number and what to write instead."""
    return [
        (number, match[0], advice)
        for number, line in enumerate(text.splitlines(), 1)
        for habit, advice in HABITS.items()
        for match in re.finditer(habit, line, flags=re.IGNORECASE)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_file_has_none_of_the_habits(file):
    """Code, pages and messages are written in plain English."""
    assert find_habits(file.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        '"""Tell whether a run is complete."""',
        "Somebody moved the alias.",
        "'Mars' is no time zone.",
        "A time without a zone names no moment.",
        "All rows but for the last.",
        "Knows A; knows nothing of B.",
    ],
)
def test_a_habit_is_seen(line):
    """Each habit is found where it occurs."""
    assert find_habits(line)


def test_plain_sentences_pass():
    """Common phrases that look alike are not reported."""
    assert find_habits("It is no longer there. There is no evidence for it.") == []
