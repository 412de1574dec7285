"""Alerts of real windows: once for each, again only where nobody got it, and by the rule."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.deployments import MOVED, NEW
from rtscv_mlops.alerts import sending
from rtscv_mlops.alerts.sending import review_was_announced
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ModelError
from rtscv_mlops.pipeline import run
from rtscv_mlops.review.answers import review_challenger
from rtscv_mlops.tracking.registry import ModelRegistry, read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import deployed, webhook

DAYS = ("2025-12-01", "2025-12-02", "2025-12-03")
"""Days without leaves: to be told that a window could not be assessed is an alert as well."""


@pytest.fixture
def receiver():
    with webhook() as listening:
        yield listening


def alerting(deployment, address, **rule):
    lines = [f"  webhook_url: {address}", *(f"  {name}: {value}" for name, value in rule.items())]
    return load_monitor(deployment.write_monitor(more="\n".join(["alert:", *lines]) + "\n"))


def test_a_window_that_is_run_three_times_alerts_once(tmp_path, receiver):
    """One message, which says what was found and is the same as the facts."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)

    outcomes = [deployment.run(NEW, monitor) for _ in range(3)]

    (message,) = received
    facts = outcomes[0].facts
    assert facts.headline in str(message)
    assert facts.verdict in str(message)
    run = deployment.window_run(NEW)
    assert "rtscv.alert" in run.tags()
    assert message["next"] == "rtscv-mlops review show leaves.yaml --version 2"
    # Without a server there is no page, but a file.
    assert message["links"] == {"Report": run.address("report.html").removeprefix("file://")}


def test_a_window_without_a_verdict_alerts_once(tmp_path, receiver):
    """That a window could not be assessed is told once, however often it is tried."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)

    for _ in range(3):
        deployment.run(DAYS[0], monitor)

    assert len(received) == 1
    assert "NOT ASSESSED" in str(received[0])
    assert "version " not in str(received[0])  # Which champion it is, nobody had asked yet.


@pytest.mark.parametrize("day", [DAYS[0], MOVED])
def test_an_alert_that_nobody_got_is_sent_with_the_next_run(tmp_path, receiver, day):
    """The failure is written down, and running the window again sends what is owed, once."""
    address, received, answers = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address, on="[drift, not_assessed]")
    answers += [500, 500, 500]  # the channel itself tries three times

    first = deployment.run(day, monitor)
    failed = deployment.window_run(day).read_json("alert.json")
    deployment.run(day, monitor)
    deployment.run(day, monitor)

    assert "could not be delivered; webhook failed, see alert.json" in first.alert
    assert [delivery["ok"] for delivery in failed[0]] == [True, False]  # log, webhook
    assert len(received) == 4
    tries = deployment.window_run(day).read_json("alert.json")
    assert [[delivery["ok"] for delivery in one] for one in tries] == [[True, False], [True, True]]


def test_so_many_windows_of_the_last_must_count(tmp_path, receiver):
    """With two of three, the first is recorded only, and the second is told."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address, windows=2, of=3)

    first, second = (deployment.run(day, monitor) for day in DAYS[:2])

    assert "Only 1 of the last 3 windows" in first.alert
    assert "2 of the last 3 windows count" in second.alert
    assert len(received) == 1


def test_there_is_rest_after_an_alert(tmp_path, receiver):
    """Within the cooldown, further windows are recorded only; without one, each is told."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)

    resting = [deployment.run(day, alerting(deployment, address)) for day in DAYS[:2]]
    deployment.run(DAYS[2], alerting(deployment, address, cooldown="0h", of=10))

    assert "less than 1 day" in resting[1].alert
    assert len(received) == 2


def test_an_open_review_is_announced_once(tmp_path, receiver):
    """Trouble that was told before does not silence a find; the find then speaks for its review."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)

    deployment.run(DAYS[0], monitor)
    found = deployment.run(NEW, monitor)

    assert len(received) == 2
    assert "the verdict is unknowns" in found.alert
    registry = ModelRegistry.of(deployment.client, monitor.model)
    runs = registry.runs.find()
    assert review_was_announced(registry, runs, datetime.now(UTC))
    review_challenger(monitor, found.version, approve=False, reviewer="ada", reason="no figs")
    assert not review_was_announced(registry, runs, datetime.now(UTC))


