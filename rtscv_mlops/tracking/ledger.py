"""A model's ledger: claims that only one of several concurrent writers can win.

MLflow has no transactions, and its aliases and tags go to the last writer. Two of its writes go
to the first writer, and the ledger relies on them: the name of an experiment is unique, and a
run's param never changes. So a model's experiment names its ledger, a run, when it is created,
and a claim is a param of that run.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from mlflow.entities import Experiment, LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking

Created = TypeVar("Created")
P = ParamSpec("P")

LEDGERS = "rtscv-ledgers"
"""The experiment that holds the ledgers of all models."""
NAME_LIMIT = 250
VALUE_LIMIT = 6000
MOST_TAKES = 99
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
class Ledger:
    """The claims of one model; `experiment_id` is where its runs belong."""

    client: MlflowClient
    model: str
    run_id: str
    experiment_id: str

    @classmethod
    def open(cls, client: MlflowClient, model: str) -> "Ledger":
        """Return the model's ledger; it is created once, however many ask at the same time."""
        founder = _Founder(client, model)
        with asking(f"open the ledger of {model!r}"):
            home = founder.experiment(experiment_name(model))
            # A team may have created the experiment first, to choose where its artifacts go. Its
            # tags can no longer be claimed, so a second experiment that only we create names the
            # ledger.
            named = tags.LEDGER in home.tags
            anchor = home if named else founder.experiment(f"{home.name}/ledger")
        if tags.LEDGER not in anchor.tags:
            raise ServiceError(
                f"The MLflow experiment {anchor.name!r} does not name the ledger of {model!r} in "
                f"its tag {tags.LEDGER}, so nothing can be claimed. Rename that experiment.",
                code=Code.NO_LEDGER,
            )
        return cls(client, model, anchor.tags[tags.LEDGER], home.experiment_id)

    def claims(self) -> dict[str, str]:
        """Return every claim by name."""
        with asking(f"read the ledger of {self.model!r}"):
            run = self.client.get_run(self.run_id)
            if run.info.lifecycle_stage == LifecycleStage.DELETED:
                restore_run(self.client, self.run_id)
            claims: dict[str, str] = run.data.params
            return claims

    def claim(self, name: str, value: str) -> str:
        """Write a claim unless there is one of this name; return the value that holds."""
        if len(value) > VALUE_LIMIT:
            raise ValueError(f"The claim {name} has {len(value)} characters, over {VALUE_LIMIT}.")
        name = safe_name(name)
        try:
            self.client.log_param(self.run_id, name, value, synchronous=True)
        except MlflowException:
            held = self.claims().get(name)
            if held is not None:
                return held
            # The claim is free, so MLflow refused it for another reason, such as a ledger that was
            # deleted and has just been restored.
            with asking(f"write {name} to the ledger of {self.model!r}"):
                self.client.log_param(self.run_id, name, value, synchronous=True)
        return value

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
    """Creates the experiments of a model, and its ledger with the first of them."""

    client: MlflowClient
    model: str

    def experiment(self, name: str) -> Experiment:
        """Return an experiment that names a ledger, unless a team created it without one."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            ledger = self._create_ledger()
            named = {tags.LEDGER: ledger, tags.MODEL: self.model}
            experiment = self._get_or_create(name, named)
            if experiment.tags.get(tags.LEDGER) != ledger:  # A concurrent writer was first.
                repeat(self.client.delete_run, ledger)
        return self._restored(experiment)

    def _create_ledger(self) -> str:
        home = self._restored(self._get_or_create(LEDGERS, {})).experiment_id
        named = {tags.KIND: "ledger", tags.MODEL: self.model}
        run = create_once(
            # A ledger is not looked for: only an experiment can say which one counts, and one
            # whose answer was lost stays empty.
            lambda: None,
            lambda: self.client.create_run(home, tags=named, run_name=f"ledger of {self.model}"),
        )
        self.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

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
        return experiment

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
