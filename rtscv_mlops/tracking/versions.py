"""The versions of a registered model: challengers, their reviews, and the aliases."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.values import CHALLENGER, CHAMPION
from rtscv_mlops.errors import Code, ModelError, ReviewError, ServiceError
from rtscv_mlops.outcomes import PRODUCT, ReviewStatus
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import (
    Check,
    asking,
    get_or_none,
    is_absent,
    read_pages,
    unchecked,
)
from rtscv_mlops.tracking.journal import Entry, Journal, Record, outcome, shortened
from rtscv_mlops.tracking.ledger import Ledger, create_once, repeat
from rtscv_mlops.tracking.runs import moment

PAGE = 1000
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

    `review` is where its review stands by the record, empty while the version is not offered.
    `answer` is what its tag says: a person may have answered there, in the registry.
    """

    version: str
    run_id: str
    key: str
    window: str
    window_start: datetime | None
    window_end: datetime | None
    review: str
    answer: str
    champion_version: str
    report_sha256: str
    model_sha256: str
    blocked: str
    reviewer: str
    reason: str
    decided_at: datetime | None
    created: datetime
    tagged_by: str = ""
    tagged_reason: str = ""
    """Who answered by tag, and why, by the tags that belong to people."""

    @classmethod
    def of(cls, version: ModelVersion, records: list[Record]) -> "VersionSummary":
        """Summarize a version from its tags and the model's records."""
        named = version.tags
        number, key = str(version.version), named.get(tags.KEY, "")
        held = outcome(records, number, key)
        offered = ReviewStatus.PENDING.value if named.get(tags.STATE) == tags.COMPLETE else ""
        return cls(
            version=number,
            run_id=version.run_id or "",
            key=key,
            window=named.get(tags.WINDOW, ""),
            window_start=moment(named.get(tags.WINDOW_START)),
            window_end=moment(named.get(tags.WINDOW_END)),
            review=held.kind if held else offered,
            answer=named.get(tags.REVIEW, ""),
            champion_version=named.get(tags.CHAMPION_VERSION, ""),
            report_sha256=named.get(tags.REPORT_SHA256, ""),
            model_sha256=named.get(tags.MODEL_SHA256, ""),
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
            records = self.journal().read()
            versions = list(_search(self.client, self.model, tags.KIND, CHALLENGER))
        summaries = (VersionSummary.of(version, records) for version in versions)
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
        return Journal(Ledger.open(self.client, self.model))

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

    def register(
        self,
        key: str,
        run_id: str,
        model_id: str,
        *,
        named: Mapping[str, str],
        description: str,
        check: Check = unchecked,
    ) -> str:
        """Return the one version of a key; it is created from a logged model if there is none.

        What a concurrent writer or a lost answer created besides is tagged as a duplicate, and
        deleted. `check` is called before each other write, and raises if that is not allowed.
        """
        shown = {name: shortened(text, TAG_LIMIT) for name, text in named.items()}
        with asking(f"register a version of {self.model!r}"):
            self.aliases()  # raises if there is no such model
            create = partial(
                self.client.create_model_version,
                self.model,
                f"models:/{model_id}",
                run_id,
                tags={**shown, tags.KIND: CHALLENGER, tags.KEY: key},
                description=description,
                await_creation_for=0,
                model_id=model_id,
            )
            ledger = Ledger.open(self.client, self.model)
            candidates = _VersionsOfKey(ledger, lambda: str(create().version), check)
            version = ledger.settle("version", key, candidates)
            check()
            repeat(self.client.set_tag, run_id, tags.VERSION, version)
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


def _search(client: MlflowClient, model: str, tag: str, text: str) -> Iterator[ModelVersion]:
    """Yield versions by a tag, without duplicates; the model's name may hold quotes."""
    condition = f"tags.`{tag}` = '{text}'"
    quote = "'" if "'" not in model else '"'
    if quote not in model:
        condition = f"{condition} and name = {quote}{model}{quote}"
    versions: Iterator[ModelVersion] = read_pages(
        lambda token: client.search_model_versions(condition, PAGE, page_token=token)
    )
    for version in versions:
        if version.name == model and tags.DUPLICATE_OF not in version.tags:
            yield version


@dataclass(frozen=True, slots=True)
class _VersionsOfKey:
    """Versions that want to hold a key; `check` is called before a new one is created."""

    ledger: Ledger
    create_version: Callable[[], str]
    check: Check

    def is_of_key(self, key: str, version: str) -> bool:
        client, model = self.ledger.client, self.ledger.model
        existing = get_or_none(client.get_model_version, model, version)
        return existing is not None and bool(existing.tags.get(tags.KEY) == key)

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
        versions = _search(self.ledger.client, self.ledger.model, tags.KEY, key)
        return sorted((str(version.version) for version in versions), key=int)

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
