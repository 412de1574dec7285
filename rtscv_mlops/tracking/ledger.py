"""A model's ledger: claims that only one of several concurrent writers can win.

MLflow has no transactions, and its aliases and tags go to the last writer. Two of its writes go
to the first writer, and the ledger relies on them: the name of an experiment is unique, and a
run's param never changes. So a model's experiment names its ledger, a run, when it is created,
and a claim is a param of that run. Claims are signed if there is a key. A param that is not a
valid claim is passed over: the claim of that name is then the first valid one in the next slots.

Reading never creates or restores anything, so that people who may only read can look.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from mlflow.entities import Experiment, LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.values import CHALLENGER
from rtscv_mlops.errors import Code, ConfigError, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, get_or_none, search_versions
from rtscv_mlops.tracking.signing import KEY_VARIABLE, SIGNATURE_LENGTH, Signer, is_signed

Created = TypeVar("Created")
P = ParamSpec("P")

FOUNDED = "founded"
"""The first claim of a ledger: with a key, it shows that a holder of the key founded it."""
IS_CHALLENGER = f"tags.`{tags.KIND}` = '{CHALLENGER}'"
NAME_LIMIT = 250
VALUE_LIMIT = 6000
MOST_TAKES = 99
MOST_SLOTS = 20
"""Claims of one name that others may spoil before we give up."""
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
PAUSES = (0.5, 2.0, 8.0)
"""Seconds to wait after a failed create, before looking for what it left."""
COLLISION_PAUSES = (0.02, 0.1, 0.5)
TRANSIENT = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
)
"""MLflow's codes for a broken connection, a 5xx, or a request to come back later."""

_one_create_at_a_time = threading.RLock()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ledger is: its run, and the experiment that the model's runs belong to."""

    run_id: str
    experiment_id: str
    is_deleted: bool = False
    """Whether the experiment is deleted: it can be read, and is restored before a write."""


Validity = Callable[[str, str], bool]
"""Returns whether the text of a claim is valid, by the claim's name."""


def any_text(name: str, text: str) -> bool:
    """Take every text for a valid claim."""
    return True


