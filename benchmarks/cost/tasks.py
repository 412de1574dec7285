"""What is measured, each in a fresh process: `python -m benchmarks.cost.tasks NAME WORDS…`.

Prints one line of JSON: CPU seconds of the job (its children included), wall seconds, the peak of
memory, what it was before the job, and what the task has to tell.
"""

import importlib
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCORING, TRIAL = "score rows by both models", "try the challenger in a fresh process"
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
    from rtscv_mlops.config.inputs import SourceSettings
    from rtscv_mlops.sources.read import read_window
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
    from rtscv_mlops.config.monitor import DriftSettings
    from rtscv_mlops.report.drift import compare_columns
    from rtscv_mlops.sources.profile import Profile

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


def imports_of_run() -> Job:
    """Load what a run loads, as it does: in its own process, and in that of the trial."""

    def job() -> Told:
        from rtscv_mlops.process import prepare_process

        prepare_process()
        import mlflow.sklearn
        import mlflow.store.model_registry.sqlalchemy_store
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401

        import rtscv_mlops.pipeline.run
        import rtscv_mlops.pipeline.stages
        import rtscv_mlops.report  # noqa: F401
        from rtscv_mlops.models import save, trust

        trust.import_skops()
        own = cpu()
        program = (
            f"import runpy; trial = runpy.run_path({str(save.TRIAL)!r})\n"
            f"trial['prepare'](**{save.TRIAL_CONSTANTS})\n"
            "import mlflow.sklearn, sklearn.svm"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
        return {"trial": round(cpu() - own, 3)}

    return job


def fits(learner: str, rows: str, path: str) -> Job:
    """Time RTSCV and a plain fit of the same learner."""
    from benchmarks.verdict.sections import cost

    def job() -> Told:
        return cost(learner, "gaussians", int(rows), seed=0, plain=path == "plain")

    return job


def run(file: str) -> Job:
    """Take a window through all stages; tells CPU seconds by stage."""

    def job() -> Told:
        begun = cpu()
        from rtscv_mlops.process import prepare_process

        prepare_process()  # as `rtscv-mlops run` does
        from benchmarks.cost.world import DAY
        from rtscv_mlops.config.loading import load_monitor
        from rtscv_mlops.pipeline.run import run_window
        from rtscv_mlops.window import Interval

        stages: list[tuple[str, float]] = [("imports", begun)]
        asked, parts = _count_requests(), _time_parts()

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
            "scoring": parts[SCORING],
            "trial": parts[TRIAL],
            "parts": {"load the stack": seconds["imports"], **parts},
        }

    return job


PARTS = (
    ("rtscv_mlops.tracking.registry", "connect", "connect to MLflow"),
    ("rtscv_mlops.pipeline.stages", "load_champion", "load the champion"),
    ("rtscv_mlops.pipeline.stages", "find_training", "find the training data"),
    ("rtscv_mlops.pipeline.stages", "read_window", "read the window, count all rows"),
    ("rtscv_mlops.judging.judge", "fit_rtscv", "RTSCV, refit included"),
    ("rtscv_mlops.judging.describe", "predict", SCORING),
    ("rtscv_mlops.judging.describe", "project", "lay rows out for a picture"),
    ("rtscv_mlops.pipeline.stages", "save_rectified", "store the challenger"),
    ("rtscv_mlops.pipeline.stages", "log_fitted_on", "store what it was fitted on"),
    ("rtscv_mlops.models.save", "run_trial", TRIAL),
)


def _time_parts() -> dict[str, float]:
    """Add up the CPU seconds of parts of a run from now on, each without the parts inside."""
    seconds = dict.fromkeys((part for *_, part in PARTS), 0.0)
    inside = [0.0]

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            start = cpu()
            inside.append(0.0)
            try:
                return function(*words, **named)
            finally:
                took, of_others = cpu() - start, inside.pop()
                seconds[part] += took - of_others
                inside[-1] += took

        return call

    for module, name, part in PARTS:
        place = importlib.import_module(module)
        setattr(place, name, timed(getattr(place, name), part))
    return seconds


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


def train(threads: str) -> Job:
    """Fit gradient boosting and a linear model, on one thread, as our tasks do, or not."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    from benchmarks.cost.world import NUMBERS, known_rows
    from rtscv_mlops.runtime import on_one_thread

    known, labels = known_rows(3_000, seed=1)
    numbers = known[NUMBERS].to_numpy()

    def job() -> None:
        HistGradientBoostingClassifier(max_iter=2).fit(numbers, labels)
        LogisticRegression(max_iter=100).fit(numbers, labels)

    return on_one_thread(job) if threads == "pinned" else job


def univariate(folder: str, known: str) -> Job:
    """Run NannyML's univariate drift on all rows against the training data; it draws no page."""

    def job() -> Told:
        import nannyml
        import pandas as pd

        reference, served = pd.read_parquet(known), pd.read_parquet(folder)
        names = list(reference.columns)
        calculator = nannyml.UnivariateDriftCalculator(column_names=names, chunk_number=1)
        found = calculator.fit(reference).calculate(served[names])
        return {"columns": len(names), "figures": int(found.to_df().shape[1])}

    return job


def preset_run(folder: str, page: str) -> Job:
    """Run Evidently alone, imports and page included."""

    def job() -> None:
        preset(folder, page)()

    return job


TASKS: dict[str, Callable[..., Job]] = {
    "read": read,
    "scan": scan,
    "drift": drift,
    "histogram": histogram,
    "preset": preset,
    "imports": imports,
    "imports_of_run": imports_of_run,
    "fits": fits,
    "run": run,
    "fit": fit,
    "train": train,
    "univariate": univariate,
    "preset_run": preset_run,
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
