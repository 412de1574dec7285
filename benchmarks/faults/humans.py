"""Human races: people who answer the same question at once, too late, or in two places.

A trial is one challenger and two who act on it at the same moment, in processes of their own, by
the functions that tasks and commands call. It holds if the record has one end of the review, who
got their way is who the record names, everybody else was refused with a code and a sentence, and
the registry is as the record says.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.progress import track

from benchmarks.faults.races import Told, Workers, add_challenger, attempt, workers
from benchmarks.faults.servers import sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import BASE, Trial, World, world_on
from benchmarks.registries import client_of
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.models.trust import fetched
from rtscv_mlops.review.answers import (
    collect_answer,
    promote_challenger,
    question_id,
    review_challenger,
)
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.journal import OUTCOMES, Record
from rtscv_mlops.tracking.registry import REPORT, ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun

EACH = 30
EXPIRES = 2.0
JITTER = 0.15
"""Seconds around the end of the time for an answer in which both act."""


@dataclass(frozen=True, slots=True)
class Case:
    """A challenger that waits for review, and two who are about to act."""

    world: World
    two: Workers
    trial: Trial
    version: str
    seed: int

    @property
    def file(self) -> Path:
        return self.trial.file

    @property
    def question(self) -> str:
        found = ModelRegistry(self.world.client, self.trial.model).versions.get(self.version)
        return question_id(found)

    def ends(self) -> list[Record]:
        """Return how the review of the version ended, once for each time that it did."""
        records = ModelRegistry(self.world.client, self.trial.model).decisions.history().records
        return [one for one in records if one.kind in OUTCOMES and one.version == self.version]

    def champion(self) -> str | None:
        return ModelRegistry(self.world.client, self.trial.model).versions.champion()

    def promoted(self) -> Told:
        """Let the version be promoted, as the task after the review does."""
        return attempt(promote_challenger, load_monitor(self.file), self.version)


def run(quick: bool) -> Iterator[Tally]:
    """Every race, so often."""
    with sqlite_server() as server, world_on(server) as world, workers(2) as two:
        client_of(server.address)
        for what, act in RACES.items():
            rounds = range(1 if quick else EACH)
            found = [race(world, two, act, seed) for seed in track(rounds, what)]
            wrong = [", ".join(one) for one in found if one]
            yield Tally("humans", what, len(found), len(wrong), "; ".join(wrong[:3]))


def race(world: World, two: Workers, act: Callable[[Case], list[str]], seed: int) -> list[str]:
    """Run one race; return what is wrong afterwards."""
    trial = world.trial()
    if act is at_the_timeout:
        trial.file.write_text(f"{trial.file.read_text()}review: {{expires: {EXPIRES:.0f}s}}\n")
    case = Case(world, two, trial, add_challenger(trial, 1), seed)
    found = act(case)
    if len(case.ends()) > 1:
        found.append(f"the review ended {len(case.ends())} times")
    return found + list(ModelRegistry(world.client, trial.model).decisions.history().problems)


# -- what people do, in processes of their own


def answer(file: Path, version: str, approve: bool, who: str, question: str, at: float = 0) -> str:
    """Answer as the task, the page and the command do; return what holds."""
    time.sleep(max(0.0, at - time.time()))
    decided = review_challenger(
        load_monitor(file),
        version,
        approve=approve,
        reviewer=who,
        reason=f"{who} says so",
        question=question,
    )
    return decided.review


def collect(file: Path, version: str, at: float = 0) -> str:
    """Look for an answer, or for the end of the time, as the waiting task does."""
    time.sleep(max(0.0, at - time.time()))
    found = collect_answer(load_monitor(file), version)
    return found.status if found else ""


def answer_by_tag(file: Path, version: str, status: str, who: str) -> str:
    """Answer in MLflow's own pages, and let the waiting task find it."""
    settings = load_monitor(file).model
    client = connect(settings)
    for tag, text in ((tags.REVIEWER, who), (tags.REASON, "by tag"), (tags.REVIEW, status)):
        client.set_model_version_tag(settings.name, version, tag, text)
    return collect(file, version)


def offer_newer(address: str, model: str, newer: str) -> str:
    """Offer a newer challenger, which supersedes the one that waits."""
    return ModelRegistry(client_of(address), model).versions.offer(newer).review


