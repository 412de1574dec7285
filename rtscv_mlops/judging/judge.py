"""RTSCV on one window: from rows, champion and training data to facts, evidence and a model."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from rtscv_mlops.config.monitor import Monitor, RectifySettings
from rtscv_mlops.errors import Code, InputError, ModelError, RtscvError, WindowError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.learner import last_step
from rtscv_mlops.estimator.network import is_network
from rtscv_mlops.facts import (
    AssessmentFacts,
    CanaryFacts,
    ChallengerFacts,
    Evidence,
    Finding,
    FindingCode,
    WindowFacts,
)
from rtscv_mlops.judging import describe
from rtscv_mlops.judging.canary import missed_canary, try_canary
from rtscv_mlops.judging.contest import Contest, Offer, block, choose, predict
from rtscv_mlops.judging.findings import Traffic, count_distinct, find_doubts, find_near_copies
from rtscv_mlops.judging.reference import Baseline, TrainingData
from rtscv_mlops.models.load import Champion
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.window import LabelledRows, Window

AGREES = "agrees with the training data"
"""Value of a version's tag whose baseline does not differ from the training data."""

REPEATED_ROWS = 500
"""Rows of the two fits that show whether a fit can be repeated."""
ASKED_ROWS = 2_000
"""Rows of the window that both of them predict."""


@dataclass(frozen=True, slots=True)
class Rectification:
    """What a window showed, the rows behind it, and the model that was taught its unknowns."""

    facts: WindowFacts
    evidence: Evidence
    model: RTSCVClassifier
    champion_answers: NDArray[Any]
    answers: NDArray[Any]
    challenger: Any
    """The model that is offered; None if no row was extracted."""


