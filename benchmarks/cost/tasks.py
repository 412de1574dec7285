"""What is measured, each in a fresh process: `python -m benchmarks.cost.tasks NAME WORDS…`.

Prints one line of JSON: CPU seconds of the job (its children included), wall seconds, the peak of
memory, what it was before the job, and what the task has to tell.
"""

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Told = dict[str, Any]
Job = Callable[[], Told | None]


def cpu() -> float:
    """Return the CPU seconds of this process and of its children so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def memory(which: str) -> int:
    """Return the resident memory in MB: VmRSS now, or VmHWM at its peak."""
    status = Path("/proc/self/status").read_text()
    return round(int(re.findall(rf"^{which}:\s+(\d+) kB", status, flags=re.MULTILINE)[0]) / 1024)


# -- reading


def read(folder: str) -> Job:
    """Read and sample a window, as a run does; no profile."""
    from benchmarks.cost.world import DAY
    from rtscv_mlops.config import SourceSettings
    from rtscv_mlops.sources import read_window
    from rtscv_mlops.window import Interval

    source = SourceSettings(path=folder, timestamp="served_at")

    def job() -> Told:
        window = read_window(source, Interval.day(DAY), columns(), max_rows=20_000, seed=0)
        return {"rows": window.rows, "sampled": len(window.sample)}

    return job


def scan(folder: str) -> Job:
    """Scan the same columns by polars, and add up every value."""
    import polars as pl

    from benchmarks.cost.world import NUMBERS, TEXTS

    def job() -> Told:
        table = pl.scan_parquet(f"{folder}/*.parquet").collect()
        sums = [pl.col(NUMBERS).sum(), pl.col(TEXTS).null_count(), pl.col("served_at").max()]
        table.select(sums)
        return {"rows": len(table)}

    return job


def columns() -> list[Any]:
    """Return the model's columns."""
    from benchmarks.cost.world import NUMBERS, TEXTS
    from rtscv_mlops.window import Column

    return [
        *(Column(name, "float") for name in NUMBERS),
        *(Column(name, "text") for name in TEXTS),
    ]


# -- drift


def batches(folder: str) -> list[Any]:
    """Return the rows as the reader hands them to a profile, read beforehand."""
    import pyarrow.parquet as pq

    from benchmarks.cost.world import NUMBERS, TEXTS

    names, found = [*NUMBERS, *TEXTS], []
    for file in sorted(Path(folder).glob("*.parquet")):
        opened = pq.ParquetFile(file, read_dictionary=TEXTS)
        for batch in opened.iter_batches(32_768, columns=names):
            found.append(batch.select(names).rename_columns([f"feature:{name}" for name in names]))
    return found


def drift(folder: str) -> Job:
    """Compute the drift figures of all rows against the training data, from batches."""
    from benchmarks.cost.world import TRAINING_ROWS, known_rows
    from rtscv_mlops.config import DriftSettings
    from rtscv_mlops.report import compare_columns
    from rtscv_mlops.sources import Profile

    known, _ = known_rows(TRAINING_ROWS, seed=1)
    rows = batches(folder)

    def job() -> Told:
        profile = Profile.on(known, columns())
        for batch in rows:
            profile.add(batch)
        settings = DriftSettings()
        served = profile.condense(known, settings.max_rows)
        taught = profile.condense_rows(known, settings.max_rows)
        facts = compare_columns(served, taught, settings)
        return {"drifted": facts.drifted}

    return job


def histogram(folder: str) -> Job:
    """Count numbers on a grid of 2048 equal cells and words by code: the floor of one pass."""
    import numpy as np

    from benchmarks.cost.world import NUMBERS, TEXTS

    rows = batches(folder)
    low, high, cells = -8.0, 8.0, 2_048

    def job() -> None:
        counts = np.zeros((len(NUMBERS), cells), np.int64)
        for batch in rows:
            for place in range(len(NUMBERS)):
                numbers = batch.column(place).to_numpy()
                steps = np.clip((numbers - low) * (cells / (high - low)), 0, cells - 1)
                counts[place] += np.bincount(steps.astype(np.intp), minlength=cells)
            for place in range(len(TEXTS)):
                np.bincount(batch.column(len(NUMBERS) + place).indices.to_numpy(), minlength=20)

    return job


