"""The append-only record of what was decided about a model, sealed by a chain of hashes.

An entry is a claim on the next number in the model's ledger, so that of two writers that read the
same past one has to read again. Every rule about reviews and champions is a rule about that past.
"""

import json
import logging
import random
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from rtscv_mlops.errors import Code, InputError, ReviewError, ServiceError
from rtscv_mlops.outcomes import IDENTITY, NOT_CARRIED_OUT, NOT_PROVEN, ReviewStatus
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.tracking.seals import is_valid_seal

OUTCOMES = tuple(status for status in ReviewStatus if status.is_final)
PROMOTED, ROLLED_BACK = "promoted", "rolled_back"
MOVES = (PROMOTED, ROLLED_BACK)
REPAIRED = "repaired"
"""A person founded a new ledger with what was left of the old one."""
ANSWER, BECAUSE = "answer", "because"
FROM = "from"
"""Detail of a move: the version that served before it."""

PREFIX = "record."
RECORD = re.compile(r"record\.[0-9]{6}")
COPIES = "decisions"
COPY = re.compile(rf"{COPIES}/([0-9]{{6}})\.json")
NAME_LIMIT = 200
REASON_LIMIT = 1500
BECAUSE_LIMIT = 400
REASON_SHA256 = "reason_sha256"
MOST_LOSSES = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be recorded; `key` tells two versions of one number apart."""

    kind: str
    version: str
    key: str
    who: str
    reason: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record(Entry):
    """An entry as it is kept; the next record's `previous` is the hash of its `text`."""

    number: int = 0
    at: str = ""
    previous: str = ""
    text: str = ""

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @property
    def what(self) -> str:
        """What became of the version; a rollback names the one that serves again."""
        if self.kind == REPAIRED:
            return f"ledger repaired, {self.details.get('claims', '0')} claims kept,"
        if self.kind == NOT_CARRIED_OUT:
            answer, why = self.details.get(ANSWER, "answered"), self.details.get(BECAUSE, "")
            return f"{answer}, but not carried out ({why})"
        if self.kind != ROLLED_BACK:
            return self.kind
        before = self.details.get(FROM)
        return f"restored (was {before})" if before else "restored"

    @property
    def identity(self) -> str:
        """How the decision came, and who vouches for the name; empty if no person decided."""
        channel, vouched = (self.details.get(name, "") for name in IDENTITY)
        return f"{channel}, {vouched}".replace("_", " ") if channel else ""

    @property
    def is_claimed(self) -> bool:
        """Whether a person decided whom no login has proved."""
        return self.details.get(IDENTITY[1]) == NOT_PROVEN

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        version = f"version {self.version} " if self.version else ""
        return f"{version}{self.what} by {self.who} at {self.at}{reason}"

    @classmethod
    def seal(cls, entry: Entry, records: Sequence["Record"]) -> "Record":
        """Return the record of an entry, with the hash of the one before it."""
        previous = records[-1] if records else None
        number = previous.number + 1 if previous else 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        content = {
            "number": number,
            "previous": previous.digest if previous else "",
            # Clocks differ between machines, and the order of records is that of their numbers.
            "at": max(now, previous.at if previous else ""),
            # No two writers write the same text, so that only one of them can think it has won.
            "writer": uuid.uuid4().hex,
            "kind": entry.kind,
            "version": entry.version,
            "key": entry.key,
            "who": shortened(entry.who, NAME_LIMIT),
            "reason": shortened(entry.reason, REASON_LIMIT),
            "details": dict(entry.details) | _reason_digest(entry.reason),
        }
        return cls.parse(number, json.dumps(content, ensure_ascii=False, sort_keys=True))

    @classmethod
    def parse(cls, number: int, text: str) -> "Record":
        """Read the record of a number back from its text."""
        try:
            content = json.loads(text)
            del content["writer"]
            if content.pop("number") != number:
                raise ValueError("it has another number")
            details = content.get("details", {})
            fields = (*(value for name, value in content.items() if name != "details"), *details)
            if not all(isinstance(value, str) for value in (*fields, *details.values())):
                raise ValueError("its fields have other types")
            return cls(**content, number=number, text=text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServiceError(
                f"Record {number} of the ledger cannot be read: {error}. It was changed.",
                code=Code.RECORD_DAMAGED,
            ) from error

    def find_damaged_reason(self, copies: Path) -> list[str]:
        """Compare the file of a long reason with its seal."""
        digest = self.details.get(REASON_SHA256)
        if digest is None:
            return []
        file = copies / _reason_file(digest)
        if not file.exists():
            return [f"The whole reason of record {self.number} is gone."]
        if sha256(file.read_bytes()).hexdigest() != digest:
            return [f"The whole reason of record {self.number} was changed."]
        return []

    def repeats(self, entry: Entry) -> bool:
        """Return whether the same person recorded the same kind for the same reason."""
        return (self.kind, self.who, self.reason) == (
            entry.kind,
            shortened(entry.who, NAME_LIMIT),
            shortened(entry.reason, REASON_LIMIT),
        )


@dataclass(frozen=True, slots=True)
class Journal:
    """The records in a model's ledger, each also kept as a file."""

    ledger: Ledger

    def read(self) -> list[Record]:
        """Return every record, oldest first."""
        return read_records(self.claims())

    def claims(self) -> dict[str, str]:
        """Return every claim in the ledger; text that is not valid is passed over."""
        return self.ledger.claims(is_valid_claim)

    def append(self, propose: Callable[[list[Record]], Entry | None]) -> list[Record]:
        """Record what `propose` makes of the past, and return the past with it.

        If a concurrent writer is first, `propose` is asked again about the new past. It returns
        None if there is nothing to record, and raises if what was wanted is no longer possible.
        """
        for _ in range(MOST_LOSSES):
            records = self.read()
            missing = _missing({record.number for record in records})
            if missing:
                raise ServiceError(
                    f"Record {missing[0]} of the ledger cannot be read. Nothing is decided on a "
                    "past with a gap. See `rtscv-mlops audit verify`.",
                    code=Code.RECORD_DAMAGED,
                )
            try:
                entry = propose(records)
            except ReviewError:
                # A refusal counts only if no record was added to the past that it came from.
                if len(self.read()) == len(records):
                    raise
                continue
            if entry is not None:
                # Before the record that seals it, so that no crash can lose a long reason.
                for digest in _reason_digest(entry.reason).values():
                    self._files.write_text(f"{COPIES}/{_reason_file(digest)}", entry.reason)
                record = Record.seal(entry, records)
                name = f"{PREFIX}{record.number:06d}"
                if self.ledger.claim(name, record.text, is_valid_claim) != record.text:
                    time.sleep(random.uniform(0, 0.05))
                    continue
                records = [*records, record]
                # A line that a log outside of MLflow keeps is a checkpoint of the record.
                log.info("recorded %s", Checkpoint.of(self.ledger.model, records).text)
            # Copies are for people to read, and to check the newest records against.
            kept = self._files.list_artifacts(COPIES)
            for record in records:
                if _copy(record.number) not in kept:
                    self._files.write_text(_copy(record.number), record.text)
            return records
        raise ServiceError(
            f"{MOST_LOSSES} concurrent writers were faster to record something about "
            f"{self.ledger.model!r}. Try again.",
            code=Code.BUSY,
        )

    def keep_refused(
        self,
        version: str,
        key: str,
        answer: str,
        who: str,
        reason: str,
        why: str,
        how: Mapping[str, str],
    ) -> None:
        """Record an answer that was not carried out, once, so that no answer is lost."""
        details = {ANSWER: answer, BECAUSE: shortened(why, BECAUSE_LIMIT), **how}
        entry = Entry(NOT_CARRIED_OUT, version, key, who, reason, details)

        def propose(records: list[Record]) -> Entry | None:
            of_version = (one for one in records if (one.version, one.key) == (version, key))
            is_kept = any(
                one.repeats(entry) and one.details.get(ANSWER) == answer for one in of_version
            )
            return None if is_kept else entry

        self.append(propose)

    def find_damage(self) -> list[str]:
        """Check the chain and the copies; return a sentence for each record that does not fit."""
        if self.ledger.find() is None:
            return []
        claims = self.claims()
        texts = _numbered(claims)
        params = self.ledger.params()
        damage = [
            f"Record {number} of the ledger cannot be read: it was changed."
            if f"{PREFIX}{number:06d}" in params
            else f"Record {number} is gone."
            for number in _missing(texts)
        ]
        damage += [
            f"{name!r} in the ledger is not a valid claim, and is passed over: it was written by "
            "another program, or by a person."
            for name in self.ledger.invalid(is_valid_claim)
        ]
        for number, text in texts.items():
            before = texts.get(number - 1)
            try:
                record = Record.parse(number, text)
            except ServiceError as error:
                damage.append(str(error))
                continue
            if before is None:
                continue
            if record.previous != sha256(before.encode()).hexdigest():
                damage.append(f"Record {number - 1} was changed after record {number} sealed it.")
            if record.at < Record.parse(number - 1, before).at:
                damage.append(f"Record {number} has an earlier time than the record before it.")
        return damage + self._find_damaged_copies(texts)

    def _find_damaged_copies(self, texts: Mapping[int, str]) -> list[str]:
        kept = self._files.list_artifacts(COPIES)
        damage = []
        with tempfile.TemporaryDirectory() as folder:
            copies = self._files.download(COPIES, folder) if kept else Path(folder)
            for number, text in texts.items():
                if _copy(number) not in kept:
                    damage.append(f"The copy of record {number} is gone.")
                elif (copies / f"{number:06d}.json").read_bytes() != text.encode():
                    damage.append(f"Record {number} and its copy differ.")
                with suppress(ServiceError):  # The chain's check reports it.
                    damage += Record.parse(number, text).find_damaged_reason(copies)
        copied = [int(match[1]) for name in kept if (match := COPY.fullmatch(name))]
        # The last records leave no gap in the numbers: only their copies show that they existed.
        last = max(texts, default=0)
        return damage + [f"Record {number} is gone." for number in sorted(copied) if number > last]

    @property
    def _files(self) -> WindowRun:
        return WindowRun(self.ledger.client, self.ledger.run_id)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a record went at some time; kept outside of MLflow, it shows later changes."""

    model: str
    records: int
    head: str
    at: str

    @classmethod
    def of(cls, model: str, records: Sequence[Record]) -> "Checkpoint":
        """Return the checkpoint of a record as it is now."""
        head = records[-1].digest if records else ""
        return cls(model, len(records), head, records[-1].at if records else "")

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Read a checkpoint back."""
        try:
            checkpoint = cls(**json.loads(text))
            if not isinstance(checkpoint.records, int) or not isinstance(checkpoint.head, str):
                raise ValueError("its fields have other types")
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{shortened(text, 80)!r} is not a checkpoint: {error}. Give a file that "
                "`rtscv-mlops audit checkpoint` wrote."
            ) from error
        return checkpoint

    def find_changes(self, model: str, records: Sequence[Record]) -> list[str]:
        """Return a sentence if the record no longer holds what it held at the checkpoint."""
        if self.model != model:
            return [f"The checkpoint is of the model {self.model!r}, not of {model!r}."]
        digests = ["", *(record.digest for record in records)]
        if self.records >= len(digests):
            return [
                f"The checkpoint of {self.at} has {self.records} records, and the ledger has "
                f"{len(records)}: records were removed, or the ledger was replaced."
            ]
        if digests[self.records] != self.head:
            return [
                f"Record {self.records} is not the one of the checkpoint of {self.at}: the "
                "record was written anew since."
            ]
        return []


