"""Where nothing can be said, no number pretends: not on a page, in an alert, or in a chart."""

import pytest

from rtscv_mlops import text
from rtscv_mlops.airflow.page.timeline import draw
from rtscv_mlops.airflow.page.views import Tile
from rtscv_mlops.alerts.alert import AlertDecision, make_alert
from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.estimator.statistics import Assessment
from rtscv_mlops.operations.overview import WindowPoint
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.report.page import render_report
from rtscv_mlops.review.question import describe, one_line
from tests.test_review import window_facts

UNTOLD = "cannot be told behind this drift"


def drifted(verdict="drift", **changes):
    """A window behind whose drift neither the share nor the false alarms can be told."""
    numbers = {"unknown_rate": 0.0, "unknown_rate_interval": (0.0, 1.0), "known_false_rate": 0.56}
    headline = str(Assessment(Verdict(verdict), 1e-9, False, 0.0, (0.0, 1.0), 0.56))
    return window_facts("leaves", verdict=verdict, headline=headline, **numbers | changes)


def tiles(facts):
    return " ".join(f"{tile.name} {tile.value} {tile.note}" for tile in Tile.all_of(facts))


def alert(facts):
    message = make_alert(facts, AlertDecision(True, "This window counts."), {})
    return f"{message.subject} {message.text} {message.payload()}"


def report(facts):
    return render_report(facts, None, DriftSettings(), {})


def question(facts):
    return describe(facts, {}, "2")


@pytest.mark.parametrize("render", [tiles, alert, report, question, one_line])
@pytest.mark.parametrize("verdict", ["drift", "unknowns_and_drift"])
def test_no_share_is_written_behind_drift(render, verdict):
    """Neither 0 % nor 0-100 % nor 56 % of known rows: the reason instead."""
    shown = render(drifted(verdict, known_false_rate=None if "_and_" in verdict else 0.56))

    assert "0-100 %" not in shown
    assert "about 0 %" not in shown.lower()
    assert "56 %" not in shown
    if (render, verdict) != (one_line, "drift"):  # One line does not mention the share then.
        assert UNTOLD in shown


def test_no_chart_draws_a_share_behind_drift():
    """MLflow gets no number, so that its charts have a gap where nothing is known."""
    metrics = drifted().metrics()

    rates = {"unknown_rate", "unknown_rate_low", "unknown_rate_high", "known_false_rate"}
    assert not rates & set(metrics)
    assert rates <= set(window_facts("leaves").metrics())


def test_the_timeline_draws_no_share_behind_drift():
    """A day of drift is a block of its own colour with its sign, also if it has old numbers."""
    point = WindowPoint("r", None, None, "drift", "", unknown_rate=0.0, low=0.0, high=1.0)

    (mark,) = draw([point], "UTC").marks

    assert (mark.tone, mark.sign, mark.whisker) == ("warning", "≈", None)
    assert UNTOLD in mark.title


@pytest.mark.parametrize(
    ("verdict", "limits", "headline"),
    [
        ("no_change", (0, 0.21), "up to 21 % of this window could be unknown without standing out"),
        ("no_change", (0, 1), "too few rows could be compared to be sure"),
        ("drift", (0, 1), f"the share of unknown rows {UNTOLD}"),
        ("unknowns", (0.04, 0.1), "About 7 % (4-10 %) of this window belongs to something"),
        ("unknowns", (0, 1), "A part of this window belongs to something"),
        ("unknowns_and_drift", (0, 1), f"was never taught; how much {UNTOLD}."),
    ],
)
def test_a_headline_gives_the_reason_with_the_number(verdict, limits, headline):
    """A number of a headline comes with what it means, or is left out."""
    told = str(Assessment(Verdict(verdict), 1.0, False, 0.07, limits, 0.0))

    assert headline in told
    assert "at most" not in told
    assert "0-100" not in told


def test_a_share_that_is_told_is_told_everywhere():
    """The rule leaves other windows alone."""
    facts = window_facts("leaves")

    assert text.unknown_share(facts) == "about 7 % (4-10 %)"
    assert "0.4 %" in tiles(facts)
    for render in (tiles, alert, report, question, one_line):
        assert "4-10 %" in render(facts)


@pytest.mark.parametrize("call", ["@everyone", "@channel", "@here", "<!here>", "<@U024BE7LH>"])
def test_an_alert_calls_nobody(call):
    """A label or a name from the data does not wake a whole channel."""
    facts = window_facts(f"a {call}", blocked=f"Class {call} loses.", champion_version=call)
    links = {"Report": f"/reports/{call}/report.html"}

    message = make_alert(facts, AlertDecision(True, f"{call} counts."), links, call)

    shown = f"{message.subject} {message.text} {message.payload()}"
    assert call not in shown
    assert call[-4:-1] in shown
