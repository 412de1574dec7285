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
from rtscv_mlops.tracking import promotion, tags
from rtscv_mlops.tracking.ledger import open_ledger
from rtscv_mlops.tracking.promotion import promote, read_history, record_decision, roll_back
from rtscv_mlops.tracking.registry import (
    expire_review,
    find_version,
    offer_version,
    read_aliases,
    register_version,
)
from rtscv_mlops.tracking.runs import open_run
from rtscv_mlops.tracking.window_run import WindowRun
from tests.registries import (
    MODEL,
    ROUNDS,
    add_champion,
    client_of,
    log_model,
    new_database,
    race,
    race_processes,
    version_tags,
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


def offer(client, day, model=MODEL, champion="1", blocked=""):
    """Register and offer the challenger of one day; return its version."""
    key = f"{day:064d}"
    run = open_run(client, model, key)
    version = register_version(
        client,
        model,
        key,
        run.run_id,
        log_model(client, run.run_id),
        named=version_tags(day, champion),
        description="",
    )
    return offer_version(client, model, version, blocked=blocked).version


def decide(client, version, approved=True, reviewer="ann", reason="fine", model=MODEL, **seen):
    """Decide as somebody who saw what is there, but for what `seen` says."""
    saw = {"seen_champion": "1", "seen_report": "r" * 64, "seen_model": "m" * 64, **seen}
    return record_decision(client, model, version, approved, reviewer, reason, **saw)


def aliases(client, model=MODEL):
    """The version behind each alias."""
    return read_aliases(client, model)


def test_an_approved_version_becomes_champion(client):
    """The aliases move, the former champion is kept, and everybody can read who decided and why."""
    version = offer(client, 5)

    decision = decide(client, version, reviewer="ann", reason="the new class is real")
    assert aliases(client) == {"champion": "1"}
    promote(client, MODEL, version)

    assert aliases(client) == {"champion": "2", "previous_champion": "1"}
    shown = client.get_model_version(MODEL, version).tags
    assert shown[tags.REVIEW] == "approved"
    assert shown[tags.REVIEWER] == "ann"
    assert shown[tags.REASON] == "the new class is real"
    assert shown[tags.DECIDED_AT] == decision.at
    told = read_history(client, MODEL)
    assert told.problems == ()
    assert [(each.kind, each.who) for each in told.records] == [
        ("approved", "ann"),
        ("promoted", "ann"),
    ]


def test_a_retry_changes_nothing(client):
    """The same decision and its promotion again give the first record, and no second effect."""
    version = offer(client, 5)
    decision = decide(client, version)
    move = promote(client, MODEL, version)

    assert decide(client, version) == decision
    assert promote(client, MODEL, version) == move
    assert len(read_history(client, MODEL).records) == 2


def test_a_second_decision_is_refused(client):
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
        promote(client, MODEL, version)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"seen_champion": "7"}, "stale"),
        ({"seen_report": "other"}, "digest_mismatch"),
        ({"seen_model": ""}, "digest_mismatch"),
    ],
)
def test_what_was_seen_must_be_what_is_there(client, seen, code):
    """Row 113: a decision about another champion, report or model is not taken."""
    version = offer(client, 5)

    with pytest.raises(ReviewError) as refused:
        decide(client, version, **seen)

    assert refused.value.code == code
    assert find_version(client, MODEL, version).review == "pending"


def test_an_answer_after_the_champion_moved_is_stale(client):
    """Moved by hand before the decision, or between decision and promotion: nothing changes."""
    version = offer(client, 5)
    other = offer(client, 4)
    decide(client, version)
    client.set_registered_model_alias(MODEL, "champion", other)

    with pytest.raises(ReviewError, match="The champion of 'letters' is version 3") as refused:
        promote(client, MODEL, version)

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


def test_what_is_not_open_cannot_be_approved(client):
    """Blocked, superseded, expired and never offered versions say so; a tag does not help."""
    blocked = offer(client, 3, blocked="Class 'q' loses too much.")
    client.set_model_version_tag(MODEL, blocked, tags.REVIEW, "pending")
    superseded = offer(client, 5)
    expired = offer(client, 6)
    expire_review(client, MODEL, expired, "No answer in 3 days.")
    run = open_run(client, MODEL, "e" * 64)
    unverified = register_version(
        client, MODEL, "e" * 64, run.run_id, log_model(client, run.run_id),
        named=version_tags(9), description="",
    )  # fmt: skip

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


