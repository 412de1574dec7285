"""The champion moves by a recorded decision of a person, once, or not at all."""

import os
import re
import signal
import sqlite3
from multiprocessing import get_context

import pytest

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import NotAssessed, ReviewError, ServiceError
from rtscv_mlops.models.load import find_champion
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.tracking import promotion, tags
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.promotion import Decisions
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.registries import (
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


def offer(client, day, model=MODEL, champion="1", blocked=""):
    """Register and offer the challenger of one day; return its version."""
    key = f"{day:064d}"
    registry = ModelRegistry(client, model)
    run = registry.runs.open(key)
    model_id = log_model(client, run.run_id)
    seal = seal_window(client, key, run.run_id, model_id, day=day, champion=champion, model=model)
    version = registry.versions.register(seal)
    return registry.versions.offer(version, blocked=blocked).version


def decide(
    client,
    version,
    approved=True,
    reviewer="ann",
    reason="fine",
    model=MODEL,
    alias="champion",
    **seen,
):
    """Decide as a person who saw what is there, except for what `seen` says."""
    decisions = ModelRegistry(client, model, alias).decisions
    known = {each.version: each.seal.digest for each in decisions.versions.all()}
    saw = {"seen_champion": "1", "seen_seal": known.get(version, ""), **seen}
    return decisions.record(version, approved, reviewer, reason, **saw)


def aliases(client, model=MODEL):
    """The version behind each alias."""
    return ModelRegistry(client, model).versions.aliases()


def test_an_approved_version_becomes_champion(client, registry):
    """The aliases move, the former champion is kept, and everybody can read who decided and why."""
    version = offer(client, 5)

    decision = decide(client, version, reviewer="ann", reason="the new class is real")
    assert aliases(client) == {"champion": "1"}
    registry.decisions.promote(version)

    assert aliases(client) == {"champion": "2", "previous_champion": "1"}
    shown = client.get_model_version(MODEL, version).tags
    assert shown[tags.REVIEW] == "approved"
    assert shown[tags.REVIEWER] == "ann"
    assert shown[tags.REASON] == "the new class is real"
    assert shown[tags.DECIDED_AT] == decision.at
    told = registry.decisions.history()
    assert told.problems == ()
    assert [(each.kind, each.who) for each in told.records] == [
        ("approved", "ann"),
        ("promoted", "ann"),
    ]


def test_a_retry_changes_nothing(client, registry):
    """The same decision and its promotion again give the first record, and no second effect."""
    version = offer(client, 5)
    decision = decide(client, version)
    move = registry.decisions.promote(version)

    assert decide(client, version) == decision
    assert registry.decisions.promote(version) == move
    assert len(registry.decisions.history().records) == 2


def test_a_second_decision_is_refused(client, registry):
    """Who comes later is told who decided what and when; nothing changes."""
    version = offer(client, 5)
    first = decide(client, version, approved=False, reviewer="ann", reason="noise")

    with pytest.raises(
        ReviewError, match=re.escape(f"was rejected by ann at {first.at}")
    ) as refused:
        decide(client, version, reviewer="bob")

    assert refused.value.code == "decided"
    assert aliases(client) == {"champion": "1"}
    with pytest.raises(ReviewError, match="was not approved: its review is rejected"):
        registry.decisions.promote(version)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"seen_champion": "7"}, "stale"),
        ({"seen_seal": "other"}, "digest_mismatch"),
        ({"seen_seal": ""}, "digest_mismatch"),
    ],
)
def test_what_was_seen_must_be_what_is_there(client, registry, seen, code):
    """Row 113: a decision about another champion, report or model is not taken."""
    version = offer(client, 5)

    with pytest.raises(ReviewError) as refused:
        decide(client, version, **seen)

    assert refused.value.code == code
    assert registry.versions.get(version).review == "pending"


def test_an_answer_after_the_champion_moved_is_stale(client, registry):
    """Moved by hand before the decision, or between decision and promotion: nothing changes."""
    version = offer(client, 5)
    other = offer(client, 4)
    decide(client, version)
    client.set_registered_model_alias(MODEL, "champion", other)

    with pytest.raises(ReviewError, match="The champion of 'letters' is version 3") as refused:
        registry.decisions.promote(version)

    assert refused.value.code == "stale"
    assert aliases(client)["champion"] == other


