"""RTSCV as a monitor needs it: one window in, facts out, nothing extracted without evidence.

The known classes and the window as dummy class are cross-fitted by a gate, forward; if that shows
a change, the test is turned round, which tells a new class from known classes that moved. Knows
rows, labels and gates; the rectified model itself is the classifier's business.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.evidence import (
    FALSE_BESIDE_DRIFT,
    FALSE_DISCOVERY_RATE,
    Assessment,
    Margins,
    Turned,
    Verdict,
    class_weights,
    compare_excess,
    decide,
    estimate_rate,
    extract_rows,
    stratified_p_value,
)
from rtscv_mlops.rectify.gates import Gate, Layout, margins, nearest_class
from rtscv_mlops.rectify.rows import count, stack, take

RATIO = 0.2
"""What the window weighs against the training rows; small enough not to swallow known classes."""

MIN_KNOWN = 8_000
MAX_WINDOW = 10_000
MIN_CLASS = 20
"""Rows that enter a fit: more known rows than window rows add cost, and hardly any power."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What `assess_window` found: facts, the rows they rest on, and the gate that scores others."""

    assessment: Assessment
    sampled: NDArray
    unknown: NDArray
    gate: Gate
    threshold: float
    spread: float


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
    clock, rng = _Clock(), np.random.default_rng(seed)
    with clock.stage("prepare"):
        kept = _keep_known(labels, count(window), rng)
        table = _lay_out(take(known, kept), window, baseline, rng)
        gate.prepare(table.rows, table.known, labels[kept], seed)
        layout = _known_layout(gate, table, labels[kept], cv, ratio, rng)
    with clock.stage("forward"):
        null, seen, shift = _run_forward(gate, table, layout)
        p_value = stratified_p_value(null, seen)
        rate, interval = estimate_rate(null, seen)
    excess = None
    if p_value < alpha:
        with clock.stage("reverse"):
            turned = _turn_round(gate, table, null, seen, layout, rng)
            excess = compare_excess(turned)
    verdict, false_discoveries = decide(p_value, excess, alpha), FALSE_DISCOVERY_RATE
    if verdict in (Verdict.DRIFT, Verdict.UNKNOWNS_AND_DRIFT):
        # Known rows that moved look to the training data as the training rows look to the window.
        null, seen = turned.reverse, turned.window
        most = interval[1]
        rate, interval = estimate_rate(null, seen)
        # What drift does not explain is unknown at least; at most, all of the change is.
        interval = (min(max(excess.beyond_interval[0], 0), rate), max(most, rate))
        false_discoveries = FALSE_BESIDE_DRIFT
    with clock.stage("extract"):
        flagged, threshold = extract_rows(null, seen, rate, false_discoveries)
    detected = verdict in (Verdict.UNKNOWNS, Verdict.UNKNOWNS_AND_DRIFT)
    gate.forget()
    facts = {
        "gate": type(gate).__name__,
        "null": "training" if baseline is None else "baseline",
        "ratio": ratio,
        "known_rows": len(layout.classes),
        "null_rows": len(null.margin),
        "window_rows": len(table.window),
        "class_shift": tuple(float(weight) for weight in shift),
        "margin_threshold": threshold,
        "excess": excess,
    }
    return Finding(
        assessment=Assessment(
            verdict=verdict,
            p_value=p_value,
            detected=detected,
            unknown_rate=rate,
            unknown_rate_interval=interval,
            known_false_rate=null.share_above(threshold),
            diagnostics=facts,
            timings=clock.seconds,
        ),
        sampled=np.sort(table.fitted_window - table.window[0]),
        unknown=np.flatnonzero(flagged) if detected else np.empty(0, dtype=int),
        gate=gate,
        threshold=threshold,
        spread=float(np.std(null.margin)) or 1.0,
    )


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
            f"{cv!r} never holds out {(folds < 0).sum()} of {n_rows} rows, but the monitor mode "
            "judges every row by a model without it. Use a splitter whose test folds cover all "
            "rows, such as StratifiedKFold, or mode='paper' for holdout validation."
        )
    return folds


def _run_forward(gate: Gate, table: _Table, layout: Layout) -> tuple[Margins, Margins, NDArray]:
    """Return the margins of the null rows and of the window, and the shift of class shares."""
    is_null = np.isin(layout.classes, table.baseline if len(table.baseline) else table.known)
    rows, labels = layout.classes[is_null], layout.labels[is_null]
    scores = gate.cross_fit(layout, np.concatenate([rows, table.window]))
    nearest = nearest_class(scores[rows]), nearest_class(scores[table.window])
    shift = class_weights(nearest[0], labels, nearest[1])
    # A class that vanished keeps a trace of weight, so that no stratum divides by nothing.
    null = Margins(margins(scores[rows]), nearest[0], np.maximum(shift[labels], 1e-6), rows)
    seen = Margins.of(margins(scores[table.window]), nearest[1], table.window)
    return null, seen, shift


def _turn_round(
    gate: Gate,
    table: _Table,
    null: Margins,
    seen: Margins,
    layout: Layout,
    rng: np.random.Generator,
) -> Turned:
    """Run the test both ways on equally many rows, all labelled by the forward models.

    Window rows that even drift does not explain are no null for the reverse: a new class, far
    from all training rows, would make the known classes beside it look deserted.
    """
    home = np.zeros(count(table.rows), dtype=int)
    home[null.rows], home[seen.rows] = null.nearest, seen.nearest
    size = min(len(null.rows), len(table.fitted_window))
    training, window = (rng.permutation(rows)[:size] for rows in (null.rows, table.fitted_window))

    def run(classes: NDArray, dummy: NDArray, scored: NDArray) -> Any:
        names, labels = np.unique(home[classes], return_inverse=True)
        scores = gate.cross_fit(Layout(classes, labels, dummy, layout.folds, layout.ratio), scored)

        def margins_of(rows: NDArray) -> Margins:
            nearest = names[nearest_class(scores[rows])]
            return Margins.of(margins(scores[rows]), nearest, rows)

        return margins_of

    forward = run(training, window, np.concatenate([training, table.window]))
    reverse = run(window, training, np.concatenate([training, window]))
    whole, deserted = forward(table.window), reverse(training)
    rate, _ = estimate_rate(deserted, whole)
    beyond_drift, _ = extract_rows(deserted, whole, rate, FALSE_BESIDE_DRIFT)
    return Turned(
        forward_null=forward(training),
        forward=forward(window),
        window=whole,
        reverse_null=reverse(np.setdiff1d(window, table.window[beyond_drift])),
        reverse=deserted,
        home=home,
    )
