"""One version per key in the registry, and at most one that awaits review."""

import os
import signal
from multiprocessing import get_context

import pytest

from rtscv_mlops.errors import ModelError, ReviewError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.tracking import tags, versions
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.registries import (
    KEY,
    MODEL,
    ROUNDS,
    add_champion,
    client_of,
    log_model,
    new_database,
    race,
    race_processes,
    seal_window,
)


@pytest.fixture
def uri(tmp_path):
    """The address of an MLflow without anything in it."""
    return new_database(tmp_path)


@pytest.fixture
def client(uri):
    """A client of an MLflow with a model whose first version is the champion."""
    client = client_of(uri)
    add_champion(client)
    return client


@pytest.fixture
def registry(client):
    """The registry of that model."""
    return ModelRegistry(client, MODEL)


def register(client, key=KEY, day=5, model=MODEL, champion="1"):
    """Log and register the challenger of one day."""
    registry = ModelRegistry(client, model)
    run = registry.runs.open(key)
    model_id = log_model(client, run.run_id)
    seal = seal_window(client, key, run.run_id, model_id, day=day, champion=champion, model=model)
    return registry.versions.register(seal)


def offer(client, day, blocked="", champion="1"):
    """Register and offer the challenger of one day."""
    version = register(client, f"{day:064d}", day, champion=champion)
    return ModelRegistry(client, MODEL).versions.offer(version, blocked=blocked)


def alias(client, name="challenger"):
    """The version behind an alias."""
    return ModelRegistry(client, MODEL).versions.aliases().get(name)


def of_key(client, key=KEY):
    """All versions of a key, duplicates included."""
    return client.search_model_versions(f"tags.`rtscv.key` = '{key}'")


def test_a_version_says_what_it_is(client, registry):
    """Tags, run, description and the run's own tag are there; it is not offered yet."""
    version = register(client)

    found = registry.versions.get(version)
    assert (found.version, found.key, found.review, found.champion_version) == ("2", KEY, "", "1")
    assert found.window_start.isoformat() == "2026-01-05T00:00:00+00:00"
    assert (found.seal.report_sha256, found.model_sha256) == ("r" * 64, "m" * 64)
    assert client.get_run(found.run_id).data.tags[tags.VERSION] == "2"
    assert registry.versions.pending() is None


def test_registering_again_gives_the_same_version(client):
    """A retry finds the version of its key."""
    assert register(client) == register(client) == register(client)
    assert len(of_key(client)) == 1


def test_a_key_has_one_version_among_threads(client, registry):
    """Eight who register a key at once get one version, and the registry holds no other one."""
    for number in range(ROUNDS):
        key = f"{number:064d}"
        run_id = registry.runs.open(key).run_id
        seal = seal_window(client, key, run_id, log_model(client, run_id), day=5)

        found = race(
            8,
            lambda _, seal=seal: registry.versions.register(seal),
        )

        assert len(set(found)) == 1
        assert [str(each.version) for each in of_key(client, key)] == [found[0]]


def register_by_number(number, uri):
    """What each process does in the race below."""
    return register(client_of(uri), f"{number:064d}")


def test_a_key_has_one_version_among_processes(client, registry, uri):
    """Four processes that register a key at once get one version, and none is left over."""
    rounds = race_processes(4, ROUNDS, register_by_number, uri)

    assert [len(set(found)) for found in rounds] == [1] * ROUNDS
    assert len(registry.versions.all()) == ROUNDS
    assert len(client.search_model_versions(f"name = '{MODEL}'")) == ROUNDS + 1


def die_before_claim(uri, claim):
    """Register a version, and be killed before the claim of this kind."""
    original = Ledger.claim

    def dying(ledger, name, value, *is_valid):
        if name.startswith(claim):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(ledger, name, value, *is_valid)

    Ledger.claim = dying
    register(client_of(uri))


@pytest.mark.parametrize("claim", ["registering", "version"])
def test_the_version_of_a_killed_process_is_taken_over(client, uri, claim):
    """After kill -9 before or after the create there is one version, also after more tries."""
    process = get_context("forkserver").Process(target=die_before_claim, args=(uri, claim))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    assert register(client) == register(client) == "2"
    assert len(of_key(client)) == 1


def test_one_who_began_and_died_is_replaced(client, monkeypatch):
    """Who claimed to create a version and never did is waited for, then replaced."""
    monkeypatch.setattr(versions, "CREATION_TIMEOUT", 0.3)
    Ledger.open(client, MODEL).claim(f"registering.{KEY}.1", "somebody dead")

    assert register(client) == "2"


def add_version(client, **named):
    """Register a version of the key past us, as a lost answer does."""
    run_id = ModelRegistry(client, MODEL).runs.open(KEY).run_id
    seal = seal_window(client, KEY, run_id, log_model(client, run_id), day=5)
    source = f"models:/{seal.model_id}"
    named = {tags.KEY: KEY, tags.KIND: "challenger", **named}
    return str(client.create_model_version(MODEL, source, run_id, tags=named).version)


def test_a_second_version_of_a_key_goes(client):
    """What a lost answer made besides is deleted, whichever of the two we were told of."""
    add_version(client)
    add_version(client)

    assert register(client) == "2"
    assert [str(each.version) for each in of_key(client)] == ["2"]