def test_no_champion_is_named(client):
    """Row 85: the champion was deleted after the window was judged."""
    version = offer(client, 5)
    client.delete_registered_model_alias(MODEL, "champion")

    with pytest.raises(ReviewError, match="'letters' has no champion"):
        decide(client, version)


def test_nobody_is_told_to_promote_what_waits(client):
    """A misspelt alias is answered with the aliases there are, a missing one without naming the
    newest version, which waits for review."""
    offer(client, 5)

    with pytest.raises(NotAssessed, match=r"It has 'champion' \(version 1\): name the"):
        find_champion(client, ModelSettings(name=MODEL, alias="chmapion"))
    client.delete_registered_model_alias(MODEL, "champion")
    with pytest.raises(NotAssessed, match=r"serves: .*'letters', 'champion', '<version>'"):
        find_champion(client, ModelSettings(name=MODEL))


def test_what_is_not_open_cannot_be_approved(client, registry):
    """Blocked, superseded, expired and never offered versions say so; a tag does not help."""
    blocked = offer(client, 3, blocked="Class 'q' loses too much.")
    client.set_model_version_tag(MODEL, blocked, tags.REVIEW, "pending")
    superseded = offer(client, 5)
    expired = offer(client, 6)
    registry.versions.close_review(expired, ReviewStatus.EXPIRED, "No answer in 3 days.")
    run = registry.runs.open("e" * 64)
    model_id = log_model(client, run.run_id)
    seal = seal_window(client, "e" * 64, run.run_id, model_id, day=9)
    unverified = registry.versions.register(seal)

    for version, code, words in (
        (blocked, "blocked", "is blocked: Class 'q' loses too much."),
        (superseded, "superseded", f"was superseded by version {expired}"),
        (expired, "expired", "was not reviewed in time: No answer in 3 days."),
        (unverified, "not_offered", "is not offered for review"),
        ("99", "no_version", "has no challenger of version 99"),
    ):
        with pytest.raises(ReviewError, match=words) as refused:
            decide(client, version)
        assert refused.value.code == code
    assert aliases(client)["champion"] == "1"


def test_a_rejection_is_a_result(client, registry):
    """The champion stays, the alias is free for the next challenger, the reason is kept."""
    version = offer(client, 5)

    decide(client, version, approved=False, reason="a sensor broke")

    assert aliases(client) == {"champion": "1"}
    assert registry.versions.get(version).reason == "a sensor broke"
    later = offer(client, 6)
    assert aliases(client)["challenger"] == later


def test_two_reviewers_at_once_make_one_decision(client, registry):
    """One of four opposed answers holds; the others are refused."""
    for number in range(ROUNDS):
        version = offer(client, number + 1)

        told = race(
            4,
            lambda rival, version=version: decide(
                client, version, approved=bool(rival % 2), reviewer=f"reviewer {rival}"
            ),
        )

        held = [each for each in told if not isinstance(each, Exception)]
        assert len(held) == 1
        assert {each.code for each in told if isinstance(each, ReviewError)} == {"decided"}
        assert registry.versions.get(version).reviewer == held[0].who
    assert registry.decisions.history().problems == ()


def approved_rivals(client, model):
    """Four versions of one model, all approved against the same champion."""
    found = []
    for day in range(1, 5):
        found.append(offer(client, day, model))
        decide(client, found[-1], model=model)
    return found


def test_rival_promoters_have_one_winner(client):
    """Four approved versions promoted at once: one becomes champion, three are told it is stale."""
    for number in range(ROUNDS):
        model = f"model{number}"
        add_champion(client, model)
        rivals = approved_rivals(client, model)

        told = race(
            4,
            lambda rival, given=(model, rivals): ModelRegistry(client, given[0]).decisions.promote(
                given[1][rival]
            ),
        )

        won = [each for each in told if not isinstance(each, Exception)]
        assert len(won) == 1
        assert {each.code for each in told if isinstance(each, ReviewError)} == {"stale"}
        assert aliases(client, model) == {
            "champion": won[0].version,
            "previous_champion": "1",
        }
        assert ModelRegistry(client, model).decisions.history().problems == ()


