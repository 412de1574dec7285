"""The null that a window is compared with: named days, or quiet and approved days collected."""

import pytest

from benchmarks.deployments import EMPTY, KNOWN, MODEL, MOVED, NEW, QUIET, leaves
from rtscv_mlops.errors import NotAssessed
from rtscv_mlops.pipeline.stages import rectify_window, take_window
from rtscv_mlops.review.answers import approve_as_baseline
from rtscv_mlops.window import Interval
from tests.deployments import deployed

FIRST_TWO = "baseline:\n  first: 2\n"
CLEAN, LATER = "2026-01-02", "2026-01-09"
NAMED = f"baseline:\n  start: {CLEAN}\n  end: 2026-01-03\n"


@pytest.fixture
def deployment(tmp_path):
    """Leaves grew since training, before anybody watched; nothing else is new on the later day."""
    deployment = deployed(tmp_path)
    deployment.write_day(CLEAN, *leaves(11, KNOWN, shift=1.2))
    deployment.write_day(LATER, *leaves(12, KNOWN, shift=1.2))
    return deployment


def judge(deployment, day, more):
    """Judge a day without pages and versions, which tell nothing about the null."""
    return rectify_window(take_window(deployment.monitor(more=more), Interval.day(day))).facts


def test_named_days_take_a_harmless_change_out(deployment):
    """What differs from training but not from the clean days is no news, and both are said."""
    plain = judge(deployment, LATER, "")
    against_clean_day = judge(deployment, LATER, NAMED)

    assert (plain.verdict, plain.null) == ("drift", "training data")
    assert against_clean_day.verdict == "no_change"
    assert against_clean_day.null == f"baseline {CLEAN}"
    warning = [one for one in against_clean_day.findings if "differs from the training" in one]
    assert "(drift)" in warning[0]
    assert not any("differs from the training" in one for one in plain.findings)


def test_the_disagreement_is_found_out_once(deployment):
    """It is kept with the champion's version, so that each window need not fit again."""
    judge(deployment, LATER, NAMED)
    version = deployment.client.get_model_version(MODEL, "1")
    (name,) = [tag for tag in version.tags if tag.startswith("rtscv.baseline.")]
    deployment.client.set_model_version_tag(MODEL, "1", name, "said before")

    facts = judge(deployment, MOVED, NAMED)

    assert "said before" in facts.findings


def test_a_clean_day_that_agrees_is_no_warning(deployment):
    """Nothing is said where training data and baseline are alike; a new class is still seen."""
    more = f"baseline:\n  start: {QUIET}\n  end: 2026-01-06\n"

    facts = judge(deployment, NEW, more)

    assert facts.verdict == "unknowns"
    assert not any("training data" in finding for finding in facts.findings)


def test_a_day_of_the_baseline_says_that_it_is_one(deployment):
    """A window that is compared with itself cannot show anything, and the reader must know."""
    facts = judge(deployment, CLEAN, NAMED)

    assert any("compared with itself" in finding for finding in facts.findings)


def test_a_baseline_without_rows_is_no_verdict(deployment):
    """Dates on which there was no traffic are a reason, not a quiet fall back to training data."""
    more = f"baseline:\n  start: {EMPTY}\n  end: {QUIET}\n"

    outcome = deployment.run(NEW, deployment.monitor(more=more))

    assert outcome.facts.verdict == "not_assessed:no_baseline"
    assert "Correct" in outcome.facts.headline


def test_quiet_days_become_the_baseline_by_themselves(deployment):
    """The first N that show nothing are kept with their runs; until then training data counts."""
    days = {"2026-01-10": 21, "2026-01-11": 22, "2026-01-12": 23}
    for day, seed in days.items():
        deployment.write_day(day, *leaves(seed, KNOWN))
    monitor = deployment.monitor(more=FIRST_TWO)

    nulls = [deployment.run(day, monitor).facts.null for day in days]

    assert nulls[0] == "training data (baseline: 0 of 2 windows collected so far)"
    assert nulls[1] == "training data (baseline: 1 of 2 windows collected so far)"
    assert nulls[2].startswith("baseline of 2 quiet or approved windows, 20260110")
    kept = [deployment.window_run(day).tags().get("rtscv.baseline") for day in days]
    assert kept == ["quiet", "quiet", None]


def test_a_person_can_call_a_day_clean(deployment):
    """A day that drifted joins the baseline on a person's word, and the next one is quiet."""
    monitor = deployment.monitor(more="baseline:\n  first: 1\n")
    before = deployment.run(CLEAN, monitor)

    run_id = approve_as_baseline(monitor, Interval.day(CLEAN))
    after = judge(deployment, LATER, "baseline:\n  first: 1\n")

    assert before.facts.verdict == "drift"
    assert run_id == before.run_id
    assert after.verdict == "no_change"
    assert after.null.startswith("baseline of 1 quiet or approved windows")


def test_nobody_can_call_a_day_clean_that_was_not_judged(deployment):
    """A day without a verdict cannot become a baseline."""
    with pytest.raises(NotAssessed, match=f"Window {QUIET} was not judged.*Run it first"):
        approve_as_baseline(deployment.monitor(more=FIRST_TWO), Interval.day(QUIET))
