"""Tabular data: every detector on the splits of the paper's Table 1, one record each.

All of a row get the same known rows, the same window and the same base model, and none sees a label
of the window. A detector that cannot run says why.
"""

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from benchmarks.datasets import load
from benchmarks.verdict.sections import PAPER, Job, Record, base_learner
from benchmarks.windows import Case, published_case
from rtscv_mlops.bench.catalogue import DETECTORS
from rtscv_mlops.bench.detector import UNKNOWN
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.metrics import auroc, classification_accuracy, detection_accuracy, macro_f

SEEDS = 3
"""Removals of classes per row of the table."""

LARGEST = {"mnist": (8_000, 4_000)}
"""Known rows and window rows of sets that would otherwise take the hour for themselves."""


def measure(name: str, n_hidden: int, method: str, seed: int) -> Record:
    """Fit one detector on one removal of classes, and judge what it says of the window."""
    case = draw(name, n_hidden, seed)
    record: Record = {
        "table": "tabular",
        "data": name,
        "hidden": n_hidden,
        "seed": seed,
        "method": method,
    }
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted, score = _judge(method, case, base_of(name), seed)
    except RtscvError as error:
        return record | {"reason": str(error)}
    return record | {"seconds": time.process_time() - start, **_figures(case, predicted, score)}


def plan(seeds: int, quick: bool) -> Iterator[tuple[str, Job]]:
    """List the measurements, each with the name it is stored under; a removal at a time."""
    for seed in range(1 if quick else seeds):
        for name, (_, rows) in PAPER.items():
            for n_hidden, *_ in rows:
                if quick and name != "coil20":
                    continue
                for method in DETECTORS:
                    key = f"{name} {n_hidden} {method} {seed}"
                    yield key, partial(measure, name, n_hidden, method, seed)


def draw(name: str, n_hidden: int, seed: int) -> Case:
    """Hide classes of a data set; MNIST is taken as principal components, and in part."""
    case, *_ = published_case(load("mnist50" if name == "mnist" else name), n_hidden, seed)
    if name not in LARGEST:
        return case
    rng = np.random.default_rng(seed)
    n_known, n_window = LARGEST[name]
    known = rng.permutation(len(case.y))[:n_known]
    window = rng.permutation(len(case.truth))[:n_window]
    return Case(
        X=case.X[known],
        y=case.y[known],
        window=case.window[window],
        truth=case.truth[window],
        baseline=case.baseline,
        n_known=case.n_known,
    )


def base_of(name: str) -> Any:
    """Return the base model of a row."""
    if name == "mnist":
        return MLPClassifier((128, 64), max_iter=25, batch_size=128, random_state=0)
    return base_learner(name)


def _judge(method: str, case: Case, base: Any, seed: int) -> tuple[NDArray, NDArray]:
    """Return the class of every row of the window, and how unknown it looks."""
    detector = DETECTORS[method].make(base, seed).fit(case.X, case.y, case.window)
    return detector.predict_window(case.window), detector.score_window(case.window)


def _figures(case: Case, predicted: NDArray, score: NDArray) -> Record:
    known = list(range(case.n_known))
    predicted = np.where(predicted == UNKNOWN, case.n_known, predicted)
    judged = (case.truth, predicted, known, case.n_known)
    return {
        "f": 100 * macro_f(*judged),
        "known_accuracy": 100 * classification_accuracy(*judged),
        "detected": 100 * detection_accuracy(*judged),
        "auroc": 100 * auroc(case.unknown, score),
    }