def test_a_rejection_is_a_result(client):
    """The champion stays, the alias is free for the next challenger, the reason is kept."""
    version = offer(client, 5)

    decide(client, version, approved=False, reason="a sensor broke")

    assert aliases(client) == {"champion": "1"}
    assert find_version(client, MODEL, version).reason == "a sensor broke"
    later = offer(client, 6)
    assert aliases(client)["challenger"] == later


def test_two_reviewers_at_once_make_one_decision(client):
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
        assert find_version(client, MODEL, version).reviewer == held[0].who
    assert read_history(client, MODEL).problems == ()


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
            4, lambda rival, given=(model, rivals): promote(client, given[0], given[1][rival])
        )

        won = [each for each in told if not isinstance(each, Exception)]
        assert len(won) == 1
        assert {each.code for each in told if isinstance(each, ReviewError)} == {"stale"}
        assert aliases(client, model) == {
            "champion": won[0].version,
            "previous_champion": "1",
        }
        assert read_history(client, model).problems == ()


def promote_by_process(number, uri, versions):
    """What each process does in the race below: promote one that no other process takes."""
    client = client_of(uri)
    model = f"model{number}"
    mine = open_ledger(client, model)
    for version in versions[number]:
        if mine.claim(f"test.{version}", str(os.getpid())) == str(os.getpid()):
            break
    return promote(client, model, version).version


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
        assert read_history(client, f"model{number}").problems == ()


def test_the_same_promotion_twice_at_once_is_one(client):
    """A task that runs twice at the same time leaves one move."""
    version = offer(client, 5)
    decide(client, version)

    told = race(4, lambda _: promote(client, MODEL, version))

    assert len({each.number for each in told}) == 1
    assert [each.kind for each in read_history(client, MODEL).records] == ["approved", "promoted"]


def die_at(uri, step, action, *args):
    """Act, and be killed when this step of the promotion is reached."""
    setattr(promotion, step, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    action(client_of(uri), *args)


@pytest.mark.parametrize(
    "step", ["append", "_carry_out_last_move", "read_aliases", "_confirmation"]
)
def test_a_killed_promotion_is_finished_by_the_next_try(client, uri, step):
    """After kill -9 anywhere the champion is the old or the new one, and a retry ends the move."""
    version = offer(client, 5)
    decide(client, version)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, promote, MODEL, version)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert aliases(client)["champion"] in ("1", version)

    promote(client, MODEL, version)

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert read_history(client, MODEL).problems == ()


def test_an_interrupted_move_goes_first(client, uri):
    """What a dead promoter recorded is carried out by the next one, who is then stale."""
    first, second = approved_rivals(client, MODEL)[:2]
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, "_carry_out_last_move", promote, MODEL, first)
    )
    process.start()
    process.join()
    assert aliases(client)["champion"] == "1"

    with pytest.raises(ReviewError, match=f"The champion of 'letters' is version {first}"):
        promote(client, MODEL, second)

    assert aliases(client)["champion"] == first


def test_one_who_was_held_up_does_not_undo_a_later_move(client, monkeypatch):
    """A promoter that sleeps between record and alias, past a rollback, puts nothing back."""
    version = offer(client, 5)
    decide(client, version)
    original = promotion._set_aliases
    meanwhile = []

    def held_up(ledger, alias, move):
        if not meanwhile:
            meanwhile.append(move)
            monkeypatch.setattr(promotion, "_set_aliases", original)
            promote(client, MODEL, version)
            roll_back(client, MODEL, "bob", "bad")
        original(ledger, alias, move)

    monkeypatch.setattr(promotion, "_set_aliases", held_up)
    with pytest.raises(ReviewError, match="has moved since"):
        promote(client, MODEL, version)

    assert aliases(client) == {"champion": "1"}
    assert read_history(client, MODEL).problems == ()


