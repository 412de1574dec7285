"""What people read in MLflow's own pages: the description of a version, and notes on it."""

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
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import Check, asking, is_absent, unchecked
from rtscv_mlops.tracking.journal import (
    APPROVED,
    BLOCKED,
    EXPIRED,
    REJECTED,
    STALE,
    SUPERSEDED,
    Entry,
    Record,
    append,
    outcome,
    read_records,
    shortened,
)
from rtscv_mlops.tracking.ledger import Ledger, create_once, open_ledger, repeat
from rtscv_mlops.tracking.runs import moment

TAG_LIMIT = 5000


def describe_version(client: MlflowClient, model: str, version: str, text: str) -> None:
    """Write the Markdown that a version's page shows."""
    with asking(f"describe version {version} of {model!r}"):
        client.update_model_version(model, version, text)


def read_description(client: MlflowClient, model: str, version: str) -> str:
    """Return the Markdown that a version's page shows."""
    with asking(f"read version {version} of {model!r}"):
        return client.get_model_version(model, version).description or ""


def noted(
    client: MlflowClient, model: str, version: str, name: str, find_out: Callable[[], str]
) -> str:
    """Return what a tag of a version says; it is found out and written if there is none."""
    with asking(f"read the tags of version {version} of {model!r}"):
        tags = client.get_model_version(model, version).tags
    if name in tags:
        return str(tags[name])
    text = find_out()[:TAG_LIMIT]
    with asking(f"write the tag {name} of version {version} of {model!r}"):
        repeat(client.set_model_version_tag, model, version, name, text)
    return text


PENDING = ReviewStatus.PENDING.value
OURSELVES = "rtscv-mlops"
PAGE = 1000
TAG_LIMIT = 5000
PATIENCE = 10.0
"""Seconds that a rival may take to create a version, before we do it in its place."""
MOST_RIVALS = 20


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

    @property
    def answered(self) -> str:
        """What a person answered by tag, and nobody has carried out; empty if there is nothing."""
        said = self.answer.strip().lower()
        return said if self.review == PENDING and said in (APPROVED, REJECTED) else ""

    @property
    def misspelt(self) -> str:
        """A sentence about an answer by tag that nobody understands; empty if there is none."""
        said = self.answer.strip()
        if self.review != PENDING or self.answered or said.lower() in ("", PENDING):
            return ""
        return (
            f"The tag {tags.REVIEW} of version {self.version} says {plain(said, 40)!r}, which is "
            f"neither {APPROVED} nor {REJECTED}; nothing was done."
        )


def register_version(
    client: MlflowClient,
    model: str,
    key: str,
    run_id: str,
    model_id: str,
    *,
    named: Mapping[str, str],
    description: str,
    check: Check = unchecked,
) -> str:
    """Return the one version of a key; it is made from a logged model if there is none.

    What a rival or a lost answer made besides is tagged as a duplicate, and deleted. `check` is
    asked before each other write, and raises where that must not be.
    """
    with asking(f"register a version of {model!r}"):
        read_aliases(client, model)  # raises if there is no such model
        ledger = open_ledger(client, model)
        holds = partial(_is_of_key, client, model, key)
        version = ledger.holder("version", key, holds)
        if version is None:
            create = partial(
                client.create_model_version,
                model,
                f"models:/{model_id}",
                run_id,
                tags={**_fitting(named), tags.KIND: CHALLENGER, tags.KEY: key},
                description=description,
                await_creation_for=0,
                model_id=model_id,
            )
            check()
            made = _make(ledger, key, lambda: str(create().version))
            version = ledger.hold("version", key, made, holds)
        for rival in _versions_of(client, model, key):
            # Not checked: one who was frozen before it made a version has to clear it away.
            if rival != version:
                _discard(client, model, rival, version)
        check()
        repeat(client.set_tag, run_id, tags.VERSION, version)
    return version


def _discard(client: MlflowClient, model: str, version: str, winner: str) -> None:
    """Delete a version that lost; one that was offered stays, for what was said about it."""
    try:
        repeat(client.set_model_version_tag, model, version, tags.DUPLICATE_OF, winner)
        if tags.STATE not in client.get_model_version(model, version).tags:
            repeat(client.delete_model_version, model, version)
    except MlflowException as error:
        # Somebody else may have deleted it at this moment.
        if not is_absent(error):
            raise


def _is_of_key(client: MlflowClient, model: str, key: str, version: str) -> bool:
    """Tell whether a version is there and is the key's."""
    try:
        found = client.get_model_version(model, version)
    except MlflowException as error:
        if not is_absent(error):
            raise
        return False
    return bool(found.tags.get(tags.KEY) == key)


