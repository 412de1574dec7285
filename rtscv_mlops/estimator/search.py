"""Algorithm 1 of the paper, word for word, for reproduction.

Knows rows, labels and classifiers. It has no notion of "nothing new here": see `monitor` for that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.gates import Gate, Layout, margins, nearest_class
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import count, stack, take
from rtscv_mlops.estimator.statistics import (
    FALSE_BESIDE_DRIFT,
    Assessment,
    Excess,
    Margins,
    Shift,
    Turned,
    change_p_value,
    compare_excess,
    decide,
    estimate_rate,
    estimate_shift,
    extract_rows,
)
from rtscv_mlops.outcomes import Verdict


def sample_window(n_window: int, n_known: int, rate: float, of: str, seed: int) -> NDArray:
    """Step 1: draw the sample, a share of the window or of the training set's size."""
    size = round(rate * (n_window if of == "window" else n_known))
    size = min(max(size, 1), n_window)
    return np.sort(np.random.default_rng(seed).permutation(n_window)[:size])


def make_splitter(cv: Any, seed: int) -> Any:
    """Return the splitter that a number of folds or the word "holdout" stands for."""
    if isinstance(cv, str):
        return StratifiedShuffleSplit(1, test_size=1 / 3, random_state=seed)
    if isinstance(cv, Integral):
        return StratifiedKFold(int(cv), shuffle=True, random_state=seed)
    return cv


def cross_validate_sample(
    estimator: Any,
    rows: Any,
    layout: NDArray,
    dummy: Any,
    cv: Any,
    fit_params: dict[str, NDArray],
    n_jobs: int | None,
) -> NDArray:
    """Steps 4 and 5: return which rows of the dummy class are still predicted as that class.

    A row that the splitter never holds out, as in holdout validation, is not kept.
    """
    try:
        splits = list(check_cv(cv, layout, classifier=True).split(np.zeros(len(layout)), layout))
    except ValueError as error:
        raise InputError(f"{cv!r} cannot split the rows: {error} Choose another cv.") from error
    shared = (estimator, rows, layout, dummy, fit_params)
    kept = do_all(_held_out_unknowns, splits, shared=shared, n_jobs=n_jobs)
    unknown = np.zeros(len(layout), dtype=bool)
    unknown[np.concatenate(kept)] = True
    return unknown


def _held_out_unknowns(
    estimator: Any,
    rows: Any,
    layout: NDArray,
    dummy: Any,
    fit_params: dict[str, NDArray],
    train: NDArray,
    test: NDArray,
) -> NDArray:
    """Return the held-out rows of the dummy class that a model without them takes for it."""
    test = test[layout[test] == dummy]
    if len(test) == 0:
        return test
    params = {name: values[train] for name, values in fit_params.items()}
    model = clone(estimator).fit(take(rows, train), layout[train], **params)
    return test[np.asarray(model.predict(take(rows, test))).ravel() == dummy]


RATIO = 0.2
"""What the window weighs against the training rows; small enough not to swallow known classes."""

MIN_KNOWN = 8_000
MAX_WINDOW = 10_000
"""Rows that enter a fit: more known rows than window rows add cost, and hardly any power."""

MIN_CLASS = 20
"""Rows that a rare class keeps when known rows are left out."""

MIN_BASELINE = 50
"""A null of fewer rows says nothing about the tail that unknowns lie in."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What `assess_window` found: facts, the rows they rest on, and the gate that scores others."""

    assessment: Assessment
    sampled: NDArray
    unknown: NDArray
    gate: Gate
    threshold: float
    spread: float
    known_margins: NDArray
    window_margins: NDArray


@dataclass(slots=True)
class _Clock:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


@dataclass(frozen=True, slots=True)
class _Table:
    """Known rows, baseline rows and window rows, one below the other, and where each lies."""

    rows: Any
    known: NDArray
    baseline: NDArray
    window: NDArray
    fitted_window: NDArray


@dataclass(frozen=True, slots=True)
class _Forward:
    """The test of the window against the known classes."""

    null: Margins
    seen: Margins
    shift: Shift
    p_value: float


@dataclass(frozen=True, slots=True)
class _Extraction:
    """The share of unknowns, and the rows they are."""

    null: Margins
    seen: Margins
    rate: float
    interval: tuple[float, float]
    flagged: NDArray
    threshold: float


