"""RTSCV on one window: from rows, champion and training data to facts, evidence and a model.

Knows data that was already read; knows nothing of where results are written.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from rtscv_mlops.config.monitor import CanarySettings, Monitor, ReviewSettings
from rtscv_mlops.errors import Code, ModelError, RtscvError, WindowError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.learner import last_step
from rtscv_mlops.estimator.network import is_network
from rtscv_mlops.estimator.statistics import Assessment
from rtscv_mlops.facts import CanaryFacts, Comparison, Evidence, WindowFacts
from rtscv_mlops.judging import findings as canary
from rtscv_mlops.judging.blocking import blocked_because, too_few_because
from rtscv_mlops.judging.describe import (
    Known,
    compare_by_folds,
    compare_on_holdout,
    make_cards,
    predict,
    project,
    sample_known,
)
from rtscv_mlops.judging.findings import (
    Concentration,
    concentration,
    copied_share,
    find_concentrations,
    find_oddities,
    taught_fingerprints,
)
from rtscv_mlops.judging.reference import Baseline, Training
from rtscv_mlops.window import Window

COUNTED = {
    "known_rows": "training rows compared",
    "null_rows": "rows of the null",
    "window_rows": "window rows compared",
}
BY_CLASS = {
    "class_shift": "class shares over training",
    "looks_like": "unknown rows look like",
}
"""How the diagnostics are called where people read them."""
SEED, MOST_ROWS = "seed", "most rows looked at"
"""What chose the rows of a sample; `score` reads both back."""

SHOWN_CLASSES = 6

REPEATED_ROWS = 500
"""Rows of the two fits that show whether a fit can be repeated."""
ASKED_ROWS = 2_000
"""Rows of the window that both are asked about."""


@dataclass(frozen=True, slots=True)
class Rectification:
    """What a window showed, the rows behind it, and the model that knows it."""

    facts: WindowFacts
    evidence: Evidence
    model: RTSCVClassifier
    champion_answers: NDArray[Any]
    answers: NDArray[Any]

    @property
    def challenger(self) -> Any:
        """The rectified estimator; None where nothing was extracted, so that there is none."""
        return self.model.estimator_ if len(self.model.unknown_indices_) else None


def rectify(
    facts: WindowFacts,
    monitor: Monitor,
    window: Window,
    champion: Any,
    estimator: Any,
    training: Training,
    baseline: Baseline,
) -> Rectification:
    """Run RTSCV, and fill in what the facts so far lack."""
    known = training.known
    seconds: dict[str, float] = {}
    with _timed(seconds, "rectify"), _convergence_noted() as noted:
        model = _fit(monitor, estimator, training, window.sample, baseline)
    unknown = np.zeros(len(window.sample), dtype=bool)
    unknown[model.unknown_indices_] = True
    rows = known.rows(window.sample)
    before = _answers(champion, known, window.sample)
    after = predict(model.estimator_, rows)
    with _timed(seconds, "describe"):
        columns = shown_columns(monitor, window.sample)
        cards = make_cards(
            model,
            champion,
            known,
            window.sample,
            columns=columns,
            exemplars=monitor.report.exemplars,
        )
        drawn = project(known, window.sample, unknown, monitor.rectify.seed)
    with _timed(seconds, "compare"):
        comparison = _compare(model, champion, estimator, training, window.sample, monitor)
    assessment = model.assessment_
    assert assessment is not None
    planted, blind = None, ""
    if monitor.canary is not None:
        look = partial(_look_without, monitor, champion, estimator, training, baseline)
        with _timed(seconds, "canary"):
            planted, blind = _try_canary(monitor.canary, window, model, known, before, look)
    taught = taught_fingerprints(known, window)
    hours = None if window.times is None else window.times.dt.floor("h")
    by_hour, by_origin = concentration(hours, unknown), concentration(window.origins, unknown)
    findings = (
        *window.findings,
        *training.findings,
        *baseline.findings,
        *_concentrations(monitor, by_hour, by_origin),
        *filter(None, [blind]),
        *find_oddities(window, taught, assessment.unknown_rate, model),
        *noted,
        *(_repeatability(estimator, known, window.sample, monitor) if unknown.any() else ()),
    )
    facts = facts.model_copy(
        update=_judged(assessment)
        | {
            "unknowns": int(unknown.sum()),
            "unknown_label": str(model.unknown_label_),
            "null": baseline.words,
            "reference_rows": len(known.labels),
            "clusters": cards,
            "comparison": comparison,
            "copies_share": copied_share(window, taught),
            "unknown_hour_share": by_hour.share if by_hour else None,
            "unknown_origin_share": by_origin.share if by_origin else None,
            "canary": planted,
            "blocked": _blocked(monitor.review, comparison, int(unknown.sum())),
            "findings": tuple(dict.fromkeys(findings)),
            "settings": _how(monitor, assessment.diagnostics),
            "timings": {name: round(value, 3) for name, value in seconds.items()},
        }
    )
    reference = baseline.rows
    if reference is None:
        reference = sample_known(known, monitor.drift.max_rows, monitor.rectify.seed).features
    evidence = Evidence(
        window=window.sample[columns],
        reference=reference[columns],
        unknown=unknown,
        window_scores=model.window_scores_,
        known_scores=model.known_scores_,
        window_points=drawn.window,
        reference_points=drawn.reference,
        point_labels=drawn.labels,
    )
    return Rectification(facts, evidence, model, before, after)


def _judged(assessment: Assessment) -> dict[str, Any]:
    """Return what the test says of a window, by the names that facts have for it."""
    return {
        "verdict": str(assessment.verdict),
        "headline": str(assessment),
        "p_value": assessment.p_value,
        "unknown_rate": assessment.unknown_rate,
        "unknown_rate_interval": assessment.unknown_rate_interval,
        "known_false_rate": assessment.known_false_rate,
    }


def _blocked(rule: ReviewSettings, comparison: Comparison | None, unknowns: int) -> str:
    """Say why nobody may approve the challenger; nothing if there is none, or somebody may."""
    if comparison is None:
        return ""
    too_few = too_few_because(unknowns, rule.min_unknowns)
    return too_few or blocked_because(comparison, rule.max_class_loss)


def shown_columns(monitor: Monitor, sample: pd.DataFrame) -> list[str]:
    """Return the model's columns that may leave the source."""
    allowed = monitor.report.columns
    if allowed == "none":
        return []
    return [name for name in sample.columns if allowed == "model" or name in allowed]


