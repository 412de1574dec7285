"""Decisions of people about challengers, and the moves of the champion that follow from them.

MLflow's aliases go to the last writer, so an alias alone decides nothing here: a move is first
recorded in the model's journal, where one of several rivals wins, and then carried out by whoever
comes next, the winner or, if that one died, anybody. Who sets the alias in MLflow directly is
outside of this: it is seen and reported, not prevented.
"""

from dataclasses import dataclass

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.values import CHAMPION, PREVIOUS_CHAMPION
from rtscv_mlops.errors import Code, ReviewError, ServiceError
from rtscv_mlops.tracking.client import asking, is_absent
from rtscv_mlops.tracking.journal import (
    APPROVED,
    BLOCKED,
    EXPIRED,
    FROM,
    NAME_LIMIT,
    PROMOTED,
    REASON_LIMIT,
    REJECTED,
    ROLLED_BACK,
    STALE,
    SUPERSEDED,
    Entry,
    Record,
    append,
    find_damage,
    last_move,
    outcome,
    read_records,
    shortened,
)
from rtscv_mlops.tracking.ledger import Ledger, open_ledger, repeat
from rtscv_mlops.tracking.registry import (
    PENDING,
    VersionSummary,
    find_version,
    read_aliases,
    show_outcome,
)

DECISION, UNDOES = "decision", "undoes"
SEEN_CHAMPION, SEEN_REPORT, SEEN_MODEL = "champion", "report_sha256", "model_sha256"
ROLLED_BACK_TAG = "rtscv.rolled_back"


def record_decision(
    client: MlflowClient,
    model: str,
    version: str,
    approved: bool,
    reviewer: str,
    reason: str,
    *,
    seen_champion: str,
    seen_report: str,
    seen_model: str,
    alias: str = CHAMPION,
) -> Record:
    """Record what a person decided on exactly what that person saw; nothing is promoted yet.

    One decision per version. The same one again, as a retry sends it, returns the first.
    """
    with asking(f"record the decision on version {version} of {model!r}"):
        ledger = open_ledger(client, model)
        asked = find_version(client, model, version)
        seen = {SEEN_CHAMPION: seen_champion, SEEN_REPORT: seen_report, SEEN_MODEL: seen_model}
        kind = APPROVED if approved else REJECTED
        entry = Entry(kind, asked.version, asked.key, reviewer, reason, seen)

        def propose(records: list[Record]) -> Entry | None:
            held = outcome(records, asked.version, asked.key)
            if held is not None:
                _refuse_second(held, entry, model)
                return None
            _check_is_offered(asked, model)
            _check_digests(asked, seen, model)
            _check_champion(_settled_champion(ledger, alias), seen_champion, asked, model)
            return entry

        held = outcome(append(ledger, propose), asked.version, asked.key)
        assert held is not None  # just recorded
        show_outcome(ledger, held)
    return held


def _refuse_second(held: Record, entry: Entry, model: str) -> None:
    if _same_words(held, entry) and (held.kind, held.who) == (
        entry.kind,
        shortened(entry.who, NAME_LIMIT),
    ):
        return
    why = {
        BLOCKED: f"is blocked: {held.reason}",
        SUPERSEDED: f"was superseded by version {held.reason} at {held.at}. Review that one.",
        EXPIRED: f"was not reviewed in time: {held.reason} Wait for the next window's challenger.",
        STALE: f"is stale: {held.reason} Nothing was changed. Review a newer challenger.",
    }
    decided = f"was {held.kind} by {held.who} at {held.at}, and a decision stands. {held.reason}"
    code = Code(held.kind) if held.kind in why else Code.DECIDED
    sentence = why.get(held.kind, decided).rstrip()
    raise ReviewError(f"Version {held.version} of {model!r} {sentence}", code=code)


def _same_words(held: Record, entry: Entry) -> bool:
    return held.reason == shortened(entry.reason, REASON_LIMIT)


