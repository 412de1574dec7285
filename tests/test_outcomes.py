"""Verdicts and review states own what depends on them."""

import re
from importlib.resources import files
from typing import get_args

import pytest

from rtscv_mlops.outcomes import AlertVerdict, Answer, ReviewStatus, Tone, Verdict


def test_every_verdict_but_the_quiet_one_can_raise_an_alert():
    """The setting alert.on offers all verdicts that are worth an alert."""
    assert {*get_args(AlertVerdict)} == {verdict for verdict in Verdict if not verdict.is_quiet}


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_traits(verdict):
    """A verdict is shown, ranked and mapped to an exit code without a look at its name."""
    assert verdict.traits.label
    assert (verdict.traits.exit_code == 0) == verdict.is_quiet
    assert (verdict.traits.tone is Tone.ALARM) == verdict.claims_unknowns
    assert verdict.traits.tone.has_number == verdict.is_assessed


def test_the_reason_of_a_window_without_verdict_can_be_read_back():
    """What is recorded for a window that was not assessed holds the code of the reason."""
    recorded = Verdict.unassessed("empty_window")

    assert recorded == "not_assessed:empty_window"
    assert not Verdict.of(recorded).is_assessed
    assert Verdict.reason(recorded) == "empty_window"


def test_the_style_sheet_has_a_rule_for_each_tone():
    """A tone without colours would be a badge that no one sees."""
    style = files("rtscv_mlops.airflow.page").joinpath("static/page.css").read_text()

    rules = re.findall(r"^(.*) \{ --tone: ", style, re.M)
    assert {name for rule in rules for name in re.findall(r"\.(\w+)", rule)} == {*Tone}


@pytest.mark.parametrize("status", ReviewStatus)
def test_only_a_person_can_promote(status):
    """No end of a review but an approval lets a challenger serve."""
    assert status.traits.summary
    assert status.may_promote == (status is ReviewStatus.decided(True))
    assert status.is_answer or not status.may_promote


@pytest.mark.parametrize("answer", [Answer.stale("The champion moved."), Answer.expired("Late.")])
def test_a_review_that_no_person_answered_is_closed_in_our_name(answer):
    """An end that the product found is not recorded yet, and is not a person's answer."""
    assert answer.who == "rtscv-mlops"
    assert not answer.recorded
    assert not ReviewStatus(answer.status).is_answer