def _fit(
    monitor: Monitor, estimator: Any, training: Training, sample: pd.DataFrame, baseline: Baseline
) -> RTSCVClassifier:
    settings, known = monitor.rectify, training.known
    model = RTSCVClassifier(
        estimator,
        sample_rate=settings.sample_rate,
        cv=settings.cv,
        unknown_label=training.unknown_label,
        alpha=settings.alpha,
        gate=settings.gate,
        random_state=settings.seed,
    )
    try:
        return model.fit(
            known.rows(),
            known.labels,
            deployment=known.rows(sample),
            baseline=None if baseline.rows is None else known.rows(baseline.rows),
        )
    except RtscvError:
        raise
    except Exception as error:  # the estimator is the user's, and may raise anything
        raise ModelError(
            f"{type(estimator).__name__} could not be fitted again on {len(known.labels)} training "
            f"rows and the window: {error}. Fit a clone of the champion on its training data by "
            "hand to see why.",
            code=Code.FIT_FAILED,
        ) from error


def _concentrations(
    monitor: Monitor, by_hour: Concentration | None, by_origin: Concentration | None
) -> Iterator[str]:
    allowed, column = monitor.report.columns, monitor.source.origin or ""
    shown = not isinstance(allowed, str) and column in allowed
    return find_concentrations(by_hour, by_origin, column, shown=shown)


def _try_canary(
    settings: CanarySettings,
    window: Window,
    model: RTSCVClassifier,
    known: Known,
    answers: NDArray[Any],
    look: canary.Look,
) -> tuple[CanaryFacts | None, str]:
    """Return what became of the canary, and what is to be said of it; no failure goes further."""
    assert model.assessment_ is not None
    alone, seed = not model.assessment_.detected, model.random_state
    try:
        found = canary.try_canary(settings, window, known, answers, look, alone=alone, seed=seed)
    except RtscvError as error:
        return None, f"No canary was planted: {error}"
    return found, "" if found.found else canary.words(found)


def _look_without(
    monitor: Monitor,
    champion: Any,
    estimator: Any,
    training: Training,
    baseline: Baseline,
    label: Any,
    known: Known,
    sample: pd.DataFrame,
) -> RTSCVClassifier:
    """Run RTSCV as if a class had never been taught; the baseline may not show it either."""
    if baseline.rows is not None:
        is_hidden = _answers(champion, known, baseline.rows) == label
        baseline = replace(baseline, rows=baseline.rows[~is_hidden])
    return _fit(monitor, estimator, replace(training, known=known), sample, baseline)