def promote_by_process(number, uri, versions):
    """What each process does in the race below: promote one that no other process takes."""
    client = client_of(uri)
    model = f"model{number}"
    mine = Ledger.open(client, model)
    for version in versions[number]:
        if mine.claim(f"test.{version}", str(os.getpid())) == str(os.getpid()):
            break
    return ModelRegistry(client, model).decisions.promote(version).version


def test_rival_processes_have_one_winner(client, uri):
    """The same among four processes."""
    versions = []
    for number in range(ROUNDS):
        add_champion(client, f"model{number}")
        versions.append(approved_rivals(client, f"model{number}"))

    rounds = race_processes(4, ROUNDS, promote_by_process, uri, versions)

    for number, told in enumerate(rounds):
        [winner] = [each for each in told if each.isdigit()]
        assert sum("Nothing was changed" in each for each in told) == 3
        assert aliases(client, f"model{number}")["champion"] == winner
        assert ModelRegistry(client, f"model{number}").decisions.history().problems == ()


def test_the_same_promotion_twice_at_once_is_one(client, registry):
    """A task that runs twice at the same time leaves one move."""
    version = offer(client, 5)
    decide(client, version)

    told = race(4, lambda _: registry.decisions.promote(version))

    assert len({each.number for each in told}) == 1
    assert [each.kind for each in registry.decisions.history().records] == [
        "approved",
        "promoted",
    ]


def die_at(uri, step, action, *args):
    """Act, and be killed when this step of the promotion is reached."""
    owner, _, name = step.rpartition(".")
    patched = getattr(promotion, owner) if owner else promotion
    setattr(patched, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    action(ModelRegistry(client_of(uri), MODEL).decisions, *args)


@pytest.mark.parametrize(
    "step", ["Journal.append", "_Moves._carry_out_last", "Versions.aliases", "_confirmation"]
)
def test_a_killed_promotion_is_finished_by_the_next_try(client, registry, uri, step):
    """After kill -9 anywhere the champion is the old or the new one, and a retry ends the move."""
    version = offer(client, 5)
    decide(client, version)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, Decisions.promote, version)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert aliases(client)["champion"] in ("1", version)

    registry.decisions.promote(version)

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert registry.decisions.history().problems == ()


def test_an_interrupted_move_goes_first(client, registry, uri):
    """What a dead promoter recorded is carried out by the next one, who is then stale."""
    first, second = approved_rivals(client, MODEL)[:2]
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, "_Moves._carry_out_last", Decisions.promote, first)
    )
    process.start()
    process.join()
    assert aliases(client)["champion"] == "1"

    with pytest.raises(ReviewError, match=f"The champion of 'letters' is version {first}"):
        registry.decisions.promote(second)

    assert aliases(client)["champion"] == first


def test_one_who_was_held_up_does_not_undo_a_later_move(client, registry, monkeypatch):
    """A promoter that sleeps between record and alias, past a rollback, puts nothing back."""
    version = offer(client, 5)
    decide(client, version)
    original = promotion._Moves._set_aliases
    meanwhile = []

    def held_up(moves, move):
        if not meanwhile:
            meanwhile.append(move)
            monkeypatch.setattr(promotion._Moves, "_set_aliases", original)
            registry.decisions.promote(version)
            registry.decisions.roll_back("bob", "bad")
        original(moves, move)

    monkeypatch.setattr(promotion._Moves, "_set_aliases", held_up)
    with pytest.raises(ReviewError, match="has moved since"):
        registry.decisions.promote(version)

    assert aliases(client) == {"champion": "1"}
    assert registry.decisions.history().problems == ()


def test_rollback_is_one_step(client, registry):
    """The previous champion serves again; a second rollback has nothing to go back to."""
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)

    move = registry.decisions.roll_back("bob", "latency doubled")

    assert aliases(client) == {"champion": "1"}
    assert (move.version, move.who, move.reason) == ("1", "bob", "latency doubled")
    assert "by bob" in client.get_model_version(MODEL, version).tags["rtscv.rolled_back"]
    with pytest.raises(
        ReviewError, match=r"no previous champion .* version 1 restored \(was 2\) by bob"
    ):
        registry.decisions.roll_back("bob", "once more")
    with pytest.raises(ReviewError, match=r"the champion has moved since.*`.* rollback --undo`"):
        registry.decisions.promote(version)
    assert aliases(client) == {"champion": "1"}
    assert registry.decisions.history().problems == ()


