"""Decisions of people about challengers, and the moves of the champion that follow from them.

MLflow's aliases go to the last writer, so an alias alone decides nothing here. A move is first
recorded in the model's journal, where one of several concurrent writers wins. It is then carried
out by the winner or, if that process died, by the next one that looks. An alias that a person sets
in MLflow directly is outside of this: it is seen and reported, not prevented.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlflow.exceptions import MlflowException

from rtscv_mlops.config.values import PREVIOUS_CHAMPION
from rtscv_mlops.errors import Code, ReviewError, ServiceError
from rtscv_mlops.outcomes import IDENTITY, ReviewStatus
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, get_or_none, is_absent, search_versions
from rtscv_mlops.tracking.journal import (
    FROM,
    PROMOTED,
    ROLLED_BACK,
    Entry,
    Journal,
    Record,
    last_move,
    outcome,
)
from rtscv_mlops.tracking.ledger import IS_CHALLENGER, repeat
from rtscv_mlops.tracking.versions import Versions, VersionSummary

DECISION, UNDOES = "decision", "undoes"
SEEN_CHAMPION, SEEN_SEAL = "champion", "seal"
ROLLED_BACK_TAG = "rtscv.rolled_back"


@dataclass(frozen=True, slots=True)
class History:
    """Every decision and move of a model, and what is wrong with the record of them."""

    records: tuple[Record, ...]
    problems: tuple[str, ...]

    @property
    def has_moves(self) -> bool:
        """Whether the record says which version is the champion."""
        return last_move(self.records) is not None


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about a model's versions, and the moves of its champion."""

    versions: Versions

    def record(
        self,
        version: str,
        approved: bool,
        reviewer: str,
        reason: str,
        *,
        seen_champion: str,
        seen_seal: str,
        how: Mapping[str, str] | None = None,
    ) -> Record:
        """Record what a person decided on exactly what that person saw; nothing is promoted yet.

        `how` says how the decision came, and who vouches for the reviewer's identity.
        One decision per version. The same one again, as a retry sends it, returns the first.
        """
        with asking(f"record the decision on version {version} of {self._model!r}"):
            moves = self._moves()
            asked = self.versions.get(version)
            seen = {SEEN_CHAMPION: seen_champion, SEEN_SEAL: seen_seal}
            status, details = ReviewStatus.decided(approved), {**seen, **(how or {})}
            entry = Entry(status, asked.version, asked.key, reviewer, reason, details)

            def propose(records: list[Record]) -> Entry | None:
                held = outcome(records, asked.version, asked.key)
                if held is not None:
                    if held.repeats(entry):
                        return None
                    raise self._refusal(held)
                if not asked.is_pending:
                    raise ReviewError(
                        f"Version {asked.version} of {self._model!r} is not offered for review: it "
                        "was not verified yet. Run its window again.",
                        code=Code.NOT_OFFERED,
                    )
                self._check_seen(asked, seen)
                self._check_champion(asked, moves.settled_champion(), seen_champion)
                return entry

            return self.versions.record_outcome(moves.journal, entry, propose)

    def keep_refused(
        self,
        asked: VersionSummary,
        approved: bool,
        who: str,
        reason: str,
        error: ReviewError,
        how: Mapping[str, str],
    ) -> None:
        """Record a person's answer that was not carried out, and why."""
        with asking(f"record the answer on version {asked.version} of {self._model!r}"):
            journal = self.versions.journal()
            held = outcome(journal.read(), asked.version, asked.key)
            why = str(error)
            if held is not None and not ReviewStatus(held.kind).is_answer:
                why = ReviewStatus.explain_late(held.kind, held.reason)
            journal.keep_refused(
                asked.version, asked.key, ReviewStatus.decided(approved), who, reason, why, how
            )

    def promote(self, version: str) -> Record:
        """Make an approved version the champion; a retry of the same decision changes nothing."""
        with asking(f"promote version {version} of {self._model!r}"):
            moves = self._moves()
            asked = self.versions.get(version)

            def propose(records: list[Record]) -> Entry | None:
                decision = outcome(records, asked.version, asked.key)
                if decision is None or not ReviewStatus(decision.kind).may_promote:
                    raise ReviewError(
                        f"Version {asked.version} of {self._model!r} was not approved: its review "
                        f"is {asked.review or 'not open'}. Approve it first.",
                        code=Code.NOT_APPROVED,
                    )
                champion = moves.settled_champion()
                if self._was_carried_out(decision, records):
                    return None
                seen = dict(decision.details)
                self._check_seen(asked, seen)
                self._check_champion(asked, champion, seen[SEEN_CHAMPION])
                details = {FROM: seen[SEEN_CHAMPION], DECISION: str(decision.number)}
                details |= {name: seen[name] for name in IDENTITY if name in seen}
                who, why = decision.who, decision.reason
                return Entry(PROMOTED, asked.version, asked.key, who, why, details)

            return moves.record(propose)

    def roll_back(self, reviewer: str, reason: str, how: Mapping[str, str] | None = None) -> Record:
        """Make the previous champion the champion again.

        It is one step back, not a switch: a second call finds no previous champion and is refused.
        """
        with asking(f"roll back {self._model!r}"):
            moves = self._moves()
            interrupted = moves.unconfirmed()

            def propose(records: list[Record]) -> Entry | None:
                details = {FROM: moves.settled_champion() or "", **(how or {})}
                wanted = Entry(ROLLED_BACK, "", "", reviewer, reason, details)
                if interrupted is not None and interrupted.repeats(wanted):
                    return None
                previous = self.versions.aliases().get(PREVIOUS_CHAMPION)
                if previous is None:
                    raise ReviewError(
                        f"{self._model!r} has no previous champion to go back to. "
                        f"{_last_move_in_words(records)} To serve another version, approve a "
                        "challenger, or set the alias in MLflow.",
                        code=Code.NOTHING_TO_RESTORE,
                    )
                return Entry(ROLLED_BACK, previous, "", reviewer, reason, details)

            return moves.record(propose)

    def rolled_back_version(self) -> str | None:
        """Return the version that the last move took back; None if that was not a rollback."""
        with asking(f"read the history of {self._model!r}"):
            last = last_move(self.versions.journal().read())
        return last.details[FROM] if last is not None and last.kind == ROLLED_BACK else None

    def undo_roll_back(
        self, reviewer: str, reason: str, how: Mapping[str, str] | None = None
    ) -> Record:
        """Promote the version again that the last move took back, by the decision that it had."""
        with asking(f"undo the rollback of {self._model!r}"):
            moves = self._moves()
            interrupted = moves.unconfirmed()

            def propose(records: list[Record]) -> Entry | None:
                champion, last = moves.settled_champion(), last_move(records)
                wanted = Entry(PROMOTED, "", "", reviewer, reason)
                if interrupted is not None and interrupted.repeats(wanted):
                    return None
                if last is None or last.kind != ROLLED_BACK or champion != last.version:
                    raise ReviewError(
                        f"There is no rollback of {self._model!r} to undo. "
                        f"{_last_move_in_words(records)} "
                        f"{f'Version {champion} is' if champion else 'None is'} the champion. Only "
                        "the last move can be undone, and only while its version serves. Approve a "
                        "challenger instead.",
                        code=Code.NOTHING_TO_UNDO,
                    )
                version = last.details[FROM]
                self._check_exists(version)
                before = [one for one in records if (one.kind, one.version) == (PROMOTED, version)]
                key = before[-1].key if before else ""
                decision = before[-1].details[DECISION] if before else ""
                details = {FROM: last.version, DECISION: decision, UNDOES: str(last.number)}
                details |= how or {}
                return Entry(PROMOTED, version, key, reviewer, reason, details)

            return moves.record(propose)

    def history(self) -> History:
        """Return what was decided, after checking the record against itself and the registry."""
        with asking(f"read the history of {self._model!r}"):
            journal = self.versions.journal()
            problems = journal.find_damage()
            try:
                records = journal.read()
            except ServiceError as error:
                if error.code != Code.RECORD_DAMAGED:
                    raise
                records = []  # The problems say which record is damaged.
            move, now = last_move(records), self.versions.champion()
            known = {version.version for version in self.versions.all()}
            problems += [
                f"Version {version.version} says that it is a challenger, and is not in the "
                "ledger: it was not made by a monitor, or the ledger is not the one it was made "
                "with. It cannot be reviewed."
                for version in search_versions(self.versions.client, self._model, IS_CHALLENGER)
                if str(version.version) not in known and tags.DUPLICATE_OF not in version.tags
            ]
        if move is not None and now != move.version:
            problems.append(
                f"The champion is {f'version {now}' if now else 'not set'}, and version "
                f"{move.version} by the record ({move}). The alias was moved outside of the review."
            )
        return History(tuple(records), tuple(problems))

    @property
    def _model(self) -> str:
        return self.versions.model

    def _moves(self) -> "_Moves":
        return _Moves(self.versions, self.versions.journal())

    def _refusal(self, held: Record) -> ReviewError:
        """Return why a second decision on a version is refused."""
        status = ReviewStatus(held.kind)
        why = status.traits.refusal.format(
            status=held.kind, who=held.who, at=held.at, reason=held.reason
        )
        code = Code.DECIDED if status.is_answer else Code(held.kind)
        return ReviewError(f"Version {held.version} of {self._model!r} {why.rstrip()}", code=code)

    def _check_seen(self, asked: VersionSummary, seen: dict[str, str]) -> None:
        now, then = asked.seal.digest if asked.seal else "", seen.get(SEEN_SEAL, "")
        if not now or now != then:
            raise ReviewError(
                f"Version {asked.version} of {self._model!r} has the seal {now[:12] or 'none'}, "
                f"and was reviewed with {then[:12] or 'none'}. Review it again.",
                code=Code.DIGEST_MISMATCH,
            )

    def _check_champion(self, asked: VersionSummary, now: str | None, seen: str) -> None:
        if now is None:
            raise ReviewError(
                f"{self._model!r} has no champion, so nothing can be compared with it. Set the "
                "alias.",
                code=Code.NO_CHAMPION,
            )
        if not now == seen == asked.champion_version:
            raise ReviewError(
                f"The champion of {self._model!r} is version {now}; version {asked.version} was "
                f"built from version {asked.champion_version} and reviewed against version {seen}. "
                "Nothing was changed. Review the challenger of the next window.",
                code=Code.STALE,
            )

    def _check_exists(self, version: str) -> None:
        client = self.versions.client
        if get_or_none(client.get_model_version, self._model, version or "0") is None:
            raise ReviewError(
                f"Version {version or 'that served before'} of {self._model!r} is gone from the "
                "registry, so it cannot serve again. Approve a challenger instead.",
                code=Code.NO_VERSION,
            )

    def _was_carried_out(self, decision: Record, records: list[Record]) -> bool:
        """Return whether this decision moved the champion; refuse if it has moved on since."""
        done = [
            record
            for record in records
            if record.kind == PROMOTED and record.details[DECISION] == str(decision.number)
        ]
        if not done:
            return False
        last = last_move(records)
        if last is not None and last.number != done[-1].number:
            undo = " `rtscv-mlops rollback --undo` restores the version that was rolled back."
            raise ReviewError(
                f"Version {decision.version} of {self._model!r} was promoted at {done[-1].at}, and "
                f"the champion has moved since: {last}. Nothing was changed."
                f"{undo if last.kind == ROLLED_BACK else ''}",
                code=Code.STALE,
            )
        return True


