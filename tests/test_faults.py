"""The short version of `make faults`: kills on a real server, the fence, the table."""

import re
from multiprocessing.process import BaseProcess

import pytest

from benchmarks.faults import __main__ as faults
from benchmarks.faults import failpoints, kills, page
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.tally import PROMISES, Store, Tally
from benchmarks.faults.world import QUIET, World, world_on
from rtscv_mlops.errors import ServiceError
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.tracking.tags import ATTEMPT
from tests.registries import KEY, MODEL, add_champion, client_of, new_database

POINTS = [
    "post runs/create#2 after",
    "post model-versions/create#1 after",
    "post webhook#1 before",
    "post registered-models/alias#3 before",
]
"""Moments at which something is half done: a run, a version, an alert, a promotion."""


@pytest.fixture(scope="module")
def world():
    """A deployment on a real MLflow server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "")  # The world sets it; afterwards it is as before.
        with sqlite_server() as server, world_on(server) as world:
            yield world


@pytest.mark.parametrize("point", POINTS)
def test_a_window_that_is_killed_is_finished_by_the_next_try(world: World, point: str):
    """Promise 1: whatever was half done, one run, one version, one champion, and an alert."""
    assert kills.kill_at(world, 0, point) == []


def test_a_quiet_window_passes_no_registry_write(world: World, tmp_path):
    """What is traced is what was written: a quiet day touches no version and no alias."""
    trace = tmp_path / "trace"

    assert world.trial().finish(QUIET, **{failpoints.TRACE: str(trace)}) == 0

    kinds = {point.partition("#")[0] for point in trace.read_text().splitlines()}
    assert "post runs/create" in kinds
    assert not {kind for kind in kinds if "model" in kind}


def test_the_oracle_sees_what_is_wrong(world: World):
    """A window that was killed and not tried again is no success."""
    trial, day = world.trial(), kills.day_of(world, 0)
    trial.finish(day, **{failpoints.VARIABLE: "post runs/log-inputs#1 before"})

    assert trial.problems(day) == [
        "run is running",
        "champion is 1 and not 2",
        "0 alerts instead of 1",
    ]


def test_an_attempt_that_was_replaced_stops(tmp_path):
    """The fence: every way to write looks whether a later attempt has taken over."""
    client = client_of(new_database(tmp_path))
    add_champion(client)
    first = ModelRegistry(client, MODEL).runs.open(KEY).take_over()
    first.set_tags({"a": "1"})
    second = WindowRun(client, first.run_id).take_over()

    for write in (
        lambda: first.set_tags({"a": "2"}),
        lambda: first.drop_tags(["a"]),
        lambda: first.log_params({"b": 2}),
        lambda: first.log_metrics({"c": 2.0}),
        lambda: first.log_dataset("d", "training", source="s", digest="d"),
        lambda: first.write_json("verdict.json", {}),
        lambda: first.delete_artifacts("verdict.json"),
        lambda: first.fail("x", "y"),
        lambda: first.reopen(),
        lambda: first.finish(),
    ):
        with pytest.raises(ServiceError, match="Another try at this window has taken over") as stop:
            write()
        assert stop.value.code == "taken_over"
    second.finish()

    assert second.tags()["a"] == "1"
    assert second.tags()[ATTEMPT] == second.attempt
    assert second.is_complete


def test_two_at_once_tell_the_same(world: World):
    """The one that was taken over waits for the other, and ends as well as that one."""
    trial = world.trial()
    workers: list[BaseProcess] = [trial.start(QUIET) for _ in range(2)]
    for worker in workers:
        worker.join(120)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert trial.problems(QUIET, champion="1", alerts=None) == []


# -- the table


@pytest.mark.parametrize("name", faults.EXPERIMENTS)
def test_every_experiment_is_there(name):
    """What `make faults` lists can be run."""
    assert callable(faults.load(name))


def test_a_bound_says_what_trials_show():
    """No failure in 300 trials shows less than 1 %; all failures show nothing."""
    assert Tally("soak", "", 300, 0).upper_bound == pytest.approx(0.00994, abs=1e-5)
    assert Tally("soak", "", 3, 3).upper_bound == 1.0
    assert Tally("soak", "", 0, 0).upper_bound == 1.0


def test_the_page_is_what_was_measured(tmp_path):
    """docs/reliability.md has the table of the records."""
    copy = tmp_path / "page.md"
    copy.write_text(page.PAGE.read_text())
    tallies = Store().tallies()
    (protocol,) = re.findall(r"<!-- faults -->\n(.*)\n", copy.read_text())

    page.write(tallies, protocol, copy)

    assert copy.read_text() == page.PAGE.read_text()
    unmeasured = [title for title in PROMISES.values() if f"**{title}**" not in copy.read_text()]
    assert unmeasured == []
    assert {tally.promise for tally in tallies} | {"challengers"} == set(PROMISES)
