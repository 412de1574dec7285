"""What may be committed: nothing that ties the project to one machine, and nothing big."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEBIBYTE = 2**20

# Written so that no pattern matches itself: this file is searched like any other.
MACHINE_TRACES = [
    r"(?<![\w.~$}])/(root|opt|home|work|Users)/",
    r"p[y]pi\.(org|python)",
    r"pythonhoste[d]",
    r"download\.p[y]torch",
    r"--(extra-)?index[-]url|--find[-]links",
]
PIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.]*")


@pytest.fixture(scope="module")
def tracked():
    """Every file that git tracks and that is still there."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing is tracked")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def traces(text):
    """The pieces of a text that only make sense on one machine or with one package index."""
    return [match[0] for pattern in MACHINE_TRACES for match in re.finditer(pattern, text)]


@pytest.mark.parametrize(
    ("text", "gap"),
    [("'/{}/data'", "root"), ("see /{}/wheels", "opt"), ("py{}.org", "pi"), ("--{}-url", "index")],
)
def test_a_trace_is_seen(text, gap):
    """The search below can find what it looks for."""
    assert traces(text.format(gap))


@pytest.mark.parametrize("text", ["https://example.com/home/page", "docs/work/plan.md", "~/opt/x"])
def test_an_innocent_path_is_let_be(text):
    """An address or a relative path may hold the same words."""
    assert traces(text) == []


def test_no_file_names_a_machine(tracked):
    """A clone works anywhere: no file names a package index, or a folder of one machine."""
    found = {
        str(path.relative_to(ROOT)): traces(path.read_text(errors="replace")) for path in tracked
    }

    assert {name: pieces for name, pieces in found.items() if pieces} == {}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-torch.lock"])
def test_locks_hold_only_pins(name):
    """A lock line is `name==version`, which any index can serve."""
    lines = (ROOT / name).read_text().splitlines()

    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_no_tracked_file_is_big(tracked):
    """Data and models have stores of their own; git keeps every byte forever."""
    assert [path.name for path in tracked if path.stat().st_size > MEBIBYTE] == []