@dataclass(frozen=True, slots=True)
class _Moves:
    """The moves of a model's champion: recorded first, then carried out and confirmed."""

    versions: Versions
    journal: Journal

    def record(self, propose: Callable[[list[Record]], Entry | None]) -> Record:
        """Record a move, carry it out and return it, unless the champion has moved on since."""
        records = self.journal.append(propose)
        ours = last_move(records)
        assert ours is not None  # just recorded
        if self._is_confirmed(ours):
            return ours
        done = self._carry_out_last()
        if done.number != ours.number:
            raise ReviewError(
                f"The champion of {self.versions.model!r} has moved since: {done}. Your own move "
                "is in the record before that one, and was not put back.",
                code=Code.STALE,
            )
        return ours

    def settled_champion(self) -> str | None:
        """Return the champion's version, after carrying out a move that is only recorded."""
        if self.unconfirmed() is not None:
            self._carry_out_last()
        return self.versions.champion()

    def unconfirmed(self) -> Record | None:
        """Return the last move unless it was confirmed that it was carried out."""
        move = last_move(self.journal.read())
        return None if move is None or self._is_confirmed(move) else move

    def _is_confirmed(self, move: Record) -> bool:
        return _confirmation(move) in self.journal.ledger.claims()

    def _carry_out_last(self) -> Record:
        """Set the aliases as the last recorded move says, until the record is no longer than that.

        The record is read again after the aliases were set: a process that was held up in between,
        and has put an old champion back, sees the later move and carries that one out.
        """
        move = None
        while move != (last := last_move(self.journal.read())):
            assert last is not None  # only called when there is a move
            move = last
            self._set_aliases(move)
        assert move is not None
        now = self.versions.champion()
        if now != move.version:
            raise ReviewError(
                f"The champion of {self.versions.model!r} should be version {move.version} and is "
                f"{now}: the alias was moved outside of the review at the same time. Find out who "
                "writes to the registry.",
                code=Code.MISMATCH,
            )
        self.journal.ledger.claim(_confirmation(move), move.version)
        return move

    def _set_aliases(self, move: Record) -> None:
        client, model = self.versions.client, self.versions.model
        if move.kind == PROMOTED:
            repeat(client.set_registered_model_alias, model, PREVIOUS_CHAMPION, move.details[FROM])
        repeat(client.set_registered_model_alias, model, self.versions.alias, move.version)
        if move.kind == ROLLED_BACK:
            repeat(client.delete_registered_model_alias, model, PREVIOUS_CHAMPION)
            self._mark_rolled_back(move)
        if UNDOES in move.details:
            named = client.get_model_version(model, move.version).tags
            if ROLLED_BACK_TAG in named:
                repeat(client.delete_model_version_tag, model, move.version, ROLLED_BACK_TAG)

    def _mark_rolled_back(self, move: Record) -> None:
        """Tag the version that served before, if it is still there."""
        version, text = move.details[FROM], f"{move.at} by {move.who}"
        if not version:
            return
        client, model = self.versions.client, self.versions.model
        try:
            repeat(client.set_model_version_tag, model, version, ROLLED_BACK_TAG, text)
        except MlflowException as error:
            if not is_absent(error):
                raise


def _confirmation(move: Record) -> str:
    return f"moved.{move.number:06d}"


def _last_move_in_words(records: Sequence[Record]) -> str:
    last = last_move(records)
    return f"The last move was: {last}." if last else "No move of the champion is recorded."