def _answers(champion: Any, known: Known, sample: pd.DataFrame) -> NDArray[Any]:
    """Return what the champion says of the window; one that refuses it cannot be judged by it."""
    try:
        return predict(champion, known.rows(sample))
    except Exception as error:  # the champion is the user's, and may raise anything
        raise WindowError(
            f"The champion has no answer for rows of this window: {error}. "
            f"{_new_words(sample, known.features)}Correct the source, or serve a model that takes "
            "such rows.",
            code=Code.MODEL_REFUSES,
        ) from error


def _new_words(sample: pd.DataFrame, taught: pd.DataFrame) -> str:
    """Say which columns hold words that the training data does not have."""
    words = {
        name: sorted(set(sample[name].dropna().map(str)) - set(taught[name].dropna().map(str)))
        for name in sample.columns
        if not is_numeric_dtype(sample[name])
    }
    named = [f"{name!r} ({', '.join(map(repr, new[:3]))})" for name, new in words.items() if new]
    return f"Values that were never taught are in {', '.join(named[:5])}. " if named else ""


def _compare(
    model: RTSCVClassifier,
    champion: Any,
    estimator: Any,
    training: Training,
    sample: pd.DataFrame,
    monitor: Monitor,
) -> Comparison | None:
    if len(model.unknown_indices_) == 0:
        return None
    label = model.estimator_classes_[list(model.classes_).index(model.unknown_label_)]
    if training.holdout is not None:
        return compare_on_holdout(champion, model.estimator_, training.holdout, label)
    unknowns = sample.iloc[model.unknown_indices_]
    return compare_by_folds(estimator, training.known, unknowns, label, monitor.rectify.seed)


def _how(monitor: Monitor, diagnostics: Any) -> dict[str, Any]:
    """Return how the result was obtained, in words and numbers that a table can show."""
    used = monitor.rectify
    asked = {
        "level of the test": used.alpha,
        "what scores rows": diagnostics.get("gate", used.gate),
        "folds (k)": used.cv,
        "weight of the window (c)": diagnostics.get("ratio", used.sample_rate),
        SEED: used.seed,
        MOST_ROWS: used.max_rows,
    }
    found = {said: diagnostics[name] for name, said in COUNTED.items() if name in diagnostics}
    by_class = {said: _by_class(diagnostics.get(name, {})) for name, said in BY_CLASS.items()}
    return asked | found | {said: text for said, text in by_class.items() if text}


def _by_class(numbers: Mapping[Any, float]) -> str:
    """Return the largest numbers with their classes; none if all are nothing."""
    found = sorted((item for item in numbers.items() if item[1]), key=lambda item: -item[1])
    more = ", …" if len(found) > SHOWN_CLASSES else ""
    return ", ".join(f"{label} {value:.3g}" for label, value in found[:SHOWN_CLASSES]) + more


def _repeatability(
    estimator: Any, known: Known, sample: pd.DataFrame, monitor: Monitor
) -> tuple[str, ...]:
    """Fit twice on a few rows: a model that ignores its seed makes a review unrepeatable."""
    few = sample_known(known, REPEATED_ROWS, monitor.rectify.seed)
    rows = known.rows(sample.head(ASKED_ROWS))
    seeded = RTSCVClassifier(estimator, random_state=monitor.rectify.seed)
    first, second = (clone(seeded).fit(few.rows(), few.labels).predict(rows) for _ in range(2))
    if np.array_equal(first, second):
        return ()
    return (
        f"Two fits of {type(estimator).__name__} on the same rows with the same seed disagree on "
        f"{np.mean(first != second):.1%} of the window, so the result cannot be repeated exactly. "
        + _how_to_seed(estimator),
    )


def _how_to_seed(estimator: Any) -> str:
    if not is_network(last_step(estimator)):
        return "Give the model a random_state."
    return (
        "A network has no random_state, and torch was seeded before each fit: seed what else it "
        "draws from, such as NumPy, in a skorch callback, or set "
        "torch.use_deterministic_algorithms(True)."
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[stage] = perf_counter() - start


@contextmanager
def _convergence_noted() -> Iterator[list[str]]:
    """Collect what the estimator says about not converging; other warnings pass."""
    noted: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield noted
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            noted.append(f"A fit did not converge: {str(warning.message).splitlines()[0]}")
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    noted[:] = dict.fromkeys(noted)