def rolled_back(client):
    """A version that was promoted, and taken back by mistake."""
    registry = ModelRegistry(client, MODEL)
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)
    registry.decisions.roll_back("bob", "bad")
    return version


def test_a_rollback_can_be_undone(client, registry):
    """The version serves again by a move of its own, and can be rolled back once more."""
    version = rolled_back(client)

    move = registry.decisions.undo_roll_back("ann", "it was the network")

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert (move.kind, move.version, move.who) == ("promoted", version, "ann")
    assert "rtscv.rolled_back" not in client.get_model_version(MODEL, version).tags
    assert registry.decisions.promote(version) == move  # An old task that tries again is no news.
    with pytest.raises(ReviewError, match=r"no rollback .* to undo. The last move was: version 2"):
        registry.decisions.undo_roll_back("ann", "twice")
    registry.decisions.roll_back("bob", "still bad")
    assert aliases(client) == {"champion": "1"}
    assert registry.decisions.history().problems == ()


def test_only_a_rollback_that_still_holds_can_be_undone(client, registry):
    """Not where nothing was moved, where somebody moved the alias, or where the version is gone."""
    with pytest.raises(ReviewError, match=r"no rollback .* No move of the champion is recorded"):
        registry.decisions.undo_roll_back("ann", "")
    version = rolled_back(client)
    client.set_registered_model_alias(MODEL, "champion", version)
    with pytest.raises(ReviewError, match=r"Version 2 is the champion. Only the last move"):
        registry.decisions.undo_roll_back("ann", "")
    client.set_registered_model_alias(MODEL, "champion", "1")
    client.delete_model_version(MODEL, version)
    with pytest.raises(ReviewError, match=r"Version 2 of .* is gone from the registry"):
        registry.decisions.undo_roll_back("ann", "")
    assert aliases(client) == {"champion": "1"}


@pytest.mark.parametrize("step", ["_Moves._carry_out_last", "_confirmation"])
def test_a_killed_undo_is_finished_by_the_next_try(client, registry, uri, step):
    """The same call again ends what was begun, and is recorded once."""
    version = rolled_back(client)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, Decisions.undo_roll_back, "ann", "back")
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    registry.decisions.undo_roll_back("ann", "back")

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert [each.kind for each in registry.decisions.history().records][3:] == ["promoted"]


def test_rollback_without_a_move_is_refused(registry):
    """A model whose champion was never moved has nothing to go back to."""
    with pytest.raises(ReviewError, match="No move of the champion is recorded"):
        registry.decisions.roll_back("bob", "why not")


@pytest.mark.parametrize("step", ["_Moves._carry_out_last", "_confirmation"])
def test_a_killed_rollback_is_finished_by_the_next_try(client, registry, uri, step):
    """The same rollback again ends what was begun, and goes back no further."""
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, Decisions.roll_back, "bob", "bad")
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    registry.decisions.roll_back("bob", "bad")

    assert aliases(client) == {"champion": "1"}
    assert [each.kind for each in registry.decisions.history().records][2:] == ["rolled_back"]


def test_rival_rollbacks_go_back_once(client, registry):
    """Four people who roll back at once: one does, three are told there is nothing left."""
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)

    told = race(
        4,
        lambda rival: registry.decisions.roll_back(f"reviewer {rival}", "bad"),
    )

    assert sum(not isinstance(each, Exception) for each in told) == 1
    assert aliases(client) == {"champion": "1"}


def test_an_alias_moved_outside_is_reported(client, registry):
    """The record says one version, the registry another: that is a problem, and is not undone."""
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)
    client.set_registered_model_alias(MODEL, "champion", "1")

    assert registry.decisions.promote(version).version == version

    assert aliases(client)["champion"] == "1"
    [problem] = registry.decisions.history().problems
    assert "The champion is version 1, and version 2 by the record" in problem


def test_the_production_alias_is_the_teams_own(client):
    """Another alias than `champion` may mean production."""
    client.set_registered_model_alias(MODEL, "live", "1")
    client.delete_registered_model_alias(MODEL, "champion")
    version = offer(client, 5)

    decide(client, version, alias="live")
    ModelRegistry(client, MODEL, "live").decisions.promote(version)

    assert aliases(client) == {"live": version, "previous_champion": "1"}


