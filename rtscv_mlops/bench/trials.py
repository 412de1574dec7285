"""Trials: hide classes that a model knows, and measure how well a detector finds them."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isnan, nan
from time import process_time
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import fisher_exact
from sklearn.base import clone

from rtscv_mlops.bench.catalogue import Entry
from rtscv_mlops.bench.detector import UNKNOWN, Detector
from rtscv_mlops.errors import Code, InputError, RtscvError
from rtscv_mlops.estimator.rows import take
from rtscv_mlops.metrics import auroc, detection_accuracy, macro_f
from rtscv_mlops.models.training import name_classes
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import counted, percent

WINDOW_SHARE = 0.7
"""A window's size as a share of the half that it is drawn from; the rest is compared with it."""

MIN_WINDOW = 30

MIN_HIDDEN = 5
"""Fewer hidden rows are found or missed by chance."""

ALPHA = 0.01
"""Level at which more flags on a window than on other known rows count as an alarm."""

RARE = 6
"""A class needs this many rows to be split once for a threshold, and once more for a fit."""

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Trial:
    """Indices of rows: the training data, the window, and known rows that are in neither."""

    training: Indices
    window: Indices
    others: Indices


@dataclass(frozen=True, slots=True)
class Case:
    """Labelled rows with some classes hidden, as two trials. The clean one has no hidden rows.

    `codes` has the class of every row: an index into `known`, or `UNKNOWN` for hidden classes.
    Each half of the known rows is the training data of one trial and supplies the window of the
    other. So the two windows share no row, have the same size, and are as large as possible.
    """

    hidden: tuple[Any, ...]
    known: tuple[Any, ...]
    seed: int
    codes: Indices
    trial: Trial
    clean: Trial
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return name_classes(self.hidden)

    @property
    def truth(self) -> Indices:
        """The codes of the window's rows."""
        return self.codes[self.trial.window]

    def encode_weights(self, estimator: Any) -> Any:
        """Return the estimator with class weights by code, because detectors learn codes."""
        weights = {
            name: {code: value[label] for code, label in enumerate(self.known) if label in value}
            for name, value in estimator.get_params().items()
            if name.endswith("class_weight") and isinstance(value, Mapping)
        }
        return clone(estimator).set_params(**weights)

    def explain(self, error: Exception) -> str:
        """Return the first line of an error, and name a rare class that probably caused it."""
        lines = str(error).strip().splitlines()
        message = lines[0] if lines else type(error).__name__
        trained = (self.codes[trial.training] for trial in (self.trial, self.clean))
        counts = np.min(
            [np.bincount(codes, minlength=len(self.known)) for codes in trained], axis=0
        )
        rarest, rows = int(counts.argmin()), int(counts.min())
        if rows >= RARE or isinstance(error, RtscvError) or not isinstance(error, ValueError):
            return message
        return (
            f"Class {self.known[rarest]!r} has {counted(rows, 'training row')} after the rows are "
            "halved, too few for a detector that splits each class further. Provide more rows of "
            f"it. ({message})"
        )


def check_rate(rate: float) -> None:
    """Refuse a share of hidden rows that no window can have."""
    if not 0 < rate < 1:
        raise InputError(
            f"The rate is {rate:g}, but it is the hidden class's share of the window: more than 0 "
            "and less than 1. Write ten percent as 0.1.",
            code=Code.BAD_RATE,
        )