@dataclass(slots=True)
class Ledger:
    """The claims of one model. It is founded by the first claim."""

    client: MlflowClient
    model: str
    signer: Signer = field(default_factory=Signer.from_environment)
    _place: Place | None = field(default=None, init=False)
    _founded_by: str | None = field(default=None, init=False)

    @classmethod
    def open(cls, client: MlflowClient, model: str) -> "Ledger":
        """Return the model's ledger; it is created once, however many ask at the same time."""
        ledger = cls(client, model)
        ledger.found()
        return ledger

    @property
    def run_id(self) -> str:
        return self.found().run_id

    @property
    def experiment_id(self) -> str:
        return self.found().experiment_id

    def find(self) -> Place | None:
        """Return where the ledger is; None if there is none yet. Nothing is created."""
        if self._place is None:
            with asking(f"look for the ledger of {self.model!r}"):
                self._place = _Founder(self.client, self.model, self.signer).find()
        return self._place

    def found(self) -> Place:
        """Return where the ledger is; it is created if there is none, restored if deleted."""
        place = self.find()
        if place is None or place.is_deleted:
            with asking(f"create the ledger of {self.model!r}"):
                place = _Founder(self.client, self.model, self.signer).found(place)
                self._place = place
        return place

    def params(self) -> dict[str, str]:
        """Return what is stored in the ledger, valid or not; nothing if there is no ledger."""
        place = self.find()
        if place is None:
            return {}
        with asking(f"read the ledger of {self.model!r}"):
            run = get_or_none(self.client.get_run, place.run_id)
        if run is None:
            raise ServiceError(
                f"The ledger of {self.model!r}, the run {place.run_id}, is gone from MLflow for "
                "good, and with it the record of decisions. Nothing is judged or decided until a "
                "person has looked. Then found a new one: `rtscv-mlops audit repair MONITOR`.",
                code=Code.NO_LEDGER,
            )
        params: dict[str, str] = run.data.params
        if self.signer.keys and self._verified(FOUNDED, params.get(FOUNDED, "")) != self.model:
            raise ServiceError(
                f"The ledger of {self.model!r}, the run {place.run_id}, was not founded with the "
                f"key in {KEY_VARIABLE}: the key is new here, or the experiment's tag "
                f"{tags.LEDGER} was pointed at another run. Nothing is judged or decided until a "
                "person has looked. Then sign what is there: `rtscv-mlops audit repair MONITOR`.",
                code=Code.NO_LEDGER,
            )
        return params

    def claims(self, is_valid: Validity = any_text) -> dict[str, str]:
        """Return every valid claim by name."""
        return self._claims_of(self.params(), is_valid)

    def _claims_of(self, params: Mapping[str, str], is_valid: Validity) -> dict[str, str]:
        """Return the valid claims; in a ledger that is not signed, signatures do not count."""
        must_be_signed = is_signed(params.get(FOUNDED, ""))
        claims: dict[str, str] = {}
        for name in params:
            if name != FOUNDED and SLOT.search(name) is None:
                for slot in _slots(name):
                    if slot not in params:
                        break
                    stored = params[slot]
                    if must_be_signed and not is_signed(stored):
                        continue
                    text = self._verified(slot, stored) if must_be_signed else stored
                    if text is not None and is_valid(name, text):
                        claims[name] = text
                        break
        return claims

    def invalid(self, is_valid: Validity = any_text) -> list[str]:
        """Return the names of params that are not valid claims."""
        return [
            slot
            for slot, stored in self.params().items()
            if (text := self._verified(slot, stored)) is None
            or not is_valid(SLOT.sub("", slot), text)
        ]

    def claim(self, name: str, value: str, is_valid: Validity = any_text) -> str:
        """Write a claim unless there is one of this name; return the value that holds."""
        if len(value) > VALUE_LIMIT - SIGNATURE_LENGTH:
            raise ValueError(f"The claim {name} has {len(value)} characters, which is too long.")
        name = safe_name(name)
        for slot in _slots(name):
            stored = self._write(slot, self.signer.sign(self._subject(slot), value))
            text = self._verified(slot, stored)
            if text is not None and is_valid(name, text):
                return text
        raise ServiceError(
            f"All {MOST_SLOTS} places for {name!r} in the ledger of {self.model!r} hold text that "
            f"is not valid. Find out who writes to the run {self.run_id}, then found a new ledger: "
            "`rtscv-mlops audit repair MONITOR`.",
            code=Code.NO_LEDGER,
        )

    def _write(self, slot: str, stored: str) -> str:
        """Write a param unless it exists; return the value that holds."""
        run_id = self.found().run_id
        if not self.signer.keys and is_signed(self._founding()):
            raise ConfigError(
                f"The ledger of {self.model!r} is signed, and this process has no key, so it may "
                f"not write there. Set the environment variable {KEY_VARIABLE} here too."
            )
        try:
            self.client.log_param(run_id, slot, stored, synchronous=True)
        except MlflowException:
            held = self.params().get(slot)
            if held is not None:
                return held
            # The claim is free, so MLflow refused it for another reason, such as a deleted ledger.
            with asking(f"write {slot} to the ledger of {self.model!r}"):
                restore_run(self.client, run_id)
                self.client.log_param(run_id, slot, stored, synchronous=True)
        return stored

    def _founding(self) -> str:
        if self._founded_by is None:
            self._founded_by = self.params().get(FOUNDED, "")
        return self._founded_by

    def _verified(self, slot: str, stored: str) -> str | None:
        return self.signer.verify(self._subject(slot), stored)

    def _subject(self, slot: str) -> str:
        place = self.find()
        return subject(self.model, place.run_id if place else "", slot)

    def repair(self, is_valid: Validity = any_text) -> int:
        """Found a new ledger with the claims of the old one; return how many there were.

        For a person who has looked: claims are taken over as they stand, signed or not, unless a
        key of ours shows that another wrote them. Of a renamed model, the old name's are taken.
        """
        with asking(f"repair the ledger of {self.model!r}"):
            claims, founder = {}, _Founder(self.client, self.model, self.signer)
            place = founder.find() or founder.take_over_renamed()
            run = get_or_none(self.client.get_run, place.run_id) if place else None
            if place is not None and run is not None:
                old = Ledger(self.client, run.data.tags.get(tags.MODEL, self.model), self.signer)
                old._place = place
                claims = old._claims_of(run.data.params, is_valid)
            run_id = founder.create_ledger()
            if place is None:
                self._place = founder.name_ledger(run_id)
            else:
                self._place = Place(run_id, place.experiment_id)
            for name, text in claims.items():
                signed = self.signer.sign(self._subject(name), text)
                self.client.log_param(run_id, name, signed, synchronous=True)
            if place is not None:
                founder.point_at(run_id)
            self._founded_by = None
        return len(claims)

    def settle(self, kind: str, key: str, candidates: "Candidates") -> str:
        """Return the one candidate of a key; it is created if there is none.

        Many may ask at once, and any may die at any point: the ledger says which candidate counts,
        one that a dead process left is taken over, and those that lost are discarded.
        """
        holds = partial(candidates.is_of_key, key)
        winner = self._holder(kind, key, holds)
        if winner is None:
            winner = self._hold(kind, key, candidates.create(key), holds)
        for candidate in candidates.find(key):
            if candidate != winner:
                candidates.discard(candidate, winner)
        return winner

    def _holder(self, kind: str, key: str, exists: Callable[[str], bool]) -> str | None:
        """Return what holds a key; what was removed for good no longer holds it."""
        claims = self.claims()
        for name in _takes(kind, key):
            if name not in claims:
                return None
            if exists(claims[name]):
                return claims[name]
        return None

    def _hold(self, kind: str, key: str, value: str, exists: Callable[[str], bool]) -> str:
        """Claim a key for a value, past claims of what is gone; return the value that holds."""
        for name in _takes(kind, key):
            winner = self.claim(name, value)
            if winner == value or exists(winner):
                return winner
        raise ServiceError(
            f"What MLflow held for the {kind} {key} was removed {MOST_TAKES} times. "
            "Find out who removes it.",
            code=Code.REMOVED,
        )


