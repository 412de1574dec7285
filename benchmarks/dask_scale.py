"""What a Dask cluster is worth for a costly learner, and what one thread costs on idle cores.

    python -m benchmarks.dask_scale

Scale: a support vector machine on 6 000 rows of 64 columns in 10 classes, and a window of 4 000
rows that holds an eleventh, scored by the learner itself (`gate: estimator`). Judged in this
process, in two processes (`jobs: 2`), and by Dask clusters of one and of two workers on this
machine, with one thread each, which run already. Seconds are those of the wall clock, from the
connection to the last result; every way takes its turn in each of three rounds, after one that does
not count, and the median counts. All must find the same.

Threads: the kernel gate on the same rows, and a logistic regression, with linear algebra on one
thread, as in the stages, and on as many as the libraries choose.

The load of the machine before and after is written down: figures of a busy machine say nothing.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.config.monitor import ComputeSettings
from rtscv_mlops.runtime import computing, on_one_thread

RESULTS = Path(__file__).parent / "results" / "dask.json"
COLUMNS, CLASSES = 64, 10
ROWS, WINDOW = 6_000, 4_000
HIDDEN = 0.1
"""Share of the window that belongs to the class that was never taught."""

Rows = tuple[NDArray, NDArray, NDArray]


def make_rows(rows: int, window: int) -> Rows:
    """Return labelled rows, and a window with one class more; neighbours overlap."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES + 1, COLUMNS))

    def draw(labels: NDArray) -> NDArray:
        return centres[labels] + 1.5 * rng.normal(size=(len(labels), COLUMNS))

    known = rng.integers(0, CLASSES, rows)
    seen = rng.integers(0, CLASSES, window)
    seen[rng.random(window) < HIDDEN] = CLASSES
    return draw(known), known, draw(seen)


def judge(settings: ComputeSettings, rows: Rows) -> tuple[float, RTSCVClassifier]:
    """Return how long it takes to judge the window, and what is found."""
    X, y, window = rows
    start = time.perf_counter()
    with computing(settings):
        model = RTSCVClassifier(SVC(), gate="estimator").fit(X, y, deployment=window)
    return time.perf_counter() - start, model


def measure_scale(rows: Rows, rounds: int) -> dict[str, float]:
    """Return the median seconds of each way."""
    from distributed import LocalCluster

    with ExitStack() as stack:
        clusters = {
            number: stack.enter_context(
                LocalCluster(number, threads_per_worker=1, processes=True, dashboard_address=":0")
            )
            for number in (1, 2)
        }
        ways = {"this process": ComputeSettings(), "2 processes": ComputeSettings(jobs=2)}
        for number, cluster in clusters.items():
            address = cluster.scheduler_address
            ways[f"Dask, {number} worker(s)"] = ComputeSettings(engine="dask", address=address)
        found = [
            {name: on_one_thread(judge)(settings, rows) for name, settings in ways.items()}
            for _ in range(1 + rounds)
        ][1:]
    models = [model for one in found for _, model in one.values()]
    for model in models[1:]:
        assert np.array_equal(model.window_scores_, models[0].window_scores_)
    return {name: statistics.median(one[name][0] for one in found) for name in ways}


def measure_threads(rows: Rows, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of work that is mostly linear algebra, by threads."""
    X, y, window = rows

    def kernel() -> None:
        RTSCVClassifier(SVC(), gate="kernel").fit(X, y, deployment=window)

    def regression() -> None:
        LogisticRegression(max_iter=100).fit(X, y)

    ways = {"one thread": on_one_thread, "as the libraries choose": lambda work: work}
    return {
        work.__name__: {
            name: statistics.median(_seconds(way(work)) for _ in range(rounds))
            for name, way in ways.items()
        }
        for work in (kernel, regression)
    }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows; writes nothing")
    quick = parser.parse_args().quick
    print(__doc__)
    rows, rounds = (make_rows(ROWS // 5, WINDOW // 5), 1) if quick else (make_rows(ROWS, WINDOW), 3)
    before = os.getloadavg()[0]
    scale, threads = measure_scale(rows, rounds), measure_threads(rows, rounds)
    machine = {
        "cores": os.cpu_count(),
        "load_before": before,
        "load_after": os.getloadavg()[0],
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("distributed", "scikit-learn", "numpy")},
    }
    plain = scale["this process"]
    for name, seconds in scale.items():
        print(f"{name:>24}: {seconds:6.1f} s, {plain / seconds:.2f} times as fast as this process")
    for work, taken in threads.items():
        one, many = taken.values()
        print(f"{work:>24}: {one:.2f} s on one thread, {many:.2f} s on as many as there are")
    print(f"Load of the machine: {before:.1f} before, {machine['load_after']:.1f} after.")
    if not quick:
        results = {"machine": machine, "rows": [ROWS, WINDOW], "scale": scale, "threads": threads}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