def is_valid_claim(name: str, text: str) -> bool:
    """Return whether a claim is well formed: records and seals are, other text may be anything."""
    if not name.startswith(PREFIX):
        return is_valid_seal(name, text)
    try:
        Record.parse(int(name.removeprefix(PREFIX)), text)
    except (ServiceError, ValueError):
        return False
    return RECORD.fullmatch(name) is not None


def read_records(claims: Mapping[str, str]) -> list[Record]:
    """Return every record among the claims of a ledger, oldest first."""
    return [Record.parse(number, text) for number, text in _numbered(claims).items()]


def outcome(records: list[Record], version: str, key: str) -> Record | None:
    """Return how the review of a version ended; None while it is open."""
    for record in records:
        if record.kind in OUTCOMES and (record.version, record.key) == (version, key):
            return record
    return None


def last_move(records: Sequence[Record]) -> Record | None:
    """Return the last time that the champion was moved."""
    return next((record for record in reversed(records) if record.kind in MOVES), None)


def shortened(text: str, limit: int) -> str:
    """Return untrusted text without what databases refuse, and no longer than a limit."""
    shown = "".join(sign for sign in text if sign.isprintable() or sign in "\n\t")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _numbered(claims: Mapping[str, str]) -> dict[int, str]:
    """Return the texts of all records in a ledger by number."""
    records = (name for name in claims if RECORD.fullmatch(name))
    texts = {int(name.removeprefix(PREFIX)): claims[name] for name in records}
    return dict(sorted(texts.items()))


def _missing(numbers: Collection[int]) -> list[int]:
    """Return the numbers of records that should be there and are not."""
    return [number for number in range(1, max(numbers, default=0)) if number not in numbers]


def _reason_digest(reason: str) -> dict[str, str]:
    """Return the seal of a reason that is too long for a record, and is kept as a file."""
    if reason == shortened(reason, REASON_LIMIT):
        return {}
    return {REASON_SHA256: sha256(reason.encode("utf-8", "replace")).hexdigest()}


def _reason_file(digest: str) -> str:
    return f"reason-{digest}.txt"


def _copy(number: int) -> str:
    return f"{COPIES}/{number:06d}.json"
