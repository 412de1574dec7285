"""The same promises through a real MLflow server, also when its answers are lost on the way."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from rtscv_mlops.registry import tags
from rtscv_mlops.registry.ledger import claim, experiment_name
from rtscv_mlops.registry.promotion import history, promote, record_decision, roll_back
from rtscv_mlops.registry.runs import find_runs, open_run
from rtscv_mlops.registry.versions import (
    find_versions,
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


class LossyProxy(ThreadingHTTPServer):
    """Passes requests on, and loses the first answer of each kind that is told to be lost."""

    daemon_threads = True

    def __init__(self, server, fault):
        super().__init__(("127.0.0.1", 0), _Passage)
        self.server, self.fault = server, fault
        self.lost: dict[str, int] = {}
        self.losing: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def loses(self, path):
        name = path.partition("?")[0].rpartition("mlflow/")[2]
        if name not in self.losing:
            return False
        self.losing.discard(name)
        self.lost[name] = 1
        return True


class _Passage(BaseHTTPRequestHandler):
    def _pass(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
        answer = requests.request(
            self.command, self.server.server + self.path, data=body, headers=headers, timeout=60
        )
        if self.server.loses(self.path):
            self.close_connection = True
            if self.server.fault == "drop":
                return
            self.send_response(502)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    def log_message(self, *_):
        """Say nothing."""


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


@pytest.mark.parametrize("fault", ["drop", "502"])
def test_lost_answers_leave_one_effect(server, fault):
    """Row 105: every kind of write is stored and its answer lost once; each has one effect."""
    model = f"lossy-{fault}"
    add_champion(client_of(server), model)
    proxy = LossyProxy(server, fault)
    kinds = {
        "experiments/create",
        "runs/create",
        "runs/log-parameter",
        "runs/log-batch",
        "runs/set-tag",
        "runs/update",
        "model-versions/create",
        "model-versions/set-tag",
        "registered-models/alias",
    }
    proxy.losing.update(kinds)
    client = client_of(proxy.address)

    claim(client, model, "a", "1")
    proxy.losing.add("runs/create")  # the first one was the ledger's
    _, version = challenge(client, model, KEY, 5)
    offer_version(client, model, version)
    proxy.losing.update({"runs/log-parameter", "registered-models/alias"})
    record_decision(client, model, version, True, "ann", "new class", **SEEN)
    proxy.losing.update({"runs/log-parameter", "registered-models/alias"})
    promote(client, model, version)
    proxy.shutdown()

    client = client_of(server)
    assert set(proxy.lost) == kinds
    home = client.get_experiment_by_name(experiment_name(model))
    assert len(client.search_runs([home.experiment_id])) == 1
    assert [each.version for each in find_versions(client, model)] == [version]
    assert len(client.search_model_versions(f"name = '{model}'")) == 2
    assert read_aliases(client, model) == {"champion": version, "previous_champion": "1"}
    assert open_run(client, model, KEY).is_complete
    told = history(client, model)
    assert [each.kind for each in told.records] == ["approved", "promoted"]
    assert told.problems == ()
