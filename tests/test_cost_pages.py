"""`make bench`: pages are what was measured, and a task is measured as it says."""

import json

import pytest

from benchmarks.cost import page, scale
from benchmarks.cost.__main__ import RESULTS, SECTIONS
from benchmarks.cost.measuring import ROOT, take, take_together


@pytest.fixture(scope="module")
def stored():
    return json.loads(RESULTS.read_text())


def test_the_page_is_what_was_measured(stored):
    """docs/cost.md is written by `make bench`, and never by hand; every section is in it."""
    assert list(stored["rows"]) == list(SECTIONS)
    assert (ROOT / "docs" / "cost.md").read_text() == page.render(stored)


def test_the_cost_of_many_models_follows_from_it(stored):
    """docs/scale.md is worked out from the same results."""
    celery = scale.celery_run(RESULTS.parent)
    assert (ROOT / "docs" / "scale.md").read_text() == scale.render_scale(stored, celery)


def test_a_figure_that_misses_its_goal_is_marked():
    """Whether a goal is met is told by the figures alone, for goals from either side."""
    row = {"what": "x", "value": 2.0, "goal": 1.5, "least": False, "told": ""}

    assert "**not met**" in page._line(row)
    assert "**not met**" not in page._line({**row, "least": True})
    assert page._line({**row, "goal": None}) == "| x | 2 |  |  |  |"


def test_parts_add_up_to_the_whole():
    """No second of a profile is lost, and none counts twice."""
    profile = {
        "parts": {"load the stack": 2.0, "score rows by both models": 3.0, "tiny": 0.01},
        "stages": {"imports": 2.0, "rectify_window": 4.0, "write_report": 1.0},
    }

    assert sum(page.parts_of(profile).values()) == pytest.approx(7.0)


def test_tasks_are_measured_in_their_own_process():
    """CPU and memory are those of a fresh process, one after the other or side by side."""
    alone = take("imports", "decimal", times=1)
    heavy, again = take_together([("imports", "pandas")] * 2, at_once=2)

    assert 0 <= alone.cpu < heavy.cpu
    assert alone.peak_mb < min(heavy.peak_mb, again.peak_mb)


def test_a_task_that_fails_says_why():
    """A figure of a task that failed would be no figure."""
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        take("imports", "no_such_module", times=1)