def _check_is_offered(asked: VersionSummary, model: str) -> None:
    if asked.review != PENDING:
        raise ReviewError(
            f"Version {asked.version} of {model!r} is not offered for review: it was not verified "
            "yet. Run its window again.",
            code=Code.NOT_OFFERED,
        )


def _check_digests(asked: VersionSummary, seen: dict[str, str], model: str) -> None:
    for name, now in (
        (SEEN_REPORT, asked.report_sha256),
        (SEEN_MODEL, asked.model_sha256),
    ):
        if seen[name] != now:
            raise ReviewError(
                f"The {name} of version {asked.version} of {model!r} is {now or 'not set'}, and "
                f"not {seen[name] or 'empty'} as reviewed. Review it again.",
                code=Code.DIGEST_MISMATCH,
            )


def _check_champion(now: str | None, seen: str, asked: VersionSummary, model: str) -> None:
    if now is None:
        raise ReviewError(
            f"{model!r} has no champion, so nothing can be compared with it. Set the alias.",
            code=Code.NO_CHAMPION,
        )
    if not now == seen == asked.champion_version:
        raise ReviewError(
            f"The champion of {model!r} is version {now}; version {asked.version} was built from "
            f"version {asked.champion_version} and reviewed against version {seen}. Nothing was "
            "changed. Review the challenger of the next window.",
            code=Code.STALE,
        )


def promote(client: MlflowClient, model: str, version: str, *, alias: str = CHAMPION) -> Record:
    """Make an approved version the champion; a retry of the same decision changes nothing."""
    with asking(f"promote version {version} of {model!r}"):
        ledger = open_ledger(client, model)
        asked = find_version(client, model, version)

        def propose(records: list[Record]) -> Entry | None:
            decision = outcome(records, asked.version, asked.key)
            if decision is None or decision.kind != APPROVED:
                raise _not_approved(asked, model)
            champion = _settled_champion(ledger, alias)
            if _was_carried_out(decision, records, model):
                return None
            seen = dict(decision.details)
            _check_digests(asked, seen, model)
            _check_champion(champion, seen[SEEN_CHAMPION], asked, model)
            details = {FROM: seen[SEEN_CHAMPION], DECISION: str(decision.number)}
            return Entry(PROMOTED, asked.version, asked.key, decision.who, decision.reason, details)

        return _moved(ledger, alias, append(ledger, propose))


def _not_approved(asked: VersionSummary, model: str) -> ReviewError:
    return ReviewError(
        f"Version {asked.version} of {model!r} was not approved: its review is "
        f"{asked.review or 'not open'}. Approve it first.",
        code=Code.NOT_APPROVED,
    )


def _was_carried_out(decision: Record, records: list[Record], model: str) -> bool:
    """Tell whether the champion moved by this decision; refuse if it has moved on since."""
    done = [
        record
        for record in records
        if record.kind == PROMOTED and record.details[DECISION] == str(decision.number)
    ]
    if not done:
        return False
    last = last_move(records)
    if last is not None and last.number != done[-1].number:
        raise ReviewError(
            f"Version {decision.version} of {model!r} was promoted at {done[-1].at}, and the "
            f"champion has moved since: {last}. Nothing was changed.{_how_to_undo(last)}",
            code=Code.STALE,
        )
    return True


def _how_to_undo(move: Record) -> str:
    undo = " `rtscv-mlops rollback --undo` lets the version serve again that was taken back."
    return undo if move.kind == ROLLED_BACK else ""


def roll_back(
    client: MlflowClient, model: str, reviewer: str, reason: str, *, alias: str = CHAMPION
) -> Record:
    """Make the previous champion the champion again.

    It is one step back, not a switch: a second call finds no previous champion and is refused.
    """
    with asking(f"roll back {model!r}"):
        ledger = open_ledger(client, model)
        interrupted = _unconfirmed(ledger, read_records(ledger))

        def propose(records: list[Record]) -> Entry | None:
            champion = _settled_champion(ledger, alias)
            wanted = Entry(ROLLED_BACK, "", "", reviewer, reason, {FROM: champion or ""})
            if _is_repeat(interrupted, wanted):
                return None
            back = read_aliases(client, model).get(PREVIOUS_CHAMPION)
            if back is None:
                raise _nothing_to_restore(model, last_move(records))
            return Entry(ROLLED_BACK, back, "", reviewer, reason, wanted.details)

        return _moved(ledger, alias, append(ledger, propose))


