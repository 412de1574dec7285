"""Records that outlive a run, and the run that adds to them. Knows jobs, not what they measure."""

import json
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from benchmarks.verdict.sections import Job, Record
from rtscv_mlops.errors import InputError

ROOT = Path(__file__).parents[2]


class Store:
    """Records by name in one JSON file, written after each, so that nothing is measured twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, key: str, record: Record) -> None:
        """Add a record."""
        self.records[key] = _rounded(record)
        lines = (
            f"{json.dumps(key)}:{json.dumps(kept, separators=(',', ':'))}"
            for key, kept in self.records.items()
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        beside.replace(self.path)


def run(store: Store, part: str, jobs: dict[str, Job], n_jobs: int) -> None:
    """Run the jobs that have no record yet, side by side, and keep each record as it comes.

    A job whose data is not there is told about, and tried again by the next run.
    """
    waiting = {key: job for key, job in jobs.items() if key not in store.records}
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(part, total=len(jobs), completed=len(jobs) - len(waiting))
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for key, found in parallel(delayed(_try)(key, job) for key, job in waiting.items()):
            if isinstance(found, InputError):
                progress.console.print(f"{key}: {found}", markup=False)
            else:
                store.keep(key, found)
            progress.advance(task)


def _try(key: str, job: Job) -> tuple[str, Record | InputError]:
    try:
        return key, job()
    except InputError as error:
        return key, error


def name_of(job: Any) -> str:
    """Return what tells a study's job from all others: its arguments."""
    told = [*map(str, job.args), *(f"{name}={value}" for name, value in job.keywords.items())]
    return " ".join([job.func.__name__, *told])


def _rounded(record: Record) -> Record:
    return {
        name: round(value, 5) if isinstance(value, float) else value
        for name, value in record.items()
    }
