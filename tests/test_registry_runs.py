"""One MLflow run per window, whatever dies or races, and what it holds."""

import logging
import os
import signal
import time
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest

from rtscv_mlops.errors import InputError, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.ledger import Ledger, experiment_name
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.registries import KEY, MODEL, ROUNDS, client_of, new_database, race, race_processes


@pytest.fixture
def uri(tmp_path):
    """The address of an MLflow without anything in it."""
    return new_database(tmp_path)


@pytest.fixture
def client(uri):
    """A client of an MLflow without anything in it."""
    return client_of(uri)


@pytest.fixture
def registry(client):
    """The registry of a model that is not registered yet."""
    return ModelRegistry(client, MODEL)


@pytest.fixture
def run(client, registry):
    """The run of a window."""
    return registry.runs.open(KEY)


def runs_in_mlflow(client, model=MODEL):
    """All live runs of a model's experiment."""
    home = client.get_experiment_by_name(experiment_name(model))
    return [each.info.run_id for each in client.search_runs([home.experiment_id])]


def test_a_claim_is_won_once(registry):
    """Of eight who claim a name, one wins, all are told who, and a repeat changes nothing."""
    for number in range(ROUNDS):
        told = race(
            8,
            lambda rival, name=f"a.{number}": registry.claim(name, str(rival)),
        )

        assert len(set(told)) == 1
        assert registry.claim(f"a.{number}", "late") == told[0]


def test_a_model_has_one_ledger(client):
    """Eight who open a new model's ledger at once use the same run, and no other one is left."""
    for number in range(ROUNDS):
        ledgers = race(8, lambda _, model=f"m{number}": Ledger.open(client, model))

        assert len({(ledger.run_id, ledger.experiment_id) for ledger in ledgers}) == 1
        shelf = client.get_experiment_by_name(f"{experiment_name(f'm{number}')}/ledger")
        assert len(client.search_runs([shelf.experiment_id])) == 1


def test_deleted_ledgers_come_back(client, registry):
    """What was claimed still holds after somebody deletes the ledger and the experiments."""
    registry.claim("a", "first")
    ledger = Ledger.open(client, MODEL)

    client.delete_run(ledger.run_id)
    assert registry.claim("a", "second") == "first"
    client.delete_run(ledger.run_id)
    assert registry.claim("b", "new") == "new"
    client.delete_experiment(ledger.experiment_id)
    client.delete_experiment(
        client.get_experiment_by_name(f"{experiment_name(MODEL)}/ledger").experiment_id
    )
    assert registry.claim("a", "third") == "first"


def test_a_team_may_make_the_experiment_first(client, registry, tmp_path):
    """An experiment with the team's own place for artifacts is used, and the ledger is one."""
    place = (tmp_path / "chosen").as_uri()
    home = client.create_experiment(experiment_name(MODEL), place)

    told = race(4, lambda rival: registry.claim("a", str(rival)))
    run = registry.runs.open(KEY)
    run.write_text("note.txt", "here")

    assert len(set(told)) == 1
    assert client.get_run(run.run_id).info.experiment_id == home
    assert list((tmp_path / "chosen").rglob("note.txt"))


def test_an_experiment_that_is_not_ours_is_named(client, registry):
    """Without a ledger nothing is claimed, and the message says which experiment is in the way."""
    client.create_experiment(experiment_name(MODEL))
    client.create_experiment(f"{experiment_name(MODEL)}/anchor")

    with pytest.raises(ServiceError, match=r"'rtscv/letters/anchor' does not name the ledger"):
        registry.claim("a", "1")


@pytest.mark.parametrize(
    "model",
    ["50%", "a b", "it's", "Zürich", "数字", "2026-01-05", "..", "x" * 300, "a:b/c"],
)
def test_any_model_name_gets_a_run(client, model):
    """Row 114: a model of any name, also a very long one, has an experiment of its own."""
    registry = ModelRegistry(client, model)
    run = registry.runs.open(KEY)

    assert registry.runs.open(KEY).run_id == run.run_id
    assert len({experiment_name(name) for name in (model, MODEL, "50_", "a_b", "x" * 299)}) == 5
    assert len(experiment_name(model)) < 120


def test_a_window_has_one_run_among_threads(client, registry):
    """Eight who open a window at once get the same run, and MLflow holds no other one."""
    for number in range(ROUNDS):
        found = race(8, lambda _, key=f"{number:064d}": registry.runs.open(key).run_id)

        assert len(set(found)) == 1
        assert len(runs_in_mlflow(client)) == number + 1


def open_by_number(number, uri):
    """What each process does in the race below."""
    return ModelRegistry(client_of(uri), MODEL).runs.open(f"{number:064d}").run_id


