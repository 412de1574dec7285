"""The ratios: what is divided by what, and the goal of each.

Each section runs its tasks and yields rows of the table. A ratio is of CPU seconds, in fresh
processes, taken one after the other in one run of the benchmark.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.cost.agreement import agreement
from benchmarks.cost.measuring import Taken, command_cpu, take
from benchmarks.cost.world import log_model, write_monitor, write_window

NEEDED = ("pandas", "pyarrow.parquet", "sklearn.svm", "mlflow", "skops.io")
"""What a run must load; with Evidently where a page is drawn."""
LEAN_FITS = 2.2
"""RTSCV in plain fits as the notes measured its cheapest form, refit included."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and its goal: at most `goal`, or at least it where `least` is set."""

    section: str
    what: str
    value: float
    goal: float | None = None
    least: bool = False
    told: str = ""

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.least else self.value <= self.goal


class World:
    """Windows and champions in a folder, made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()
        self._models: set[tuple[str, str]] = set()
        self._taken: dict[object, Taken] = {}

    def window(self, rows: int) -> str:
        """Return the folder of a day with so many rows."""
        folder = self.folder / f"rows-{rows}"
        if not folder.exists():
            write_window(folder, rows)
        return str(folder)

    def monitor(self, rows: int, kind: str = "SVM", tracking: str = "") -> str:
        """Return a monitor that has judged nothing yet."""
        tracking = tracking or f"sqlite:///{self.folder}/mlflow.db"
        if (kind, tracking) not in self._models:
            log_model(tracking, kind, kind)
            self._models.add((kind, tracking))
        file = self.folder / f"monitor-{next(self._numbers)}.yaml"
        return str(write_monitor(file, kind, tracking, self.window(rows)))

    def run(self, rows: int, kind: str = "SVM", times: int = 3) -> Taken:
        """Take a window through all stages, with the least CPU of some tries."""
        if (rows, kind) not in self._taken:
            runs = [take("run", self.monitor(rows, kind), times=1) for _ in range(times)]
            self._taken[rows, kind] = min(runs, key=lambda run: run.cpu)
        return self._taken[rows, kind]

    def once(self, task: str, *words: str, times: int = 3) -> Taken:
        """Take a task, unless it was taken before."""
        if (task, words) not in self._taken:
            self._taken[task, words] = take(task, *words, times=times)
        return self._taken[task, words]


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
    loading = world.once("imports", *NEEDED, "evidently")
    work = sum(world.once(task, folder).cpu for task in ("scan", "histogram"))
    floor = loading.cpu + work + LEAN_FITS * world.once("fit", "SVM").cpu + 0.1
    preset = world.once("preset", folder, times=1)
    told = f"{_unscored(big):.1f} / {floor:.1f} CPU s"
    yield Row("run", f"run on {large:,} rows / floor", _unscored(big) / floor, 1.5, told=told)
    told = f"{_unscored(big):.1f} / {preset.cpu:.1f} CPU s"
    yield Row("run", "the same / Evidently's preset", _unscored(big) / preset.cpu, 1 / 8, told=told)
    told = f"{_unscored(big):.1f} / {_unscored(small):.1f} CPU s"
    yield Row(
        "run", "the same / run on 10,000 rows", _unscored(big) / _unscored(small), 1.25, told=told
    )
    yield Row("run", f"peak memory of {large:,} rows, MB", big.peak_mb, 650)
    light = world.run(10_000, "logistic")
    told = f"{_unscored(light):.1f} / {loading.cpu:.1f} CPU s, logistic regression"
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
    runs = [world.run(rows, times=1 if rows == huge else 3) for rows in sizes]
    yield Row("growth", f"peak memory of {huge:,} rows, MB", runs[-1].peak_mb, 650)
    logs = [np.log(values) for values in (sizes, [_unscored(run) for run in runs])]
    exponent = float(np.polyfit(*logs, 1)[0])
    told = ", ".join(
        f"{rows:,}: {_unscored(run):.1f}" for rows, run in zip(sizes, runs, strict=True)
    )
    yield Row("growth", "exponent of CPU in rows", exponent, 1.05, told=f"CPU s {told}")


def _unscored(run: Taken) -> float:
    """Return the CPU seconds without the model's own predictions."""
    return run.cpu - float(run.told["scoring"])


def command_line(world: World, large: int) -> Iterator[Row]:
    """The help page of the command, against an empty Python."""
    empty = command_cpu([sys.executable, "-c", "pass"])
    ours = command_cpu([str(Path(sys.executable).with_name("rtscv-mlops")), "--help"])
    goal = 3 * empty + 0.3
    yield Row(
        "command", "rtscv-mlops --help, CPU s", ours, round(goal, 3), told=f"python {empty:.3f}"
    )


SECTIONS: dict[str, Callable[..., Iterator[Row]]] = {
    "reading": reading,
    "drift": drifting,
    "run": whole_runs,
    "command": command_line,
}
