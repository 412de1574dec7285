"""The demo: three of its days in the fast tests, and the whole fortnight in the slow ones."""

from io import StringIO

import pytest
from rich.console import Console

from rtscv_mlops import demo
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.review.answers import list_challengers
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.registry import ModelRegistry


@pytest.fixture
def console():
    return Console(file=StringIO(), width=80)


def test_a_day_of_each_kind(tmp_path, console, monkeypatch):
    """A quiet day, a dim one and one with hidden digits are each told for what they are."""
    days = list(demo.make_days())
    three = [days[0], days[5], days[-1]]
    monkeypatch.setattr(demo, "make_days", lambda: iter(three))

    quiet, dim, hidden = demo.run_demo(tmp_path, console)

    assert quiet.verdict == "no_change"
    assert not dim.detected
    assert hidden.verdict == "unknowns"
    low, high = hidden.unknown_rate_interval
    assert low <= days[-1].true_share <= high
    told = console.file.getvalue()
    assert f"review show {tmp_path}/digits.yaml" in told
    (row,) = [line for line in told.splitlines() if line.startswith(" 2026-01-18")]
    assert len(row.rstrip()) <= 80
    assert "hidden digits" in row
    assert "20 %" in row
    (waiting,) = list_challengers(load_monitor(tmp_path / "digits.yaml"))
    assert waiting.review == "pending"
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
def test_the_fortnight(tmp_path, console):
    """Quiet days are quiet, dim days never unknown, hidden digits found, most intervals right."""
    days, facts = list(demo.make_days()), demo.run_demo(tmp_path, console)

    by_story = {story: [] for story in (demo.QUIET, demo.DRIFT, demo.UNKNOWNS)}
    for day, found in zip(days, facts, strict=True):
        by_story[day.story].append((day, found))
    assert {found.verdict for _, found in by_story[demo.QUIET]} == {"no_change"}
    assert not any(found.detected for _, found in by_story[demo.DRIFT])
    hidden = by_story[demo.UNKNOWNS]
    assert all(found.detected for _, found in hidden)
    covered = [
        found.unknown_rate_interval[0] <= day.true_share <= found.unknown_rate_interval[1]
        for day, found in hidden
    ]
    assert sum(covered) > len(covered) / 2
    monitor = load_monitor(tmp_path / "digits.yaml")
    client = connect(monitor.model)
    assert ModelRegistry(client, demo.MODEL).versions.pending() is not None
    assert client.get_registered_model(demo.MODEL).aliases["champion"] == 1
