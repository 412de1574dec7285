"""The search for unknowns in a window.

`PaperSearch` is Algorithm 1 as published. `MonitorSearch` adds a test, and can find nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator import statistics
from rtscv_mlops.estimator.gates import Gate, Layout, margins, nearest_class
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.estimator.rows import count, find_distinct, fingerprints, stack, take
from rtscv_mlops.outcomes import Verdict

RATIO = 0.2
"""Weight of the window against the training rows; small enough to leave known classes intact."""

MIN_KNOWN = 8_000
MAX_WINDOW = 10_000
"""Rows that enter a fit. More known rows than window rows add cost, and hardly any power."""

MIN_CLASS = 20
"""Rows that a rare class keeps when known rows are sampled."""

MIN_BASELINE = 50
"""A null of fewer rows says nothing about the tail in which unknowns lie."""


# -- paper mode


def sample_window(n_window: int, n_known: int, rate: float, of: str, seed: int) -> NDArray:
    """Step 1: draw the sample, a share of the window's or of the training set's size."""
    size = round(rate * (n_window if of == "window" else n_known))
    size = min(max(size, 1), n_window)
    return np.sort(np.random.default_rng(seed).permutation(n_window)[:size])


@dataclass(frozen=True, slots=True)
class PaperSearch:
    """Steps 2 to 5: rows of the known classes and of the dummy class, to be cross-validated.

    Paper mode cannot conclude that a window holds nothing new; `MonitorSearch` can.
    """

    estimator: Any
    rows: Any
    labels: NDArray
    dummy: Any
    fit_params: dict[str, NDArray]

    def run(self, cv: Any, seed: int, n_jobs: int | None) -> NDArray:
        """Return which rows of the dummy class are predicted as that class when held out.

        Rows that the splitter never holds out, as in holdout validation, are not included.
        """
        if isinstance(cv, str):
            cv = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=seed)
        elif isinstance(cv, Integral):
            cv = StratifiedKFold(int(cv), shuffle=True, random_state=seed)
        try:
            splitter = check_cv(cv, self.labels, classifier=True)
            splits = list(splitter.split(np.zeros(len(self.labels)), self.labels))
        except ValueError as error:
            raise InputError(f"{cv!r} cannot split the rows: {error} Choose another cv.") from error
        unknown = np.zeros(len(self.labels), dtype=bool)
        for rows in do_all(PaperSearch.find_held_out, splits, shared=(self,), n_jobs=n_jobs):
            unknown[rows] = True
        return unknown

    def find_held_out(self, train: NDArray, test: NDArray) -> NDArray:
        """Return the held-out dummy rows that a model fitted without them predicts as dummy."""
        test = test[self.labels[test] == self.dummy]
        if len(test) == 0:
            return test
        params = {name: values[train] for name, values in self.fit_params.items()}
        model = clone(self.estimator).fit(take(self.rows, train), self.labels[train], **params)
        return test[np.asarray(model.predict(take(self.rows, test))).ravel() == self.dummy]


# -- monitor mode


def sample_rows(labels: NDArray, limit: int, rng: np.random.Generator) -> NDArray:
    """Return rows in random order: all, or at most `limit` with rows of every class."""
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


def spread_evenly(classes: NDArray, n_folds: int, rng: np.random.Generator) -> NDArray:
    """Return a fold for every row; the rows of each class are spread evenly over the folds."""
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    folds = np.empty(len(classes), dtype=int)
    folds[order] = np.arange(len(classes)) % n_folds
    return folds


@dataclass(frozen=True, slots=True)
class TaughtGate:
    """A gate that was taught the extracted rows as a class, and the margins of held-out rows.

    `known` are positions of known rows, with one margin each; `unknown_margins` are of the
    extracted rows, in their order.
    """

    gate: Gate
    known: NDArray
    known_margins: NDArray
    unknown_margins: NDArray


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of a search: the facts, the rows behind them, and the margins of all rows."""

    assessment: statistics.Assessment
    sampled: NDArray
    unknown: NDArray
    threshold: float
    spread: float
    known_margins: NDArray
    window_margins: NDArray
    taught: TaughtGate | None


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """Known rows, window and baseline without their copies: each distinct row is judged once."""

    known: Any
    codes: NDArray
    window: Any
    baseline: Any
    prints: NDArray
    judged: NDArray
    kept: NDArray
    """Positions of the distinct known rows among all."""

    @classmethod
    def of(cls, known: Any, codes: NDArray, window: Any, baseline: Any) -> "DistinctRows":
        """Leave the copies out."""
        prints, known_prints = fingerprints(window), fingerprints(known)
        judged, kept = find_distinct(prints, known_prints), find_distinct(known_prints, prints)
        if baseline is not None:
            baseline = take(baseline, find_distinct(fingerprints(baseline), prints))
        if len(kept) < len(codes):
            known, codes = take(known, kept), codes[kept]
        if len(judged) < len(prints):
            window = take(window, judged)
        return cls(known, codes, window, baseline, prints, judged, kept)

    def expand(self, detection: Detection) -> Detection:
        """Return a detection in the distinct rows as one in the whole window, copies included."""
        prints, judged = self.prints, self.judged
        if len(judged) == len(prints):
            return detection
        facts = {**detection.assessment.diagnostics, "copies": len(prints) - len(judged)}
        order = np.argsort(prints[judged], kind="stable")
        twin = order[np.searchsorted(prints[judged], prints, sorter=order)]
        unknown = np.flatnonzero(np.isin(prints, prints[judged[detection.unknown]]))
        taught = detection.taught
        if taught is not None:
            place = np.searchsorted(detection.unknown, twin[unknown])
            taught = replace(taught, unknown_margins=taught.unknown_margins[place])
        return replace(
            detection,
            assessment=replace(detection.assessment, diagnostics=facts),
            sampled=judged[detection.sampled],
            unknown=unknown,
            window_margins=detection.window_margins[twin],
            taught=taught,
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """Known, baseline and window rows, one below the other, and the positions of each."""

    rows: Any
    known: NDArray
    baseline: NDArray
    window: NDArray
    fitted_window: NDArray

    @classmethod
    def of(cls, known: Any, window: Any, baseline: Any, rng: np.random.Generator) -> "_Table":
        rows = known if baseline is None else stack(known, baseline)
        rows = stack(rows, window)
        ends = np.cumsum([count(known), 0 if baseline is None else count(baseline), count(window)])
        known_rows, baseline_rows, window_rows = np.split(np.arange(ends[2]), ends[:2])
        fitted = rng.permutation(window_rows)[:MAX_WINDOW]
        return cls(rows, known_rows, baseline_rows, window_rows, fitted)


@dataclass(frozen=True, slots=True)
class _ForwardTest:
    """The test of the window against the known classes."""

    null: statistics.Margins
    window: statistics.Margins
    shift: statistics.Shift
    p_value: float


@dataclass(frozen=True, slots=True)
class _Extraction:
    """The estimated share of unknowns, and which window rows they are."""

    null: statistics.Margins
    window: statistics.Margins
    rate: float
    interval: tuple[float, float]
    flagged: NDArray
    threshold: float


class MonitorSearch:
    """Tests whether a window holds anything new, and extracts rows only if it does.

    One object serves one window: the gate, the table of rows and their layout are its state.
    """

    def __init__(self, gate: Gate, *, cv: Any, ratio: float, alpha: float, seed: int) -> None:
        self.gate, self.cv, self.ratio, self.alpha, self.seed = gate, cv, ratio, alpha, seed
        self._rng = np.random.default_rng(seed)
        self._timings: dict[str, float] = {}

    def run(self, known: Any, labels: NDArray, window: Any, baseline: Any = None) -> Detection:
        """Return what the window holds that the known rows, or the baseline, do not."""
        if baseline is not None and count(baseline) < MIN_BASELINE:
            raise InputError(
                f"The baseline has {count(baseline)} rows; at least {MIN_BASELINE} are needed to "
                "compare a window with. Use a longer clean period, or no baseline."
            )
        with self._timed("prepare"):
            kept = self._sample_known(labels, count(window))
            self._table = _Table.of(take(known, kept), window, baseline, self._rng)
            self.gate.prepare(self._table.rows, self._table.known, labels[kept], self.seed)
            self._layout = self._lay_out(labels[kept])
        with self._timed("forward"):
            forward = self._test_forward()
        directions, excess = None, None
        if forward.p_value < self.alpha:
            with self._timed("reverse"):
                directions = self._test_both_ways(forward)
                excess = statistics.compare_excess(directions)
        verdict = statistics.decide(forward.p_value, excess, self.alpha)
        with self._timed("extract"):
            extraction = self._extract(verdict, forward, directions, excess)
        detected, taught = verdict.claims_unknowns, None
        if detected and extraction.flagged.any():
            with self._timed("teach"):
                taught = self._teach_gate(kept, extraction.flagged)
        self.gate.forget()
        resembled = forward.window.nearest[extraction.flagged & detected]
        facts = {
            "gate": type(self.gate).__name__,
            "null": "training" if baseline is None else "baseline",
            "ratio": self.ratio,
            "known_rows": len(self._layout.classes),
            "null_rows": len(forward.null.margin),
            "window_rows": len(self._table.window),
            "class_shift": tuple(float(weight) for weight in forward.shift.weight),
            "looks_like": tuple(np.bincount(resembled, minlength=self._layout.n_classes).tolist()),
            "margin_threshold": extraction.threshold,
            "excess": excess,
        }
        return Detection(
            assessment=statistics.Assessment(
                verdict=verdict,
                p_value=forward.p_value,
                detected=detected,
                unknown_rate=extraction.rate,
                unknown_rate_interval=extraction.interval,
                known_false_rate=extraction.null.share_above(extraction.threshold),
                diagnostics=facts,
                timings=self._timings,
            ),
            sampled=np.sort(self._table.fitted_window - self._table.window[0]),
            unknown=np.flatnonzero(extraction.flagged) if detected else np.empty(0, dtype=int),
            threshold=extraction.threshold,
            spread=float(np.std(extraction.null.margin)) or 1.0,
            known_margins=extraction.null.margin,
            window_margins=extraction.window.margin,
            taught=taught,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self._timings[stage] = perf_counter() - start

    # -- the layout

    def _sample_known(self, labels: NDArray, n_window: int) -> NDArray:
        """Return the known rows that take part: all, or a sample with rows of every class."""
        return sample_rows(labels, max(MIN_KNOWN, min(n_window, MAX_WINDOW)), self._rng)

    def _lay_out(self, labels: NDArray) -> Layout:
        """Return the known classes against the window. Baseline rows join their nearest class."""
        table = self._table
        folds = self._assign_folds(labels)
        layout = Layout(table.known, labels, table.fitted_window, folds, self.ratio)
        if len(table.baseline) == 0:
            return layout
        scores = self.gate.cross_fit(layout, table.baseline)
        labels = np.concatenate([labels, nearest_class(scores[table.baseline])])
        classes = np.concatenate([table.known, table.baseline])
        return Layout(classes, labels, table.fitted_window, folds, self.ratio)

    def _assign_folds(self, labels: NDArray) -> NDArray:
        """Return for every row of the table the fold that holds it out."""
        n_rows = count(self._table.rows)
        classes = np.full(n_rows, labels.max() + 1)
        classes[self._table.known] = labels
        if isinstance(self.cv, int):
            return spread_evenly(classes, self.cv, self._rng)
        folds = np.full(n_rows, -1)
        for fold, (_, test) in enumerate(check_cv(self.cv).split(np.zeros((n_rows, 1)), classes)):
            folds[test] = fold
        if (folds < 0).any():
            raise InputError(
                f"{type(self.cv).__name__} never holds out {(folds < 0).sum()} of {n_rows} rows, "
                "but monitor mode judges every row by a model fitted without it. Use a splitter "
                "whose test folds cover all rows, such as StratifiedKFold, or mode='paper' for "
                "holdout validation."
            )
        return folds

    # -- the tests

    def _test_forward(self) -> _ForwardTest:
        """Compare the window with the null rows: the baseline if there is one, else training."""
        table, layout = self._table, self._layout
        is_null = np.isin(layout.classes, table.baseline if len(table.baseline) else table.known)
        rows, labels = layout.classes[is_null], layout.labels[is_null]
        scores = self.gate.cross_fit(layout, np.concatenate([rows, table.window]))
        nearest = nearest_class(scores[rows]), nearest_class(scores[table.window])
        shift = statistics.estimate_shift(nearest[0], labels, nearest[1], layout.n_classes)
        # A class that vanished keeps a trace of weight, so that no stratum divides by zero.
        weight = np.maximum(shift.weight[labels], 1e-6)
        null = statistics.Margins(margins(scores[rows]), nearest[0], weight, rows)
        window = statistics.Margins.of(margins(scores[table.window]), nearest[1], table.window)
        return _ForwardTest(null, window, shift, statistics.change_p_value(null, window, shift))

    def _test_both_ways(self, test: _ForwardTest) -> statistics.Directions:
        """Run the test in both directions, on equally many rows labelled by the forward models.

        Window rows that even drift does not explain are left out of the reverse null. A new
        class, far from all training rows, would make known classes near it look deserted.
        """
        table = self._table
        home = np.zeros(count(table.rows), dtype=int)
        null_rows, window_rows = test.null.rows, table.fitted_window
        home[null_rows], home[test.window.rows] = test.null.nearest, test.window.nearest
        size = min(len(null_rows), len(window_rows))
        training, window = (self._rng.permutation(rows)[:size] for rows in (null_rows, window_rows))

        def cross_fit(classes: NDArray, dummy: NDArray, scored: NDArray) -> Any:
            names, labels = np.unique(home[classes], return_inverse=True)
            layout = replace(self._layout, classes=classes, labels=labels, dummy=dummy)
            scores = self.gate.cross_fit(layout, scored)

            def margins_of(rows: NDArray) -> statistics.Margins:
                nearest = names[nearest_class(scores[rows])]
                return statistics.Margins.of(margins(scores[rows]), nearest, rows)

            return margins_of

        forward = cross_fit(training, window, np.concatenate([training, table.window]))
        reverse = cross_fit(window, training, np.concatenate([null_rows, window]))
        # Rows that took part in no fit are judged as fairly as rows that were held out.
        whole, deserted = forward(table.window), reverse(null_rows)
        rate, _ = statistics.estimate_rate(deserted, whole)
        beyond_drift, _ = statistics.extract_rows(
            deserted, whole, rate, statistics.FALSE_BESIDE_DRIFT
        )
        explained = np.setdiff1d(window, table.window[beyond_drift])
        return statistics.Directions(
            forward_null=forward(training),
            forward=forward(window),
            window=whole,
            # If drift explains no row at all, the whole window is the only null left.
            reverse_null=reverse(explained if len(explained) else window),
            reverse=deserted,
            home=home,
        )

    @staticmethod
    def _extract(
        verdict: Verdict,
        forward: _ForwardTest,
        directions: statistics.Directions | None,
        excess: statistics.Excess | None,
    ) -> _Extraction:
        """Estimate the rate and pick the rows, with the null that fits the verdict."""
        rate, interval = statistics.estimate_rate(forward.null, forward.window)
        if directions is None or excess is None:
            # Without evidence, the rate must not claim any unknowns.
            rate, interval = 0.0, (0.0, interval[1])
        if directions is None or excess is None or not verdict.claims_drift:
            picked = statistics.extract_rows(forward.null, forward.window, rate)
            return _Extraction(forward.null, forward.window, rate, interval, *picked)
        # Drifted known rows look to the training data as the training rows look to the window.
        null, most = directions.reverse, interval[1]
        rate, _ = statistics.estimate_rate(null, directions.window)
        picked = statistics.extract_rows(
            null, directions.window, rate, statistics.FALSE_BESIDE_DRIFT
        )
        if not verdict.claims_unknowns:
            return _Extraction(null, directions.window, 0.0, (0.0, most), *picked)
        # At least what drift does not explain is unknown; at most, all of the change is.
        interval = (min(max(excess.beyond_interval[0], 0.0), rate), max(most, rate))
        return _Extraction(null, directions.window, rate, interval, *picked)

    def _teach_gate(self, kept: NDArray, flagged: NDArray) -> TaughtGate:
        """Fit the gate once more, with the extracted rows alone as the dummy class.

        `kept` has for each known row of the table its position among all known rows.
        """
        known, unknown = self._table.known, self._table.window[flagged]
        gate, folds = self.gate.renewed(), self._layout.folds.copy()
        # Few rows may all lie in one fold.
        folds[unknown] = self._rng.permutation(len(unknown)) % (folds.max() + 1)
        layout = replace(self._layout, dummy=unknown, folds=folds)
        scores = gate.cross_fit(layout, np.concatenate([known, unknown]))
        gate.forget()
        return TaughtGate(gate, kept, margins(scores[known]), margins(scores[unknown]))