def _make(ledger: Ledger, key: str, create: Callable[[], str]) -> str:
    """Find or create a version; of several who would create it, the others wait for one."""
    find = partial(_oldest, ledger.client, ledger.model, key)
    ourselves = uuid.uuid4().hex
    for number in range(1, MOST_RIVALS):
        found = find()
        if found is not None:
            return found
        if ledger.claim(f"registering.{key}.{number}", ourselves) == ourselves:
            return create_once(find, create)
        _wait_for(find)
    raise ServiceError(
        f"{MOST_RIVALS} others began to register a version of {ledger.model!r} and none finished. "
        "Try again.",
        code=Code.BUSY,
    )


def _wait_for(find: Callable[[], object]) -> None:
    patience_ends = time.monotonic() + PATIENCE
    while find() is None and time.monotonic() < patience_ends:
        time.sleep(0.1)


def _oldest(client: MlflowClient, model: str, key: str) -> str | None:
    return next(iter(_versions_of(client, model, key)), None)


def _versions_of(client: MlflowClient, model: str, key: str) -> list[str]:
    """Return the versions of a key that are no duplicates, oldest first."""
    found = _search(client, model, f"tags.`{tags.KEY}` = '{key}'")
    return sorted((str(version.version) for version in found), key=int)


def _search(client: MlflowClient, model: str, condition: str) -> Iterator[ModelVersion]:
    """Return versions but duplicates; any name can be looked for, also one with quotes in it."""
    quote = "'" if "'" not in model else '"'
    if quote not in model:
        condition = f"{condition} and name = {quote}{model}{quote}"
    token: str | None = None
    while True:
        page = client.search_model_versions(condition, PAGE, page_token=token)
        for version in page:
            if version.name == model and tags.DUPLICATE_OF not in version.tags:
                yield version
        token = page.token
        if not token:
            return


def offer_version(
    client: MlflowClient,
    model: str,
    version: str,
    *,
    alias: str = CHAMPION,
    blocked: str = "",
    check: Check = unchecked,
) -> VersionSummary:
    """Ask for the review of a verified version, or mark it as blocked; return where it stands.

    At most one version of a model awaits review: that of the latest window, built from the
    champion of now; the others are superseded. A repeat changes nothing that was decided.
    """
    ledger = open_ledger(client, model)
    offered = find_version(client, model, version)
    with asking(f"offer version {version} of {model!r}"):
        if not offered.review:
            check()
            # Whether it is blocked is settled before anybody can see that it is offered.
            if blocked:
                close_review(ledger, offered, BLOCKED, blocked)
            else:
                repeat(client.set_model_version_tag, model, offered.version, tags.REVIEW, PENDING)
            check()
            repeat(client.set_model_version_tag, model, offered.version, tags.STATE, tags.COMPLETE)
        _leave_one_pending(ledger, alias, check)
    return find_version(client, model, version)


def _leave_one_pending(ledger: Ledger, alias: str, check: Check) -> None:
    """Supersede all but the newest challenger, which gets the alias.

    Each writer marks its own version before it looks at the others, so of two at once at least
    one sees both; and it looks again after it has moved the alias.
    """
    client, model = ledger.client, ledger.model
    while True:
        aliases = read_aliases(client, model)
        waiting = sorted(
            (each for each in find_versions(client, model) if each.review == PENDING),
            key=lambda each: (each.champion_version == aliases.get(alias), *_age(each)),
        )
        for older in waiting[:-1]:
            check()
            close_review(ledger, older, SUPERSEDED, waiting[-1].version)
        if not waiting or aliases.get(CHALLENGER) == waiting[-1].version:
            return
        check()
        repeat(client.set_registered_model_alias, model, CHALLENGER, waiting[-1].version)


def _age(version: VersionSummary) -> tuple[str, str, int]:
    return str(version.window_start or ""), str(version.window_end or ""), int(version.version)


def expire_review(client: MlflowClient, model: str, version: str, reason: str) -> Record:
    """Close a review that nobody answered in time; an answer that came first stays."""
    with asking(f"expire the review of version {version} of {model!r}"):
        ledger = open_ledger(client, model)
        return close_review(ledger, find_version(client, model, version), EXPIRED, reason)


def outdate_review(client: MlflowClient, model: str, version: str, reason: str) -> Record:
    """Close a review whose question has lost its ground; an answer that came first stays."""
    with asking(f"close the review of version {version} of {model!r}"):
        ledger = open_ledger(client, model)
        return close_review(ledger, find_version(client, model, version), STALE, reason)


