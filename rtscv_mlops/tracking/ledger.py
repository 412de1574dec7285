"""A model's ledger: claims that only one writer can win, whoever else writes at the same time.

MLflow has no transactions, and its aliases and tags go to the last writer. Two of its writes go
to the first one, and everything here stands on them: the name of an experiment exists once, and a
run's param never changes. So a model's experiment names its ledger, a run, from birth, and a
claim is a param of that run. Knows nothing of what is claimed.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, TypeVar

from mlflow.entities import Experiment, LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking

Created = TypeVar("Created")
P = ParamSpec("P")

SHELF = "rtscv-ledgers"
"""The experiment that holds the ledgers of all models."""
NAME_LIMIT = 250
VALUE_LIMIT = 6000
MOST_TAKES = 99
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
PAUSES = (0.5, 2.0, 8.0)
"""Seconds to wait after a create that went wrong, before looking for what it left."""
COLLISION_PAUSES = (0.02, 0.1, 0.5)
TRANSIENT = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
)
"""What MLflow calls a broken connection, a 5xx, or a request to come back later."""

_one_create_at_a_time = threading.RLock()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of one model; `experiment_id` is where its runs belong."""

    client: MlflowClient
    model: str
    run_id: str
    experiment_id: str

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
            return self._held(name, value)
        return value

    def holder(self, kind: str, key: str, exists: Callable[[str], bool]) -> str | None:
        """Return what holds a key; what was removed for good no longer holds it."""
        claims = self.claims()
        for name in _takes(kind, key):
            if name not in claims:
                return None
            if exists(claims[name]):
                return claims[name]
        return None

    def hold(self, kind: str, key: str, value: str, exists: Callable[[str], bool]) -> str:
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

    def _held(self, name: str, value: str) -> str:
        held = self.claims().get(name)
        if held is not None:
            return held
        # Nobody holds it, so it was refused for another reason, such as a ledger that was deleted
        # and has just been restored.
        with asking(f"write {name} to the ledger of {self.model!r}"):
            self.client.log_param(self.run_id, name, value, synchronous=True)
        return value


def _takes(kind: str, key: str) -> Iterator[str]:
    """Name the claims on a key: a further one counts when what held the one before is gone."""
    yield safe_name(f"{kind}.{key}")
    yield from (safe_name(f"{kind}.{key}.take{number}") for number in range(2, MOST_TAKES + 1))


def claim(client: MlflowClient, model: str, name: str, value: str) -> str:
    """Claim a name for a value in the model's ledger; return the value that holds."""
    return open_ledger(client, model).claim(name, value)


def open_ledger(client: MlflowClient, model: str) -> Ledger:
    """Return the model's ledger; it is made once, however many ask at the same time."""
    with asking(f"open the ledger of {model!r}"):
        home = _experiment(client, model, experiment_name(model))
        # A team may have made the experiment first, to choose where its artifacts go. Its tags can
        # no longer be claimed, so a second experiment that only we make names the ledger.
        named = tags.LEDGER in home.tags
        anchor = home if named else _experiment(client, model, f"{home.name}/ledger")
    if tags.LEDGER not in anchor.tags:
        raise ServiceError(
            f"The MLflow experiment {anchor.name!r} does not name the ledger of {model!r} in its "
            f"tag {tags.LEDGER}, so nothing can be claimed. Rename that experiment.",
            code=Code.NO_LEDGER,
        )
    return Ledger(client, model, anchor.tags[tags.LEDGER], home.experiment_id)


def experiment_name(model: str) -> str:
    """Return the name of the model's experiment: readable, and never that of another model."""
    return f"rtscv/{safe_name(model, 100)}"


def safe_name(text: str, limit: int = NAME_LIMIT) -> str:
    """Return text as a name that MLflow and file systems take; what had to change adds a digest."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", text).strip(".")
    if safe == text and 0 < len(safe) <= limit:
        return safe
    return f"{safe[: limit - 13]}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _experiment(client: MlflowClient, model: str, name: str) -> Experiment:
    experiment = client.get_experiment_by_name(name) or _found_experiment(client, model, name)
    return _restored(client, experiment)


def _found_experiment(client: MlflowClient, model: str, name: str) -> Experiment:
    """Make an experiment that names a new ledger, unless a rival is first."""
    ledger = _new_ledger(client, model)
    experiment = _get_or_create_experiment(client, name, {tags.LEDGER: ledger, tags.MODEL: model})
    if experiment.tags.get(tags.LEDGER) != ledger:
        repeat(client.delete_run, ledger)
    return experiment


def _new_ledger(client: MlflowClient, model: str) -> str:
    shelf = _restored(client, _get_or_create_experiment(client, SHELF, {}))
    named = {tags.KIND: "ledger", tags.MODEL: model}
    run = create_once(
        # A ledger is not looked for: only an experiment can say which one counts, and one whose
        # answer was lost stays empty.
        lambda: None,
        lambda: client.create_run(shelf.experiment_id, tags=named, run_name=f"ledger of {model}"),
    )
    client.set_terminated(run.info.run_id)
    return str(run.info.run_id)


def _get_or_create_experiment(client: MlflowClient, name: str, named: dict[str, str]) -> Experiment:
    try:
        client.create_experiment(name, _artifacts_beside_database(client, name), tags=named)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        raise ServiceError(f"MLflow made the experiment {name!r} and does not find it.")
    return experiment


def _artifacts_beside_database(client: MlflowClient, name: str) -> str | None:
    """Return where artifacts go if no server decides: not in whatever folder we were started."""
    scheme, _, path = client.tracking_uri.partition(":///")
    if scheme != "sqlite":
        return None
    folder = Path(path.partition("?")[0]).resolve().parent
    return (folder / "mlartifacts" / name).as_uri()


def _restored(client: MlflowClient, experiment: Experiment) -> Experiment:
    if experiment.lifecycle_stage == LifecycleStage.DELETED:
        try:
            client.restore_experiment(experiment.experiment_id)
        except MlflowException:
            if client.get_experiment(experiment.experiment_id).lifecycle_stage != "active":
                raise
    return experiment


def restore_run(client: MlflowClient, run_id: str) -> None:
    """Bring back a run that somebody deleted, or that a rival is bringing back."""
    try:
        client.restore_run(run_id)
    except MlflowException:
        if client.get_run(run_id).info.lifecycle_stage != LifecycleStage.ACTIVE:
            raise


def repeat(write: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do a write that may be done twice, and again if it met another one.

    MLflow fails one of two who set the same new tag or delete the same alias at once.
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
    """Return what `find` finds, else what `create` makes.

    MLflow's client sends a create again when its answer is lost, which makes two of a thing. Here
    it is sent once, and what a lost answer may have left is looked for before the next try.
    """
    found = find()
    if found is not None:
        return found
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
    """Have MLflow send requests once, here and in no other thread at that time.

    It reads the number of tries from the environment at each request.
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
