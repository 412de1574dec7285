"""Lost answers: MLflow has done what it was asked for, and we never hear of it.

A first window through the proxy tells which writes there are. Then each of them is lost once by
each fault. Several are lost on the way of one window: writes of different kinds do not meet, and a
window that goes wrong counts for all that were lost in it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from rich.progress import track

from benchmarks.faults.proxy import AFTER, TIMEOUT, LossyProxy, Write
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import BASE, Trial, World, world_on
from benchmarks.registries import seal_window
from rtscv_mlops.errors import RtscvError, ServiceError
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.review.answers import promote_challenger, review_challenger, roll_back
from rtscv_mlops.tracking.ledger import experiment_name
from rtscv_mlops.tracking.registry import ModelRegistry

MOST_TRIES = 12
AT_ONCE = {"drop": 40, "502": 40, "delay": 40, "half": 8}
"""How many are lost on one way: half an answer ends a try, the others are asked for again."""
WORDS = {
    "drop": "no answer",
    "502": "502 by a gateway",
    "delay": "an answer after the client gave up",
    "half": "half an answer",
}


def run(quick: bool) -> Iterator[Tally]:
    """Lose every write of a window's whole way, and of reviews, by every fault."""
    with sqlite_server() as server, world_on(server) as world:
        writes = find_writes(world)
        for fault in AFTER[:2] if quick else AFTER:
            yield lose_on_the_way(world, fault, writes[::20] if quick else writes)
        for fault in AFTER[:1] if quick else AFTER:
            yield lose_in_reviews(world, fault, [REJECTED] if quick else [MOVED_BACK, REJECTED])


@dataclass
class Losses:
    """What was lost so far by one fault, and what went wrong."""

    lost: int = 0
    windows: int = 0
    again: int = 0
    failures: int = 0
    told: str = ""

    def add(self, lost: list[Write], tries: int, problems: list[str]) -> None:
        """Count a window; one that went wrong counts for all that was lost in it."""
        self.lost += len(lost)
        self.windows += 1
        self.again += tries - 1
        if problems:
            self.failures += len(lost)
            self.told += f"{', '.join(map(str, lost))}: {'; '.join(problems)}. "

    def tally(self, what: str, besides: str = "") -> Tally:
        """Return the row of the table."""
        ways = f"{self.windows} windows, {self.again} further tries. {besides}{self.told}"
        return Tally("answers", what, self.lost, self.failures, ways.strip())


def find_writes(world: World) -> list[Write]:
    """Return every write of a window's whole way that goes to MLflow."""
    proxy = LossyProxy(world.server.address)
    trial = world.trial(proxy.address)
    if trial.finish() != 0 or trial.problems():
        raise RuntimeError(f"a window goes wrong without any fault: {trial.problems()}")
    proxy.shutdown()
    return list(proxy.seen)


def lose_on_the_way(world: World, fault: str, writes: list[Write]) -> Tally:
    """Lose each write once, on as few ways as possible."""
    losses, left = Losses(), list(writes)
    for _ in track(range(len(writes)), f"{fault} on the way"):
        if not left:
            break
        batch = _different_kinds(left)[: AT_ONCE[fault]]
        lost, tries, problems = lose(world, fault, batch)
        # What did not happen any more on a later try gets a way of its own.
        left = [write for write in left if write not in lost]
        if not lost:
            left = [write for write in left if write not in batch]
            problems.append(f"never happened: {', '.join(map(str, batch))}")
            losses.failures += 1
        losses.add(lost, tries, problems)
    kinds = len({write.kind for write in writes})
    return losses.tally(
        f"{WORDS[fault]} to a write that MLflow has stored, of {len(writes)} writes of {kinds} "
        "kinds on a window's way from judging to promotion: one run, one version, one record each",
        without_us(world, fault),
    )


def _different_kinds(writes: list[Write]) -> list[Write]:
    """Return the first write of each kind."""
    return list({write.kind: write for write in reversed(writes)}.values())[::-1]


def lose(world: World, fault: str, writes: list[Write]) -> tuple[list[Write], int, list[str]]:
    """Lose these writes on one way; return those that were lost, the tries, and what is wrong."""
    proxy = LossyProxy(world.server.address)
    proxy.lose(fault, writes)
    trial = world.trial(proxy.address)
    tries = 1
    while trial.finish(**_impatient(fault)) != 0 and tries < MOST_TRIES:
        proxy.begin()
        tries += 1
    proxy.shutdown()
    return list(proxy.lost), tries, trial.problems() + surplus(trial, tries)


def _impatient(fault: str) -> dict[str, str]:
    return {"MLFLOW_HTTP_REQUEST_TIMEOUT": str(TIMEOUT)} if fault == "delay" else {}


def surplus(trial: Trial, tries: int) -> list[str]:
    """Return what there is more of than one write each leaves; each try may have stored a model."""
    client, model = trial.world.client, trial.model
    counts = {
        "versions": len(client.search_model_versions(f"name = '{model}'")) - 1,
        "approvals": _recorded(client, model, "approved"),
        "promotions": _recorded(client, model, "promoted"),
    }
    found = [f"{count} {what} instead of 1" for what, count in counts.items() if count != 1]
    stored = _stored_models(client, model)
    return found + ([f"{stored} stored models by {tries} tries"] if stored > tries else [])