def test_a_duplicate_that_was_offered_stays(client, registry):
    """It is tagged, left out of lists, and cannot be offered again."""
    add_version(client)
    add_version(client, **{tags.STATE: tags.COMPLETE})

    assert register(client) == "2"

    assert [each.version for each in registry.versions.all()] == ["2"]
    assert client.get_model_version(MODEL, "3").tags[tags.DUPLICATE_OF] == "2"
    with pytest.raises(ReviewError, match="has no challenger of version 3"):
        registry.versions.offer("3")


def test_a_deleted_version_is_made_again(client, registry, monkeypatch):
    """A window whose version somebody deleted gets a new one; its old review does not count."""
    monkeypatch.setattr(versions, "CREATION_TIMEOUT", 0.1)
    first = offer(client, 5)
    registry.versions.close_review(first.version, ReviewStatus.EXPIRED, "Nobody answered.")
    client.delete_model_version(MODEL, first.version)

    second = offer(client, 5)

    assert (second.version, second.review) == ("3", "pending")
    assert register(client, f"{5:064d}") == "3"


def test_a_model_that_is_not_there_is_named(client):
    """Row 83: without the registered model there is one sentence."""
    with pytest.raises(ModelError, match="no registered model 'numbers'"):
        register(client, model="numbers")


@pytest.mark.parametrize("model", ["it's", 'say "a"', 'it\'s "b"', "50%", "a b", "Zürich"])
def test_any_model_name_has_versions(client, model):
    """Row 114: quotes and odd signs in a model's name do not hide its versions."""
    add_champion(client, model)

    version = register(client, model=model)
    registry = ModelRegistry(client, model)
    registry.versions.offer(version)

    assert register(client, model=model) == version
    assert registry.versions.pending().version == version


def test_an_offered_version_awaits_review(client, registry):
    """It is pending and has the alias; offering it again changes nothing."""
    offered = offer(client, 5)

    assert (offered.review, alias(client)) == ("pending", "2")
    assert registry.versions.offer("2") == offered
    assert registry.versions.pending() == offered


def test_a_blocked_version_takes_no_alias(client, registry):
    """It says why, does not supersede what awaits review, and stays blocked when repeated."""
    waiting = offer(client, 5)

    blocked = offer(client, 6, blocked="Class 'q' loses too much.")

    assert (blocked.review, blocked.blocked) == ("blocked", "Class 'q' loses too much.")
    assert client.get_model_version(MODEL, blocked.version).tags[tags.REVIEW] == "blocked"
    assert registry.versions.offer(blocked.version).review == "blocked"
    assert (alias(client), registry.versions.pending()) == (
        waiting.version,
        waiting,
    )


def test_the_latest_window_awaits_review_alone(client, registry):
    """A later window supersedes an earlier one; an earlier one that comes late does not."""
    offer(client, 5)
    offer(client, 7)
    offer(client, 6)

    found = {each.window_start.day: each for each in registry.versions.all()}
    assert {day: each.review for day, each in found.items()} == {
        5: "superseded",
        6: "superseded",
        7: "pending",
    }
    assert alias(client) == found[7].version
    superseded = client.get_model_version(MODEL, found[5].version).tags
    assert superseded[tags.SUPERSEDED_BY] == found[7].version


def test_one_built_from_a_former_champion_is_superseded(client, registry):
    """A challenger of the champion of now goes before a later one that is stale."""
    stale = offer(client, 9)
    client.set_registered_model_alias(MODEL, "champion", stale.version)

    fresh = offer(client, 6, champion=stale.version)

    assert fresh.review == "pending"
    assert registry.versions.get(stale.version).review == "superseded"


def test_offers_at_once_leave_one_pending(client, registry):
    """Four windows offered at the same moment: the latest awaits review and has the alias."""
    for number in range(ROUNDS):
        days = [1 + 4 * number + rival for rival in range(4)]
        offered = [register(client, f"{day:064d}", day) for day in days]

        told = race(
            4,
            lambda rival, offered=offered: registry.versions.offer(offered[rival]),
        )

        assert not [each for each in told if isinstance(each, Exception)]
        waiting = [each for each in registry.versions.all() if each.review == "pending"]
        assert [each.window_start.day for each in waiting] == [days[-1]]
        assert alias(client) == waiting[0].version


def test_an_expired_review_is_closed(client, registry):
    """Nobody answered: it is no challenger any more, and a repeat does not offer it again."""
    offered = offer(client, 5)

    registry.versions.close_review(offered.version, ReviewStatus.EXPIRED, "No answer in 3 days.")

    assert registry.versions.get(offered.version).review == "expired"
    assert registry.versions.offer(offered.version).review == "expired"
    assert alias(client) is None


def test_a_newer_challenger_keeps_the_alias(client, registry, monkeypatch):
    """It is offered in the moment in which the alias is taken from the one before."""
    before = offer(client, 5)
    delete = client.delete_registered_model_alias

    def late(*given):
        monkeypatch.undo()
        offer(client, 6)
        delete(*given)

    monkeypatch.setattr(client, "delete_registered_model_alias", late)
    registry.versions.close_review(before.version, ReviewStatus.EXPIRED, "No answer in 3 days.")

    waiting = registry.versions.pending()
    assert waiting.window_start.day == 6
    assert alias(client) == waiting.version


def test_an_answer_in_the_registry_is_seen_and_kept(client, registry):
    """A person may write the tag there: it is an answer, not yet a decision, and stays."""
    offered = offer(client, 5)
    client.set_model_version_tag(MODEL, offered.version, tags.REVIEW, "approved")

    seen = registry.versions.offer(offered.version)

    assert (seen.review, seen.answer) == ("pending", "approved")
