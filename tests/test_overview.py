"""What pages show of a monitor's windows: the judgement made at the time, and what came later."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.deployments import NEW
from rtscv_mlops.airflow.page.timeline import draw
from rtscv_mlops.errors import ServiceError
from rtscv_mlops.operations.overview import judgements, summarize_monitor
from rtscv_mlops.review.answers import ask_reviewer, promote_challenger, review_challenger
from rtscv_mlops.tracking.runs import RunSummary
from tests.deployments import judged_copy

START = datetime(2026, 1, 5, tzinfo=UTC)


def run(run_id, verdict, champion, hours, window="2026-01-05"):
    """A run of a window that ended some hours after it; None: it has not."""
    ended = None if hours is None else START + timedelta(days=1, hours=hours)
    return RunSummary(
        run_id, "", "leaves", window, START, START + timedelta(days=1), verdict, "", champion, "",
        "", ended,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "shown"),
    [
        ([], []),
        ([run("a", "unknowns", "1", 1)], [("a", None)]),
        ([run("a", "unknowns", "1", 1), run("b", "no_change", "2", 9)], [("a", "b")]),
        # Late rows replace what the same champion saw.
        ([run("a", "no_change", "1", 1), run("b", "unknowns", "1", 5)], [("b", None)]),
        (
            [
                run("a", "no_change", "1", 1),
                run("b", "unknowns", "1", 5),
                run("c", "drift", "2", 7),
                run("d", "no_change", "3", 9),
            ],
            [("b", "d")],
        ),
        # What could not be judged at first has no judgement of that time.
        ([run("a", "not_assessed:stale", "1", 1), run("b", "unknowns", "2", 5)], [("b", None)]),
        ([run("a", "unknowns", "1", 1), run("b", "not_assessed:busy", "2", 5)], [("a", None)]),
        ([run("a", "unknowns", "1", 1), run("b", "", "2", None)], [("a", None)]),
        ([run("a", "", "1", None)], [("a", None)]),
    ],
)
def test_a_window_keeps_the_judgement_of_its_time(runs, shown):
    """A later judgement by another champion stands beside the first, and never replaces it."""
    for order in (runs, runs[::-1]):
        told = [(first.run_id, later and later.run_id) for first, later in judgements(order)]
        assert told == shown


def test_a_red_day_does_not_become_green_after_an_approval(tmp_path):
    """The chart shows what was found, and beside it what the new champion makes of the day."""
    deployment = judged_copy(tmp_path)
    monitor = deployment.monitor()
    review_challenger(monitor, "2", approve=True, reviewer="ada", reason="figs are new")
    promote_challenger(monitor, "2")
    again = deployment.run(NEW)
    assert again.facts.verdict != "unknowns"

    windows = summarize_monitor(monitor).windows

    day = next(window for window in windows if f"{window.start:%Y-%m-%d}" == NEW)
    assert (day.verdict, day.later_verdict) == ("unknowns", again.facts.verdict)
    assert day.later_champion == "2"
    mark = next(mark for mark in draw(windows, "UTC").marks if mark.run_id == day.run_id)
    assert mark.tone == "alarm"
    assert mark.later is not None
    assert "judged again by version 2" in mark.title


def test_a_question_without_its_facts_is_a_sentence(tmp_path):
    """Facts that were removed from MLflow are named as such, and what to do about it."""
    deployment = judged_copy(tmp_path)
    window = deployment.window_run(NEW)
    window.download("verdict.json", tmp_path)
    (file,) = (deployment.folder / "artifacts").rglob(f"{window.run_id}/artifacts/verdict.json")
    file.unlink()

    with pytest.raises(
        ServiceError, match=r"has no verdict\.json, .* run the window again"
    ) as lost:
        ask_reviewer(deployment.monitor(), "2")

    assert lost.value.code == "artifact_missing"