def _recorded(client: MlflowClient, model: str, kind: str) -> int:
    records = ModelRegistry(client, model).decisions.history().records
    return [record.kind for record in records].count(kind)


def _stored_models(client: MlflowClient, model: str) -> int:
    home = client.get_experiment_by_name(experiment_name(model))
    return len(client.search_logged_models([home.experiment_id]))


@dataclass(frozen=True)
class Review:
    """Steps of a review, each of which a person repeats until it is answered."""

    steps: tuple[Callable[[Trial], object], ...]
    recorded: list[str]


def _decide(trial: Trial, approve: bool) -> None:
    review_challenger(trial.monitor, "2", approve=approve, reviewer="ann", reason="figs are new")


MOVED_BACK = Review(
    (
        partial(_decide, approve=True),
        lambda trial: promote_challenger(trial.monitor, "2"),
        lambda trial: roll_back(trial.monitor, "bob", "too slow"),
    ),
    ["approved", "promoted", "rolled_back"],
)
REJECTED = Review((partial(_decide, approve=False),), ["rejected"])


def lose_in_reviews(world: World, fault: str, reviews: list[Review]) -> Tally:
    """Lose each write of each step of reviews, one at a time."""
    losses = Losses()
    for review in reviews:
        writes = [
            (step, write)
            for step in range(len(review.steps))
            for write in find_writes_of(world, review, step)
        ]
        for step, write in track(writes, f"{fault} in reviews"):
            losses.add([write], 1, lose_in_step(world, fault, review, step, write))
    return losses.tally(
        f"{WORDS[fault]} to a write of an approval, a promotion, a rollback or a rejection: one "
        "record each, and the champion is what the record says"
    )


def find_writes_of(world: World, review: Review, step: int) -> list[Write]:
    """Return every write of a step of a review."""
    proxy = LossyProxy(world.server.address)
    trial = world.trial(proxy.address)
    offer(trial)
    for act in review.steps[: step + 1]:
        proxy.begin()
        act(trial)
    proxy.shutdown()
    return list(proxy.seen)


def lose_in_step(world: World, fault: str, review: Review, step: int, write: Write) -> list[str]:
    """Lose a write in a step of a review; return what is wrong at the end of it."""
    proxy = LossyProxy(world.server.address)
    trial = world.trial(proxy.address)
    offer(trial)
    with patch.dict(os.environ, _impatient(fault)):
        for place, act in enumerate(review.steps):
            proxy.begin()
            proxy.lose(fault, [write] if place == step else [])
            try:
                repeat_until_answered(partial(act, trial))
            except RtscvError as error:
                return [f"{error.code}: {error}"]
    proxy.shutdown()
    return _problems_of(trial, review) + ([] if proxy.lost else ["the write never came"])


def _problems_of(trial: Trial, review: Review) -> list[str]:
    client = trial.world.client
    registry = ModelRegistry(client, trial.model)
    told = registry.decisions.history()
    problems = list(told.problems)
    kinds = [record.kind for record in told.records]
    if kinds != review.recorded:
        problems.append(f"recorded are {', '.join(kinds)}")
    if registry.versions.champion() != "1":
        problems.append("the champion is not the first version")
    return problems


def repeat_until_answered(act: Callable[[], object]) -> None:
    """Do what a person does whom an error tells to try again."""
    for _ in range(3):
        try:
            act()
            return
        except ServiceError:
            continue
    act()


def offer(trial: Trial) -> str:
    """Offer a version for review that has the champion's files, without judging any window."""
    client, model = trial.world.client, trial.model
    champion = load_champion(client, trial.monitor.model)
    key = "k" * 32
    registry = ModelRegistry(client, model)
    run = registry.runs.open(key)
    assert champion.model_id is not None
    version = registry.versions.register(
        seal_window(
            client,
            key,
            run.run_id,
            champion.model_id,
            day=5,
            champion=champion.version,
            model=model,
            model_sha256=champion.digest,
            files=True,
        )
    )
    return registry.versions.offer(version).version


def without_us(world: World, fault: str) -> str:
    """Register a version by MLflow's client alone, with its own retries, to compare."""
    client, model = world.client, f"plain-{fault}"
    client.create_registered_model(model)
    champion = client.get_model_version(BASE, "1")
    proxy = LossyProxy(world.server.address)
    proxy.lose(fault, [Write("post model-versions/create", 1)])
    plain = MlflowClient(proxy.address, proxy.address)
    with patch.dict(os.environ, _impatient(fault)), suppress(MlflowException):
        plain.create_model_version(
            model,
            champion.source,
            champion.run_id,
            model_id=champion.source.removeprefix("models:/"),
            await_creation_for=0,
        )
    proxy.shutdown()
    made = len(client.search_model_versions(f"name = '{model}'"))
    return f"MLflow's client alone makes {made} version{'s'[: made != 1]} by one such call. "
