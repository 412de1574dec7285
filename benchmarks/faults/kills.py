"""Kill -9 before and after every outside write, and at any time: the next try finishes unaided.

The worker takes a window with unknowns the whole way, from reading to promotion. All points of the
way are found by a run that is left in peace. One seed is killed once at each of them, further seeds
at some of them; then at random times between start and end. After each kill no version may be
offered without its files, and the champion stays or is what the record says; after the next try all
is as if nothing had happened. Ours, not MLflow's, is shortened: an alert that a dead worker began
to send is sent again after seconds instead of minutes.
"""

import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.progress import track

from benchmarks.deployments import WITH_FIGS, leaves
from benchmarks.faults import failpoints
from benchmarks.faults.servers import MlflowServer, postgres_server, sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import Trial, World, was_killed, world_on

SEEDS = 5
POINTS_PER_SEED = 24
RANDOM_KILLS = 150
QUICK_KILLS = 3


def points_on_sqlite(quick: bool) -> Iterator[Tally]:
    """Kill at named points, on a server with SQLite."""
    with sqlite_server() as server:
        yield from _points(server, quick, "SQLite", every_point=True)


def points_on_postgres(quick: bool) -> Iterator[Tally]:
    """Kill at named points, on a server with PostgreSQL."""
    with postgres_server() as server:
        yield from _points(server, quick, "PostgreSQL", every_point=False)


def times_on_sqlite(quick: bool) -> Iterator[Tally]:
    """Kill at random times, on a server with SQLite."""
    with sqlite_server() as server:
        yield from _times(server, quick, "SQLite")


def times_on_postgres(quick: bool) -> Iterator[Tally]:
    """Kill at random times, on a server with PostgreSQL."""
    with postgres_server() as server:
        yield from _times(server, quick, "PostgreSQL")


def _points(server: MlflowServer, quick: bool, database: str, every_point: bool) -> Iterator[Tally]:
    with world_on(server) as world:
        points = find_points(world)
        jobs = choose_points(points, every_point)[: QUICK_KILLS if quick else None]
        results = [kill_at(world, seed, point) for seed, point in track(jobs, f"kills, {database}")]
    what = f"kill -9 at one of {len(points)} points around the writes of a window, {database}"
    yield from _tallies(what, results)


def _times(server: MlflowServer, quick: bool, database: str) -> Iterator[Tally]:
    with world_on(server) as world:
        seconds = min(_duration(world) for _ in range(3))
        chance = random.Random(0)
        hits = QUICK_KILLS if quick else RANDOM_KILLS
        results: list[list[str] | None] = []
        for number in track(range(hits), f"kills at any time, {database}"):
            # A worker that was faster than its killer is no trial: another one is tried, and the
            # machine is faster now than when the first windows were timed.
            while len(results) - results.count(None) <= number:
                results.append(kill_after(world, number % SEEDS, chance.uniform(0, seconds)))
                seconds *= 0.95 if results[-1] is None else 1
    yield from _tallies(f"kill -9 at a random time of a window, {database}", results)


def _tallies(what: str, results: list[list[str] | None]) -> Iterator[Tally]:
    """Count; a worker that was faster than its killer is no trial."""
    hit = [problems for problems in results if problems is not None]
    told = "; ".join(sorted({problem for problems in hit for problem in problems})[:3])
    missed = len(results) - len(hit)
    if missed:
        told = f"{missed} more were over before they were killed. {told}".strip()
    failures = sum(bool(problems) for problems in hit)
    yield Tally("outcome", what, len(hit), failures, told)
    rebuilt = sum(any("record" in problem.lower() for problem in problems) for problems in hit)
    yield Tally("audit", f"champion by the record = alias, after each {what}", len(hit), rebuilt)


def find_points(world: World) -> list[str]:
    """Return the names of all points that a worker passes, in order."""
    trace = Path(world.folder, "trace")
    trial = world.trial()
    assert trial.finish(day_of(world, 0), **{failpoints.TRACE: str(trace)}) == 0
    assert trial.problems(day_of(world, 0)) == []
    return trace.read_text().splitlines()


def choose_points(points: list[str], every_point: bool) -> list[tuple[int, str]]:
    """Return points for each seed, chosen at random; and if asked for, every point for the first.

    No point comes twice before all have come.
    """
    chance = random.Random(0)
    shuffled = chance.sample(points, len(points)) + chance.sample(points, len(points))
    first = [(0, point) for point in points] if every_point else []
    seeds = range(1 if every_point else 0, SEEDS)
    return first + [
        (seed, shuffled[number * POINTS_PER_SEED + each])
        for number, seed in enumerate(seeds)
        for each in range(POINTS_PER_SEED)
    ]


def kill_at(world: World, seed: int, point: str) -> list[str] | None:
    """Kill a worker at a point, try again, and say what is wrong; None if it was not killed."""
    trial, day = world.trial(), day_of(world, seed)
    if not was_killed(trial.finish(day, **{failpoints.VARIABLE: point})):
        return None
    return [f"{problem} (killed at {point})" for problem in _after_a_kill(trial, day)]


def kill_after(world: World, seed: int, seconds: float) -> list[str] | None:
    """Kill a worker after some time, try again, and say what is wrong."""
    trial, day = world.trial(), day_of(world, seed)
    process = trial.start(day)
    time.sleep(seconds)
    process.kill()
    process.join()
    if not was_killed(process.exitcode):
        return None
    return [f"{problem} (killed after {seconds:.2f} s)" for problem in _after_a_kill(trial, day)]


def _after_a_kill(trial: Trial, day: str) -> Iterable[str]:
    yield from trial.half_done_problems()
    code = trial.finish(day)
    if code != 0:
        yield f"the next try ended with {code}"
    yield from trial.problems(day)


def _duration(world: World) -> float:
    began = time.monotonic()
    assert world.trial().finish(day_of(world, 0)) == 0
    return time.monotonic() - began


def day_of(world: World, seed: int) -> str:
    """Return a day with unknowns that belongs to a seed; it is written when it is first needed."""
    day = f"2026-02-{seed + 1:02d}"
    if not (world.folder / "windows" / f"day={day}").exists():
        world.days.write_day(day, *leaves(100 + seed, WITH_FIGS))
    return day