def rolled_back_version(client: MlflowClient, model: str) -> str | None:
    """Return the version that the last move took back; None if that was no rollback."""
    with asking(f"read the history of {model!r}"):
        last = last_move(read_records(open_ledger(client, model)))
    return last.details[FROM] if last is not None and last.kind == ROLLED_BACK else None


def undo_roll_back(
    client: MlflowClient, model: str, reviewer: str, reason: str, *, alias: str = CHAMPION
) -> Record:
    """Promote the version again that the last move took back, by the decision that it had."""
    with asking(f"undo the rollback of {model!r}"):
        ledger = open_ledger(client, model)
        interrupted = _unconfirmed(ledger, read_records(ledger))

        def propose(records: list[Record]) -> Entry | None:
            champion, last = _settled_champion(ledger, alias), last_move(records)
            if _is_repeat(interrupted, Entry(PROMOTED, "", "", reviewer, reason)):
                return None
            if last is None or last.kind != ROLLED_BACK or champion != last.version:
                raise _nothing_to_undo(model, champion, last)
            taken = last.details[FROM]
            _check_is_there(client, model, taken)
            before = [one for one in records if (one.kind, one.version) == (PROMOTED, taken)]
            key, decision = (before[-1].key, before[-1].details[DECISION]) if before else ("", "")
            details = {FROM: last.version, DECISION: decision, UNDOES: str(last.number)}
            return Entry(PROMOTED, taken, key, reviewer, reason, details)

        return _moved(ledger, alias, append(ledger, propose))


def _nothing_to_undo(model: str, champion: str | None, last: Record | None) -> ReviewError:
    so_far = f"The last move was: {last}." if last else "The champion was never moved by us."
    now = f"Version {champion} is" if champion else "None is"
    return ReviewError(
        f"There is no rollback of {model!r} to undo. {so_far} {now} the champion. Only the last "
        "move can be undone, and only while its version serves. Approve a challenger instead.",
        code=Code.NOTHING_TO_UNDO,
    )


def _check_is_there(client: MlflowClient, model: str, version: str) -> None:
    try:
        client.get_model_version(model, version or "0")
    except MlflowException as error:
        if not is_absent(error):
            raise
        raise ReviewError(
            f"Version {version or 'that served before'} of {model!r} is gone from the registry, so "
            "it cannot serve again. Approve a challenger instead.",
            code=Code.NO_VERSION,
        ) from error


def _is_repeat(interrupted: Record | None, wanted: Entry) -> bool:
    return (
        interrupted is not None
        and interrupted.kind == wanted.kind
        and interrupted.who == shortened(wanted.who, NAME_LIMIT)
        and _same_words(interrupted, wanted)
    )


def _nothing_to_restore(model: str, last: Record | None) -> ReviewError:
    so_far = f"The last move was: {last}." if last else "The champion was never moved by us."
    return ReviewError(
        f"{model!r} has no previous champion to go back to. {so_far} To serve another version, "
        "approve a challenger, or set the alias in MLflow.",
        code=Code.NOTHING_TO_RESTORE,
    )


def _unconfirmed(ledger: Ledger, records: list[Record]) -> Record | None:
    """Return the last move if nobody has said that it was carried out."""
    move = last_move(records)
    done = move is None or _confirmation(move) in ledger.claims()
    return None if done else move


def _confirmation(move: Record) -> str:
    return f"moved.{move.number:06d}"


def _settled_champion(ledger: Ledger, alias: str) -> str | None:
    """Return the champion's version, after carrying out a move that a rival has recorded."""
    records = read_records(ledger)
    if _unconfirmed(ledger, records) is not None:
        _carry_out_last_move(ledger, alias)
    return read_aliases(ledger.client, ledger.model).get(alias)


