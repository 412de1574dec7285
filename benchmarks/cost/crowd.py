"""What happens where several runs share the cores: threads, and windows per hour."""

import time
from collections.abc import Iterator

from benchmarks.cost.measuring import ROOT, Taken, take_together
from benchmarks.cost.rows import Row, World
from benchmarks.cost.world import TRAINING_ROWS, known_rows

NANNYML = ROOT / ".venv-nannyml" / "bin" / "python"
"""NannyML needs an older pandas than we do, and so an environment of its own."""
AT_ONCE, SHARED = 2, 4
MONITORS = 16


def threads(world: World, large: int) -> Iterator[Row]:
    """Pinned threads against the libraries' default, alone and where processes share the cores."""
    told: dict[tuple[str, int], str] = {}
    seconds: dict[tuple[str, int], float] = {}
    for at_once in (1, SHARED):
        for kind in ("pinned", "default"):
            runs = take_together([("train", kind)] * max(3, at_once), at_once, threads=None)
            walls = [run.wall for run in runs]
            seconds[kind, at_once] = min(walls) if at_once == 1 else max(walls)
            told[kind, at_once] = f"{seconds[kind, at_once]:.2f}"
    for at_once, place, goal in ((1, "idle cores", 1.1), (SHARED, f"{SHARED} at once", 1.0)):
        ratio = seconds["pinned", at_once] / seconds["default", at_once]
        walls_told = f"{told['pinned', at_once]} / {told['default', at_once]} s of wall time"
        yield Row("threads", f"pinned / default threads, {place}", ratio, goal, told=walls_told)


def throughput(world: World, large: int) -> Iterator[Row]:
    """Windows of 10 000 rows per hour, each in a fresh process, as many at once as cores."""
    folder = world.window(10_000)
    monitors = [("run", world.monitor(10_000, "logistic")) for _ in range(MONITORS)]
    pages = [("preset_run", folder, str(world.folder / f"{n}.html")) for n in range(MONITORS)]
    known = world.folder / "known.parquet"
    known_rows(TRAINING_ROWS, seed=1)[0].to_parquet(known)
    yield _rate("RTSCV, page, challenger and review", *_hurry(monitors))
    yield _rate("Evidently alone: preset and page", *_hurry(pages))
    if NANNYML.exists():
        drifts = [("univariate", folder, str(known))] * MONITORS
        yield _rate("NannyML alone: drift, no page", *_hurry(drifts, str(NANNYML)))


def _hurry(tasks: list[tuple[str, ...]], python: str = "") -> tuple[list[Taken], float]:
    started = time.perf_counter()
    given = {"python": python} if python else {}
    return take_together(tasks, AT_ONCE, **given), time.perf_counter() - started


def _rate(what: str, runs: list[Taken], seconds: float) -> Row:
    rate = 3_600 * len(runs) / seconds
    cpu = sum(run.cpu for run in runs) / len(runs)
    told = f"{len(runs)} windows in {seconds:.0f} s, {cpu:.1f} CPU s each; 50 monitors: "
    told += f"{50 * 60 / rate:.1f} min"
    return Row("throughput", f"windows per hour, {what}", rate, told=told)
