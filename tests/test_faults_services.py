"""MLflow's answers are lost, or MLflow is not there: one effect each, and the next try finishes.

The long version of each promise is in `benchmarks/faults`.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sklearn.naive_bayes import GaussianNB

from benchmarks.deployments import leaves
from benchmarks.faults import outages, soak
from benchmarks.faults.lost import MOVED_BACK, lose_in_step, surplus
from benchmarks.faults.proxy import LossyProxy, Write
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.world import world_on
from rtscv_mlops import log_champion
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import ServiceError
from rtscv_mlops.review import answers
from rtscv_mlops.tracking.client import greet, open_client
from tests.monitors import MINIMAL, write_monitor

MAIN = "from rtscv_mlops.cli.commands import main; main()"
NOBODY = "http://ann:canary@127.0.0.1:9"


@pytest.fixture(scope="module")
def world():
    """A deployment on a real MLflow server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "")  # The world sets it; afterwards it is as before.
        with sqlite_server() as server, world_on(server) as made:
            yield made


@pytest.mark.parametrize("fault", ["drop", "502"])
def test_lost_answers_leave_one_effect(world, fault):
    """Row 105: of every kind of write on a window's way, one is stored and its answer is lost."""
    proxy = LossyProxy(world.server.address, first_of_each=fault)
    trial = world.trial(proxy.address)

    assert trial.finish() == 0

    assert trial.problems() + surplus(trial, tries=1) == []
    kinds = {write.kind for write in proxy.lost}
    assert len(kinds) > 30
    creates = {"runs/create", "experiments/create", "model-versions/create", "logged-models"}
    moves = {"runs/log-parameter", "runs/outputs", "model-versions/set-tag"}
    assert {f"post {name}" for name in creates | moves} <= kinds


def test_a_rollback_is_answered_when_it_is_repeated(world):
    """Half an answer to its last write: who tries again hears of the rollback, not of a refusal."""
    last = Write("post model-versions/set-tag", 1)
    assert lose_in_step(world, "half", MOVED_BACK, step=2, write=last) == []


def test_a_champion_whose_answer_was_lost_is_one_version(world):
    """log_champion asks MLflow for a version once, and finds what a lost answer left."""
    proxy = LossyProxy(world.server.address)
    proxy.lose("drop", [Write("post model-versions/create", 1)])
    rows, kinds = leaves(0, {"oak": 30, "elm": 30})

    version = log_champion(
        GaussianNB().fit(rows, kinds), rows, kinds, name="once", tracking_uri=proxy.address
    )

    (made,) = world.client.search_model_versions("name = 'once'")
    aliases = world.client.get_registered_model("once").aliases
    assert (str(made.version), str(aliases["champion"])) == (version, version)


@pytest.mark.parametrize("cause", [outages.locked, outages.down, outages.refusing])
def test_an_outage_is_outlasted_or_told(world, cause):
    """MLflow's database is locked, MLflow is killed, wants a login: the next try finishes."""
    place = outages.Place(world, LossyProxy(world.server.address))
    code = outages.REFUSED if cause is outages.refusing else outages.MLFLOW
    outage = outages.Outage(cause.__name__, code, cause, seconds=3.0)

    ended, _, problems = outages.meet(place, outage, moment=0.0)

    assert problems == []
    assert ended is not None


def test_windows_end_once_while_requests_fail(world, monkeypatch):
    """The short soak: one request in a hundred fails, each window ends once, nothing piles up."""
    monkeypatch.setattr(soak, "PAUSE", 0.0)
    trial = world.trial(soak.RandomlyLossyProxy(world.server.address).address)
    notes = world.folder / "notes.jsonl"

    soak.live(trial.file, notes, seconds=12)

    seen = [json.loads(line) for line in notes.read_text().splitlines()]
    outcomes = soak.outcomes(world, trial.model, seen, ended=True)
    assert (outcomes.failures, outcomes.trials) == (0, len(seen)), outcomes.told
    assert seen[-1]["files"] <= seen[0]["files"] + 3


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (NOBODY, r"the server at 127\.0\.0\.1:9 does not answer: connection refused\. Check that"),
        ("http://ann:canary@nowhere.invalid", r"the server at nowhere\.invalid does not answer: "),
    ],
)
def test_that_mlflow_is_down_is_one_sentence(monkeypatch, address, says):
    """It names the server and the cause, and neither a user nor a password."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    with pytest.raises(ServiceError, match=f"MLflow could not answer: {says}") as failure:
        greet(open_client(ModelSettings(name="digits")))

    assert failure.value.code == "mlflow"
    assert "canary" not in str(failure.value)


@pytest.mark.parametrize("command", [["check"], ["bench", "--monitor"]], ids=["check", "bench"])
def test_the_command_line_says_it_too(tmp_path, command):
    """Commands print the sentence, and no warning of a library beside it."""
    (tmp_path / "monitor.yaml").write_text(
        "source: {path: windows/, timestamp: seen_at}\nmodel: {name: digits}\n"
    )
    quick = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_TRACKING_URI": NOBODY}
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command, "monitor.yaml"],
        cwd=tmp_path,
        env={**os.environ, **quick, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )

    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert "127.0.0.1:9 does not answer: connection refused." in told
    for unwanted in ("canary", "urllib3", "Traceback", "HTTPConnection"):
        assert unwanted not in told


def test_an_answer_is_kept_until_mlflow_can_take_it(tmp_path, monkeypatch):
    """A person who answered in Airflow is not asked again because MLflow was down just then."""
    from airflow.sdk.exceptions import TaskDeferred
    from airflow.sdk.serde import deserialize, serialize

    from rtscv_mlops.airflow.review_operator import ReviewOperator

    down = [True]

    def review_challenger(monitor, version, **given):
        if down[0]:
            raise ServiceError("MLflow does not answer.", code="mlflow")
        assert (given["reviewer"], given["reason"]) == ("ann", "figs are new")
        assert (given["approve"], given["question"]) == (True, "q")
        return SimpleNamespace(review="approved", reason=given["reason"])

    monkeypatch.setattr(answers, "review_challenger", review_challenger)
    file = write_monitor(tmp_path, MINIMAL)
    task = ReviewOperator(task_id="review", monitor=load_monitor(file), monitor_file=file)
    event = {
        "chosen_options": ["Approve"],
        "params_input": {"reason": "figs are new"},
        "responded_by_user": {"id": "ann", "name": "ann"},
        "responded_at": datetime.now(UTC),
    }
    context = {"ti": Mock(id="ti")}

    with pytest.raises(TaskDeferred) as deferred:
        task.execute_complete(context, event, version="2", question="q")
    kept = deserialize(json.loads(json.dumps(serialize(deferred.value.kwargs))))
    go_on = getattr(task, deferred.value.method_name)
    with pytest.raises(TaskDeferred):
        go_on(context=context, event=datetime.now(UTC), **kept)
    long_ago = datetime.now(UTC) - timedelta(days=400)
    with pytest.raises(ServiceError, match="does not answer"):
        go_on(context=context, event=None, **{**kept, "at": long_ago.isoformat()})

    down[0] = False
    assert go_on(context=context, event=None, **kept) == {"version": "2", "status": "approved"}
