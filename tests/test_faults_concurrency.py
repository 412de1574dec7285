"""Workers and people who act at once: one of them wins, even if another one was frozen or late.

The short versions of `benchmarks/faults/concurrency.py` and `humans.py`, on one real MLflow server.
"""

import pytest

from benchmarks.faults import decisions, humans
from benchmarks.faults.concurrency import KINDS, one_window, promoter_rounds, unguarded_rounds
from benchmarks.faults.frozen import freeze_promoter, freeze_worker
from benchmarks.faults.races import workers
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.world import NEW, world_on


@pytest.fixture(scope="module")
def world():
    """A real MLflow server with a champion and days of traffic."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "")  # The world sets it; afterwards it is as before.
        with sqlite_server() as server, world_on(server) as world:
            yield world


@pytest.fixture(scope="module")
def four():
    """Four workers that act at the same moment, in processes of their own."""
    with workers(4) as four:
        yield four


def test_of_four_promoters_one_wins(world, four):
    """Of pending, approved and opposed versions, and against a rollback; the alias is the record's.

    The same race without our layer has several who believe to have won.
    """
    assert promoter_rounds(world, four, len(KINDS) - 1) == []
    assert unguarded_rounds(world, four, 2) > 0


def test_three_workers_on_one_window_leave_one_outcome(world):
    """One run, one version, one champion; all of them end well."""
    assert one_window(world, NEW, 3) == []


def test_a_frozen_worker_wakes_up_and_writes_no_more(world):
    """Another one took its window to the end meanwhile, and nothing of that is changed."""
    assert freeze_worker(world, "post runs/log-batch#5 after") == []


def test_a_worker_frozen_between_check_and_write_harms_nothing(world):
    """It was about to offer the version that another one has offered."""
    assert freeze_worker(world, "post model-versions/create#1 before") == []


def test_a_frozen_promoter_does_not_undo_what_came_later(world):
    """It wakes up between its check and the alias, after a rollback and another promotion."""
    point = "post registered-models/alias#2 before"

    assert freeze_promoter(world, point, "rolled back, another promotes") == []


@pytest.mark.parametrize("race", humans.RACES.values(), ids=lambda race: race.__name__)
def test_people_who_act_at_once_get_one_decision(world, four, race):
    """One end of the review in the record, and a clear refusal for everybody else."""
    for seed in range(2):  # After one another, and at once.
        assert humans.race(world, four, race, seed) == []


@pytest.mark.parametrize("by_tag", [False, True])
def test_an_answer_against_a_newer_challenger_is_not_lost(world, four, by_tag):
    """It is carried out, or the record says what became of it."""
    for seed in range(2):
        assert decisions.race(world, four, seed, by_tag=by_tag) == ""