def hide_classes(
    labels: NDArray[Any], hidden: Sequence[Any], *, rate: float, seed: int = 0
) -> Case:
    """Hide classes: the window has them at this rate, the training data has none of them."""
    check_rate(rate)
    classes, class_index = np.unique(labels, return_inverse=True)
    is_hidden = np.array([label in hidden for label in classes.tolist()])
    if (~is_hidden).sum() < 2:
        raise InputError(
            f"The training data has {len(classes)} classes, so hiding {name_classes(hidden)} "
            f"leaves {(~is_hidden).sum()}; a model needs two. Hide fewer classes, or use a model "
            "with more.",
            code=Code.TOO_FEW_CLASSES,
        )
    codes = np.where(is_hidden, UNKNOWN, np.cumsum(~is_hidden) - 1)[class_index]
    rng = np.random.default_rng(seed)
    hidden_rows = rng.permutation(np.flatnonzero(codes == UNKNOWN))

    # Each class is halved; the odd row of a class goes to the first half.
    known_rows = rng.permutation(np.flatnonzero(codes != UNKNOWN))
    known_class = class_index[known_rows]
    rank = pd.Series(known_class).groupby(known_class).cumcount().to_numpy()
    first, second = known_rows[rank % 2 == 0], known_rows[rank % 2 == 1]

    # Too few hidden rows make the window smaller, so that it still has them at the asked rate.
    possible = int(WINDOW_SHARE * len(second))
    size = min(possible, int(len(hidden_rows) / rate))
    n_hidden = round(rate * size)
    if size < MIN_WINDOW or n_hidden < MIN_HIDDEN:
        raise InputError(
            f"There are {len(hidden_rows)} rows of {name_classes(hidden)}, and enough of other "
            f"classes for a window of {possible} rows. At a rate of {percent(rate)} the window "
            f"would have {size} rows, {n_hidden} of them hidden. It needs at least {MIN_WINDOW}, "
            f"{MIN_HIDDEN} of them hidden. Hide a class with more rows, or change the rate.",
            code=Code.TOO_FEW_ROWS,
        )
    notes = []
    if size < possible:
        notes.append(
            f"Only {len(hidden_rows)} rows are {name_classes(hidden)}, so the window has {size} "
            f"rows, although the other classes would allow {possible}."
        )
    n_known = size - n_hidden
    window = rng.permutation(np.concatenate([second[:n_known], hidden_rows[:n_hidden]]))
    return Case(
        hidden=tuple(hidden),
        known=tuple(classes[~is_hidden].tolist()),
        seed=seed,
        codes=codes,
        trial=Trial(first, window, second[n_known:]),
        clean=Trial(second, first[:size], first[size:]),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one detector on one case; a figure is None if the rows do not define it.

    `found`, and `quiet` on the clean window, are the monitor's own verdicts. A detector without a
    verdict raises an alarm if it flags significantly more of a window than of other known rows that
    it was not fitted on. `known_lost` is the share of the window's known rows that it flags.
    `problem` is the reason why there are no figures.
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
        """Return the record with values that JSON can hold."""
        plain = bool | int | float | str
        hidden = [label if isinstance(label, plain) else str(label) for label in self.hidden]
        return asdict(self) | {"hidden": hidden}


@dataclass(frozen=True, slots=True)
class _TrialResult:
    """A detector's scores and answers for a window, and which of other known rows it flags."""

    scores: NDArray[Any]
    answers: NDArray[Any]
    flagged_others: NDArray[np.bool_]
    verdict: Verdict | None

    @classmethod
    def of(cls, detector: Detector, rows: Any, case: Case, trial: Trial) -> Self:
        """Fit a detector on the trial, and ask it about the trial's window and other rows."""
        window = take(rows, trial.window)
        detector.fit(take(rows, trial.training), case.codes[trial.training], window)
        # Only the monitor tests the window as a whole.
        assessment = getattr(getattr(detector, "model_", None), "assessment_", None)
        return cls(
            scores=np.asarray(detector.score_window(window)),
            answers=np.asarray(detector.predict_window(window)),
            flagged_others=np.asarray(detector.decide(take(rows, trial.others)), dtype=bool),
            verdict=None if assessment is None else Verdict(assessment.verdict),
        )

    @property
    def flagged(self) -> NDArray[np.bool_]:
        return np.asarray(self.answers == UNKNOWN)

    @property
    def finds(self) -> bool:
        """Whether the detector reports unknown rows in the window."""
        return self._flags_more() if self.verdict is None else self.verdict.claims_unknowns

    @property
    def is_quiet(self) -> bool:
        """Whether the detector reports no change."""
        return not self._flags_more() if self.verdict is None else self.verdict.is_quiet

    def _flags_more(self) -> bool:
        table = [[np.sum(flags), np.sum(~flags)] for flags in (self.flagged, self.flagged_others)]
        return bool(fisher_exact(table, alternative="greater").pvalue < ALPHA)


def judge(entry: Entry, estimator: Any, rows: Any, case: Case) -> Record:
    """Return a detector's figures on a case, or the reason why it cannot run on these rows."""
    n_hidden = int((case.truth == UNKNOWN).sum())
    record = Record(entry.name, case.hidden, case.seed, len(case.truth), n_hidden)
    try:
        # What a verbose model prints would end up inside the output of --json.
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")  # from 18 algorithms, on rows of any kind
            return replace(record, **_measure(entry, case.encode_weights(estimator), rows, case))
    except Exception as error:  # neither the algorithm nor the estimator is ours
        return replace(record, problem=case.explain(error))


def _measure(entry: Entry, estimator: Any, rows: Any, case: Case) -> dict[str, Any]:
    """Return the fields of a record that a detector's answers to both trials determine."""
    start = process_time()
    result = _TrialResult.of(entry.make(clone(estimator), case.seed), rows, case, case.trial)
    seconds = process_time() - start
    clean = _TrialResult.of(entry.make(clone(estimator), case.seed), rows, case, case.clean)
    known_classes = range(int(case.codes.max()) + 1)
    is_hidden, flagged = case.truth == UNKNOWN, result.flagged
    figures = {
        "recall": detection_accuracy(case.truth, result.answers, known_classes, UNKNOWN),
        "precision": is_hidden[flagged].mean() if flagged.any() else nan,
        "known_lost": flagged[~is_hidden].mean(),
        "auroc": auroc(is_hidden, result.scores),
        "macro_f": macro_f(case.truth, result.answers, known_classes, UNKNOWN),
        "seconds": seconds,
    }
    return {
        **{name: None if isnan(value) else float(value) for name, value in figures.items()},
        "verdict": None if result.verdict is None else str(result.verdict),
        "found": result.finds,
        "quiet": clean.is_quiet,
    }