def test_rollback_is_one_step(client):
    """The previous champion serves again; a second rollback has nothing to go back to."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)

    move = roll_back(client, MODEL, "bob", "latency doubled")

    assert aliases(client) == {"champion": "1"}
    assert (move.version, move.who, move.reason) == ("1", "bob", "latency doubled")
    assert "by bob" in client.get_model_version(MODEL, version).tags["rtscv.rolled_back"]
    with pytest.raises(
        ReviewError, match=r"no previous champion .* version 1 restored \(was 2\) by bob"
    ):
        roll_back(client, MODEL, "bob", "once more")
    with pytest.raises(ReviewError, match=r"the champion has moved since.*`.* rollback --undo`"):
        promote(client, MODEL, version)
    assert aliases(client) == {"champion": "1"}
    assert read_history(client, MODEL).problems == ()


def rolled_back(client):
    """A version that was promoted, and taken back by mistake."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)
    roll_back(client, MODEL, "bob", "bad")
    return version


def test_a_rollback_can_be_undone(client):
    """The version serves again by a move of its own, and can be rolled back once more."""
    version = rolled_back(client)

    move = promotion.undo_roll_back(client, MODEL, "ann", "it was the network")

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert (move.kind, move.version, move.who) == ("promoted", version, "ann")
    assert "rtscv.rolled_back" not in client.get_model_version(MODEL, version).tags
    assert promote(client, MODEL, version) == move  # An old task that tries again is no news.
    with pytest.raises(ReviewError, match=r"no rollback .* to undo. The last move was: version 2"):
        promotion.undo_roll_back(client, MODEL, "ann", "twice")
    roll_back(client, MODEL, "bob", "still bad")
    assert aliases(client) == {"champion": "1"}
    assert read_history(client, MODEL).problems == ()


def test_only_a_rollback_that_still_holds_can_be_undone(client):
    """Not where nothing was moved, where somebody moved the alias, or where the version is gone."""
    with pytest.raises(ReviewError, match=r"no rollback .* The champion was never moved by us"):
        promotion.undo_roll_back(client, MODEL, "ann", "")
    version = rolled_back(client)
    client.set_registered_model_alias(MODEL, "champion", version)
    with pytest.raises(ReviewError, match=r"Version 2 is the champion. Only the last move"):
        promotion.undo_roll_back(client, MODEL, "ann", "")
    client.set_registered_model_alias(MODEL, "champion", "1")
    client.delete_model_version(MODEL, version)
    with pytest.raises(ReviewError, match=r"Version 2 of .* is gone from the registry"):
        promotion.undo_roll_back(client, MODEL, "ann", "")
    assert aliases(client) == {"champion": "1"}


@pytest.mark.parametrize("step", ["_carry_out_last_move", "_confirmation"])
def test_a_killed_undo_is_finished_by_the_next_try(client, uri, step):
    """The same call again ends what was begun, and is recorded once."""
    version = rolled_back(client)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, promotion.undo_roll_back, MODEL, "ann", "back")
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    promotion.undo_roll_back(client, MODEL, "ann", "back")

    assert aliases(client) == {"champion": version, "previous_champion": "1"}
    assert [each.kind for each in read_history(client, MODEL).records][3:] == ["promoted"]


def test_rollback_without_a_move_is_refused(client):
    """A model whose champion was never moved has nothing to go back to."""
    with pytest.raises(ReviewError, match="The champion was never moved by us"):
        roll_back(client, MODEL, "bob", "why not")


@pytest.mark.parametrize("step", ["_carry_out_last_move", "_confirmation"])
def test_a_killed_rollback_is_finished_by_the_next_try(client, uri, step):
    """The same rollback again ends what was begun, and goes back no further."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)
    process = get_context("forkserver").Process(
        target=die_at, args=(uri, step, roll_back, MODEL, "bob", "bad")
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    roll_back(client, MODEL, "bob", "bad")

    assert aliases(client) == {"champion": "1"}
    assert [each.kind for each in read_history(client, MODEL).records][2:] == ["rolled_back"]


def test_rival_rollbacks_go_back_once(client):
    """Four people who roll back at once: one does, three are told there is nothing left."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)

    told = race(4, lambda rival: roll_back(client, MODEL, f"reviewer {rival}", "bad"))

    assert sum(not isinstance(each, Exception) for each in told) == 1
    assert aliases(client) == {"champion": "1"}