def preset(folder: str, page: str = "") -> Job:
    """Run Evidently's preset on all rows against the training data, and save its page if asked."""
    import pandas as pd
    from evidently import DataDefinition, Dataset, Report
    from evidently.presets import DataDriftPreset

    from benchmarks.cost.world import NUMBERS, TEXTS, TRAINING_ROWS, known_rows

    known, _ = known_rows(TRAINING_ROWS, seed=1)
    served = pd.read_parquet(folder, columns=[*NUMBERS, *TEXTS])
    served[TEXTS] = served[TEXTS].astype(object)
    kinds = DataDefinition(numerical_columns=NUMBERS, categorical_columns=TEXTS)

    def job() -> None:
        sides = [Dataset.from_pandas(side, kinds) for side in (served, known)]
        done = Report([DataDriftPreset()]).run(*sides)
        if page:
            done.save_html(page)

    return job


# -- the whole


def imports(*names: str) -> Job:
    """Load modules."""

    def job() -> None:
        for name in names:
            __import__(name)

    return job


def run(file: str) -> Job:
    """Take a window through all stages; tells CPU seconds by stage."""

    def job() -> Told:
        begun = cpu()
        from benchmarks.cost.world import DAY
        from rtscv_mlops.config import load_monitor
        from rtscv_mlops.pipeline import run_window
        from rtscv_mlops.window import Interval

        stages: list[tuple[str, float]] = [("imports", begun)]
        asked, scored = _count_requests(), _time_scoring()

        def tell(stage: str) -> None:
            if ":" not in stage:
                stages.append((stage, cpu()))

        facts = run_window(load_monitor(Path(file)), Interval.day(DAY), tell).facts
        ends = [moment for _, moment in stages[1:]] + [cpu()]
        seconds = {
            name: round(end - start, 3) for (name, start), end in zip(stages, ends, strict=True)
        }
        return {
            "rows": facts.rows,
            "verdict": facts.verdict,
            "rectify": facts.timings.get("rectify"),
            "stages": seconds,
            **asked,
            **scored,
        }

    return job


def _time_scoring() -> dict[str, float]:
    """Add up the CPU seconds of the models' own predictions from now on."""
    from rtscv_mlops import assess
    from rtscv_mlops.pipeline import rectification

    scored = {"scoring": 0.0}
    predict = assess.predict

    def timed(model: Any, rows: Any) -> Any:
        start = time.process_time()
        answers = predict(model, rows)
        scored["scoring"] = round(scored["scoring"] + time.process_time() - start, 3)
        return answers

    assess.predict = rectification.predict = timed
    return scored


def _count_requests() -> dict[str, Any]:
    """Count what is asked of MLflow over HTTP from now on, and the CPU seconds that it takes."""
    import requests

    asked: dict[str, Any] = {"calls": 0, "call_seconds": 0.0}
    send = requests.Session.send

    def counted(*words: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return send(*words, **named)
        finally:
            asked["calls"] += 1
            asked["call_seconds"] = round(asked["call_seconds"] + time.process_time() - start, 4)

    requests.Session.send = counted  # type: ignore[method-assign]
    return asked


def fit(kind: str = "SVM") -> Job:
    """Fit the champion once on its training data."""
    from benchmarks.cost.world import TRAINING_ROWS, known_rows, make_champion

    known, labels = known_rows(TRAINING_ROWS, seed=1)
    model = make_champion(kind)

    def job() -> None:
        model.fit(known, labels)

    return job


TASKS: dict[str, Callable[..., Job]] = {
    "read": read,
    "scan": scan,
    "drift": drift,
    "histogram": histogram,
    "preset": preset,
    "imports": imports,
    "run": run,
    "fit": fit,
}


def main() -> None:
    name, *words = sys.argv[1:]
    job = TASKS[name](*words)
    before, seconds, start = memory("VmRSS"), cpu(), time.perf_counter()
    told = job() or {}
    print(
        json.dumps(
            {
                "cpu": round(cpu() - seconds, 4),
                "wall": round(time.perf_counter() - start, 4),
                "before_mb": before,
                "peak_mb": memory("VmHWM"),
                **told,
            }
        )
    )


if __name__ == "__main__":
    main()