def close_review(ledger: Ledger, version: VersionSummary, kind: str, reason: str) -> Record:
    """Record how a review ended unless it has ended already; return the record that holds."""
    entry = Entry(kind, version.version, version.key, OURSELVES, reason)

    def propose(records: list[Record]) -> Entry | None:
        return entry if outcome(records, entry.version, entry.key) is None else None

    held = outcome(append(ledger, propose), entry.version, entry.key)
    assert held is not None  # just recorded
    show_outcome(ledger, held)
    return held


def show_outcome(ledger: Ledger, record: Record) -> None:
    """Write the end of a review to the version's tags; nothing but an open review has the alias."""
    shown = {
        tags.REVIEW: record.kind,
        tags.REVIEWER: record.who,
        tags.REASON: record.reason,
        tags.DECIDED_AT: record.at,
    }
    if record.kind == BLOCKED:
        shown[tags.BLOCKED] = record.reason
    if record.kind == SUPERSEDED:
        shown[tags.SUPERSEDED_BY] = record.reason
    for name, text in shown.items():
        repeat(ledger.client.set_model_version_tag, ledger.model, record.version, name, text)
    if read_aliases(ledger.client, ledger.model).get(CHALLENGER) == record.version:
        repeat(ledger.client.delete_registered_model_alias, ledger.model, CHALLENGER)
        # A newer challenger may have got the alias between the look and the deletion.
        newer = challenger(ledger.client, ledger.model)
        if newer is not None:
            repeat(
                ledger.client.set_registered_model_alias, ledger.model, CHALLENGER, newer.version
            )


def find_versions(client: MlflowClient, model: str) -> list[VersionSummary]:
    """Return a model's challengers, oldest first."""
    with asking(f"list the versions of {model!r}"):
        records = read_records(open_ledger(client, model))
        found = list(_search(client, model, f"tags.`{tags.KIND}` = '{CHALLENGER}'"))
    return sorted((_summary(each, records) for each in found), key=lambda each: int(each.version))


def find_version(client: MlflowClient, model: str, version: str) -> VersionSummary:
    """Return one challenger."""
    for each in find_versions(client, model):
        if each.version == str(version):
            return each
    raise ReviewError(
        f"{model!r} has no challenger of version {version}: it was deleted, is a duplicate, or "
        "was not made by a monitor. List what there is with `rtscv-mlops review list`.",
        code=Code.NO_VERSION,
    )


def challenger(client: MlflowClient, model: str) -> VersionSummary | None:
    """Return the challenger that awaits review."""
    waiting = [each for each in find_versions(client, model) if each.review == PENDING]
    return max(waiting, key=_age, default=None)


def find_alias(client: MlflowClient, model: str, alias: str) -> str | None:
    """Return the version behind an alias; None if there is none."""
    with asking(f"read the aliases of {model!r}"):
        return read_aliases(client, model).get(alias)


def aliased_versions(client: MlflowClient, model: str) -> set[str]:
    """Return the versions that have any alias."""
    with asking(f"read the aliases of {model!r}"):
        return set(read_aliases(client, model).values())


def read_aliases(client: MlflowClient, model: str) -> dict[str, str]:
    """Return the version behind each alias."""
    try:
        found = client.get_registered_model(model).aliases
    except MlflowException as error:
        if not is_absent(error):
            raise
        raise _no_model(model) from error
    return {alias: str(version) for alias, version in found.items()}


def _no_model(model: str) -> ModelError:
    return ModelError(
        f"MLflow has no registered model {model!r}. Register it, or correct model.name.",
        code=Code.NO_MODEL,
    )


def _summary(version: ModelVersion, records: list[Record]) -> VersionSummary:
    named = version.tags
    number, key = str(version.version), named.get(tags.KEY, "")
    held = outcome(records, number, key)
    offered = PENDING if named.get(tags.STATE) == tags.COMPLETE else ""
    return VersionSummary(
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
        blocked=held.reason if held and held.kind == BLOCKED else "",
        # Whoever answers by tag, in the registry, may say there who it is, and why.
        reviewer=held.who if held else named.get(tags.REVIEWER, ""),
        reason=held.reason if held else named.get(tags.REASON, ""),
        decided_at=moment(held.at) if held else None,
        created=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC),
    )


def _fitting(named: Mapping[str, str]) -> dict[str, str]:
    return {name: shortened(text, TAG_LIMIT) for name, text in named.items()}
