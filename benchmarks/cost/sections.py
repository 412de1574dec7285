"""The ratios: what is divided by what, and the goal of each.

Each section runs its tasks and yields rows of the table. A ratio is of CPU seconds, in fresh
processes, taken one after the other in one run of the benchmark.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.cost.agreement import agreement
from benchmarks.cost.measuring import Taken, command_cpu
from benchmarks.cost.rows import Row, World

STACK = ("pandas", "sklearn.svm", "mlflow", "evidently")
"""What the floor of a run loads."""
LEAN_FITS = 2.2
"""RTSCV in plain fits as the notes measured its cheapest form, refit included."""


def reading(world: World, large: int) -> Iterator[Row]:
    """Read and sample a window, against a scan of the same columns by polars."""
    ours, scan = (world.once(task, world.window(large)) for task in ("read", "scan"))
    told = f"{ours.cpu:.2f} / {scan.cpu:.2f} CPU s"
    yield Row(
        "reading", f"read + sample {large:,} rows / polars scan", ours.cpu / scan.cpu, 2, told=told
    )
    added = ours.peak_mb - ours.before_mb
    yield Row("reading", "memory above start, MB", added, 300, told=f"peak {ours.peak_mb} MB")


def drifting(world: World, large: int) -> Iterator[Row]:
    """Drift figures of all rows, against Evidently's preset and the floor of one pass."""
    folder = world.window(large)
    ours, floor = (world.once(task, folder) for task in ("drift", "histogram"))
    preset = world.once("preset", folder, times=1)
    told = f"{ours.cpu:.2f} / {preset.cpu:.1f} CPU s"
    yield Row(
        "drift", "drift figures / Evidently's preset", ours.cpu / preset.cpu, 1 / 20, told=told
    )
    told = f"{ours.cpu:.2f} / {floor.cpu:.3f} CPU s"
    yield Row("drift", "drift figures / one-pass histogram", ours.cpu / floor.cpu, 3, told=told)
    for method, found in agreement().items():
        what = f"columns with the exact verdict, {method}"
        goal = 0.99 if method == "wasserstein" else None
        yield Row("drift", what, found.share, goal, least=True, told=str(found))


def whole_runs(world: World, large: int, huge: int) -> Iterator[Row]:
    """A whole run of several sizes, scoring aside, against its floor and against Evidently."""
    small, big = world.run(10_000), world.run(large)
    folder = world.window(large)
    work = sum(world.once(task, folder).cpu for task in ("scan", "histogram"))
    floor = world.once("imports", *STACK).cpu + work + LEAN_FITS * world.once("fit", "SVM").cpu
    preset = world.once("preset", folder, times=1)
    tried = f"{big.told['trial']:.1f} s of it by the fresh process that tries the challenger"
    for what, other, goal in (
        (f"run on {large:,} rows / floor", floor, 1.5),
        (f"run on {large:,} rows / Evidently's preset", preset.cpu, 1 / 8),
        (f"run on {large:,} rows / on 10,000", _unscored(small), 1.25),
    ):
        told = f"{_unscored(big):.1f} / {other:.1f} CPU s; {tried}"
        yield Row("run", what, _unscored(big) / other, goal, told=told)
    yield Row("run", f"peak memory of {large:,} rows, MB", big.peak_mb, 650)
    light, loading = world.run(10_000, "logistic"), world.once("imports_of_run")
    told = (
        f"{_unscored(light):.1f} / {loading.cpu:.1f} CPU s, logistic regression; of the imports "
        f"{loading.told['trial']:.1f} s by the fresh process"
    )
    yield Row(
        "run", "run on 10,000 rows / its imports", _unscored(light) / loading.cpu, 1.5, told=told
    )
    page = [run.told["stages"]["write_report"] for run in (big, world.run(50_000))]
    told = f"{page[0]:.2f} / {page[1]:.2f} CPU s, imports included"
    yield Row("run", f"page of {large:,} rows / of 50,000", page[0] / page[1], 1.3, told=told)
    if huge:
        yield from _growth(world, large, huge)


def _growth(world: World, large: int, huge: int) -> Iterator[Row]:
    sizes = [large // 10, large, huge]
    runs = [world.run(rows, times=1 if rows == huge else 2) for rows in sizes]
    yield Row("growth", f"peak memory of {huge:,} rows, MB", runs[-1].peak_mb, 650)
    seconds = [_unscored(run) for run in runs]
    for rows, took in zip(sizes, seconds, strict=True):
        yield Row("growth", f"CPU s of a run on {rows:,} rows", took)
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    yield Row("growth", "exponent of CPU in rows", exponent, 1.05)


def _unscored(run: Taken) -> float:
    """Return the CPU seconds without the model's own predictions."""
    return run.cpu - float(run.told["scoring"])


def learning(world: World, large: int) -> Iterator[Row]:
    """RTSCV with its refit in plain fits of the same learner, and against plain folds."""
    from benchmarks.verdict.sections import LEARNERS

    sizes = (5_000, 15_000)
    found = {
        (name, size): world.once("fits", name, str(size), "auto", times=1).told
        for size in sizes
        for name in LEARNERS
    }
    medians = {}
    for size in sizes:
        ratios = {name: found[name, size]["whole"] / found[name, size]["fit"] for name in LEARNERS}
        medians[size] = float(np.median(list(ratios.values())))
        told = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
        yield Row("fits", f"RTSCV in plain fits, {size:,} rows", medians[size], 2.5, told=told)
    grown = medians[sizes[1]] / medians[sizes[0]]
    yield Row("fits", f"RTSCV in plain fits, {sizes[1]:,} rows / {sizes[0]:,}", grown, 1.0)
    losses = {
        name: world.once("fits", name, str(sizes[0]), "plain", times=1).told["macro_f"]
        - found[name, sizes[0]]["macro_f"]
        for name in LEARNERS
    }
    told = ", ".join(f"{name} {loss:+.1f}" for name, loss in losses.items())
    worst = max(losses.values())
    yield Row("fits", "macro F lost against plain folds, points, at most", worst, 0.5, told=told)


def command_line(world: World, large: int) -> Iterator[Row]:
    """The help page of the command, against an empty Python."""
    empty = command_cpu([sys.executable, "-c", "pass"])
    ours = command_cpu([str(Path(sys.executable).with_name("rtscv-mlops")), "--help"])
    goal = 3 * empty + 0.3
    yield Row(
        "command", "rtscv-mlops --help, CPU s", ours, round(goal, 3), told=f"python {empty:.3f}"
    )