def test_a_window_has_one_run_among_processes(client, uri):
    """Four processes that open a window at once get the same run, and none is left over."""
    rounds = race_processes(4, ROUNDS, open_by_number, uri)

    assert [len(set(found)) for found in rounds] == [1] * ROUNDS
    assert sorted(runs_in_mlflow(client)) == sorted(found[0] for found in rounds)


def die_before_claim(uri):
    """Open a run, and be killed between its creation and its claim."""
    Ledger._hold = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    ModelRegistry(client_of(uri), MODEL).runs.open(KEY, {tags.MONITOR: "daily"})


def test_the_run_of_a_killed_process_is_taken_over(client, registry, uri):
    """After kill -9 between create and claim the next try uses the run that was left."""
    Ledger.open(client, MODEL)
    process = get_context("forkserver").Process(target=die_before_claim, args=(uri,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    [orphan] = runs_in_mlflow(client)

    run = registry.runs.open(KEY)

    assert run.run_id == orphan
    assert run.tags()[tags.MONITOR] == "daily"
    assert runs_in_mlflow(client) == [orphan]


def test_what_a_slow_rival_left_is_removed(client, registry, run):
    """A second run of the key, made by one who died before losing, is gone after the next try."""
    ledger = Ledger.open(client, MODEL)
    left = client.create_run(ledger.experiment_id, tags={tags.KEY: KEY, tags.KIND: "window"})

    assert registry.runs.open(KEY).run_id == run.run_id
    assert runs_in_mlflow(client) == [run.run_id]
    assert client.get_run(left.info.run_id).data.tags[tags.DUPLICATE_OF] == run.run_id


def test_a_deleted_run_comes_back(client, registry, run):
    """A window whose run somebody deleted keeps that run; restored duplicates stay out of lists."""
    client.delete_run(run.run_id)

    assert registry.runs.open(KEY).run_id == run.run_id
    assert runs_in_mlflow(client) == [run.run_id]


def test_params_of_the_first_try_stay(run, client, caplog):
    """Row 110: settings that changed between two tries are named, and those of the first stay."""
    assert run.log_params({"c": 0.3, "rtscv/k": 5}) == []
    with caplog.at_level(logging.WARNING):
        assert run.log_params({"c": 0.5, "rtscv/k": 5, "seed": 1}) == ["c"]

    assert client.get_run(run.run_id).data.params == {"c": "0.3", "rtscv/k": "5", "seed": "1"}
    assert "An earlier try ran with other settings" in caplog.text


def test_a_metric_logged_twice_has_one_point(run, client):
    """Repeats and rivals leave one point; a new value is the one that is shown."""
    race(4, lambda _: run.log_metrics({"rate": 0.07, "p": float("nan"), "absent": None}))
    run.log_metrics({"rate": 0.07, "p": float("nan")})
    assert len(client.get_metric_history(run.run_id, "rate")) == 1
    assert len(client.get_metric_history(run.run_id, "p")) == 1

    run.log_metrics({"rate": 0.01})

    assert client.get_run(run.run_id).data.metrics["rate"] == 0.01
    assert "absent" not in client.get_run(run.run_id).data.metrics


def test_values_over_the_limits_are_shortened(run, client):
    """Row 106: long tags and params, odd names and many metrics are kept; the whole text too."""
    run.set_tags({"rtscv.note": "n" * 20_000})
    run.log_params({"query": "q" * 20_000})
    run.log_params({"query": "q" * 20_000})
    run.log_metrics({f"recall/<b>{number}</b>": number for number in range(1500)})

    stored = client.get_run(run.run_id).data
    assert stored.tags["rtscv.note"].endswith("n…")
    assert stored.params["query"].endswith("q…")
    assert len(stored.metrics) == 1500
    assert run.list_artifacts("long") == {"long/rtscv.note.txt", "long/query.txt"}


def test_data_that_went_in_is_named_once(run, client):
    """A dataset logged twice is one input, with columns, digest, source and context."""
    frame = pd.DataFrame({"a": [1], "b": ["x"], "c": [np.nan]})
    for _ in range(2):
        run.log_dataset(
            "day", "window", source="s3://bucket/day", digest="d" * 64, frame=frame,
            profile={"num_rows": 1},
        )  # fmt: skip

    [logged] = client.get_run(run.run_id).inputs.dataset_inputs
    assert (logged.dataset.name, logged.dataset.digest) == ("day", "d" * 36)
    assert '"name": "b"' in logged.dataset.schema
    assert "d" * 64 in logged.dataset.profile
    assert "s3://bucket/day" in logged.dataset.source
    assert [tag.value for tag in logged.tags] == ["window"]


def test_artifacts_come_back_as_written(run, tmp_path):
    """JSON, text and files are read back; what is not there is None, or named by `download`."""
    run.write_json("verdict.json", {"verdict": "unknowns", "label": "<ü>"})
    run.write_text("notes/a.md", "text\n")
    (tmp_path / "table.bin").write_bytes(b"\0\1")
    run.write_file(tmp_path / "table.bin", "unknowns")

    assert run.read_json("verdict.json") == {"verdict": "unknowns", "label": "<ü>"}
    assert run.read_json("absent.json") is None
    assert run.download("unknowns/table.bin", tmp_path).read_bytes() == b"\0\1"
    assert (run.download("notes", tmp_path) / "a.md").read_text() == "text\n"
    with pytest.raises(ServiceError, match=r"no artifact 'gone\.html'"):
        run.download("gone.html", tmp_path)


def test_a_folder_is_purged(run):
    """Deleted artifacts are gone, and no others."""
    run.write_text("unknowns/rows.csv", "1")
    run.write_text("verdict.json", "{}")

    run.delete_artifacts("unknowns")

    assert run.list_artifacts("unknowns") == set()
    assert run.has("verdict.json")


@pytest.mark.parametrize(
    "name", ["../x", "a/../x", "/etc/x", "a//b", "", ".", "a b", "x\0", "%2e%2e/x", "a?b", "C:x"]
)
def test_artifacts_cannot_leave_their_folder(run, name):
    """A name that could lead elsewhere is refused."""
    with pytest.raises(InputError, match="cannot be the name of an artifact"):
        run.write_text(name, "x")


def test_a_store_that_takes_nothing_is_named(run, client, tmp_path):
    """Row 104: an artifact store without room or rights is a storage failure, in one sentence."""
    blocked = tmp_path / "mlartifacts"
    blocked.write_text("a file where the store's folder should be")

    with pytest.raises(ServiceError, match="artifact store could not write") as refused:
        run.write_text("a.txt", "x")
    assert refused.value.code == "storage"


def test_a_run_tells_how_it_ended(run, client):
    """Failed, tried again, complete; a late failure does not undo completion."""
    run.fail("no_input", "Nothing matches the pattern.")
    assert client.get_run(run.run_id).info.status == "FAILED"
    assert run.tags()[tags.STATE] == "failed:no_input"
    run.reopen()
    assert client.get_run(run.run_id).info.status == "RUNNING"
    run.finish()
    run.fail("memory", "Too late.")

    assert run.is_complete
    assert client.get_run(run.run_id).info.status == "FINISHED"


def test_runs_are_listed_by_window(client, registry, monkeypatch):
    """All windows of a model come in the order of time, page by page, filtered if wanted."""
    monkeypatch.setattr("rtscv_mlops.tracking.runs.PAGE", 2)
    for day in (3, 1, 2, 5, 4):
        run = registry.runs.open(f"{day:064d}",
            {
                tags.MONITOR: "daily" if day < 5 else "other",
                tags.WINDOW: f"day{day}",
                tags.WINDOW_START: f"2026-01-0{day}T00:00:00+00:00",
                tags.VERDICT: "unknowns",
            },
        )  # fmt: skip
        run.log_metrics({"unknown_rate": day / 100, "p_value": 0.001})
        run.finish()

    found = registry.runs.find(monitor="daily")

    assert [each.window for each in found] == ["day1", "day2", "day3", "day4"]
    assert [each.unknown_rate for each in found] == [0.01, 0.02, 0.03, 0.04]
    assert {(each.verdict, each.state, each.p_value) for each in found} == {
        ("unknowns", "complete", 0.001)
    }
    assert found[0].ended is not None
    assert [each.key[-1] for each in registry.runs.find(window="day5")] == ["5"]
    assert ModelRegistry(client, "another").runs.find() == []


def test_the_latest_run_of_a_window_comes_last(registry):
    """A window judged again and again, by new champions: its runs are in the order they began."""
    named = {tags.WINDOW: "day1", tags.WINDOW_START: "2026-01-01T00:00:00+00:00"}
    for champion in range(6):
        key = f"{champion:064d}"
        registry.runs.open(key, {**named, tags.CHAMPION_VERSION: str(champion)}).finish()
        time.sleep(0.002)  # MLflow counts in milliseconds

    found = registry.runs.find()

    assert [each.champion_version for each in found] == ["0", "1", "2", "3", "4", "5"]


def test_a_server_that_is_not_there_is_named():
    """Row 101: without a server there is one sentence about MLflow."""
    run = WindowRun(client_of("http://127.0.0.1:9"), "0" * 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(ServiceError, match="MLflow could not read the run"):
            run.tags()
