"""The versions of a registered model: challengers, their reviews, and the aliases."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.values import CHALLENGER, CHAMPION
from rtscv_mlops.errors import Code, ModelError, ReviewError, ServiceError
from rtscv_mlops.outcomes import PRODUCT, ReviewChannel, ReviewStatus
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import (
    Check,
    asking,
    get_or_none,
    is_absent,
    search_versions,
    unchecked,
)
from rtscv_mlops.tracking.journal import Entry, Journal, Record, outcome, read_records, shortened
from rtscv_mlops.tracking.ledger import Ledger, create_once, repeat
from rtscv_mlops.tracking.runs import moment
from rtscv_mlops.tracking.seals import Seal, find_seal

TAG_LIMIT = 5000
CREATION_TIMEOUT = 10.0
"""Seconds that a concurrent writer may take to create a version, before we create it instead."""
MOST_WRITERS = 20
UNNAMED = "an unnamed user of the MLflow registry"
"""The reviewer of an answer by tag that has no reviewer tag."""

Collect = Callable[["VersionSummary"], object]
"""Takes a version that a person has answered by tag, and records the answer if it is valid."""


def leave(version: "VersionSummary") -> None:
    """Record nothing of an answer by tag."""


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A challenger, as lists and reviewers need it.

    Everything comes from the ledger, except for `answer`, `reviewer` and `reason` while the review
    is open: a person may have answered by tags, in the registry. `review` is where the review
    stands, empty while the version is not offered. `seal` is None if its window was judged before
    there were seals: such a version cannot be offered.
    """

    version: str
    run_id: str
    key: str
    seal: Seal | None
    review: str
    answer: str
    blocked: str
    reviewer: str
    reason: str
    decided_at: datetime | None
    created: datetime
    tagged_by: str = ""
    tagged_reason: str = ""
    """Who answered by tag, and why, by the tags that belong to people."""

    @classmethod
    def of(
        cls, version: ModelVersion, key: str, claims: Mapping[str, str], records: list[Record]
    ) -> "VersionSummary":
        """Summarize the version that holds a key, from the model's ledger."""
        named, number, run_id = version.tags, str(version.version), version.run_id or ""
        held, seal = outcome(records, number, key), find_seal(claims, run_id)
        is_offered = _offer_name(number, key) in claims and seal is not None and seal.key == key
        offered = ReviewStatus.PENDING.value if is_offered else ""
        return cls(
            version=number,
            run_id=run_id,
            key=key,
            seal=seal,
            review=held.kind if held else offered,
            answer=named.get(tags.REVIEW, ""),
            blocked=held.reason if held and held.kind == ReviewStatus.BLOCKED else "",
            # A person who answers by tag, in the registry, may give name and reason there.
            reviewer=held.who if held else named.get(tags.REVIEWER, ""),
            reason=held.reason if held else named.get(tags.REASON, ""),
            decided_at=moment(held.at) if held else None,
            created=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC),
            tagged_by=named.get(tags.REVIEWER, "") or UNNAMED,
            tagged_reason=named.get(tags.REASON, ""),
        )

    @property
    def window(self) -> str:
        return self.seal.window if self.seal else ""

    @property
    def window_start(self) -> datetime | None:
        return moment(self.seal.window_start) if self.seal else None

    @property
    def window_end(self) -> datetime | None:
        return moment(self.seal.window_end) if self.seal else None

    @property
    def champion_version(self) -> str:
        """The champion that the version was compared with."""
        return self.seal.champion_version if self.seal else ""

    @property
    def model_sha256(self) -> str:
        return self.seal.model_sha256 if self.seal else ""

    @property
    def is_pending(self) -> bool:
        """Whether the version awaits review."""
        return self.review == ReviewStatus.PENDING

    @property
    def is_approved(self) -> bool:
        return self.review == ReviewStatus.APPROVED

    @property
    def answered(self) -> str:
        """What a person answered by tag and is not carried out yet; empty if there is nothing."""
        answer = self.answer.strip().lower()
        return answer if self.is_pending and answer in ReviewStatus.answers() else ""

    @property
    def late_answer(self) -> str:
        """What a person answered by tag after the review was closed; empty if there is nothing."""
        answer = self.answer.strip().lower()
        if not self.review or answer not in ReviewStatus.answers():
            return ""
        status = ReviewStatus(self.review)
        is_closed = status.is_final and status.is_asked and not status.is_answer
        return answer if is_closed else ""

    @property
    def invalid_answer(self) -> str:
        """A sentence about an answer by tag that is not valid; empty if there is none."""
        answer = self.answer.strip()
        if not self.is_pending or self.answered or answer.lower() in ("", ReviewStatus.PENDING):
            return ""
        return (
            f"The tag {tags.REVIEW} of version {self.version} says {plain(answer, 40)!r}, which is "
            f"neither {' nor '.join(ReviewStatus.answers())}; nothing was done."
        )

    @property
    def age(self) -> tuple[str, str, int]:
        """Sorts versions by their windows."""
        return str(self.window_start or ""), str(self.window_end or ""), int(self.version)


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a model; `alias` is that of its champion."""

    client: MlflowClient
    model: str
    alias: str = CHAMPION

    def all(self) -> list[VersionSummary]:
        """Return the model's challengers, oldest first."""
        with asking(f"list the versions of {self.model!r}"):
            claims = self.journal().claims()
            records, keys = read_records(claims), _keys(claims)
            versions = list(search_versions(self.client, self.model, "")) if keys else []
        summaries = (
            VersionSummary.of(version, keys[str(version.version)], claims, records)
            for version in versions
            # What is not in the ledger was not made by a monitor, whatever its tags say.
            if str(version.version) in keys
        )
        return sorted(summaries, key=lambda summary: int(summary.version))

    def get(self, version: str) -> VersionSummary:
        """Return one challenger."""
        for summary in self.all():
            if summary.version == str(version):
                return summary
        raise ReviewError(
            f"{self.model!r} has no challenger of version {version}: it was deleted, is a "
            "duplicate, or was not made by a monitor. List what there is with `rtscv-mlops review "
            "list`.",
            code=Code.NO_VERSION,
        )

    def pending(self) -> VersionSummary | None:
        """Return the challenger that awaits review."""
        pending = (version for version in self.all() if version.is_pending)
        return max(pending, key=lambda version: version.age, default=None)

    def champion(self) -> str | None:
        """Return the version behind the champion's alias; None if there is none."""
        return self.aliases().get(self.alias)

    def aliases(self) -> dict[str, str]:
        """Return the version behind each alias."""
        with asking(f"read the aliases of {self.model!r}"):
            model = get_or_none(self.client.get_registered_model, self.model)
        if model is None:
            raise ModelError(
                f"MLflow has no registered model {self.model!r}. Register it, or correct "
                "model.name.",
                code=Code.NO_MODEL,
            )
        return {alias: str(version) for alias, version in model.aliases.items()}

    def journal(self) -> Journal:
        """Return the record of what was decided about the model."""
        return Journal(Ledger(self.client, self.model))

    def describe(self, version: str, text: str) -> None:
        """Write the Markdown that a version's page shows."""
        with asking(f"describe version {version} of {self.model!r}"):
            self.client.update_model_version(self.model, version, text)

    def description(self, version: str) -> str:
        """Return the Markdown that a version's page shows."""
        with asking(f"read version {version} of {self.model!r}"):
            return self.client.get_model_version(self.model, version).description or ""

    def tag_once(self, version: str, name: str, find_out: Callable[[], str]) -> str:
        """Return a tag of a version; if there is none, `find_out` returns what is written."""
        with asking(f"read the tags of version {version} of {self.model!r}"):
            named = self.client.get_model_version(self.model, version).tags
        if name in named:
            return str(named[name])
        text = find_out()[:TAG_LIMIT]
        with asking(f"write the tag {name} of version {version} of {self.model!r}"):
            self._tag(version, name, text)
        return text

    def register(self, seal: Seal, *, check: Check = unchecked) -> str:
        """Return the one version of a sealed window; it is created if there is none.

        What a concurrent writer or a lost answer created besides is tagged as a duplicate, and
        deleted. `check` is called before each other write, and raises if that is not allowed.
        """
        shown = {
            tags.MONITOR: seal.monitor,
            tags.WINDOW: seal.window,
            tags.WINDOW_START: seal.window_start,
            tags.WINDOW_END: seal.window_end,
            tags.CHAMPION_VERSION: seal.champion_version,
            tags.REPORT_SHA256: seal.report_sha256,
            tags.MODEL_SHA256: seal.model_sha256,
            tags.KIND: CHALLENGER,
            tags.KEY: seal.key,
        }
        with asking(f"register a version of {self.model!r}"):
            self.aliases()  # raises if there is no such model
            create = partial(
                self.client.create_model_version,
                self.model,
                f"models:/{seal.model_id}",
                seal.run_id,
                tags={name: shortened(text, TAG_LIMIT) for name, text in shown.items() if text},
                await_creation_for=0,
                model_id=seal.model_id,
            )
            ledger = Ledger.open(self.client, self.model)
            candidates = _VersionsOfKey(ledger, seal, lambda: str(create().version), check)
            version = ledger.settle("version", seal.key, candidates)
            check()
            repeat(self.client.set_tag, seal.run_id, tags.VERSION, version)
        return version

    def offer(
        self,
        version: str,
        *,
        blocked: str = "",
        check: Check = unchecked,
        collect: Collect = leave,
    ) -> VersionSummary:
        """Ask for the review of a verified version, or mark it as blocked; return where it stands.

        At most one version of a model awaits review: that of the latest window, built from the
        champion of now; the others are superseded. A repeat changes nothing that was decided.
        `collect` is called for a version that would be superseded and has an answer by tag.
        """
        journal = self.journal()
        offered = self.get(version)
        with asking(f"offer version {version} of {self.model!r}"):
            if not offered.review:
                check()
                # Whether it is blocked is settled before anyone can see that it is offered.
                if blocked:
                    self._close(journal, offered, ReviewStatus.BLOCKED, blocked)
                else:
                    self._tag(offered.version, tags.REVIEW, ReviewStatus.PENDING.value)
                check()
                journal.ledger.claim(_offer_name(offered.version, offered.key), offered.version)
                self._tag(offered.version, tags.STATE, tags.COMPLETE)
            self._leave_one_pending(journal, check, collect)
            self.keep_late_answers()
        return self.get(version)

    def keep_late_answers(self) -> None:
        """Record answers by tag to reviews that were closed before."""
        for late in self.all():
            if late.late_answer:
                why = ReviewStatus.explain_late(late.review, late.reason)
                self.journal().keep_refused(
                    *(late.version, late.key, late.late_answer),
                    *(late.tagged_by, late.tagged_reason, why),
                    ReviewChannel.MLFLOW_TAG.identity(),
                )

    def _leave_one_pending(self, journal: Journal, check: Check, collect: Collect) -> None:
        """Supersede all but the newest challenger, which gets the alias.

        Each writer marks its own version before it looks at the others, so of two at once at least
        one sees both; and it looks again after it has moved the alias.
        """
        while True:
            aliases = self.aliases()
            pending = sorted(
                (version for version in self.all() if version.is_pending),
                key=lambda each: (each.champion_version == aliases.get(self.alias), *each.age),
            )
            for older in pending[:-1]:
                check()
                if older.answered:
                    collect(older)
                self._close(journal, older, ReviewStatus.SUPERSEDED, pending[-1].version)
            if not pending or aliases.get(CHALLENGER) == pending[-1].version:
                return
            check()
            self._set_alias(CHALLENGER, pending[-1].version)

    def close_review(self, version: str, status: ReviewStatus, reason: str) -> Record:
        """Close a review that no person answered; an answer that came first stays."""
        with asking(f"close the review of version {version} of {self.model!r}"):
            return self._close(self.journal(), self.get(version), status, reason)

    def _close(
        self, journal: Journal, version: VersionSummary, status: ReviewStatus, reason: str
    ) -> Record:
        entry = Entry(status, version.version, version.key, PRODUCT, reason)

        def propose(records: list[Record]) -> Entry | None:
            return entry if outcome(records, entry.version, entry.key) is None else None

        return self.record_outcome(journal, entry, propose)

    def record_outcome(
        self,
        journal: Journal,
        entry: Entry,
        propose: Callable[[list[Record]], Entry | None],
    ) -> Record:
        """Record how a review ended and show it on the version; return the record that holds."""
        held = outcome(journal.append(propose), entry.version, entry.key)
        assert held is not None  # just recorded
        status, shown = ReviewStatus(held.kind), {tags.DECIDED_AT: held.at}
        if status.is_answer or not status.is_asked:
            shown |= {tags.REVIEWER: held.who, tags.REASON: held.reason, tags.REVIEW: held.kind}
        else:
            # A person may be writing an answer at this moment, and tags go to the last writer.
            shown[tags.CLOSED] = held.kind
        if held.kind == ReviewStatus.BLOCKED:
            shown[tags.BLOCKED] = held.reason
        if held.kind == ReviewStatus.SUPERSEDED:
            shown[tags.SUPERSEDED_BY] = held.reason
        for name, text in shown.items():
            self._tag(held.version, name, text)
        # Only an open review has the alias.
        if self.aliases().get(CHALLENGER) == held.version:
            repeat(self.client.delete_registered_model_alias, self.model, CHALLENGER)
            # A newer challenger may have got the alias between the look and the deletion.
            newer = self.pending()
            if newer is not None:
                self._set_alias(CHALLENGER, newer.version)
        return held

    def _tag(self, version: str, name: str, text: str) -> None:
        repeat(self.client.set_model_version_tag, self.model, version, name, text)

    def _set_alias(self, alias: str, version: str) -> None:
        repeat(self.client.set_registered_model_alias, self.model, alias, version)


