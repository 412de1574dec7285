"""Answers against newer challengers: no answer of a person is lost.

A trial is a challenger that waits, a person who answers, and a newer challenger that is offered at
the same moment, in processes of their own. It holds if the record names the person with answer and
reason: as the decision, or as an answer that was not carried out and why.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

from rich.progress import track

from benchmarks.faults.humans import answer
from benchmarks.faults.races import Workers, add_challenger, workers
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import World, world_on
from benchmarks.registries import client_of
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.outcomes import NOT_CARRIED_OUT
from rtscv_mlops.review.answers import collect_answered, question_id
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.registry import ModelRegistry

EACH = 100
LATEST = 0.4
"""Seconds by which either may come first."""
WHO, WHY = "ann", "ann says so"
WAYS = {
    "an answer on the page or by command while a newer challenger is offered: lost": False,
    "an answer by tag while a newer challenger is offered: lost": True,
}


def run(quick: bool) -> Iterator[Tally]:
    """Every way to answer, so often."""
    with sqlite_server() as server, world_on(server) as world, workers(2) as two:
        client_of(server.address)
        for what, by_tag in WAYS.items():
            rounds = range(2 if quick else EACH)
            found = [race(world, two, seed, by_tag=by_tag) for seed in track(rounds, what)]
            wrong = [one for one in found if one]
            yield Tally("humans", what, len(found), len(wrong), "; ".join(wrong[:3]))


def race(world: World, two: Workers, seed: int, *, by_tag: bool) -> str:
    """Run one race; return what is wrong afterwards."""
    trial, chance = world.trial(), random.Random(seed)
    waiting, newer = add_challenger(trial, 1), add_challenger(trial, 2, offer=False)
    registry = ModelRegistry(world.client, trial.model)
    begins = time.time() + 0.2
    at = begins + chance.uniform(0, LATEST), begins + chance.uniform(0, LATEST)
    approve = bool(chance.getrandbits(1))
    question = question_id(registry.versions.get(waiting))
    told, offered = two.race(
        (tag_at, (trial.file, waiting, approve, at[0]))
        if by_tag
        else (answer, (trial.file, waiting, approve, WHO, question, at[0])),
        (offer_at, (trial.file, newer, at[1])),
    )
    registry.versions.keep_late_answers()  # as the next look at any answer does
    if not offered.won:
        return f"the newer challenger was not offered: {offered}"
    history = registry.decisions.history()
    kept = [one for one in history.records if one.version == waiting and one.who == WHO]
    decided = "approved" if approve else "rejected"
    if len(kept) != 1 or kept[0].reason != WHY:
        return f"{len(kept)} records of an answer that was told {told}"
    if kept[0].kind != decided and not told.code and not by_tag:
        return f"acknowledged as {told}, and not carried out"
    if kept[0].kind not in (decided, NOT_CARRIED_OUT):
        return f"{decided} is recorded as {kept[0].kind}"
    return "; ".join(history.problems)


def tag_at(file: Path, version: str, approve: bool, at: float) -> str:
    """Answer in MLflow's own pages."""
    settings = load_monitor(file).model
    client = connect(settings)
    status = "approved" if approve else "rejected"
    time.sleep(max(0.0, at - time.time()))
    for tag, text in ((tags.REVIEWER, WHO), (tags.REASON, WHY), (tags.REVIEW, status)):
        client.set_model_version_tag(settings.name, version, tag, text)
    return status


def offer_at(file: Path, newer: str, at: float) -> str:
    """Offer a newer challenger as a window does."""
    monitor = load_monitor(file)
    versions = ModelRegistry.connect(monitor.model).versions
    time.sleep(max(0.0, at - time.time()))
    return versions.offer(
        newer, collect=lambda older: collect_answered(monitor, older.version)
    ).review
