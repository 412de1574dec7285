"""Workers in processes of their own that act at the same moment, and challengers to decide on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from mlflow.tracking import MlflowClient

from benchmarks.faults.world import BASE, PRELOAD, Trial
from benchmarks.registries import client_of, seal_window
from rtscv_mlops.errors import ReviewError, RtscvError
from rtscv_mlops.models.trust import model_digest
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.registry import ModelRegistry

HEAD_START = 0.03
"""Seconds until all workers know what to do."""
REPORT = "r" * 64
Act = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Told:
    """What one worker got: a result, or an error with its code and message."""

    result: Any = None
    code: str = ""
    sentence: str = ""
    refused: bool = False

    @property
    def won(self) -> bool:
        return not self.code

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}" if self.code else f"won {self.result}"


class Workers:
    """Processes that wait for something to do, all at the same moment."""

    def __init__(self, number: int) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def race(self, *acts: Act) -> list[Told]:
        """Have one worker do each of these at once; return what each got."""
        moment = time.time() + HEAD_START
        used = self._pipes[: len(acts)]
        for pipe, act in zip(used, acts, strict=True):
            pipe.send((moment, act))
        return [pipe.recv() for pipe in used]

    def close(self) -> None:
        """Stop all of them."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.join()


@contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Start workers, and stop them at the end."""
    started = Workers(number)
    try:
        yield started
    finally:
        started.close()


def _serve(pipe: Connection) -> None:
    while True:
        try:
            moment, (act, given) = pipe.recv()
        except EOFError:
            return
        time.sleep(max(0.0, moment - time.time()))
        pipe.send(attempt(act, *given))


def attempt(act: Callable[..., Any], *given: Any) -> Told:
    """Do something; an error is a result, which the experiment judges."""
    try:
        return Told(act(*given))
    except ReviewError as error:
        return Told(code=error.code, sentence=str(error), refused=True)
    except RtscvError as error:
        return Told(code=error.code, sentence=str(error))
    except Exception as error:
        return Told(code=type(error).__name__, sentence=str(error))


def add_challenger(
    trial: Trial, number: int, champion: str = "1", *, model_id: str = "", offer: bool = True
) -> str:
    """Register a challenger, with the champion's own files if no others are named; offer it."""
    client, key = client_of(trial.world.server.address), f"{number:064d}"
    registry = ModelRegistry(client, trial.model)
    run = registry.runs.open(key)
    shared = client.get_model_version(trial.model, "1").source.removeprefix("models:/")
    digest = shared_digest(trial.world.server.address)
    if model_id:
        digest = model_digest(client, f"models:/{model_id}")
    version = registry.versions.register(
        seal_window(
            client,
            key,
            run.run_id,
            model_id or shared,
            day=number % 27 + 1,
            champion=champion,
            model=trial.model,
            model_sha256=digest,
            files=True,
        )
    )
    if offer:
        registry.versions.offer(version)
    return version


def add_offered(trial: Trial, number: int, champion: str) -> str:
    """Make a version as it is once it has been offered, with a few requests instead of forty.

    Unlike `add_challenger` it supersedes nothing, so that several may wait at once.
    """
    client, key = trial.world.client, f"{number:064d}"
    shared = client.get_model_version(trial.model, "1")
    ledger = Ledger.open(client, trial.model)
    run_id = client.create_run(ledger.experiment_id).info.run_id
    seal = seal_window(
        client,
        key,
        run_id,
        shared.source.removeprefix("models:/"),
        day=number % 27 + 1,
        champion=champion,
        model=trial.model,
        model_sha256=shared_digest(trial.world.server.address),
        files=True,
    )
    made = client.create_model_version(
        trial.model,
        shared.source,
        run_id,
        tags={tags.KIND: "challenger", tags.KEY: key, tags.REVIEW: "pending"},
        await_creation_for=0,
        model_id=seal.model_id,
    )
    version = str(made.version)
    ledger.claim(f"version.{key}", version)
    ledger.claim(f"offered.{version}.{key}", version)
    return version


@cache
def shared_digest(address: str) -> str:
    """Return the digest of the files that all champions of a server share."""
    client_of(address)
    return model_digest(MlflowClient(address, address), f"models:/{BASE}/1")