def _moved(ledger: Ledger, alias: str, records: list[Record]) -> Record:
    """Carry out the last of the recorded moves and return it, unless a rival moved on since."""
    ours = last_move(records)
    assert ours is not None  # just recorded
    if _unconfirmed(ledger, records) is None:
        return ours
    done = _carry_out_last_move(ledger, alias)
    if done.number != ours.number:
        raise ReviewError(
            f"The champion of {ledger.model!r} has moved since: {done}. Your own move is in the "
            "record before that one, and was not put back.",
            code=Code.STALE,
        )
    return ours


def _carry_out_last_move(ledger: Ledger, alias: str) -> Record:
    """Set the aliases as the last recorded move says, until the record is no longer than that.

    The record is read again after the aliases were set: one who was held up in between, and has
    put an old champion back, sees the later move and carries that one out.
    """
    move = None
    while move != (last := last_move(read_records(ledger))):
        assert last is not None  # only called when there is a move
        move = last
        _set_aliases(ledger, alias, move)
    assert move is not None
    now = read_aliases(ledger.client, ledger.model).get(alias)
    if now != move.version:
        raise ReviewError(
            f"The champion of {ledger.model!r} should be version {move.version} and is {now}: "
            "somebody moved the alias at the same time. Look at who writes to the registry.",
            code=Code.MISMATCH,
        )
    ledger.claim(_confirmation(move), move.version)
    return move


def _set_aliases(ledger: Ledger, alias: str, move: Record) -> None:
    client, model = ledger.client, ledger.model
    if move.kind == PROMOTED:
        repeat(client.set_registered_model_alias, model, PREVIOUS_CHAMPION, move.details[FROM])
    repeat(client.set_registered_model_alias, model, alias, move.version)
    if move.kind == ROLLED_BACK:
        repeat(client.delete_registered_model_alias, model, PREVIOUS_CHAMPION)
        _mark_rolled_back(ledger, move)
    if UNDOES in move.details:
        _unmark_rolled_back(ledger, move)


def _mark_rolled_back(ledger: Ledger, move: Record) -> None:
    """Say on the version that served what became of it, if it is still there."""
    if not move.details[FROM]:
        return
    mark, words = ledger.client.set_model_version_tag, f"{move.at} by {move.who}"
    try:
        repeat(mark, ledger.model, move.details[FROM], ROLLED_BACK_TAG, words)
    except MlflowException as error:
        if not is_absent(error):
            raise


def _unmark_rolled_back(ledger: Ledger, move: Record) -> None:
    client, model = ledger.client, ledger.model
    if ROLLED_BACK_TAG in client.get_model_version(model, move.version).tags:
        repeat(client.delete_model_version_tag, model, move.version, ROLLED_BACK_TAG)


@dataclass(frozen=True, slots=True)
class History:
    """Every decision and move of a model, and what is wrong with the record of them."""

    records: tuple[Record, ...]
    problems: tuple[str, ...]

    @property
    def has_moves(self) -> bool:
        """Whether the record says which version is the champion."""
        return last_move(list(self.records)) is not None


def read_history(client: MlflowClient, model: str, *, alias: str = CHAMPION) -> History:
    """Return what was decided, after checking the record against itself and the registry."""
    with asking(f"read the history of {model!r}"):
        ledger = open_ledger(client, model)
        problems = find_damage(ledger)
        records = _readable_records(ledger)
        mismatch = _mismatch(ledger, records, alias)
    return History(tuple(records), (*problems, *mismatch))


def _readable_records(ledger: Ledger) -> list[Record]:
    try:
        return read_records(ledger)
    except ServiceError as error:
        if error.code != Code.RECORD_DAMAGED:
            raise
        return []


def _mismatch(ledger: Ledger, records: list[Record], alias: str) -> list[str]:
    move = last_move(records)
    now = read_aliases(ledger.client, ledger.model).get(alias)
    if move is None or now == move.version:
        return []
    return [
        f"The champion is {'version ' + now if now else 'not set'}, and version {move.version} by "
        f"the record ({move}). Somebody moved the alias outside of the review."
    ]