class Candidates(Protocol):
    """Things in MLflow that want to hold a key, by their ids, of which one may."""

    def is_of_key(self, key: str, candidate: str) -> bool:
        """Return whether a candidate exists and is of this key."""

    def create(self, key: str) -> str:
        """Create a candidate, or return one that is there already."""

    def find(self, key: str) -> list[str]:
        """Return the candidates of a key that did not lose yet, oldest first."""

    def discard(self, candidate: str, winner: str) -> None:
        """Remove a candidate that lost."""


SLOT = re.compile(r" [0-9]+$")


def _slots(name: str) -> Iterator[str]:
    """Name the params that may hold a claim: the next one counts if the one before is spoilt."""
    yield name
    yield from (f"{name} {number}" for number in range(2, MOST_SLOTS + 1))


def subject(model: str, run_id: str, slot: str) -> str:
    """Return where a claim belongs, for its signature."""
    return f"{model}\n{run_id}\n{slot}"


def _takes(kind: str, key: str) -> Iterator[str]:
    """Name the claims on a key: a further one counts when what held the one before is gone."""
    yield safe_name(f"{kind}.{key}")
    yield from (safe_name(f"{kind}.{key}.take{number}") for number in range(2, MOST_TAKES + 1))


def experiment_name(model: str) -> str:
    """Return the name of the model's experiment: readable, and unique to the model."""
    return f"rtscv/{safe_name(model, 100)}"


