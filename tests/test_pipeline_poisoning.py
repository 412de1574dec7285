"""Poisoned windows: the signs are shown, a class that loses blocks, and a canary is still found."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.deployments import COLUMNS, KNOWN, MOVED, NEW, QUIET, leaves
from benchmarks.faults import poisoning
from benchmarks.faults.poisoning import BLIND, FLOODS, SIGNS
from rtscv_mlops.config.monitor import CanarySettings
from rtscv_mlops.errors import InputError, ReviewError
from rtscv_mlops.judging.canary import hidden_class, missed_canary, try_canary
from rtscv_mlops.judging.findings import Concentration, Traffic, find_concentration
from rtscv_mlops.pipeline.stages import rectify_window, take_window
from rtscv_mlops.review.answers import review_challenger
from rtscv_mlops.window import Interval, LabelledRows, Window
from tests.deployments import deployed


@pytest.fixture
def traffic():
    """Handwritten digits from twenty tenants over a day; two digits were never taught."""
    return poisoning.Traffic.draw(poisoning.small_digits(), 0)


# -- signs


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_seen(traffic, kind):
    """Crafted rows of one tenant within an hour, copied or not: each sign is in the findings."""
    assert poisoning.missing_signs(kind, traffic) == ""


def test_a_quiet_window_shows_no_sign(traffic):
    """Nor does its canary say that anybody is blind."""
    facts = poisoning.judge(traffic, poisoning.quiet(traffic)).facts

    said = " ".join(facts.findings)
    assert facts.verdict == "no_change"
    assert not any(words in said for words in [*SIGNS.values(), BLIND])
    assert facts.copies_share == 0
    assert facts.unknown_hour_share is facts.unknown_origin_share is None
    assert facts.canary.found


def test_shares_are_plotted_and_the_sender_is_not_named(traffic):
    """Metrics carry the shares; the tenant's name stays in the source, unless it may leave it."""
    window = poisoning.invent(traffic, copies=3)
    tenant = window["tenant"].value_counts().index[0]

    done = poisoning.judge(traffic, window)

    metrics = done.facts.metrics()
    assert metrics["unknown_hour_share"] > 0.8
    assert metrics["unknown_origin_share"] > 0.8
    assert metrics["copies_share"] == pytest.approx(0.1, abs=0.01)
    assert "came from one value of 'tenant'" in done.facts.model_dump_json()
    assert "tenant" not in done.evidence.window
    allowed = poisoning.judge(traffic, window, report={"columns": ["f1", "tenant"]})
    assert f"came from tenant {tenant!r}" in " ".join(allowed.facts.findings)


def test_unknowns_are_compared_with_all_rows():
    """One tenant that sends everything is no sign, nor are a few rows."""
    unknown = np.repeat([True, False], 50)
    alone = find_concentration(pd.Series(["a"] * 100), unknown)
    crowd = find_concentration(pd.Series(["a"] * 45 + [None] * 50 + ["b"] * 5), unknown)

    assert (alone.share, alone.usual, alone.is_odd) == (1.0, 1.0, False)
    assert (crowd.value, crowd.share, crowd.usual, crowd.is_odd) == ("a", 0.9, 0.45, True)
    assert find_concentration(pd.Series(["a"] * 100), np.arange(100) < 9) is None
    assert find_concentration(None, unknown) is None


def test_rows_without_a_sender_are_counted_too():
    """Unknowns that nobody sent come from one place as well."""
    unknown = np.repeat([True, False], 50)

    nobody = find_concentration(pd.Series([None] * 50 + ["a"] * 50), unknown)

    assert (nobody.value, nobody.share, nobody.usual) == (None, 1.0, 0.5)


def test_a_long_name_is_cut():
    """A value that may be shown cannot fill the report."""
    long = Concentration("x" * 1_000, 0.9, 0.1)

    window = Window(Interval.day(QUIET), pd.DataFrame(), 0, "")
    traffic = Traffic(window, 0.0, 0.0, by_hour=None, by_origin=long)

    (finding,) = traffic.find_concentrations("tenant", shown=True)

    assert len(finding) < 250


# -- a known class that loses


