"""A class that a model knows, hidden: what its monitor would meet had it never been taught.

Knows labels and places of rows; knows nothing of detectors, models or registries.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isnan, nan
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import fisher_exact
from sklearn.base import clone

from rtscv_mlops.bench.catalogue import Peer
from rtscv_mlops.bench.detector import UNKNOWN, Detector
from rtscv_mlops.errors import Code, InputError, RtscvError
from rtscv_mlops.estimator.rows import take
from rtscv_mlops.metrics import auroc, detection_accuracy, macro_f
from rtscv_mlops.models.training import name_classes
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import counted, percent

WINDOW_SHARE = 0.7
"""A window's size as a share of the half that it is taken from; the rest is compared with it."""

MIN_WINDOW = 30

MIN_HIDDEN = 5
"""Fewer hidden rows are found or missed by chance."""


Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Trial:
    """Places of rows: what is trained on, the window, and known rows that are in neither."""

    training: Places
    window: Places
    others: Places


@dataclass(frozen=True, slots=True)
class Case:
    """Labelled rows with some classes hidden, as two trials of which the second is clean.

    `codes` has the class of every row, a place in `known` or `UNKNOWN` for hidden classes.
    Each half of the known rows is trained on in one trial, and makes the window of the other: so
    both windows, which share no row and have the same size, are as large as the rows allow.
    """

    hidden: tuple[Any, ...]
    known: tuple[Any, ...]
    seed: int
    codes: Places
    trial: Trial
    clean: Trial
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return name_classes(self.hidden)

    @property
    def truth(self) -> Places:
        """The codes of the window's rows."""
        return self.codes[self.trial.window]


def hide_classes(
    labels: NDArray[Any], hidden: Sequence[Any], *, rate: float, seed: int = 0
) -> Case:
    """Hide classes: the window has them at this rate, the training data has none of them."""
    check_rate(rate)
    classes, place = np.unique(labels, return_inverse=True)
    is_hidden = np.array([label in hidden for label in classes.tolist()])
    if (~is_hidden).sum() < 2:
        raise InputError(
            f"The training data has {len(classes)} classes, so hiding {name_classes(hidden)} "
            f"leaves {(~is_hidden).sum()}; a model needs two. Hide fewer classes, or use a model "
            "of more.",
            code=Code.TOO_FEW_CLASSES,
        )
    codes = np.where(is_hidden, UNKNOWN, np.cumsum(~is_hidden) - 1)[place]
    rng = np.random.default_rng(seed)
    of_hidden = rng.permutation(np.flatnonzero(codes == UNKNOWN))
    first, second = _halve_each_class(np.flatnonzero(codes != UNKNOWN), place, rng)
    possible = int(WINDOW_SHARE * len(second))
    size = min(possible, int(len(of_hidden) / rate))
    n_hidden = round(rate * size)
    if size < MIN_WINDOW or n_hidden < MIN_HIDDEN:
        raise _too_few_rows(hidden, rate, (size, n_hidden), (possible, len(of_hidden)))
    notes = []
    if size < possible:
        notes.append(
            f"Only {len(of_hidden)} rows are {name_classes(hidden)}, so the window has {size} rows "
            f"where the other classes would allow {possible}."
        )
    n_known = size - n_hidden
    window = rng.permutation(np.concatenate([second[:n_known], of_hidden[:n_hidden]]))
    return Case(
        hidden=tuple(hidden),
        known=tuple(classes[~is_hidden].tolist()),
        seed=seed,
        codes=codes,
        trial=Trial(first, window, second[n_known:]),
        clean=Trial(second, first[:size], first[size:]),
        notes=tuple(notes),
    )


def check_rate(rate: float) -> None:
    """Refuse a share of hidden rows that no window can have."""
    if not 0 < rate < 1:
        raise InputError(
            f"The rate is {rate:g}, but it is the hidden class's share of the window: more than 0 "
            "and less than 1. Write ten percent as 0.1.",
            code=Code.BAD_RATE,
        )


def _halve_each_class(
    rows: Places, place: Places, rng: np.random.Generator
) -> tuple[Places, Places]:
    """Return two halves of the rows in random order; the odd row of a class is in the first."""
    order = rng.permutation(rows)
    rank = pd.Series(place[order]).groupby(place[order]).cumcount().to_numpy()
    return order[rank % 2 == 0], order[rank % 2 == 1]


def _too_few_rows(
    hidden: Sequence[Any], rate: float, planned: tuple[int, int], there: tuple[int, int]
) -> InputError:
    (size, n_hidden), (possible, of_hidden) = planned, there
    return InputError(
        f"There are {of_hidden} rows of {name_classes(hidden)}, and enough of other classes for a "
        f"window of {possible} rows. At a rate of {percent(rate)} this makes a window of {size}, "
        f"{n_hidden} of them hidden; at least {MIN_WINDOW}, {MIN_HIDDEN} of them hidden, tell "
        "something. Hide a class with more rows, or change the rate.",
        code=Code.TOO_FEW_ROWS,
    )


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
