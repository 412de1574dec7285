"""One who was frozen in the middle of its work, past what another one did, and wakes up."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.faults import failpoints
from benchmarks.faults.races import add_offered, attempt
from benchmarks.faults.world import PRELOAD, Trial, World
from benchmarks.registries import client_of
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.journal import PROMOTED, last_move
from rtscv_mlops.tracking.registry import ModelRegistry

PATIENCE = 120.0
OWN_RUN = "post runs/create#2 after"
"""From here on a worker has the window's run; before, it makes the model's ledger."""
FENCED = re.compile(
    r"(post runs/(?!log-parameter|create)|put artifacts/\*/\*/artifacts/(?!decisions)"
    r"|(post|patch|delete) (model-versions|registered-models)/)"
)
"""Writes to the window's run, a version or an alias; claims are made once by any process."""
ONE_CALL = re.compile(r"(post|patch|put) (logged-models|artifacts/\*/models/)")
"""Steps of MLflow's own call that stores a model: a worker cannot look around between them."""
BEGUN = "post runs/set-tag#1 after"
"""From here on a worker has its token. Who is frozen before that is a further try when it wakes."""
MAKING = "post model-versions/create"
"""Who was frozen before it made a version clears away what it made besides the other one's."""
ENDINGS = (0, 3)
"""How a woken worker may end: with the outcome of the other one, or saying who took over."""


def points_of_a_window(world: World, folder: Path) -> list[str]:
    """Return every point that a worker passes, by letting one run."""
    trace = folder / "trace"
    world.trial().finish(decide=False, **{failpoints.TRACE: str(trace)})
    return trace.read_text().splitlines()


def outside(points: list[str]) -> list[str]:
    """Return the points from which the next thing a worker does is to check."""
    own = points[points.index(OWN_RUN) :]
    return [point for point in own if point.endswith(" after") and not ONE_CALL.match(point)]


def inside(points: list[str]) -> list[str]:
    """Return the points between a check and its write."""
    return [point for point in points if point.endswith(" before")]


def freeze_worker(world: World, point: str) -> list[str]:
    """Freeze a worker, let another one take the window to its end, wake the first; what is wrong?

    A write that it was frozen in cannot be called back; it may not begin another one, unless it has
    not begun its try at all, and does so now. Whatever it is, nothing of the window may change.
    """
    trial = world.trial()
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        first = trial.start(decide=False, **_armed(point, trace))
        if not wait_for_stop(first):
            return [f"{point} was not reached"]
        found = []
        if code := trial.finish(decide=False):
            found.append(f"the other worker ended with {code}")
        passed = trace.read_text().splitlines()
        found += _wake(first)
        later = trace.read_text().splitlines()[len(passed) :]
    wrote = [each for each in later if each.endswith(" before") and FENCED.match(each)]
    if wrote and BEGUN in passed and not point.startswith(MAKING):
        found.append(f"wrote {wrote[0]} after it woke up at {point}")
    return found + trial.problems(champion="1")


def _armed(point: str, trace: Path) -> dict[str, str]:
    return {
        failpoints.VARIABLE: point,
        failpoints.SIGNAL: "SIGSTOP",
        failpoints.TRACE: str(trace),
    }


def _wake(process: BaseProcess) -> list[str]:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
    ended = process.exitcode
    return [] if ended in ENDINGS else [f"the woken worker ended with {ended}"]


def wait_for_stop(process: BaseProcess) -> bool:
    """Wait until a process was stopped by a signal; False if it ends, or takes too long."""
    patience_ends = time.monotonic() + PATIENCE
    while process.is_alive() and time.monotonic() < patience_ends:
        if _state(process) == "T":
            return True
        time.sleep(0.02)
    process.kill()
    return False


def _state(process: BaseProcess) -> str:
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


# -- promoters

PROMOTION_POINTS = [
    f"{point} {side}"
    for point in (
        "post runs/log-parameter#1",
        "put artifacts/*/*/artifacts/decisions/*#1",
        "post registered-models/alias#1",
        "post registered-models/alias#2",
        "post runs/log-parameter#2",
    )
    for side in ("before", "after")
]
"""All writes of a promotion: the record, its copy, two aliases, and that it was carried out."""


def freeze_promoter(world: World, point: str, meanwhile: str) -> list[str]:
    """Freeze a promoter, let others move the champion, wake it; the alias must be the record's."""
    trial = world.trial()
    mine, other = (add_offered(trial, number, "1") for number in range(2))
    for version in (mine, other):
        _approve(trial, version)
    address, model = world.server.address, trial.model
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with TemporaryDirectory() as folder:
        armed = _armed(point, Path(folder) / "trace")
        process = context.Process(target=_promote_armed, args=(address, model, mine, armed))
        process.start()
        if not wait_for_stop(process):
            return [f"{point} was not reached"]
        client_of(address)
        for step in MEANWHILE[meanwhile](mine, other):
            told = attempt(*step, world.client, model)
            if not told.won and not told.refused:
                return [f"meanwhile {told}"]
        found = _wake(process)
    return found + _differences(trial)


def _approve(trial: Trial, version: str) -> None:
    address = trial.world.server.address
    registry = ModelRegistry(client_of(address), trial.model)
    seal = registry.versions.get(version).seal
    registry.decisions.record(
        version,
        True,
        "ann",
        "fine",
        seen_champion="1",
        seen_seal=seal.digest if seal else "",
    )


def _promote_armed(address: str, model: str, version: str, armed: Mapping[str, str]) -> None:
    os.environ.update(armed)
    failpoints.arm()
    told = attempt(ModelRegistry(client_of(address), model).decisions.promote, version)
    if not told.won and not told.refused:
        raise SystemExit(str(told))


Step = tuple[Callable[..., object], str]


def _promote(version: str, client: MlflowClient, model: str) -> None:
    ModelRegistry(client, model).decisions.promote(version)


def _roll_back(who: str, client: MlflowClient, model: str) -> None:
    ModelRegistry(client, model).decisions.roll_back(who, "bad")


MEANWHILE: dict[str, Callable[[str, str], list[Step]]] = {
    "another promotes": lambda mine, other: [(_promote, other)],
    "promoted and rolled back": lambda mine, other: [(_promote, mine), (_roll_back, "bob")],
    "rolled back, another promotes": lambda mine, other: [
        (_promote, mine),
        (_roll_back, "bob"),
        (_promote, other),
    ],
}
"""What happens while a promoter is frozen."""


def promoter_trials() -> Iterator[tuple[str, str]]:
    """Return each point of a promotion with each thing that may happen meanwhile."""
    yield from ((point, meanwhile) for point in PROMOTION_POINTS for meanwhile in MEANWHILE)


def _differences(trial: Trial) -> list[str]:
    """Compare all aliases with the last recorded move."""
    client = trial.world.client
    history = ModelRegistry(client, trial.model).decisions.history()
    move = last_move(list(history.records))
    if move is None:
        return ["nothing was promoted"]
    wanted = {"champion": move.version}
    if move.kind == PROMOTED:
        wanted["previous_champion"] = move.details["from"]
    found = client.get_registered_model(trial.model).aliases
    aliases = {name: str(version) for name, version in found.items()}
    differs = [] if aliases == wanted else [f"aliases {aliases}, by the record {wanted}"]
    return differs + list(history.problems)
