"""A row of the table, and the windows and champions that rows are measured on."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.cost.measuring import Taken, take
from benchmarks.cost.world import log_model, write_monitor, write_window


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

    def monitor(self, rows: int, kind: str = "SVM", tracking: str = "", model: str = "") -> str:
        """Return a monitor that has judged nothing yet, of a model that is made if need be."""
        tracking = tracking or f"sqlite:///{self.folder}/mlflow.db"
        model = model or kind
        if (model, tracking) not in self._models:
            log_model(tracking, model, kind)
            self._models.add((model, tracking))
        file = self.folder / f"monitor-{next(self._numbers)}.yaml"
        return str(write_monitor(file, model, tracking, self.window(rows)))

    def run(self, rows: int, kind: str = "SVM", times: int = 2) -> Taken:
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
