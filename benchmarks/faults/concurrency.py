"""Concurrency: workers that promote, or judge one window, at once; and one that was frozen.

Fixed before the full runs. A round of promoters is won by exactly one of four, the others are
refused with a reason, and the alias is what the record says. Workers on one window leave one run,
one version and one outcome. A frozen worker whose window another one has finished writes no more
to the run, the version or the alias; frozen between a check and its write, it may finish that one
write. A worker that was frozen while it opened the run starts its attempt when it wakes up, like
every repetition. In the end there is one outcome, and nothing of it has changed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from multiprocessing.process import BaseProcess
from typing import TypeVar

from rich.progress import track

from benchmarks.deployments import WITH_FIGS, leaves
from benchmarks.faults.frozen import (
    freeze_promoter,
    freeze_worker,
    inside,
    outside,
    points_of_a_window,
    promoter_trials,
)
from benchmarks.faults.races import (
    Act,
    Told,
    Workers,
    add_offered,
    shared_digest,
    workers,
)
from benchmarks.faults.servers import MlflowServer, postgres_server, sqlite_server
from benchmarks.faults.tally import Tally
from benchmarks.faults.world import NEW, QUIET, Trial, World, find_problems, world_on
from benchmarks.registries import client_of
from rtscv_mlops.errors import ReviewError
from rtscv_mlops.tracking.journal import MOVES, OUTCOMES
from rtscv_mlops.tracking.registry import ModelRegistry

SERVERS: dict[str, Callable[[], AbstractContextManager[MlflowServer]]] = {
    "SQLite": sqlite_server,
    "PostgreSQL": postgres_server,
}
ROUNDS = 250
"""On each database; 500 in all."""
PROMOTERS = 4
KINDS = ("pending", "rollback", "approved", "opposed", "pending")
"""What the rounds of one model are about; then comes the next model."""
UNGUARDED_ROUNDS = 40
WITHOUT_US = (
    "For comparison, without our layer (read the alias, compare, set it): more than one promoter "
    "believes to have won in {several} of {rounds} rounds."
)
OVERTAKEN = "Your own move is in the record"
WORKERS = 8
REPEATS_QUIET, REPEATS_NEW, REPEATS_MANY = 15, 10, 3
"""On each database: quiet windows, windows with something new, and eight windows at once."""
FROZEN = 50
PATIENCE = 300.0
ONE = "one outcome each, one run, one version"

Thing = TypeVar("Thing")


# -- promoters


@dataclass(frozen=True, slots=True)
class Round:
    """Four workers and one champion; `versions` has the version that each of them is for."""

    trial: Trial
    kind: str
    champion: str
    began: datetime
    versions: tuple[str, ...]


def promoters(quick: bool) -> Iterator[Tally]:
    """Four processes that approve and promote at once, on each database; and without our layer."""
    for name, server in SERVERS.items():
        with server() as running, world_on(running) as world, workers(PROMOTERS) as four:
            rounds = len(KINDS) if quick else ROUNDS
            ours = _promoters(world, four, rounds, name)
            if name == "SQLite":
                rounds = 5 if quick else UNGUARDED_ROUNDS
                several = unguarded_rounds(world, four, rounds)
                told = f"{ours.told} {WITHOUT_US.format(several=several, rounds=rounds)}"
                ours = replace(ours, told=told.strip())
            yield ours


def _promoters(world: World, four: Workers, rounds: int, server: str) -> Tally:
    wrong = promoter_rounds(world, four, rounds)
    what = f"4 promoters at once, MLflow on {server}: one winner, 3 refusals, alias = record"
    return Tally("rivals", what, rounds, len(wrong), "; ".join(wrong[:3]))


def promoter_rounds(world: World, four: Workers, rounds: int) -> list[str]:
    """Let four promoters race so often; return what went wrong, a sentence per round."""
    wrong = []
    for number in track(range(rounds), "promoters"):
        kind = KINDS[number % len(KINDS)]
        if number % len(KINDS) == 0:
            trial = world.trial()
        given = prepare_round(trial, kind, number)
        told = four.race(*acts_of(given))
        problems = judge_round(given, told)
        wrong += [f"round {number} ({kind}): {', '.join(problems)}"] if problems else []
    return wrong


def prepare_round(trial: Trial, kind: str, number: int) -> Round:
    """Make the challengers of a round, from the champion of now."""
    client = trial.world.client
    champion = str(ModelRegistry(client, trial.model).versions.champion())
    count = 1 if kind == "opposed" else PROMOTERS
    versions = [add_offered(trial, PROMOTERS * number + each, champion) for each in range(count)]
    if kind == "approved":
        for version in versions:
            _decide(*_case(trial), version, champion, True, "ann")
    began = datetime.now(UTC)
    return Round(trial, kind, champion, began, tuple(versions * (PROMOTERS // count)))


def acts_of(given: Round) -> list[Act]:
    """Return what each of the four does."""
    case = _case(given.trial)
    if given.kind == "approved":
        return [(_promote, (*case, version)) for version in given.versions]
    acts: list[Act] = [
        (_decide_and_promote, (*case, version, given.champion, _approves(given, each), f"r{each}"))
        for each, version in enumerate(given.versions)
    ]
    if given.kind == "rollback":
        acts[-1] = (_roll_back, (*case, "r3"))
    return acts


def _approves(given: Round, worker: int) -> bool:
    return given.kind != "opposed" or worker % 2 == 0


def _case(trial: Trial) -> tuple[str, str, str]:
    address = trial.world.server.address
    return address, trial.model, shared_digest(address)


def judge_round(given: Round, told: list[Told]) -> list[str]:
    """Return what is wrong: more or fewer winners, no clear refusal, or a record that differs."""
    client, model = given.trial.world.client, given.trial.model
    found = [str(each) for each in told if not each.won and not each.refused]
    won = sum(each.won for each in told)
    registry = ModelRegistry(client, model)
    history = registry.decisions.history()
    moves = [record for record in history.records if record.kind in MOVES]
    new = [move for move in moves if datetime.fromisoformat(move.at) >= given.began]
    # A promotion, a rollback and a promotion may follow one another; two promotions may not. Who
    # moved the champion and was overtaken before the alias was set must be told both.
    overtaken = sum(OVERTAKEN in each.sentence for each in told)
    if won + overtaken != max(1, len(new)) or (given.kind != "rollback" and len(new) > 1):
        found.append(f"{won} winners, {len(new)} moves: {', '.join(map(str, told))}")
    champion = given.champion
    for move in new:
        if move.details["from"] != champion:
            found.append(f"{move}, from {move.details['from']} when {champion} served")
        champion = move.version
    now = registry.versions.champion()
    if now != champion:
        found.append(f"champion is {now}, by the record {champion}")
    decided = Counter(each.version for each in history.records if each.kind in OUTCOMES)
    found += [f"version {one} was decided {n} times" for one, n in decided.items() if n > 1]
    return found + list(history.problems)


def _decide(
    address: str, model: str, digest: str, version: str, champion: str, approve: bool, who: str
) -> None:
    registry = ModelRegistry(client_of(address), model)
    seal = registry.versions.get(version).seal
    registry.decisions.record(
        version,
        approve,
        who,
        "as I see it",
        seen_champion=champion,
        seen_seal=seal.digest if seal else "",
    )


def _promote(address: str, model: str, _: str, version: str) -> str:
    return ModelRegistry(client_of(address), model).decisions.promote(version).version


def _decide_and_promote(
    address: str, model: str, digest: str, version: str, champion: str, approve: bool, who: str
) -> str:
    _decide(address, model, digest, version, champion, approve, who)
    return _promote(address, model, digest, version) if approve else "a rejection"


def _roll_back(address: str, model: str, _: str, who: str) -> str:
    move = ModelRegistry(client_of(address), model).decisions.roll_back(who, "bad")
    return f"back to {move.version}"


def unguarded_rounds(world: World, four: Workers, rounds: int) -> int:
    """Race without our layer; return in how many rounds several believe to have won."""
    trial, several = world.trial(), 0
    address = world.server.address
    for number in track(range(rounds), "without our layer"):
        champion = str(ModelRegistry(world.client, trial.model).versions.champion())
        versions = [add_offered(trial, PROMOTERS * number + each, champion) for each in range(4)]
        told = four.race(
            *((_read_check_set, (address, trial.model, one, champion)) for one in versions)
        )
        several += sum(each.won for each in told) > 1
    return several


def _read_check_set(address: str, model: str, version: str, champion: str) -> str:
    client = client_of(address)
    now = client.get_registered_model(model).aliases["champion"]
    if str(now) != champion:
        raise ReviewError("The champion moved.", code="stale")
    client.set_registered_model_alias(model, "champion", version)
    return version


# -- one window by several


def windows(quick: bool) -> Iterator[Tally]:
    """Eight workers on one window, and eight windows of one model, at once."""
    for name, server in SERVERS.items():
        with server() as running, world_on(running) as world:
            quiet, new, many = (1, 1, 0) if quick else (REPEATS_QUIET, REPEATS_NEW, REPEATS_MANY)
            workers = 3 if quick else WORKERS
            days = [QUIET] * quiet + [NEW] * new
            wrong = [one_window(world, day, workers) for day in track(days, f"one window, {name}")]
            yield _tally(f"{workers} workers on one window at once, MLflow on {name}: {ONE}", wrong)
            wrong = [many_windows(world, WORKERS) for _ in track(range(many), f"8 windows, {name}")]
            if many:
                yield _tally(f"8 windows of one model at once, MLflow on {name}: {ONE}", wrong)
        if quick:
            return


def one_window(world: World, day: str, workers: int) -> list[str]:
    """Start so many workers on one window; all of them must end with its one outcome."""
    trial = world.trial()
    found = _end_well([trial.start(day) for _ in range(workers)])
    has_news = day == NEW
    return found + trial.problems(day, champion="2" if has_news else "1", alerts=int(has_news))


def many_windows(world: World, number: int) -> list[str]:
    """Start a worker on each of several windows with something new; each has its outcome."""
    days = [str(date(2026, 2, 1) + timedelta(days=each)) for each in range(number)]
    for seed, day in enumerate(days):
        if not (world.folder / "windows" / f"day={day}").exists():
            world.days.write_day(day, *leaves(100 + seed, WITH_FIGS))
    trial = world.trial()
    found = _end_well([trial.start(day, decide=False) for day in days])
    for day in days:
        found += find_problems(world.client, trial.model, day, "1")
    registry = ModelRegistry(world.client, trial.model)
    versions = registry.versions.all()
    pending = [version.version for version in versions if version.review == "pending"]
    if len(versions) != number or len(pending) != 1:
        found.append(f"{len(versions)} versions of {number} windows, {len(pending)} await review")
    if registry.versions.aliases().get("challenger") not in pending:
        found.append("the alias challenger is not at what awaits review")
    return list(dict.fromkeys(found))


def _end_well(workers: list[BaseProcess]) -> list[str]:
    """Wait for workers; return a sentence for each that did not end well."""
    for worker in workers:
        worker.join(PATIENCE)
    stuck = [worker for worker in workers if worker.is_alive()]
    for worker in stuck:
        worker.kill()
        worker.join()
    return [f"a worker ended with {one.exitcode}" for one in workers if one.exitcode != 0]


# -- frozen


def frozen(quick: bool) -> Iterator[Tally]:
    """A worker frozen outside and inside of its writes, and a promoter frozen anywhere."""
    with sqlite_server() as running, world_on(running) as world:
        trials = list(promoter_trials())
        found = [
            freeze_promoter(world, *trial)
            for trial in track(_spread(trials, 4 if quick else len(trials)), "frozen promoters")
        ]
        what = "promoter frozen, champion moved by others, woken: the aliases are the record's"
        yield _tally(what, found)
        points = points_of_a_window(world, running.folder)
        for where, chosen in (
            ("outside of a write: writes no more", outside(points)),
            ("between check and write: ends that one, writes no more", inside(points)),
        ):
            chosen = _spread(chosen, 1 if quick else FROZEN)
            found = [freeze_worker(world, point) for point in track(chosen, "frozen workers")]
            yield _tally(f"worker frozen {where}", found)


def _spread(things: list[Thing], number: int) -> list[Thing]:
    """Choose so many things, evenly, and more than once if there are fewer."""
    return [things[each * len(things) // number] for each in range(number)]


def _tally(what: str, found: list[list[str]]) -> Tally:
    wrong = [", ".join(one) for one in found if one]
    return Tally("rivals", what, len(found), len(wrong), "; ".join(wrong[:3]))