def _keys(claims: Mapping[str, str]) -> dict[str, str]:
    """Return the key that each version holds by the ledger."""
    named = (name.split(".") for name in claims if name.startswith("version."))
    return {claims[".".join(parts)]: parts[1] for parts in named}


def _offer_name(version: str, key: str) -> str:
    """Return the name of the claim that a version was verified, and offered for review."""
    return f"offered.{version}.{key}"


def logged_model_id(version: ModelVersion) -> str | None:
    """Return the id of the logged model, which MLflow omits when it reads a version back."""
    if version.model_id:
        return str(version.model_id)
    source = version.source or ""
    return source.removeprefix("models:/") if source.startswith("models:/m-") else None


@dataclass(frozen=True, slots=True)
class _VersionsOfKey:
    """Versions that want to hold a key; `check` is called before a new one is created.

    Only a version of the sealed model and run may: tags can be set by others.
    """

    ledger: Ledger
    seal: Seal
    create_version: Callable[[], str]
    check: Check

    def is_of_key(self, key: str, version: str) -> bool:
        client, model = self.ledger.client, self.ledger.model
        existing = get_or_none(client.get_model_version, model, version)
        return existing is not None and self._is_sealed(existing)

    def _is_sealed(self, version: ModelVersion) -> bool:
        made_of = version.run_id, logged_model_id(version)
        return made_of == (self.seal.run_id, self.seal.model_id)

    def create(self, key: str) -> str:
        """Find or create a version; of several writers, one creates it and the others wait."""
        self.check()
        writer = uuid.uuid4().hex
        for number in range(1, MOST_WRITERS):
            version = self._oldest(key)
            if version is not None:
                return version
            if self.ledger.claim(f"registering.{key}.{number}", writer) == writer:
                return create_once(partial(self._oldest, key), self.create_version)
            deadline = time.monotonic() + CREATION_TIMEOUT
            while self._oldest(key) is None and time.monotonic() < deadline:
                time.sleep(0.1)
        raise ServiceError(
            f"{MOST_WRITERS} other processes began to register a version of "
            f"{self.ledger.model!r} and none finished. Try again.",
            code=Code.BUSY,
        )

    def find(self, key: str) -> list[str]:
        condition = f"tags.`{tags.KEY}` = '{key}'"
        found = search_versions(self.ledger.client, self.ledger.model, condition)
        ours = (
            version
            for version in found
            if tags.DUPLICATE_OF not in version.tags and self._is_sealed(version)
        )
        return sorted((str(version.version) for version in ours), key=int)

    def _oldest(self, key: str) -> str | None:
        return next(iter(self.find(key)), None)

    def discard(self, version: str, winner: str) -> None:
        """Delete a version that lost; one that was offered stays, with what was said about it.

        This is not checked: a process that was frozen before it created a version has to delete it.
        """
        client, model = self.ledger.client, self.ledger.model
        try:
            repeat(client.set_model_version_tag, model, version, tags.DUPLICATE_OF, winner)
            if tags.STATE not in client.get_model_version(model, version).tags:
                repeat(client.delete_model_version, model, version)
        except MlflowException as error:
            # Another process may have deleted it at this moment.
            if not is_absent(error):
                raise