def fail(*_, **__):
    raise ModelError("No module named 'team_net'.", code="challenger_unusable")


def test_a_challenger_that_fails_takes_no_verdict_along(tmp_path, receiver, monkeypatch):
    """The verdict stays and is told; the failure is a finding, which goes when it works at last."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)

    with monkeypatch.context() as patch:
        patch.setattr(run, "verify_version", fail)
        for _ in range(2):
            broken = deployment.run(NEW, monitor)
    works = deployment.run(NEW, monitor)

    assert (broken.facts.verdict, broken.version) == ("unknowns", None)
    unusable = "The challenger cannot be used, and is not offered: No module named 'team_net'."
    assert unusable in broken.facts.findings
    assert "The challenger cannot be used, and is not offered: No module" in received[0]["text"]
    assert [message["verdict"] for message in received] == ["unknowns"]
    assert (works.run_id, works.version) == (broken.run_id, "2")
    assert unusable not in read_facts(WindowRun(deployment.client, works.run_id)).findings


def test_a_task_whose_challenger_fails_takes_no_verdict_along(tmp_path, receiver, monkeypatch):
    """So it is where each stage is a task of its own."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)
    judged = run.rectify_window(monitor, Interval.day(NEW))
    given = judged.run_id, judged.facts_sha256
    run.write_report(monitor, *given)
    registry = ModelRegistry.of(deployment.client, monitor.model)

    with monkeypatch.context() as patch:
        patch.setattr(run, "verify_version", fail)
        with pytest.raises(ModelError, match="team_net"):
            run.register_challenger(monitor, *given)
    run.raise_alert(monitor, *given)

    facts = registry.read_facts(judged.run_id)
    assert facts.verdict == "unknowns"
    assert "The challenger cannot be used" in facts.findings[-1]
    assert [message["verdict"] for message in received] == ["unknowns"]
    run.register_challenger(monitor, *given)
    assert "cannot be used" not in " ".join(registry.read_facts(judged.run_id).findings)


def test_a_window_that_is_judged_at_last_is_told_again(tmp_path, receiver):
    """Who heard that a window could not be judged hears what it holds."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)
    day = deployment.folder / "windows" / f"day={NEW}"
    late = day.rename(deployment.folder / "late")

    deployment.run(NEW, monitor)
    late.rename(day)
    deployment.run(NEW, monitor)

    assert [message["verdict"] for message in received] == ["not_assessed:empty_window", "unknowns"]


@pytest.mark.parametrize(
    "at",
    ["yesterday", (datetime.now(UTC) + timedelta(days=365)).isoformat()],
    ids=["not a time", "next year"],
)
def test_a_time_that_cannot_be_true_holds_back_no_alert(tmp_path, receiver, at):
    """The window is judged, its alert is sent, and a finding names the tag that was ignored."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address, cooldown="1d")
    deployment.run(MOVED, monitor)
    deployment.client.set_tag(deployment.runs(MOVED)[0].run_id, "rtscv.alert", at)
    deployment.client.set_tag(deployment.runs(MOVED)[0].run_id, "rtscv.verdict", "unknowns")
    received.clear()

    outcome = deployment.run(NEW, monitor)

    assert outcome.facts.verdict == "unknowns"
    assert len(received) == 1
    (finding,) = [one for one in outcome.facts.findings if "rtscv.alert" in one]
    assert at[:10] in finding


def test_a_claim_of_a_clock_that_is_ahead_is_waited_for_no_longer_than_any_other(
    tmp_path, receiver, monkeypatch
):
    """Its holder was killed, and its time is next year: the alert is sent all the same."""
    address, received, _ = receiver
    deployment = deployed(tmp_path)
    monitor = alerting(deployment, address)
    monkeypatch.setattr(sending, "PATIENCE", timedelta(seconds=1))
    ahead = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    claim, claims = ModelRegistry.claim, []

    def held(registry, name, value):
        if not claims:
            claims.append(claim(registry, name, f"{ahead} someone"))
        return claim(registry, name, value)

    monkeypatch.setattr(ModelRegistry, "claim", held)

    deployment.run(NEW, monitor)

    assert len(received) == 1