def move_by_hand(address: str, model: str, version: str) -> None:
    """Set the alias in MLflow, past all of us."""
    client_of(address).set_registered_model_alias(model, "champion", version)


def redraw(address: str, model: str, version: str) -> None:
    """Replace the report, as a task does that was cleared."""
    client = client_of(address)
    run_id = client.get_model_version(model, version).run_id
    WindowRun(client, run_id).write_text(REPORT, "<p>What was drawn later.</p>")


def change_file(file: Path) -> None:
    """Change one file of a model in the store."""
    file.write_text(f"{file.read_text()}\n# changed\n")


# -- the races


def opposed(case: Case) -> list[str]:
    """One approves and one rejects, or both approve."""
    question, second = case.question, case.seed % 2 == 0
    told = case.two.race(
        (answer, (case.file, case.version, True, "ann", question)),
        (answer, (case.file, case.version, second, "ben", question)),
    )
    return one_decides(case, told, ("ann", "ben"))


def one_decides(case: Case, told: list[Told], names: tuple[str, str]) -> list[str]:
    """Judge: one of two got their way, the other was told so, and what follows is right."""
    found = refusals(told, ("decided",))
    won = [name for name, each in zip(names, told, strict=True) if each.won]
    held = [(end.who, end.kind) for end in case.ends()]
    if len(won) != 1 or [who for who, _ in held] != won:
        found.append(f"{won} won, and the record has {held}")
    return found + follows(case, bool(held) and held[0][1] == "approved")


def follows(case: Case, approved: bool) -> list[str]:
    """Promote, and say what is wrong: an approved version serves then, another one never."""
    told = case.promoted()
    now = case.champion()
    if told.won != approved or now != (case.version if approved else "1"):
        return [f"approved: {approved}, promoted: {told}, champion {now}"]
    return []


def refusals(told: list[Told], codes: tuple[str, ...]) -> list[str]:
    """Return those who were not refused by one of these codes, in a sentence."""
    return [
        str(each)
        for each in told
        if not each.won and not (each.refused and each.code in codes and each.sentence)
    ]


def at_the_timeout(case: Case) -> list[str]:
    """An answer in the moment in which the time for it is over."""
    created = ModelRegistry(case.world.client, case.trial.model).versions.get(case.version).created
    late = created.timestamp() + EXPIRES
    rng = random.Random(case.seed)
    answered, collected = case.two.race(
        (
            answer,
            (*(case.file, case.version, True, "ann", case.question), late + _jitter(rng)),
        ),
        (collect, (case.file, case.version, late + _jitter(rng))),
    )
    found = refusals([answered], ("expired",)) + refusals([collected], ())
    held = [end.kind for end in case.ends()]
    if held != [answered.result if answered.won else "expired"]:
        found.append(f"{answered}, and the record has {held}")
    if collected.won and collected.result not in ("", *held):
        found.append(f"the waiting task read {collected.result}, and the record has {held}")
    return found + follows(case, held == ["approved"])


def _jitter(rng: random.Random) -> float:
    return rng.uniform(-JITTER, JITTER)


def in_both_places(case: Case) -> list[str]:
    """One answers in Airflow, the other by tag in MLflow."""
    status = "rejected" if case.seed % 2 else "approved"
    here, there = case.two.race(
        (answer, (case.file, case.version, True, "ann", case.question)),
        (answer_by_tag, (case.file, case.version, status, "mara")),
    )
    held = [(end.who, end.kind) for end in case.ends()]
    found = refusals([here, there], ("decided",))
    if len(held) != 1 or here.won != (held[0][0] == "ann"):
        found.append(f"Airflow: {here}, MLflow: {there}, and the record has {held}")
    elif there.won and there.result != held[0][1]:
        found.append(f"the waiting task read {there.result}, and the record has {held}")
    return found + follows(case, held[0][1] == "approved")


def after_a_clear(case: Case) -> list[str]:
    """The old answer of a task that was cleared, while its report is drawn anew."""
    question = case.question
    redrawn = (redraw, (case.world.server.address, case.trial.model, case.version))
    old = (answer, (case.file, case.version, True, "ann", question))
    if case.seed % 2:  # The answer comes after, without doubt.
        case.two.race(redrawn)
        (told,) = case.two.race(old)
        found = [] if told.refused else [f"an answer to an old question: {told}"]
    else:
        told, _ = case.two.race(old, redrawn)
        found = refusals([told], ("stale", "digest_mismatch"))
    # What was approved is no longer there, so it does not serve either.
    if case.promoted().won or case.champion() != "1":
        found.append("an approval of another report was carried out")
    if not told.won:  # What was judged is sealed: a report that was drawn anew is never approved.
        now = attempt(answer, case.file, case.version, True, "ann", case.question)
        if not now.refused or now.code != "digest_mismatch":
            found.append(f"an approval of another report: {now}")
    return found


