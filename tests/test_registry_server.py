"""The same promises through a real MLflow server; `test_faults_services` has it fail."""

import time
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from benchmarks.faults.servers import sqlite_server
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.operations import check
from rtscv_mlops.review import answers
from rtscv_mlops.review.answers import collect_answer
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import is_open, server_version
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.registries import (
    KEY,
    add_champion,
    client_of,
    log_model,
    race,
    seal_window,
)


@pytest.fixture(scope="module")
def server():
    """The address of an MLflow server of our own."""
    with sqlite_server() as running:
        yield running.address


def challenge(client, model, key, day):
    """Open the run of a day and register its challenger."""
    registry = ModelRegistry(client, model)
    run = registry.runs.open(key, {tags.WINDOW: f"day{day}"})
    run.log_metrics({"unknown_rate": 0.07})
    run.write_json("verdict.json", {"day": day})
    model_id = log_model(client, run.run_id)
    seal = seal_window(client, key, run.run_id, model_id, day=day, model=model)
    version = registry.versions.register(seal)
    run.finish()
    return run, version


def test_the_whole_way_through_a_server(server, tmp_path):
    """Runs, versions, decisions and moves work as on a database, also among rivals."""
    client = client_of(server)
    add_champion(client, "served")
    registry = ModelRegistry(client, "served")

    opened = race(4, lambda _: registry.runs.open(KEY).run_id)
    registered = race(4, lambda _: challenge(client, "served", KEY, 5)[1])
    run, version = challenge(client, "served", KEY, 5)
    assert set(opened) == {run.run_id}
    assert set(registered) == {version} == {"2"}
    assert run.read_json("verdict.json") == {"day": 5}
    assert [each.unknown_rate for each in registry.runs.find()] == [0.07]

    assert registry.versions.offer(version).review == "pending"
    assert registry.versions.aliases()["challenger"] == version
    seal = registry.versions.get(version).seal.digest
    registry.decisions.record(version, True, "ann", "new class", seen_champion="1", seen_seal=seal)
    moved = race(4, lambda _: registry.decisions.promote(version))
    assert len({each.number for each in moved}) == 1
    assert registry.versions.aliases() == {"champion": version, "previous_champion": "1"}
    registry.decisions.roll_back("bob", "slow")
    assert registry.versions.aliases() == {"champion": "1"}
    assert registry.decisions.history().problems == ()

    run.delete_artifacts("verdict.json")
    assert run.read_json("verdict.json") is None


def test_a_login_in_the_address_is_not_shown(server):
    """Links go into reports and alerts; and a server that needs no login is seen to be open."""
    uri = server.replace("://", "://ann:canary@")
    client = MlflowClient(uri, uri)
    run = client.create_run("0")

    shown = WindowRun(client, run.info.run_id).links("served", "2").labelled()

    assert set(shown) == {"Run", "Report", "Version"}
    assert all(address.startswith(f"{server}/#/") for address in shown.values())
    assert is_open(client)
    assert server_version(client) == mlflow.__version__


def test_the_doctor_tells_an_old_server(server, monkeypatch):
    """A server older than its last known holes is warned of; the present one is not."""

    def warnings():
        checks = check._check_server(client_of(server))
        return [one.found for one in checks if one.state == "warning"]

    now = warnings()
    monkeypatch.setattr(check, "server_version", lambda client: "3.9.0rc1")

    assert not [each for each in now if "update it" in each]
    assert any("MLflow 3.9.0rc1" in each and "update it" in each for each in warnings())


def test_a_worker_whose_clock_is_ahead_expires_no_review(server, monkeypatch):
    """A review is closed for good, so the server's clock must agree that its time is over."""
    client = client_of(server)
    add_champion(client, "ahead")
    _, version = challenge(client, "ahead", KEY, 5)
    ModelRegistry(client, "ahead").versions.offer(version)
    monitor = Monitor(
        model={"name": "ahead", "tracking_uri": server},
        source={"path": "windows/", "timestamp": "served_at"},
    )
    now = datetime.now(UTC) + timedelta(days=30)
    monkeypatch.setattr(answers, "datetime", Mock(now=Mock(return_value=now)))

    assert collect_answer(monitor, version) is None
    assert ModelRegistry(client, "ahead").versions.get(version).review == "pending"


def test_a_review_expires_when_both_clocks_say_so(server):
    """With the server and this machine in agreement, silence means no."""
    client = client_of(server)
    add_champion(client, "late")
    _, version = challenge(client, "late", KEY, 5)
    ModelRegistry(client, "late").versions.offer(version)
    monitor = Monitor(
        model={"name": "late", "tracking_uri": server},
        source={"path": "windows/", "timestamp": "served_at"},
        review={"expires": "1s"},
    )
    time.sleep(2.5)  # An HTTP date has no fractions of a second.

    assert collect_answer(monitor, version).status == "expired"