@dataclass(frozen=True, slots=True)
class WindowJudge:
    """Judges a window: the fitted `champion` serves, and `estimator` is its unfitted recipe."""

    monitor: Monitor
    window: Window
    champion: Any
    estimator: Any
    training: TrainingData
    baseline: Baseline

    def rectify(self, facts: WindowFacts) -> Rectification:
        """Run RTSCV, and return the facts so far with what it showed."""
        known, sample = self.training.known, self.window.sample
        seconds: dict[str, float] = {}
        with _timed(seconds, "rectify"), _convergence_warnings() as not_converged:
            model = fit_rtscv(self.estimator, self.monitor, self.training, sample, self.baseline)
        unknown = np.zeros(len(sample), dtype=bool)
        unknown[model.unknown_indices_] = True
        before = self._ask_champion(known, sample)
        with _timed(seconds, "describe"):
            cards = describe.make_cards(
                model,
                self.champion,
                known,
                sample,
                columns=shown_columns(self.monitor, sample),
                exemplars=self.monitor.report.exemplars,
            )
            points = describe.project(known, sample, unknown, self.monitor.rectify.seed)
        offer: Offer | None = None
        distinct = len(model.unknown_indices_)
        if distinct:
            with _timed(seconds, "compare"):
                distinct = count_distinct(sample[unknown], known.features)
                offer = self._compare(model, distinct)
        chosen = model.estimator_ if offer is None else offer.chosen.model
        after = predict(chosen, known.rows(sample))
        canary: CanaryFacts | None = None
        on_canary: tuple[Finding, ...] = ()
        if self.monitor.canary is not None:
            with _timed(seconds, "canary"):
                canary, on_canary = self._try_canary(model, before)
        traffic = Traffic.measure(self.window, known, unknown)
        on_offer = self._find_in_offer(offer, int(unknown.sum()), distinct)
        findings = self._find_all(model, traffic, on_canary, [*on_offer, *not_converged])
        facts = facts.judged(
            self._assessment_facts(model),
            ChallengerFacts(
                clusters=cards,
                comparison=None if offer is None else offer.chosen.comparison,
                challenger=None if offer is None else offer.facts,
                blocked="" if offer is None else offer.chosen.blocked,
            ),
            traffic.facts,
            canary=canary,
            findings=tuple(dict.fromkeys(findings)),
            timings={name: round(value, 3) for name, value in seconds.items()},
        )
        return Rectification(
            facts,
            self._evidence(model, unknown, points),
            model,
            before,
            after,
            challenger=None if offer is None else chosen,
        )

    def _assessment_facts(self, model: RTSCVClassifier) -> AssessmentFacts:
        """Return what the test showed, and how it was made."""
        assessment = model.assessment_
        assert assessment is not None
        settings, diagnostics = self.monitor.rectify, assessment.diagnostics
        method: dict[str, Any] = {
            "alpha": settings.alpha,
            "gate": diagnostics.get("gate", settings.gate),
            "cv": settings.cv,
            "sample_rate": diagnostics.get("ratio", settings.sample_rate),
            "seed": settings.seed,
            "max_rows": settings.max_rows,
        }
        for name in ("known_rows", "null_rows", "window_rows"):
            if name in diagnostics:
                method[name] = diagnostics[name]
        for name in ("class_shift", "looks_like"):
            by_class = diagnostics.get(name, {}).items()
            # JSON has no infinity.
            numbers = {str(label): value for label, value in by_class if value and isfinite(value)}
            if numbers:
                method[name] = numbers
        return AssessmentFacts(
            verdict=str(assessment.verdict),
            headline=str(assessment),
            p_value=assessment.p_value,
            unknowns=len(model.unknown_indices_),
            unknown_rate=assessment.unknown_rate,
            unknown_rate_interval=assessment.unknown_rate_interval,
            known_false_rate=assessment.known_false_rate,
            unknown_label=str(model.unknown_label_),
            null=self.baseline.description,
            reference_rows=len(self.training.known),
            settings=method,
        )

    def _find_in_offer(
        self, offer: Offer | None, unknowns: int, distinct: int
    ) -> Iterator[Finding]:
        """Yield what is unusual about the rows and refits behind the challenger."""
        yield from find_near_copies(unknowns, distinct)
        if offer is not None and offer.unstable:
            yield Finding(
                FindingCode.UNSTABLE_LEARNER,
                f"{type(last_step(self.estimator)).__name__} is unstable with "
                f"{unknowns:,} unknown rows: refits that saw different known rows differ by more "
                f"than chance: {offer.unstable}. More regularisation, or more unknown rows from a "
                "longer window, would help.",
            )

    def _find_all(
        self,
        model: RTSCVClassifier,
        traffic: Traffic,
        on_canary: Iterable[Finding],
        not_converged: Iterable[Finding],
    ) -> Iterator[Finding]:
        """Yield what is unusual about inputs, traffic and fits, in the order of a report."""
        yield from Finding.all_of(FindingCode.SOURCE, self.window.findings)
        yield from self.training.findings
        yield from self.baseline.findings
        allowed, origin = self.monitor.report.columns, self.monitor.source.origin or ""
        names_origin = not isinstance(allowed, str) and origin in allowed
        yield from traffic.find_concentrations(origin, shown=names_origin)
        yield from on_canary
        yield from traffic.find_repeats()
        yield from find_doubts(model)
        yield from not_converged
        if len(model.unknown_indices_):
            known, sample = self.training.known, self.window.sample
            yield from check_repeatable(self.estimator, known, sample, self.monitor.rectify)

    def _compare(self, model: RTSCVClassifier, distinct: int) -> Offer:
        """Compare the challengers with the champion, and return the better one."""
        training, rule = self.training, self.monitor.review
        contest = Contest(
            self.champion,
            self.estimator,
            training.known,
            training.holdout,
            unknowns=self.window.sample.iloc[model.unknown_indices_],
            label=model.estimator_classes_[list(model.classes_).index(model.unknown_label_)],
            seed=self.monitor.rectify.seed,
        )

        candidates = block(
            *contest.candidates(model.estimator_, model.taught_gate_),
            distinct,
            min_unknowns=rule.min_unknowns,
            max_class_loss=rule.max_class_loss,
        )
        return choose(*candidates)

    def _try_canary(
        self, model: RTSCVClassifier, answers: NDArray[Any]
    ) -> tuple[CanaryFacts | None, tuple[Finding, ...]]:
        """Return what became of the canary, with a finding if it failed or was not found."""
        assert model.assessment_ is not None
        assert self.monitor.canary is not None

        def look(label: Any, known: LabelledRows, sample: pd.DataFrame) -> RTSCVClassifier:
            baseline = self.baseline
            if baseline.rows is not None:  # The baseline may not show the hidden class either.
                is_hidden = self._ask_champion(known, baseline.rows) == label
                baseline = replace(baseline, rows=baseline.rows[~is_hidden])
            training = replace(self.training, known=known)
            return fit_rtscv(self.estimator, self.monitor, training, sample, baseline)

        try:
            canary = try_canary(
                self.monitor.canary,
                self.window,
                self.training.known,
                answers,
                look,
                alone=not model.assessment_.detected,
                seed=model.random_state,
            )
        except RtscvError as error:
            text = f"No canary was planted: {error}"
            return None, (Finding(FindingCode.CANARY_NOT_PLANTED, text),)
        return canary, () if canary.found else (missed_canary(canary),)

    def _ask_champion(self, known: LabelledRows, sample: pd.DataFrame) -> NDArray[Any]:
        """Return the champion's answers; a window that it cannot take cannot be judged."""
        try:
            return predict(self.champion, known.rows(sample))
        except Exception as error:  # the champion is the user's, and may raise anything
            raise WindowError(
                f"The champion has no answer for rows of this window: {error}. "
                f"{_untaught_values(sample, known.features)}Correct the source, or serve a model "
                "that takes such rows.",
                code=Code.MODEL_REFUSES,
            ) from error

    def _evidence(
        self, model: RTSCVClassifier, unknown: NDArray[Any], points: describe.Projection
    ) -> Evidence:
        """Return the rows and scores that a report may draw."""
        columns, reference = shown_columns(self.monitor, self.window.sample), self.baseline.rows
        if reference is None:
            most, seed = self.monitor.drift.max_rows, self.monitor.rectify.seed
            reference = describe.sample_known(self.training.known, most, seed).features
        return Evidence(
            window=self.window.sample[columns],
            reference=reference[columns],
            unknown=unknown,
            window_scores=model.window_scores_,
            known_scores=model.known_scores_,
            window_points=points.window,
            reference_points=points.reference,
            point_labels=points.labels,
        )