def test_an_alias_moved_outside_is_reported(client):
    """The record says one version, the registry another: that is a problem, and is not undone."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)
    client.set_registered_model_alias(MODEL, "champion", "1")

    assert promote(client, MODEL, version).version == version

    assert aliases(client)["champion"] == "1"
    [problem] = read_history(client, MODEL).problems
    assert "The champion is version 1, and version 2 by the record" in problem


def test_the_production_alias_is_the_teams_own(client):
    """Another alias than `champion` may mean production."""
    client.set_registered_model_alias(MODEL, "live", "1")
    client.delete_registered_model_alias(MODEL, "champion")
    version = offer(client, 5)

    decide(client, version, alias="live")
    promote(client, MODEL, version, alias="live")

    assert aliases(client) == {"live": version, "previous_champion": "1"}


def test_a_long_or_odd_reason_is_kept(client):
    """Row 106: a reason of any length and any signs is recorded; the whole text is a file."""
    version = offer(client, 5)
    reason = '"\\\0\ud800<script>' + "ü🙂" * 20_000

    decision = decide(client, version, reason=reason)

    assert decide(client, version, reason=reason) == decision
    assert decision.reason.endswith("…")
    ledger = WindowRun(client, open_ledger(client, MODEL).run_id)
    whole = f"decisions/reason-{decision.details['reason_sha256']}.txt"
    assert ledger.list_artifacts("decisions") == {"decisions/000001.json", whole}
    assert read_history(client, MODEL).problems == ()


def test_a_whole_reason_cannot_be_changed(client, tmp_path):
    """What of a reason is kept only as a file is sealed as well."""
    decide(client, offer(client, 5), reason="figs " * 1000)
    (kept,) = tmp_path.rglob("reason-*.txt")

    kept.write_text(kept.read_text().replace("figs", "dates", 1))
    changed = read_history(client, MODEL).problems
    kept.unlink()

    assert changed == ("The whole reason of record 1 was changed.",)
    assert read_history(client, MODEL).problems == ("The whole reason of record 1 is gone.",)


def moves(client):
    """A model with three records."""
    version = offer(client, 5)
    decide(client, version)
    promote(client, MODEL, version)
    roll_back(client, MODEL, "bob", "bad")


@pytest.mark.parametrize(
    ("number", "change", "complaint"),
    [
        (1, "replace(value, 'ann', 'amy')", "Record 1 was changed after record 2 sealed it"),
        (3, "replace(value, 'bob', 'rob')", "Record 3 and its copy differ"),
        (2, "substr(value, 2)", "Record 2 of the ledger cannot be read"),
    ],
)
def test_a_changed_record_is_found(client, uri, number, change, complaint):
    """One changed byte in the database is seen."""
    moves(client)
    assert read_history(client, MODEL).problems == ()

    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute(f"UPDATE params SET value = {change} WHERE key = 'record.{number:06d}'")

    assert any(complaint in problem for problem in read_history(client, MODEL).problems)


def test_a_lost_record_or_copy_is_found(client, uri, tmp_path):
    """A deleted record, a deleted copy and a changed copy are seen."""
    moves(client)
    [changed] = tmp_path.rglob("000003.json")
    changed.write_text(changed.read_text().replace("bob", "rob"))
    [copy] = tmp_path.rglob("000001.json")
    copy.unlink()
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("DELETE FROM params WHERE key = 'record.000002'")

    problems = read_history(client, MODEL).problems

    assert "Record 2 is gone." in problems
    assert "The copy of record 1 is gone." in problems
    assert "Record 3 and its copy differ." in problems


@pytest.mark.parametrize("kept", [0, 2])
def test_records_that_are_deleted_from_the_end_are_found(client, uri, kept):
    """They leave no gap in the numbers; their copies tell that they were there."""
    moves(client)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute(f"DELETE FROM params WHERE key > 'record.{kept:06d}' AND key < 'record.9'")

    gone = tuple(f"Record {number} is gone." for number in range(kept + 1, 4))
    assert read_history(client, MODEL).problems[: 3 - kept] == gone


def test_what_is_no_record_is_told(client):
    """A param that somebody named like a record stops nobody, and is reported."""
    moves(client)
    client.log_param(open_ledger(client, MODEL).run_id, "record.x", "hello")

    told = read_history(client, MODEL)

    assert told.problems == ("'record.x' in the ledger is no record of ours.",)
    assert len(told.records) == 3


def test_a_damaged_record_stops_decisions(client, uri):
    """Nothing is decided on a past that cannot be read."""
    moves(client)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE params SET value = '?' WHERE key = 'record.000002'")

    with pytest.raises(ServiceError, match="Record 2 of the ledger cannot be read"):
        roll_back(client, MODEL, "bob", "again")
