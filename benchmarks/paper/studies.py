"""The studies around the paper's algorithm: CSI, sample ratio, folds, J1, decision boundaries.

`python -m benchmarks.paper.studies --only csi` measures one study and draws its plot. Records are
kept in `results/paper-studies.json`, where `make bench-paper` finds them. `--quick` is a sanity run
of under a minute, in a folder of its own.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.svm import SVC

from benchmarks.datasets import Dataset, load
from benchmarks.paper.boundaries import LEARNERS, MODELS, black_share, fit_model
from benchmarks.paper.planes import draw_problem, place_known, place_outside
from benchmarks.paper.separation import j1_known, j1_unknown
from benchmarks.paper.store import ROOT, Store, name_of, run
from benchmarks.verdict.sections import Job, Record, base_learner
from benchmarks.windows import Case, published_case
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.bench.catalogue import DETECTORS
from rtscv_mlops.bench.detector import UNKNOWN
from rtscv_mlops.metrics import macro_f

FAR = 25.0
"""How far away, in standard deviations, unknown clusters are that the supplement calls far."""
VARIANCES = (1, 2, 4, 9, 16, 25, 36)
DISTANCES = (2, 3, 4, 6, 9, 13, 18, 25)
HIDDEN = {"pendigits": 3, "coil20": 6, "letter": 11, "digits": 3}
MOST_ROWS = 4_000
"""Rows of a data set that take part, so that a curve takes minutes."""
RATIOS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4)
LARGE_RATIOS = {"pendigits": (0.6,), "coil20": (0.6, 0.9)}
"""Where the window is large enough to draw that many rows from it."""
FOLDS_RATIO = 0.1
FOLDS = (2, 3, 4, 5, 6, "holdout")


def plan(quick: bool, only: tuple[str, ...] = ()) -> Iterator[Job]:
    """Yield the jobs of the named studies, of all without a name."""
    for study in only or STUDIES:
        yield from STUDIES[study](quick)


# -- clustering with side information


def plan_csi(quick: bool) -> Iterator[Job]:
    seeds = range(2 if quick else 10)
    altered = {"one cluster": VARIANCES, "two clusters": VARIANCES, "distance": DISTANCES}
    for panel, values in altered.items():
        for value in values[::3] if quick else values:
            yield from (partial(compare_csi, panel, value, seed) for seed in seeds)


def compare_csi(panel: str, value: float, seed: int) -> Record:
    """Sort the same sample by Seeded-KMeans and by RTSCV; `value` is what the panel alters."""
    case = draw_clusters(panel, value, seed)
    paper, monitor = fit_modes(case, seed)
    csi = DETECTORS["csi"].make(SVC(), seed).fit(case.X, case.y, case.window)
    answers = csi.predict(case.window)
    return {
        "study": "csi",
        "panel": panel,
        "value": value,
        "seed": seed,
        "csi": score(case, np.where(answers == UNKNOWN, case.n_known, answers)),
        "paper": score(case, paper.predict(case.window)),
        "monitor": score(case, monitor.predict(case.window)),
    }


def draw_clusters(panel: str, value: float, seed: int) -> Case:
    """Draw the problem of a panel: unknown clusters lie outside the known classes."""
    rng = np.random.default_rng(seed)
    known = place_known(rng)
    angle = rng.uniform(0, 2 * np.pi)
    if panel == "distance":
        return draw_problem(rng, known, np.array([place_outside(known, value, angle)]))
    angles = (angle, angle + np.pi)[: 2 if panel == "two clusters" else 1]
    unknown = np.array([place_outside(known, FAR, angle) for angle in angles])
    return draw_problem(rng, known, unknown, unknown_sd=value**0.5)


def fit_modes(case: Case, seed: int) -> tuple[RTSCVClassifier, RTSCVClassifier]:
    """Fit an SVM in both modes."""
    paper, monitor = (
        RTSCVClassifier(SVC(), mode=mode, unknown_label=case.n_known, random_state=seed)
        for mode in ("paper", "monitor")
    )
    fit = {"X": case.X, "y": case.y, "deployment": case.window}
    return paper.fit(**fit), monitor.fit(**fit)


def score(case: Case, answers: NDArray) -> float:
    """Return the macro F over known classes and the unknown one, in percent."""
    return 100 * macro_f(case.truth, answers, range(case.n_known), case.n_known)


# -- sample ratio and folds, on real data


def plan_sample_ratio(quick: bool) -> Iterator[Job]:
    for name in ("coil20",) if quick else ("pendigits", "coil20", "letter"):
        ratios = (*RATIOS, *LARGE_RATIOS.get(name, ()))
        for seed in range(2 if quick else 10):
            job = partial(rectify_real, name, seed=seed, study="sample_ratio")
            yield partial(job, mode="pre", ratio=0.0)
            yield partial(job, mode="monitor")
            for ratio in ratios[1::3] if quick else ratios:
                yield partial(job, mode="paper", ratio=ratio)


def plan_folds(quick: bool) -> Iterator[Job]:
    for name in ("coil20", "digits") if quick else ("letter", "pendigits", "coil20", "digits"):
        for seed in range(2 if quick else 10):
            job = partial(rectify_real, name, seed=seed, study="folds", ratio=FOLDS_RATIO)
            yield partial(job, mode="pre")
            for folds in FOLDS:
                yield partial(job, mode="paper", folds=folds)


def rectify_real(
    name: str,
    *,
    study: str,
    seed: int,
    mode: str,
    ratio: float | None = None,
    folds: int | str = 3,
) -> Record:
    """Hide classes of a data set and score one model on its test rows."""
    case, _, _ = published_case(thin_out(load(name)), HIDDEN[name], seed)
    answers = fit_real(name, case, seed, mode, ratio, folds).predict(case.window)
    return {
        "study": study,
        "data": name,
        "hidden": HIDDEN[name],
        "seed": seed,
        "mode": mode,
        "ratio": ratio,
        "folds": str(folds),
        "n_training": len(case.X),
        "n_window": len(case.window),
        "f": score(case, answers),
        "known_lost": float(np.mean(answers[~case.unknown] == case.n_known)),
    }


def fit_real(
    name: str, case: Case, seed: int, mode: str, ratio: float | None, folds: int | str
) -> Any:
    """Fit the base learner alone ("pre"), or rectified in one of the two modes."""
    base = base_learner(name)
    if mode == "pre":
        return clone(base).fit(case.X, case.y)
    options: dict[str, Any] = {"unknown_label": case.n_known, "random_state": seed}
    if mode == "paper":
        options |= {"mode": "paper", "sample_rate": ratio, "sample_of": "training", "cv": folds}
    return RTSCVClassifier(base, **options).fit(case.X, case.y, deployment=case.window)


def thin_out(data: Dataset) -> Dataset:
    """Return at most `MOST_ROWS` rows, always the same, of the published parts alike."""
    if len(data.y) <= MOST_ROWS:
        return data
    rows = np.sort(np.random.default_rng(0).permutation(len(data.y))[:MOST_ROWS])
    is_training = None if data.is_training is None else data.is_training[rows]
    return Dataset(data.name, data.X[rows], data.y[rows], is_training)


# -- separability


def plan_j1(quick: bool) -> Iterator[Job]:
    for varied in ("known", "unknown"):
        for seed in range(8 if quick else 80):
            yield partial(relate_j1, varied, seed)


def relate_j1(varied: str, seed: int) -> Record:
    """Draw a problem whose known or unknown classes are more or less separable, and score it."""
    case = draw_separable(varied, seed)
    known, unknown = case.window[~case.unknown], case.window[case.unknown]
    labels = case.truth[~case.unknown]
    j1 = j1_known(known, labels) if varied == "known" else j1_unknown(known, labels, unknown)
    record: Record = {"study": "j1", "varied": varied, "seed": seed, "j1": j1}
    for model in fit_modes(case, seed):
        answers = model.predict(case.window)
        record[model.mode] = score(case, answers)
        record[f"{model.mode}_unknown"] = 100 * float(
            f1_score(case.unknown, answers == case.n_known, zero_division=0)
        )
    return record


def draw_separable(varied: str, seed: int) -> Case:
    """Draw a problem with random distances and covariances of the known or the unknown class."""
    rng = np.random.default_rng(seed)
    known = place_known(rng)
    angle = rng.uniform(0, 2 * np.pi)
    if varied == "known":
        known = known * rng.uniform(0.4, 1.4)
        unknown = place_outside(known, 6.0, angle)
        return draw_problem(rng, known, unknown[None], known_sd=_log_uniform(rng, 0.5, 2))
    unknown = place_outside(known, _log_uniform(rng, 0.5, 20), angle)
    return draw_problem(rng, known, unknown[None], unknown_sd=_log_uniform(rng, 0.5, 4))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


# -- decision boundaries


def plan_boundaries(quick: bool) -> Iterator[Job]:
    for seed in range(2 if quick else 10):
        for learner in LEARNERS:
            yield from (partial(bound, learner, model, seed) for model in MODELS)


def bound(learner: str, model: str, seed: int) -> Record:
    """Score one model of the plane, and measure the region it calls unknown."""
    plane, fitted = fit_model(learner, model, seed)
    known = np.unique(plane.y)
    answers = fitted.predict(plane.window)
    return {
        "study": "boundaries",
        "learner": learner,
        "model": model,
        "seed": seed,
        "f": 100 * macro_f(plane.truth, answers, known, len(known)),
        "black": black_share(fitted),
    }


STUDIES: dict[str, Callable[[bool], Iterator[Job]]] = {
    "csi": plan_csi,
    "sample_ratio": plan_sample_ratio,
    "folds": plan_folds,
    "j1": plan_j1,
    "boundaries": plan_boundaries,
}


# -- from one command


def main() -> None:
    # Imported here, since both of them import this module.
    from benchmarks.paper.study_plots import draw
    from benchmarks.paper.study_texts import sections

    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.studies", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--quick", action="store_true", help="a sanity run, in a folder of its own")
    arguments = parser.parse_args()
    folder = Path(mkdtemp(prefix="rtscv-studies-")) if arguments.quick else ROOT
    store = Store(folder / "benchmarks" / "results" / "paper-studies.json")
    for study in arguments.only:
        jobs = {name_of(job): job for job in plan(arguments.quick, (study,))}
        run(store, study, jobs, n_jobs=1)
        records = [record for record in store.records.values() if record["study"] == study]
        draw(records, folder / "docs" / "images")
        print(*sections(records))
    print(f"\nwrote the plots into {folder / 'docs' / 'images'}")


if __name__ == "__main__":
    main()