def test_a_challenger_that_unlearns_a_class_is_blocked(tmp_path):
    """Crafted rows beside oaks are unknown, and teaching them loses oaks: nobody can approve."""
    deployment = deployed(tmp_path)
    rows, kinds = leaves(1, KNOWN)
    crafted = np.random.default_rng(1).normal([-1.4, -1.4, 0], 0.6, size=(120, 3))
    rows = pd.concat([rows, pd.DataFrame(crafted, columns=COLUMNS)], ignore_index=True)
    deployment.write_day("2026-01-08", rows, [*kinds, *["crafted"] * 120])
    monitor = deployment.monitor(more="canary:\n  hide: elm\n")

    outcome = deployment.run("2026-01-08", monitor)

    assert "Class 'oak' loses too much" in outcome.facts.blocked
    (version,) = deployment.versions("2026-01-08")
    assert version.review == "blocked"
    with pytest.raises(ReviewError, match="loses too much"):
        review_challenger(monitor, version.version, approve=True, reviewer="eve", reason="figs")
    assert deployment.aliases()["champion"] == "1"
    metrics = deployment.client.get_run(outcome.run_id).data.metrics
    assert metrics["canary_found"] == 1
    assert metrics["canary_recall"] > 0.5


# -- the canary


def test_a_canary_changes_no_verdict(tmp_path):
    """The same key, verdict and figures as without it, and one more: what became of it."""
    deployment = deployed(tmp_path)
    monitors = [deployment.monitor(more=more) for more in ("", "canary: {}\n")]

    plain, facts = (
        rectify_window(take_window(monitor, Interval.day(QUIET))).facts for monitor in monitors
    )

    same = ("key", "verdict", "p_value", "unknowns", "unknown_rate", "findings")
    assert all(getattr(facts, name) == getattr(plain, name) for name in same)
    assert facts.canary.found
    assert facts.canary.planted >= 10
    assert "seconds_canary" in facts.metrics()
    assert plain.canary is None


def test_a_baseline_does_not_hide_the_canary(tmp_path):
    """The hidden class is taken out of the clean period as well, or nothing would be new."""
    more = f"canary:\n  hide: ash\nbaseline:\n  start: {QUIET}\n  end: {MOVED}\n"
    taken = take_window(deployed(tmp_path).monitor(more=more), Interval.day(NEW))

    facts = rectify_window(taken).facts

    assert (facts.canary.label, facts.canary.found) == ("ash", True)


def test_a_blind_monitor_is_noticed(traffic):
    """At a level that nothing reaches the window is quiet, and the canary says why."""
    assert poisoning.blind_trial(traffic) == ""


def test_each_class_has_its_turn():
    """Windows that follow each other hide one class after the other; a name means one class."""
    labels = np.array([3, 5, 8, 3])
    days = [Interval.day(f"2026-01-0{day}") for day in range(1, 7)]

    turns = [int(hidden_class("rotate", labels, day)) for day in days]

    assert turns[:3] == turns[3:]
    assert set(turns) == {3, 5, 8}
    assert hidden_class("5", labels, days[0]) == hidden_class(5, labels, days[0]) == 5
    with pytest.raises(InputError, match="was not taught a class '7'"):
        hidden_class(7, labels, days[0])
    with pytest.raises(InputError, match="would leave too few"):
        hidden_class("rotate", np.array([0, 1]), days[0])


@pytest.mark.parametrize(
    ("alone", "extracted", "found"), [(True, 0, True), (False, 0, False), (False, 3, True)]
)
def test_unknowns_of_the_window_do_not_pass_for_the_canary(alone, extracted, found):
    """Where the window has some of its own, a tenth of the planted rows must be among them."""
    rows = pd.DataFrame({"x": np.arange(300.0)})
    known = LabelledRows(rows, np.repeat(["a", "b", "c"], 100))
    window = Window(Interval.day("2026-01-05"), rows, 300, "")

    def look(label, taught, sample):
        assert label == "b"
        assert "b" not in taught.labels
        assert sample["x"][-22:].between(100, 199).all()
        unknown = [*range(10), *range(len(sample) - extracted, len(sample))]
        judged = SimpleNamespace(detected=True, p_value=0.001)
        return SimpleNamespace(assessment_=judged, unknown_indices_=np.array(unknown))

    answers = np.where(np.arange(300) < 100, "b", "a")
    settings = CanarySettings(hide="b", rate=0.1)
    facts = try_canary(settings, window, known, answers, look, alone=alone, seed=0)

    assert (facts.planted, facts.found) == (22, found)
    assert facts.recall == pytest.approx(extracted / 22)
    assert "did not find them" in missed_canary(facts)


def test_a_canary_that_cannot_be_planted_is_said(traffic):
    """A class that does not exist stops the canary, and nothing else."""
    facts = poisoning.judge(traffic, poisoning.quiet(traffic), canary={"hide": "eleven"}).facts

    assert facts.verdict == "no_change"
    assert facts.canary is None
    assert any("No canary was planted: The model was not taught" in f for f in facts.findings)
