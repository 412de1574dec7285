"""Behaviour as it was recorded: what commands print and write is the same, word for word.

`python -m tools.golden record` writes the files of tests/golden again.
"""

import pytest

from tools.golden.compare import GOLDEN, QUICK, difference, make, names_of, settle
from tools.golden.words import Placeholders, pretty

KILOBYTE = 1024
RUN = "8dc714b032534815879806f20e75c6fa"
MODEL = "m-0b0858135d9e4b1b842ab2c242e82853"


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Help, public names and DAGs, made again."""
    folder = tmp_path_factory.mktemp("quick")
    make(folder, QUICK)
    return folder


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The demo's fortnight and every command after it, made again."""
    folder = tmp_path_factory.mktemp("story")
    make(folder, ["story"])
    return folder


@pytest.mark.parametrize("name", names_of(GOLDEN, QUICK))
def test_interfaces_are_as_recorded(quick, name):
    """Help, public names and serialized DAGs change only on purpose."""
    assert difference(name, quick) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of(GOLDEN, ["story"]))
def test_results_are_as_recorded(story, name):
    """Verdicts, scores, reports, the registry and what commands print change only on purpose."""
    assert difference(name, story) == ""


def test_no_new_interface_is_unrecorded(quick):
    """A command or a DAG that nobody recorded is a difference too."""
    assert names_of(quick) == names_of(GOLDEN, QUICK)


@pytest.mark.slow
def test_no_new_result_is_unrecorded(story):
    """A run, version or transcript that nobody recorded is a difference too."""
    assert names_of(story) == names_of(GOLDEN, ["story"])


def test_golden_files_can_be_read():
    """A difference in a huge file would tell nothing."""
    big = [name for name in names_of(GOLDEN) if (GOLDEN / name).stat().st_size > 300 * KILOBYTE]

    assert big == []


def test_a_difference_is_shown(tmp_path):
    """Another word in a file is a difference with its line; a missing file is one as well."""
    name = "public.json"
    text = (GOLDEN / name).read_text()
    (tmp_path / name).write_text(text.replace("log_champion", "log_winner"))

    assert "+" in difference(name, tmp_path)
    assert "log_winner" in difference(name, tmp_path)
    assert "-{" in difference(name, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("p 0.123456", "p 0.123457", True),
        ("p 0.1234", "p 0.1236", False),
        ("p 1.5e-30", "q 1.5e-30", False),
        ("12 rows", "13 rows", False),
        ("version 1.2.3", "version 1.2.4", False),
    ],
)
def test_only_last_digits_may_differ(old, new, same):
    """Processors round differently; counts, words and versions are exact."""
    assert (settle([old], [new]) == [old]) == same


def test_what_differs_from_run_to_run_is_named(tmp_path):
    """Ids are numbered by appearance, paths and moments named, and the demo's days kept."""
    names = Placeholders(tmp_path, {RUN: "run"}, kept=["a" * 32])
    text = (
        f"{tmp_path}/x {RUN} {MODEL} {'b' * 32} {'a' * 32} 2030-11-18T11:02:17Z 2026-01-05T00:00Z"
    )

    filled = names.fill(f"{text} {RUN[:10]}\n{RUN[10:]}")

    assert filled == (
        f"<path>/x <run-1> <model-1> <id-1> {'a' * 32} <time> 2026-01-05T00:00Z <run-1>\n"
    )


def test_json_is_short_and_sorted():
    """Few digits, sorted names, lines of text one by one, short things side by side."""
    value = {"b": [1 / 3] * 20, "a": "one\ntwo", "c": float("nan")}

    lines = pretty(value).splitlines()

    assert lines[1] == ' "a": ["one", "two"],'
    assert lines[3].startswith("  0.333333, 0.333333,")
    assert lines[-2] == ' "c": "nan"'
