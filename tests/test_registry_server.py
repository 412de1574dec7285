"""The same promises through a real MLflow server; `test_faults_services` has it fail."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import requests

from rtscv_mlops.registry import tags
from rtscv_mlops.registry.promotion import history, promote, record_decision, roll_back
from rtscv_mlops.registry.runs import find_runs, open_run
from rtscv_mlops.registry.versions import (
    offer_version,
    read_aliases,
    register_version,
)
from tests.registries import (
    KEY,
    add_champion,
    client_of,
    log_model,
    new_database,
    race,
    version_tags,
)

SEEN = {"seen_champion": "1", "seen_report": "r" * 64, "seen_model": "m" * 64}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server of our own."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", new_database(folder)]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    quiet = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env=quiet, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    while process.poll() is None and not _is_up(address):
        time.sleep(0.2)
    yield address
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def _is_up(address):
    try:
        return requests.get(f"{address}/health", timeout=5).ok
    except requests.ConnectionError:
        return False


def challenge(client, model, key, day):
    """Open the run of a day and register its challenger."""
    run = open_run(client, model, key, {tags.WINDOW: f"day{day}"})
    run.log_metrics({"unknown_rate": 0.07})
    run.write_json("verdict.json", {"day": day})
    model_id = log_model(client, run.run_id)
    version = register_version(
        client, model, key, run.run_id, model_id, named=version_tags(day), description="d"
    )
    run.finish()
    return run, version


def test_the_whole_way_through_a_server(server, tmp_path):
    """Runs, versions, decisions and moves work as on a database, also among rivals."""
    client = client_of(server)
    add_champion(client, "served")

    opened = race(4, lambda _: open_run(client, "served", KEY).run_id)
    registered = race(4, lambda _: challenge(client, "served", KEY, 5)[1])
    run, version = challenge(client, "served", KEY, 5)
    assert set(opened) == {run.run_id}
    assert set(registered) == {version} == {"2"}
    assert run.read_json("verdict.json") == {"day": 5}
    assert [each.unknown_rate for each in find_runs(client, "served")] == [0.07]

    assert offer_version(client, "served", version).review == "pending"
    assert read_aliases(client, "served")["challenger"] == version
    record_decision(client, "served", version, True, "ann", "new class", **SEEN)
    moved = race(4, lambda _: promote(client, "served", version))
    assert len({each.number for each in moved}) == 1
    assert read_aliases(client, "served") == {"champion": version, "previous_champion": "1"}
    roll_back(client, "served", "bob", "slow")
    assert read_aliases(client, "served") == {"champion": "1"}
    assert history(client, "served").problems == ()

    run.delete_artifacts("verdict.json")
    assert run.read_json("verdict.json") is None