def after_the_champion_moved(case: Case) -> list[str]:
    """An approval, while or after another user makes another version the champion."""
    client, model = case.world.client, case.trial.model
    other = client.copy_model_version(f"models:/{BASE}/1", model).version
    moved = (move_by_hand, (case.world.server.address, model, str(other)))
    approval = (answer, (case.file, case.version, True, "ann", case.question))
    if case.seed % 2:
        case.two.race(moved)
        (told,) = case.two.race(approval)
        found = [] if told.code == "stale" else [f"after the champion moved: {told}"]
    else:
        told, _ = case.two.race(approval, moved)
        found = refusals([told], ("stale",))
    if case.promoted().won or case.champion() != str(other):
        found.append("the champion that somebody had set was replaced")
    return found


def after_a_newer_one(case: Case) -> list[str]:
    """An approval, while a newer challenger is offered."""
    address, model = case.world.server.address, case.trial.model
    newer = add_challenger(case.trial, 2, offer=False)
    approved, offered = case.two.race(
        (answer, (case.file, case.version, True, "ann", case.question)),
        (offer_newer, (address, model, newer)),
    )
    held = [end.kind for end in case.ends()]
    found = refusals([approved], ("superseded",)) + refusals([offered], ())
    if held != ["approved" if approved.won else "superseded"]:
        found.append(f"{approved}, and the record has {held}")
    alias = ModelRegistry(case.world.client, model).versions.aliases().get("challenger")
    if alias != newer:
        found.append(f"the alias challenger is {alias}, and {newer} awaits review")
    return found + follows(case, held == ["approved"])


def with_changed_files(case: Case) -> list[str]:
    """An approval before, after or while a file of the challenger is changed."""
    version, file = own_files(case)
    case = Case(case.world, case.two, case.trial, version, case.seed)
    changed = (change_file, (file,))
    approval = (answer, (case.file, version, True, "ann", case.question))
    orders = ([(approval,), (changed,)], [(changed,), (approval,)], [(approval, changed)])
    told = [each for acts in orders[case.seed % 3] for each in case.two.race(*acts)]
    found = refusals(told, ("digest_mismatch",))
    refused = any(each.refused for each in told)
    if refused != (case.seed % 3 == 1) and case.seed % 3 != 2:
        found.append(f"the wrong ones were refused: {', '.join(map(str, told))}")
    if case.promoted().won:
        found.append("files serve that nobody reviewed")
    return found


def own_files(case: Case) -> tuple[str, Path]:
    """Offer a challenger with files of its own; return its version and one of the files."""
    client, model, key = case.world.client, case.trial.model, "b" * 64
    run = ModelRegistry(client, model).runs.open(key)
    experiment = client.get_run(run.run_id).info.experiment_id
    made = client.create_logged_model(experiment, "model", source_run_id=run.run_id)
    with TemporaryDirectory() as folder:
        with fetched(client, f"models:/{BASE}/1") as files:
            shutil.copytree(files, folder, dirs_exist_ok=True)
        client.log_model_artifacts(made.model_id, folder)
    client.finalize_logged_model(made.model_id, "READY")
    version = add_challenger(case.trial, 3, model_id=made.model_id)
    (file,) = case.world.server.folder.glob(f"artifacts/*/models/{made.model_id}/artifacts/MLmodel")
    return version, file


RACES = {
    "two reviewers at once, opposed or agreed: one decision": opposed,
    "an answer at the very end of its time: approved or expired": at_the_timeout,
    "Airflow and MLflow at once: one decision": in_both_places,
    "an answer to a question that was cleared: refused": after_a_clear,
    "an approval while the champion moves: refused": after_the_champion_moved,
    "an approval while a newer challenger is offered: one or the other": after_a_newer_one,
    "an approval while files change: only what was reviewed serves": with_changed_files,
}