def safe_name(text: str, limit: int = NAME_LIMIT) -> str:
    """Return text as a name that MLflow and file systems accept; if changed, a digest is added."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", text).strip(".")
    if safe == text and 0 < len(safe) <= limit:
        return safe
    return f"{safe[: limit - 13]}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class _Founder:
    """Creates the experiments of a model, and its ledger.

    `rtscv/<model>` has the runs of its windows, and `rtscv/<model>/ledger` the ledger: each team
    grants rights to its own. The first of them that was created with the tag names the ledger. A
    team may have created it before us, to choose where its artifacts go: its tags can no longer be
    claimed, so a third experiment that only we create, `rtscv/<model>/anchor`, names the ledger.
    """

    client: MlflowClient
    model: str
    signer: Signer

    def find(self) -> Place | None:
        """Return where the ledger is; None if no experiment names one."""
        home = self.client.get_experiment_by_name(experiment_name(self.model))
        if home is None:
            return None
        is_deleted = home.lifecycle_stage == LifecycleStage.DELETED
        if tags.LEDGER in home.tags:
            return Place(home.tags[tags.LEDGER], home.experiment_id, is_deleted)
        for anchor in self._experiments(home.name)[1:]:
            if tags.LEDGER in anchor.tags:
                return Place(anchor.tags[tags.LEDGER], home.experiment_id, is_deleted)
        return None

    def _experiments(self, home: str) -> list[Experiment]:
        """Return the experiments of a model that exist; each of them may name its ledger.

        Until version 0.1 the one that ends in /ledger did, where a team had made the first.
        """
        names = (home, f"{home}/anchor", f"{home}/ledger")
        return [each for each in map(self.client.get_experiment_by_name, names) if each is not None]

    def found(self, deleted: Place | None = None) -> Place:
        """Create the ledger and the experiments that are missing; restore one that is deleted."""
        name = experiment_name(self.model)
        if deleted is not None:
            self._restored(self.client.get_experiment(deleted.experiment_id))
            return Place(deleted.run_id, deleted.experiment_id)
        if any(search_versions(self.client, self.model, IS_CHALLENGER)):
            raise ServiceError(
                f"{self.model!r} has challengers, and no experiment {name!r} that names their "
                "ledger: it was deleted for good, or the model was renamed. So it is not known "
                "what was decided about them. Nothing is judged until a person has looked. Then "
                "run `rtscv-mlops audit repair MONITOR`.",
                code=Code.NO_LEDGER,
            )
        return self.name_ledger(self.create_ledger())

    def name_ledger(self, ledger: str) -> Place:
        """Create the experiments that are missing; one of them names the ledger of all writers."""
        name = experiment_name(self.model)
        named = {tags.LEDGER: ledger, tags.MODEL: self.model}
        home = self._get_or_create(name, named)
        anchor = home if tags.LEDGER in home.tags else self._get_or_create(f"{name}/anchor", named)
        held = anchor.tags.get(tags.LEDGER)
        if held is None:
            raise ServiceError(
                f"The MLflow experiment {anchor.name!r} does not name the ledger of "
                f"{self.model!r} in its tag {tags.LEDGER}, so nothing can be claimed. Rename that "
                "experiment.",
                code=Code.NO_LEDGER,
            )
        if held != ledger:  # A concurrent writer was first.
            repeat(self.client.delete_run, ledger)
        return Place(held, home.experiment_id)

    def take_over_renamed(self) -> Place | None:
        """Give the experiments of the model's former name its new name; None if there are none."""
        for version in search_versions(self.client, self.model, IS_CHALLENGER):
            run = get_or_none(self.client.get_run, version.run_id or "")
            home = self.client.get_experiment(run.info.experiment_id) if run else None
            if home is None:
                continue
            experiments = self._experiments(home.name)
            named = (each.tags[tags.MODEL] for each in experiments if tags.LEDGER in each.tags)
            former = next(named, self.model)
            if get_or_none(self.client.get_registered_model, former) is not None:
                continue
            for experiment in experiments:
                name = experiment.name.replace(home.name, experiment_name(self.model), 1)
                self.client.rename_experiment(experiment.experiment_id, name)
            return self.find()
        return None

    def point_at(self, ledger: str) -> None:
        """Have the experiment that names the ledger name another one."""
        for anchor in self._experiments(experiment_name(self.model)):
            if tags.LEDGER in anchor.tags:
                self.client.set_experiment_tag(anchor.experiment_id, tags.LEDGER, ledger)
                self.client.set_experiment_tag(anchor.experiment_id, tags.MODEL, self.model)
                return

    def create_ledger(self) -> str:
        """Return the run of a new ledger, which no experiment names yet."""
        shelf = self._get_or_create(f"{experiment_name(self.model)}/ledger", {}).experiment_id
        named = {tags.KIND: "ledger", tags.MODEL: self.model}
        run = create_once(
            # A ledger is not looked for: only an experiment can say which one counts, and one
            # whose answer was lost stays empty.
            lambda: None,
            lambda: self.client.create_run(shelf, tags=named, run_name=f"ledger of {self.model}"),
        )
        run_id = str(run.info.run_id)
        founded = self.signer.sign(subject(self.model, run_id, FOUNDED), self.model)
        self.client.log_param(run_id, FOUNDED, founded, synchronous=True)
        self.client.set_terminated(run_id)
        return run_id

    def _get_or_create(self, name: str, named: dict[str, str]) -> Experiment:
        location = None
        scheme, _, path = self.client.tracking_uri.partition(":///")
        if scheme == "sqlite":
            # Without a server, MLflow would put artifacts into the working directory.
            folder = Path(path.partition("?")[0]).resolve().parent
            location = (folder / "mlartifacts" / name).as_uri()
        try:
            self.client.create_experiment(name, location, tags=named)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            raise ServiceError(f"MLflow created the experiment {name!r} and does not find it.")
        return self._restored(experiment)

    def _restored(self, experiment: Experiment) -> Experiment:
        if experiment.lifecycle_stage == LifecycleStage.DELETED:
            try:
                self.client.restore_experiment(experiment.experiment_id)
            except MlflowException:
                now = self.client.get_experiment(experiment.experiment_id).lifecycle_stage
                if now != LifecycleStage.ACTIVE:
                    raise
        return experiment