def assess_window(
    known: Any,
    labels: NDArray,
    window: Any,
    *,
    baseline: Any,
    gate: Gate,
    cv: Any,
    ratio: float,
    alpha: float,
    seed: int,
) -> Finding:
    """Say what a window holds that the known rows do not."""
    if baseline is not None and count(baseline) < MIN_BASELINE:
        raise InputError(
            f"The baseline has {count(baseline)} rows; fewer than {MIN_BASELINE} are no null to "
            "compare a window with. Use a longer clean period, or no baseline."
        )
    clock, rng = _Clock(), np.random.default_rng(seed)
    with clock.stage("prepare"):
        kept = _keep_known(labels, count(window), rng)
        table = _lay_out(take(known, kept), window, baseline, rng)
        gate.prepare(table.rows, table.known, labels[kept], seed)
        layout = _known_layout(gate, table, labels[kept], cv, ratio, rng)
    with clock.stage("forward"):
        forward = _run_forward(gate, table, layout)
    turned, excess = None, None
    if forward.p_value < alpha:
        with clock.stage("reverse"):
            turned = _turn_round(gate, table, forward, layout, rng)
            excess = compare_excess(turned)
    verdict = decide(forward.p_value, excess, alpha)
    with clock.stage("extract"):
        found = _extract(verdict, forward, turned, excess)
    detected = verdict in (Verdict.UNKNOWNS, Verdict.UNKNOWNS_AND_DRIFT)
    gate.forget()
    resembled = forward.seen.nearest[found.flagged & detected]
    facts = {
        "gate": type(gate).__name__,
        "null": "training" if baseline is None else "baseline",
        "ratio": ratio,
        "known_rows": len(layout.classes),
        "null_rows": len(forward.null.margin),
        "window_rows": len(table.window),
        "class_shift": tuple(float(weight) for weight in forward.shift.weight),
        "looks_like": tuple(np.bincount(resembled, minlength=layout.n_classes).tolist()),
        "margin_threshold": found.threshold,
        "excess": excess,
    }
    return Finding(
        assessment=Assessment(
            verdict=verdict,
            p_value=forward.p_value,
            detected=detected,
            unknown_rate=found.rate,
            unknown_rate_interval=found.interval,
            known_false_rate=found.null.share_above(found.threshold),
            diagnostics=facts,
            timings=clock.seconds,
        ),
        sampled=np.sort(table.fitted_window - table.window[0]),
        unknown=np.flatnonzero(found.flagged) if detected else np.empty(0, dtype=int),
        gate=gate,
        threshold=found.threshold,
        spread=float(np.std(found.null.margin)) or 1.0,
        known_margins=found.null.margin,
        window_margins=found.seen.margin,
    )


def _extract(
    verdict: Verdict, forward: _Forward, turned: Turned | None, excess: Excess | None
) -> _Extraction:
    """Estimate the rate and pick the rows, with the null that fits the verdict."""
    rate, interval = estimate_rate(forward.null, forward.seen)
    if turned is None or excess is None:
        # The test found no evidence, so the rate may not claim any.
        rate, interval = 0.0, (0.0, interval[1])
    if turned is None or excess is None or verdict is Verdict.UNKNOWNS:
        picked = extract_rows(forward.null, forward.seen, rate)
        return _Extraction(forward.null, forward.seen, rate, interval, *picked)
    # Known rows that moved look to the training data as the training rows look to the window.
    null, most = turned.reverse, interval[1]
    rate, _ = estimate_rate(null, turned.window)
    picked = extract_rows(null, turned.window, rate, FALSE_BESIDE_DRIFT)
    if verdict is Verdict.DRIFT:
        return _Extraction(null, turned.window, 0.0, (0.0, most), *picked)
    # What drift does not explain is unknown at least; at most, all of the change is.
    interval = (min(max(excess.beyond_interval[0], 0.0), rate), max(most, rate))
    return _Extraction(null, turned.window, rate, interval, *picked)


def _keep_known(labels: NDArray, n_window: int, rng: np.random.Generator) -> NDArray:
    """Return the known rows that take part: all, or enough, with every class among them."""
    limit = max(MIN_KNOWN, min(n_window, MAX_WINDOW))
    order = rng.permutation(len(labels))
    if len(labels) <= limit:
        return order
    # The first rows of each class come first, so that no class is lost.
    rank = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        rank[of_class] = np.arange(len(of_class))
    rare = order[rank[order] < MIN_CLASS]
    common = order[rank[order] >= MIN_CLASS]
    return np.concatenate([rare, common])[:limit]


def _lay_out(known: Any, window: Any, baseline: Any, rng: np.random.Generator) -> _Table:
    parts = [known, window] if baseline is None else [known, baseline, window]
    rows = parts[0]
    for part in parts[1:]:
        rows = stack(rows, part)
    ends = np.cumsum([count(known), 0 if baseline is None else count(baseline), count(window)])
    known_rows, baseline_rows, window_rows = np.split(np.arange(ends[2]), ends[:2])
    fitted = rng.permutation(window_rows)[:MAX_WINDOW]
    return _Table(rows, known_rows, baseline_rows, window_rows, fitted)