def _untaught_values(sample: pd.DataFrame, taught: pd.DataFrame) -> str:
    """Return a sentence about columns with values that the training data does not have."""
    columns = []
    for name in sample.columns:
        if is_numeric_dtype(sample[name]):
            continue
        new = sorted(set(sample[name].dropna().map(str)) - set(taught[name].dropna().map(str)))
        if new:
            columns.append(f"{name!r} ({', '.join(map(repr, new[:3]))})")
    return f"Values that were never taught are in {', '.join(columns[:5])}. " if columns else ""


def shown_columns(monitor: Monitor, sample: pd.DataFrame) -> list[str]:
    """Return the model's columns that may leave the source."""
    allowed = monitor.report.columns
    if allowed == "none":
        return []
    return [name for name in sample.columns if allowed == "model" or name in allowed]


def make_classifier(
    estimator: Any,
    settings: RectifySettings,
    *,
    unknown_label: str | int | None = None,
    seed: int | None = None,
) -> RTSCVClassifier:
    """Return RTSCV as a monitor's settings say; `seed` replaces that of the settings."""
    return RTSCVClassifier(
        estimator,
        sample_rate=settings.sample_rate,
        cv=settings.cv,
        unknown_label=unknown_label,
        alpha=settings.alpha,
        gate=settings.gate,
        random_state=settings.seed if seed is None else seed,
    )


def fit_rtscv(
    estimator: Any,
    monitor: Monitor,
    training: TrainingData,
    sample: pd.DataFrame,
    baseline: Baseline,
) -> RTSCVClassifier:
    """Fit RTSCV on the training rows and a window."""
    known = training.known
    model = make_classifier(estimator, monitor.rectify, unknown_label=training.unknown_label)
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
            f"{type(estimator).__name__} could not be fitted again on {len(known)} training "
            f"rows and the window: {error}. Fit a clone of the champion on its training data by "
            "hand to see why.",
            code=Code.FIT_FAILED,
        ) from error


def check_repeatable(
    estimator: Any, known: LabelledRows, sample: pd.DataFrame, settings: RectifySettings
) -> tuple[Finding, ...]:
    """Fit twice on a few rows: if a model ignores its seed, a review cannot be repeated."""
    few = describe.sample_known(known, REPEATED_ROWS, settings.seed)
    rows = known.rows(sample.head(ASKED_ROWS))
    model = make_classifier(estimator, settings)
    first, second = (clone(model).fit(few.rows(), few.labels).predict(rows) for _ in range(2))
    if np.array_equal(first, second):
        return ()
    advice = "Give the model a random_state."
    if is_network(last_step(estimator)):
        advice = (
            "A network has no random_state, and torch was seeded before each fit: seed what else "
            "it draws from, such as NumPy, in a skorch callback, or set "
            "torch.use_deterministic_algorithms(True)."
        )
    return (
        Finding(
            FindingCode.NOT_REPEATABLE,
            f"Two fits of {type(estimator).__name__} on the same rows with the same seed disagree "
            f"on {np.mean(first != second):.1%} of the window, so the result cannot be repeated "
            f"exactly. {advice}",
        ),
    )


def check_baseline(
    baseline: Baseline,
    known: LabelledRows,
    estimator: Any,
    monitor: Monitor,
    registry: ModelRegistry,
    champion: Champion,
) -> tuple[Finding, ...]:
    """Return a finding if the baseline itself differs from the training data.

    The answer for a champion and a baseline is kept as a tag of the version.
    """
    rows = baseline.rows
    if rows is None:
        return ()

    def compare() -> str:
        model = make_classifier(estimator, monitor.rectify)
        try:
            model.fit(known.rows(), known.labels, deployment=known.rows(rows))
        except InputError as error:
            return f"The baseline could not be compared with the training data: {error}"
        assert model.assessment_ is not None
        if model.assessment_.verdict.is_quiet:
            return AGREES
        return (
            f"The baseline itself differs from the training data ({model.assessment_.verdict}). "
            "Windows are compared with the baseline, so what it has in common with them is not "
            "reported; retrain the champion on newer rows to remove the difference."
        )

    tag = f"{tags.BASELINE}.{sha256(baseline.description.encode()).hexdigest()[:8]}"
    text = registry.versions.tag_once(champion.version, tag, compare)
    return () if text == AGREES else (Finding(FindingCode.BASELINE_DIFFERS, text),)


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[part] = perf_counter() - start


@contextmanager
def _convergence_warnings() -> Iterator[list[Finding]]:
    """Collect warnings of the estimator that it did not converge; pass on all others."""
    findings: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield findings
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            text = f"A fit did not converge: {str(warning.message).splitlines()[0]}"
            findings.append(Finding(FindingCode.NOT_CONVERGED, text))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    findings[:] = dict.fromkeys(findings)
