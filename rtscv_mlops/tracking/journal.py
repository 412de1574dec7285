"""The append-only record of what was decided about a model, sealed by a chain of hashes.

An entry is a claim on the next number in the model's ledger, so that of two writers who read the
same past one has to read again. Every rule about reviews and champions is a rule about that past.
Knows entries and their order; knows nothing of aliases.
"""

import json
import random
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from rtscv_mlops.errors import Code, ReviewError, ServiceError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.window_run import WindowRun

APPROVED, REJECTED = ReviewStatus.APPROVED.value, ReviewStatus.REJECTED.value
SUPERSEDED, EXPIRED = ReviewStatus.SUPERSEDED.value, ReviewStatus.EXPIRED.value
BLOCKED, STALE = ReviewStatus.BLOCKED.value, ReviewStatus.STALE.value
OUTCOMES = (APPROVED, REJECTED, SUPERSEDED, EXPIRED, BLOCKED, STALE)
PROMOTED, ROLLED_BACK = "promoted", "rolled_back"
MOVES = (PROMOTED, ROLLED_BACK)
FROM = "from"
"""Detail of a move: the version that served before it."""

PREFIX = "record."
RECORD = re.compile(r"record\.[0-9]{6}")
COPY = re.compile(r"decisions/([0-9]{6})\.json")
COPIES = "decisions"
NAME_LIMIT = 200
REASON_LIMIT = 1500
REASON_SHA256 = "reason_sha256"
MOST_LOSSES = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """What somebody wants to have recorded; `key` tells two versions of one number apart."""

    kind: str
    version: str
    key: str
    who: str
    reason: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record(Entry):
    """An entry as it is kept; `text` is what the next record's `previous` is the hash of."""

    number: int = 0
    at: str = ""
    previous: str = ""
    text: str = ""

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @property
    def what(self) -> str:
        """What became of the version, for people; a rollback names the one that serves again."""
        if self.kind != ROLLED_BACK:
            return self.kind
        taken = self.details.get(FROM)
        return f"restored (was {taken})" if taken else "restored"

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"version {self.version} {self.what} by {self.who} at {self.at}{reason}"


def read_records(ledger: Ledger) -> list[Record]:
    """Return every record, oldest first."""
    return [_parse(number, text) for number, text in _texts(ledger.claims()).items()]


def append(ledger: Ledger, propose: Callable[[list[Record]], Entry | None]) -> list[Record]:
    """Record what `propose` makes of the past, and return the past with it.

    If a rival is first, `propose` is asked again about the new past. It returns None if there is
    nothing to record, and raises if what was wanted cannot be done any more.
    """
    for _ in range(MOST_LOSSES):
        records = read_records(ledger)
        try:
            entry = propose(records)
        except ReviewError:
            # A refusal counts if the past that it came from is still all of it.
            if len(read_records(ledger)) == len(records):
                raise
            continue
        if entry is not None:
            _keep_reason(ledger, entry)
            record = _sealed(entry, records)
            if ledger.claim(_name(record.number), record.text) != record.text:
                time.sleep(random.uniform(0, 0.05))
                continue
            records = [*records, record]
        _keep_copies(ledger, records)
        return records
    raise ServiceError(
        f"{MOST_LOSSES} others were faster to record something about {ledger.model!r}. Try again.",
        code=Code.BUSY,
    )


def outcome(records: list[Record], version: str, key: str) -> Record | None:
    """Return how the review of a version ended; None while it is open."""
    for record in records:
        if record.kind in OUTCOMES and (record.version, record.key) == (version, key):
            return record
    return None


def last_move(records: list[Record]) -> Record | None:
    """Return the last time that the champion was moved."""
    return next((record for record in reversed(records) if record.kind in MOVES), None)


def find_damage(ledger: Ledger) -> list[str]:
    """Check the chain and the copies; return a sentence for each record that does not fit."""
    claims = ledger.claims()
    texts = _texts(claims)
    damage = [f"Record {number} is gone." for number in _missing(texts)]
    damage += [f"{name!r} in the ledger is no record of ours." for name in _foreign(claims)]
    for number, text in texts.items():
        before = texts.get(number - 1)
        try:
            record = _parse(number, text)
        except ServiceError as error:
            damage.append(str(error))
            continue
        if before is not None and record.previous != sha256(before.encode()).hexdigest():
            damage.append(f"Record {number - 1} was changed after record {number} sealed it.")
    return damage + _damaged_copies(ledger, texts)


