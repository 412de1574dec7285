"""One detector on one case: fitted on the known classes, what does it do with the hidden one?

Knows cases, detectors and figures; knows nothing of registries or of how results are told.
"""

import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isnan, nan
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact
from sklearn.base import clone

from rtscv_mlops.errors import RtscvError
from rtscv_mlops.metrics import auroc, detection_accuracy, macro_f
from rtscv_mlops.peers import UNKNOWN, Detector, Peer
from rtscv_mlops.pipeline.bench.hiding import Case, Trial
from rtscv_mlops.rectify import Verdict
from rtscv_mlops.rectify.rows import take
from rtscv_mlops.review import counted

ALPHA = 0.01
"""Level at which more flags on a window than on other known rows count as an alarm."""

RARE = 6
"""Rows of a class that can be split for a threshold, and once more for a fit."""

ALARMS = (Verdict.UNKNOWNS, Verdict.UNKNOWNS_AND_DRIFT)
NO_CHANGE = Verdict.NO_CHANGE


@dataclass(frozen=True, slots=True)
class Record:
    """How one detector did on one case; a figure is None where the rows do not define it.

    `found`, and `quiet` on the clean window, are the monitor's own verdicts. A detector that has
    none raises an alarm if it flags significantly more of a window than of other known rows that
    it was not fitted on. `known_lost` is the share of the window's known rows that it flags.
    `problem` says why there are no figures.
    """

    detector: str
    hidden: tuple[Any, ...]
    seed: int
    window_rows: int
    hidden_rows: int
    verdict: str | None = None
    found: bool | None = None
    quiet: bool | None = None
    recall: float | None = None
    precision: float | None = None
    known_lost: float | None = None
    auroc: float | None = None
    macro_f: float | None = None
    seconds: float | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return asdict(self) | {"hidden": [_plain(label) for label in self.hidden]}


@dataclass(frozen=True, slots=True)
class _Look:
    """What a detector made of a window, and which of other known rows it flags."""

    scores: NDArray[Any]
    answers: NDArray[Any]
    elsewhere: NDArray[np.bool_]
    verdict: str | None

    @property
    def flagged(self) -> NDArray[np.bool_]:
        return np.asarray(self.answers == UNKNOWN)

    @property
    def finds(self) -> bool:
        """Whether it says that the window holds something unknown."""
        return self._flags_more() if self.verdict is None else self.verdict in ALARMS

    @property
    def is_quiet(self) -> bool:
        """Whether it says that nothing changed."""
        return not self._flags_more() if self.verdict is None else self.verdict == NO_CHANGE

    def _flags_more(self) -> bool:
        table = [[np.sum(flags), np.sum(~flags)] for flags in (self.flagged, self.elsewhere)]
        return bool(fisher_exact(table, alternative="greater").pvalue < ALPHA)


def judge(key: str, peer: Peer, estimator: Any, rows: Any, case: Case) -> Record:
    """Return how a detector does; one that cannot run on these rows says why."""
    n_hidden = int((case.truth == UNKNOWN).sum())
    record = Record(key, case.hidden, case.seed, len(case.truth), n_hidden)
    try:
        # What a talkative model prints would stand in the midst of --json.
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")  # of some eighteen algorithms, on rows of any kind
            return replace(record, **_figures(peer, estimator, rows, case))
    except Exception as error:  # neither the algorithm nor the estimator is ours
        return replace(record, problem=_reason(error, case))


def _figures(peer: Peer, estimator: Any, rows: Any, case: Case) -> dict[str, Any]:
    estimator = _weigh_codes(estimator, case.known)
    start = process_time()
    seen = _look(peer.make(clone(estimator), case.seed), rows, case, case.trial)
    seconds = process_time() - start
    clean = _look(peer.make(clone(estimator), case.seed), rows, case, case.clean)
    known_classes = range(int(case.codes.max()) + 1)
    is_hidden, flagged = case.truth == UNKNOWN, seen.flagged
    figures = {
        "recall": detection_accuracy(case.truth, seen.answers, known_classes, UNKNOWN),
        "precision": is_hidden[flagged].mean() if flagged.any() else nan,
        "known_lost": flagged[~is_hidden].mean(),
        "auroc": auroc(is_hidden, seen.scores),
        "macro_f": macro_f(case.truth, seen.answers, known_classes, UNKNOWN),
        "seconds": seconds,
    }
    defined = {name: None if isnan(value) else float(value) for name, value in figures.items()}
    said = {"verdict": seen.verdict, "found": seen.finds, "quiet": clean.is_quiet}
    return {**defined, **said}


def _weigh_codes(estimator: Any, known: tuple[Any, ...]) -> Any:
    """Return the estimator with its class weights by code, since codes are what detectors learn."""
    weights = {
        name: {code: value[label] for code, label in enumerate(known) if label in value}
        for name, value in estimator.get_params().items()
        if name.endswith("class_weight") and isinstance(value, Mapping)
    }
    return clone(estimator).set_params(**weights)


def _look(detector: Detector, rows: Any, case: Case, trial: Trial) -> _Look:
    window = take(rows, trial.window)
    detector.fit(take(rows, trial.training), case.codes[trial.training], window)
    return _Look(
        scores=np.asarray(detector.score_window(window)),
        answers=np.asarray(detector.predict_window(window)),
        elsewhere=np.asarray(detector.decide(take(rows, trial.others)), dtype=bool),
        verdict=_verdict(detector),
    )


def _verdict(detector: Detector) -> str | None:
    """Return what the monitor's own test said; other detectors have none."""
    assessment = getattr(getattr(detector, "model_", None), "assessment_", None)
    return None if assessment is None else str(assessment.verdict)


def _reason(error: Exception, case: Case) -> str:
    """Return the first line of what went wrong; where a class is rare, that is likely why."""
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else type(error).__name__
    if isinstance(error, RtscvError) or not isinstance(error, ValueError):
        return said
    label, rows = _rarest(case)
    if rows >= RARE:
        return said
    return (
        f"Class {label!r} has {counted(rows, 'row')} to learn from once the rows are halved, too "
        f"few for a method that splits each class further. Have more rows of it. ({said})"
    )


def _rarest(case: Case) -> tuple[Any, int]:
    """Return the known class with the fewest rows to learn from in either trial, and how many."""
    learned = (case.codes[trial.training] for trial in (case.trial, case.clean))
    counts = np.min([np.bincount(codes, minlength=len(case.known)) for codes in learned], axis=0)
    place = int(counts.argmin())
    return case.known[place], int(counts[place])


def _plain(label: Any) -> Any:
    return label if isinstance(label, bool | int | float | str) else str(label)