def _known_layout(
    gate: Gate, table: _Table, labels: NDArray, cv: Any, ratio: float, rng: np.random.Generator
) -> Layout:
    """Lay out known classes against the window; baseline rows join the class they look like."""
    classes = table.known
    folds = _assign_folds(table, classes, labels, cv, rng)
    layout = Layout(classes, labels, table.fitted_window, folds, ratio)
    if len(table.baseline) == 0:
        return layout
    scores = gate.cross_fit(layout, table.baseline)
    labels = np.concatenate([labels, nearest_class(scores[table.baseline])])
    classes = np.concatenate([classes, table.baseline])
    return Layout(classes, labels, table.fitted_window, folds, ratio)


def _assign_folds(
    table: _Table, classes: NDArray, labels: NDArray, cv: Any, rng: np.random.Generator
) -> NDArray:
    """Give every row of the table the fold that holds it out."""
    n_rows = count(table.rows)
    layout = np.full(n_rows, labels.max() + 1)
    layout[classes] = labels
    if isinstance(cv, int):
        folds = np.empty(n_rows, dtype=int)
        # Within each class in turn, so that the folds share rare classes evenly.
        order = rng.permutation(n_rows)
        order = order[np.argsort(layout[order], kind="stable")]
        folds[order] = np.arange(n_rows) % cv
        return folds
    folds = np.full(n_rows, -1)
    for fold, (_, test) in enumerate(check_cv(cv).split(np.zeros((n_rows, 1)), layout)):
        folds[test] = fold
    if (folds < 0).any():
        raise InputError(
            f"{type(cv).__name__} never holds out {(folds < 0).sum()} of {n_rows} rows, but the "
            "monitor mode judges every row by a model without it. Use a splitter whose test folds "
            "cover all rows, such as StratifiedKFold, or mode='paper' for holdout validation."
        )
    return folds


def _run_forward(gate: Gate, table: _Table, layout: Layout) -> _Forward:
    """Compare the window with the null rows: the baseline's, or else the training data's."""
    is_null = np.isin(layout.classes, table.baseline if len(table.baseline) else table.known)
    rows, labels = layout.classes[is_null], layout.labels[is_null]
    scores = gate.cross_fit(layout, np.concatenate([rows, table.window]))
    nearest = nearest_class(scores[rows]), nearest_class(scores[table.window])
    shift = estimate_shift(nearest[0], labels, nearest[1], layout.n_classes)
    # A class that vanished keeps a trace of weight, so that no stratum divides by nothing.
    weight = np.maximum(shift.weight[labels], 1e-6)
    null = Margins(margins(scores[rows]), nearest[0], weight, rows)
    seen = Margins.of(margins(scores[table.window]), nearest[1], table.window)
    return _Forward(null, seen, shift, change_p_value(null, seen, shift))


def _turn_round(
    gate: Gate, table: _Table, found: _Forward, layout: Layout, rng: np.random.Generator
) -> Turned:
    """Run the test both ways on equally many rows, all labelled by the forward models.

    Window rows that even drift does not explain are no null for the reverse: a new class, far
    from all training rows, would make the known classes beside it look deserted.
    """
    home = np.zeros(count(table.rows), dtype=int)
    null_rows, window_rows = found.null.rows, table.fitted_window
    home[null_rows], home[found.seen.rows] = found.null.nearest, found.seen.nearest
    size = min(len(null_rows), len(window_rows))
    training, window = (rng.permutation(rows)[:size] for rows in (null_rows, window_rows))

    def run(classes: NDArray, dummy: NDArray, scored: NDArray) -> Any:
        names, labels = np.unique(home[classes], return_inverse=True)
        scores = gate.cross_fit(Layout(classes, labels, dummy, layout.folds, layout.ratio), scored)

        def margins_of(rows: NDArray) -> Margins:
            nearest = names[nearest_class(scores[rows])]
            return Margins.of(margins(scores[rows]), nearest, rows)

        return margins_of

    forward = run(training, window, np.concatenate([training, table.window]))
    reverse = run(window, training, np.concatenate([null_rows, window]))
    # Rows that had no part in a fit are judged as fairly as those that were held out of it.
    whole, deserted = forward(table.window), reverse(null_rows)
    rate, _ = estimate_rate(deserted, whole)
    beyond_drift, _ = extract_rows(deserted, whole, rate, FALSE_BESIDE_DRIFT)
    explained = np.setdiff1d(window, table.window[beyond_drift])
    return Turned(
        forward_null=forward(training),
        forward=forward(window),
        window=whole,
        # Where drift explains no row at all, the whole window is the only null there is.
        reverse_null=reverse(explained if len(explained) else window),
        reverse=deserted,
        home=home,
    )