def test_a_long_or_odd_reason_is_kept(client, registry):
    """Row 106: a reason of any length and any signs is recorded; the whole text is a file."""
    version = offer(client, 5)
    reason = '"\\\0\ud800<script>' + "ü🙂" * 20_000

    decision = decide(client, version, reason=reason)

    assert decide(client, version, reason=reason) == decision
    assert decision.reason.endswith("…")
    ledger = WindowRun(client, Ledger.open(client, MODEL).run_id)
    whole = f"decisions/reason-{decision.details['reason_sha256']}.txt"
    assert ledger.list_artifacts("decisions") == {"decisions/000001.json", whole}
    assert registry.decisions.history().problems == ()


def test_a_whole_reason_cannot_be_changed(client, registry, tmp_path):
    """What of a reason is kept only as a file is sealed as well."""
    decide(client, offer(client, 5), reason="figs " * 1000)
    (kept,) = tmp_path.rglob("reason-*.txt")

    kept.write_text(kept.read_text().replace("figs", "dates", 1))
    changed = registry.decisions.history().problems
    kept.unlink()

    assert changed == ("The whole reason of record 1 was changed.",)
    assert registry.decisions.history().problems == ("The whole reason of record 1 is gone.",)


def moves(client):
    """A model with three records."""
    registry = ModelRegistry(client, MODEL)
    version = offer(client, 5)
    decide(client, version)
    registry.decisions.promote(version)
    registry.decisions.roll_back("bob", "bad")


@pytest.mark.parametrize(
    ("number", "change", "complaint"),
    [
        (1, "replace(value, 'ann', 'amy')", "Record 1 was changed after record 2 sealed it"),
        (3, "replace(value, 'bob', 'rob')", "Record 3 and its copy differ"),
        (2, "substr(value, 2)", "Record 2 of the ledger cannot be read"),
    ],
)
def test_a_changed_record_is_found(client, registry, uri, number, change, complaint):
    """One changed byte in the database is seen."""
    moves(client)
    assert registry.decisions.history().problems == ()

    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute(f"UPDATE params SET value = {change} WHERE key = 'record.{number:06d}'")

    assert any(complaint in problem for problem in registry.decisions.history().problems)


def test_a_lost_record_or_copy_is_found(client, registry, uri, tmp_path):
    """A deleted record, a deleted copy and a changed copy are seen."""
    moves(client)
    [changed] = tmp_path.rglob("000003.json")
    changed.write_text(changed.read_text().replace("bob", "rob"))
    [copy] = tmp_path.rglob("000001.json")
    copy.unlink()
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("DELETE FROM params WHERE key = 'record.000002'")

    problems = registry.decisions.history().problems

    assert "Record 2 is gone." in problems
    assert "The copy of record 1 is gone." in problems
    assert "Record 3 and its copy differ." in problems


@pytest.mark.parametrize("kept", [0, 2])
def test_records_that_are_deleted_from_the_end_are_found(client, registry, uri, kept):
    """They leave no gap in the numbers; their copies tell that they were there."""
    moves(client)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute(f"DELETE FROM params WHERE key > 'record.{kept:06d}' AND key < 'record.9'")

    gone = tuple(f"Record {number} is gone." for number in range(kept + 1, 4))
    assert registry.decisions.history().problems[: 3 - kept] == gone


def test_a_claim_that_is_not_a_record_is_reported(client, registry):
    """A param that is named like a record stops no decision, and is reported."""
    moves(client)
    client.log_param(Ledger.open(client, MODEL).run_id, "record.x", "hello")

    told = registry.decisions.history()

    assert len(told.problems) == 1
    assert "'record.x' in the ledger is not a valid claim, and is passed over" in told.problems[0]
    assert len(told.records) == 3


def test_a_damaged_record_stops_decisions(client, registry, uri):
    """Nothing is decided on a past that cannot be read."""
    moves(client)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE params SET value = '?' WHERE key = 'record.000002'")

    with pytest.raises(ServiceError, match="Record 2 of the ledger cannot be read"):
        registry.decisions.roll_back("bob", "again")