def restore_run(client: MlflowClient, run_id: str) -> None:
    """Restore a deleted run, which a concurrent writer may be restoring as well."""
    try:
        client.restore_run(run_id)
    except MlflowException:
        if client.get_run(run_id).info.lifecycle_stage != LifecycleStage.ACTIVE:
            raise


def repeat(write: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do a write that may be done twice; do it again if it collided with a concurrent one.

    MLflow fails one of two writers that set the same new tag or delete the same alias at once.
    """
    for pause in COLLISION_PAUSES:
        try:
            write(*args, **kwargs)
            return
        except MlflowException as error:
            if error.error_code != "BAD_REQUEST":
                raise
            time.sleep(pause)
    write(*args, **kwargs)


def create_once(
    find: Callable[[], Created | None],
    create: Callable[[], Created],
    pauses: tuple[float, ...] = PAUSES,
) -> Created:
    """Return what `find` finds, else what `create` creates.

    MLflow's client sends a create again when its answer is lost, which creates a thing twice. Here
    it is sent once, and what a lost answer may have left is looked for before the next try.
    """
    existing = find()
    if existing is not None:
        return existing
    try:
        with single_attempt():
            return create()
    except MlflowException as error:
        if not pauses or error.error_code not in TRANSIENT:
            raise
        time.sleep(pauses[0])
    return create_once(find, create, pauses[1:])


@contextmanager
def single_attempt() -> Iterator[None]:
    """Have MLflow's client send each request once, in one thread at a time.

    The client reads the number of retries from the environment at each request.
    """
    with _one_create_at_a_time:
        before = os.environ.get(RETRIES)
        os.environ[RETRIES] = "0"
        try:
            yield
        finally:
            if before is None:
                del os.environ[RETRIES]
            else:
                os.environ[RETRIES] = before