def _texts(claims: Mapping[str, str]) -> dict[int, str]:
    numbered = {
        int(name.removeprefix(PREFIX)): text for name, text in claims.items() if _is_ours(name)
    }
    return dict(sorted(numbered.items()))


def _foreign(claims: Mapping[str, str]) -> list[str]:
    """Return what is named like a record, but not as we name them."""
    return [name for name in claims if name.startswith(PREFIX) and not _is_ours(name)]


def _is_ours(name: str) -> bool:
    return RECORD.fullmatch(name) is not None


def _missing(texts: Mapping[int, str]) -> list[int]:
    return [number for number in range(1, max(texts, default=0)) if number not in texts]


def _name(number: int) -> str:
    return f"{PREFIX}{number:06d}"


def _sealed(entry: Entry, records: list[Record]) -> Record:
    previous = records[-1] if records else None
    number = previous.number + 1 if previous else 1
    content = {
        "number": number,
        "previous": previous.digest if previous else "",
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        # Two rivals never write the same text, so that only one of them can think it has won.
        "writer": uuid.uuid4().hex,
        "kind": entry.kind,
        "version": entry.version,
        "key": entry.key,
        "who": shortened(entry.who, NAME_LIMIT),
        "reason": shortened(entry.reason, REASON_LIMIT),
        "details": dict(entry.details) | _reason_digest(entry.reason),
    }
    return _parse(number, json.dumps(content, ensure_ascii=False, sort_keys=True))


def _reason_digest(reason: str) -> dict[str, str]:
    """Seal a reason that is kept whole only as a file."""
    if reason == shortened(reason, REASON_LIMIT):
        return {}
    return {REASON_SHA256: sha256(reason.encode("utf-8", "replace")).hexdigest()}


def _parse(number: int, text: str) -> Record:
    try:
        content = json.loads(text)
        del content["writer"]
        if content.pop("number") != number:
            raise ValueError("it has another number")
        return Record(**content, number=number, text=text)
    except (ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"Record {number} of the ledger cannot be read: {error}. Somebody changed it.",
            code=Code.RECORD_DAMAGED,
        ) from error


def shortened(text: str, limit: int) -> str:
    """Return foreign text without what databases refuse, and no longer than a limit."""
    shown = "".join(sign for sign in text if sign.isprintable() or sign in "\n\t")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _keep_reason(ledger: Ledger, entry: Entry) -> None:
    """Keep a long reason whole, before the record that seals it, so that no crash can lose it."""
    for digest in _reason_digest(entry.reason).values():
        WindowRun(ledger.client, ledger.run_id).write_text(
            f"{COPIES}/{_reason_file(digest)}", entry.reason
        )


def _keep_copies(ledger: Ledger, records: list[Record]) -> None:
    """Write records as files too: for people to read, and to check the newest ones against."""
    run = WindowRun(ledger.client, ledger.run_id)
    kept = run.list_artifacts(COPIES)
    for record in records:
        name = _copy(record.number)
        if name not in kept:
            run.write_text(name, record.text)


def _reason_file(digest: str) -> str:
    return f"reason-{digest}.txt"


def _copy(number: int) -> str:
    return f"{COPIES}/{number:06d}.json"


def _damaged_copies(ledger: Ledger, texts: Mapping[int, str]) -> list[str]:
    run = WindowRun(ledger.client, ledger.run_id)
    kept = run.list_artifacts(COPIES)
    damage = []
    with tempfile.TemporaryDirectory() as folder:
        copies = run.download(COPIES, folder) if kept else Path(folder)
        for number, text in texts.items():
            if _copy(number) not in kept:
                damage.append(f"The copy of record {number} is gone.")
            elif (copies / f"{number:06d}.json").read_bytes() != text.encode():
                damage.append(f"Record {number} and its copy differ.")
            damage += _damaged_reason(number, text, copies)
    copied = [int(found[1]) for name in kept if (found := COPY.fullmatch(name))]
    # The last ones leave no gap in the numbers: only their copies tell that they were there.
    last = max(texts, default=0)
    return damage + [f"Record {number} is gone." for number in sorted(copied) if number > last]


def _damaged_reason(number: int, text: str, copies: Path) -> list[str]:
    try:
        wanted = _parse(number, text).details.get(REASON_SHA256)
    except ServiceError:
        return []  # said already
    if wanted is None:
        return []
    file = copies / _reason_file(wanted)
    if not file.exists():
        return [f"The whole reason of record {number} is gone."]
    if sha256(file.read_bytes()).hexdigest() != wanted:
        return [f"The whole reason of record {number} was changed."]
    return []
