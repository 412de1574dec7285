"""From margins to a verdict: class shift, p-value, rate of unknowns, rows to extract, decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import betainc
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression

from rtscv_mlops.outcomes import Verdict

OWN_SHARE = 0.7
"""A class is separable if at least this share of the window rows nearest to it are its own."""

TAILS = (0.90, 0.95, 0.98, 0.99)
"""The window is compared with the null above these quantiles of the pooled margins."""

FALSE_DISCOVERY_RATE = 0.1
"""Largest expected share of known rows among the extracted rows."""

FALSE_BESIDE_DRIFT = 0.5
"""The same beside drift, where the null itself is an estimate: each row beats a coin toss."""

STRICT = 2.5
"""Standard errors to a limit that is the best of several, or that must allow for a bias."""

GUARD = 0.35
"""Share of the null below the lowest threshold at which a rate is read."""

COVERED = 0.5
"""Above this mean of both excesses, window and training data have too little in common to compare
the rest."""

TOLERANCE = 0.04
"""The two directions always differ a little: 10 % of the rows one way may be 14 % the other."""

UNMATCHED = 0.7
"""If classes that lost nothing hold more of the forward excess than this, no class has moved."""

REVERSE_TAIL = 0.1
"""Share of the training rows, seen from the window, above which a window row is beyond drift."""

CLEARLY_BEYOND = 0.35
"""The part beyond drift must be at least this share of the drift, or the comparison may be off."""

DESERTED, PLAINLY_DESERTED, LARGE_PART = 0.2, 0.4, 0.05
"""Reverse over forward excess that is drift if it is significant, and if it is not; the least
reverse excess in the second case."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How the shares of the classes changed from the known rows to the window.

    `share` is a class's share of the window; `weight` is that over its share of the known rows.
    `own` marks the separable classes: the window rows nearest to them are mostly their own. A
    class that almost vanished is not: the rows nearest to it are strays of other classes, and the
    null has too few of those to compare. Classes that the model confuses are not either.
    `stratum` numbers groups of classes that are separable together: a confused class is joined
    with the classes that its rows come from.
    """

    share: NDArray
    weight: NDArray
    own: NDArray
    stratum: NDArray

    @property
    def variance(self) -> NDArray:
        """Variance of each class's counts, relative to the counts of independent rows.

        Two folds judge each other with models that learned the same chance differences. This
        correlates their counts and can double the variance if a class takes a large part of the
        window, and so of the dummy class. The slope was chosen so that the test keeps its level.
        """
        return np.clip(1 + 0.35 * (self.weight - 1), 1, 2)

    @property
    def joined_variance(self) -> NDArray:
        """The same for each stratum: the mean over its classes, weighted by their shares."""
        total = np.bincount(self.stratum, weights=self.share)
        varied = np.bincount(self.stratum, weights=self.share * self.variance)
        return np.divide(varied, total, out=np.ones(len(total)), where=total > 0)


def estimate_shift(
    nearest: NDArray, labels: NDArray, window_nearest: NDArray, n_classes: int
) -> Shift:
    """Solve "confusion of the known rows times shares = shares seen in the window".

    This is black-box shift estimation. It needs no calibrated probabilities.
    """
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, (nearest, labels), 1)
    known_share = confusion.sum(axis=0)
    confusion /= np.maximum(known_share, 1)
    seen = np.bincount(window_nearest, minlength=n_classes) / len(window_nearest)
    share, _ = nnls(confusion, seen)
    known_share /= known_share.sum()
    weight = np.divide(share, known_share, out=np.zeros(n_classes), where=known_share > 0)
    comes_from = confusion * share
    own = np.diag(comes_from) >= OWN_SHARE * seen
    return Shift(share, weight, own, _join_mixed(comes_from, seen))


def _join_mixed(comes_from: NDArray, seen: NDArray) -> NDArray:
    """Return strata of classes that are separable together.

    Join the least separable class with the one that most of its rows come from, until every
    stratum is separable. A class that no known row is nearest to joins the largest stratum.
    """
    stratum, flow, size = np.arange(len(seen)), comes_from.copy(), seen.copy()
    for _ in range(len(seen) - 1):
        own = np.divide(np.diag(flow), size, out=np.ones(len(size)), where=size > 0)
        mixed = int(np.argmin(own))
        if own[mixed] >= OWN_SHARE:
            break
        others = np.arange(len(size)) != mixed
        sources = flow[mixed] * others
        host = int(np.argmax(sources if sources.any() else size * others))
        stratum[stratum == mixed] = host
        flow[host] += flow[mixed]
        flow[:, host] += flow[:, mixed]
        size[host] += size[mixed]
        flow[mixed], flow[:, mixed], size[mixed] = 0, 0, 0
    return np.unique(stratum, return_inverse=True)[1]


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins of some rows, with each row's nearest class, weight and position in the table."""

    margin: NDArray
    nearest: NDArray
    weight: NDArray
    rows: NDArray

    @classmethod
    def of(cls, margin: NDArray, nearest: NDArray, rows: NDArray) -> "Margins":
        """Return margins of rows with a weight of one each."""
        return cls(margin, nearest, np.ones(len(margin)), rows)

    def near(self, classes: NDArray) -> "Margins":
        """Return the rows whose nearest class is marked in `classes`."""
        kept = classes[self.nearest]
        return Margins(self.margin[kept], self.nearest[kept], self.weight[kept], self.rows[kept])

    def within(self, stratum: NDArray) -> "Margins":
        """Return the same rows with strata instead of classes."""
        return Margins(self.margin, stratum[self.nearest], self.weight, self.rows)

    def share_above(self, threshold: float) -> float:
        """Return the weighted share of rows with a larger margin."""
        return float(np.average(self.margin > threshold, weights=self.weight))

    def quantile(self, share: float) -> float:
        """Return the margin with this weighted share of rows below it."""
        order = np.argsort(self.margin)
        below = np.cumsum(self.weight[order])
        position = np.searchsorted(below, share * below[-1])
        return float(self.margin[order[min(position, len(order) - 1)]])

    def rank(self, window: "Margins") -> tuple[NDArray, NDArray, NDArray]:
        """Return each window row's rank among these rows of the same class.

        Ranks within a class do not depend on the shares of the classes. Also return, for each
        class, its share of the window and the effective number of these rows.
        """
        ranks, shares, sizes = np.ones(len(window.margin)), [], []
        for group in np.unique(window.nearest):
            own, others = self.nearest == group, window.nearest == group
            if not own.any():
                continue  # No row of this class to compare with: a rank of 1 means "beyond all".
            order = np.argsort(self.margin[own])
            weight, sorted_margin = self.weight[own][order], self.margin[own][order]
            heights = np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum()
            left = heights[np.searchsorted(sorted_margin, window.margin[others], side="left")]
            right = heights[np.searchsorted(sorted_margin, window.margin[others], side="right")]
            ranks[others] = (left + right) / 2
            shares.append(others.mean())
            sizes.append(weight.sum() ** 2 / (weight**2).sum())
        return ranks, np.array(shares), np.array(sizes)

    def excess_over(self, null: "Margins", home: NDArray) -> NDArray:
        """Return per class how many more of these rows than null rows exceed the null's tail."""
        limit = null.quantile(0.95)
        flagged, expected = (
            np.bincount(home[side.rows[side.margin > limit]], minlength=home.max() + 1)
            / len(side.margin)
            for side in (self, null)
        )
        return flagged - expected


@dataclass(frozen=True, slots=True)
class Directions:
    """The test in both directions, on equally many rows.

    `forward` are window rows against training classes, `reverse` are training rows against window
    classes, each with its null. `window` is the forward test of the whole window. `home` is the
    nearest class of every row of the table. The models of both directions learn from equally many
    rows; `reverse` has all training rows, even those that took part in no fit.
    """

    forward_null: Margins
    forward: Margins
    window: Margins
    reverse_null: Margins
    reverse: Margins
    home: NDArray


@dataclass(frozen=True, slots=True)
class Excess:
    """How many more rows are flagged than the null predicts, in both directions.

    `beyond` is the part of the window that drift does not explain. `beyond_p_value` tests the
    forward rows with the reverse rows as their null. `unmatched` is the share of the forward
    excess in classes whose training rows all still have a counterpart: a class that moved leaves
    a hole behind, a new class does not.
    """

    forward: float
    reverse: float
    beyond: float
    beyond_interval: tuple[float, float]
    beyond_p_value: float
    unmatched: float
    reverse_p_value: float

    def shows_drift(self, alpha: float) -> bool:
        """Return whether training rows were deserted: significantly, or plainly in large part.

        The second matters in small windows, where the reverse test has too few rows.
        """
        proven = self.reverse_p_value < alpha and self.reverse > DESERTED * self.forward
        return proven or self.reverse > max(PLAINLY_DESERTED * self.forward, LARGE_PART)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the search found in one window. Reports, pages and metrics are built from it.

    Attributes
    ----------
    verdict : Verdict
        `no_change`, `drift`, `unknowns` or `unknowns_and_drift`.
    p_value : float
        Chance of at least this much evidence in a window without anything new.
    detected : bool
        Whether the verdict is `unknowns` or `unknowns_and_drift`.
    unknown_rate : float
        Estimated share of unknowns in the window; 0 if none were detected.
    unknown_rate_interval : tuple of float
        95 % interval of the share. Beside drift, it reaches from the part that drift does not
        explain to all of the change.
    known_false_rate : float
        Share of known rows that lie above the extraction threshold as well.
    diagnostics : mapping
        Details behind the verdict, by name.
    timings : mapping
        Seconds by stage.
    """

    verdict: Verdict
    p_value: float
    detected: bool
    unknown_rate: float
    unknown_rate_interval: tuple[float, float]
    known_false_rate: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("diagnostics", "timings"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __str__(self) -> str:
        low, high = (round(100 * limit) for limit in self.unknown_rate_interval)
        share = f"about {round(100 * self.unknown_rate)} % ({low}-{high} %) of this window"
        unnoticed = f"up to {high} % of this window could be unknown without standing out"
        if high - low >= 99:  # It excludes nothing, so no number is given.
            share, unnoticed = "a part of this window", "too few rows could be compared to be sure"
        untaught = "belongs to something the model was never taught"
        behind_drift = "; how much cannot be told behind this drift" if high - low >= 99 else ""
        return {
            Verdict.NO_CHANGE: f"Nothing new was found; {unnoticed}.",
            Verdict.DRIFT: "The known classes look different; the share of unknown rows cannot be "
            "told behind this drift.",
            Verdict.UNKNOWNS: f"{share[0].upper()}{share[1:]} {untaught}.",
            Verdict.UNKNOWNS_AND_DRIFT: f"The known classes moved, and {share} {untaught}"
            f"{behind_drift}.",
        }[self.verdict]

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, but a fitted model must be.
        values = (getattr(self, name) for name in self.__slots__)
        plain = (dict(value) if isinstance(value, Mapping) else value for value in values)
        return (type(self), tuple(plain))


def change_p_value(null: Margins, window: Margins, shift: Shift) -> float:
    """Test whether window margins exceed the null's: by class, and with confused classes joined.

    Each test has a blind spot. By class, rows near a confused class take no part. With classes
    joined, a rare class that seems to have grown leaves the others in its stratum little to
    compare with.
    """
    by_class = stratified_p_value(null.near(shift.own), window.near(shift.own), shift.variance)
    if shift.own.all():
        return by_class
    joined = stratified_p_value(
        null.within(shift.stratum), window.within(shift.stratum), shift.joined_variance
    )
    return min(1.0, 2 * min(by_class, joined))


def stratified_p_value(
    null: Margins, window: Margins, variance_factor: NDArray | None = None
) -> float:
    """Test, one-sided and within classes, whether the window has more rows in the far tail.

    A Cochran-Mantel-Haenszel test with weighted null rows at each tail of the pooled margins. The
    result is the smallest p-value times the number of tails (Bonferroni).
    """
    if len(null.margin) == 0 or len(window.margin) == 0:
        return 1.0
    scale = window.weight.sum() / null.weight.sum()
    pooled = Margins(
        np.concatenate([null.margin, window.margin]),
        np.concatenate([null.nearest, window.nearest]),
        np.concatenate([null.weight * scale, window.weight]),
        np.concatenate([null.rows, window.rows]),
    )
    # Rows on the edge of a tail belong to it: many rows may share the largest margin.
    edges = [np.nextafter(pooled.quantile(tail), -np.inf) for tail in TAILS]
    p_values = [_tail_p_value(null, window, edge, variance_factor) for edge in edges]
    return min(1.0, len(TAILS) * min(p_values))


def _tail_p_value(
    null: Margins, window: Margins, threshold: float, variance_factor: NDArray | None
) -> float:
    n_classes = int(max(null.nearest.max(), window.nearest.max())) + 1

    def per_class(values: NDArray, rows: Margins) -> NDArray:
        return np.bincount(rows.nearest, weights=values, minlength=n_classes)

    size = per_class(window.weight, window)
    weight = per_class(null.weight, null)
    effective = np.divide(
        weight**2,
        per_class(null.weight**2, null),
        out=np.zeros(n_classes),
        where=weight > 0,
    )
    usable = (size > 0) & (effective > 0) & (size + effective > 1)
    if not usable.any():
        return 1.0
    seen = per_class((window.margin > threshold) * window.weight, window)[usable] / size[usable]
    expected = per_class((null.margin > threshold) * null.weight, null)[usable] / weight[usable]
    size, effective = size[usable], effective[usable]
    both = size + effective
    pooled = (size * seen + effective * expected) / both
    harmonic = size * effective / both
    variance = harmonic * pooled * (1 - pooled) * both / (both - 1)
    if variance_factor is not None:
        variance *= variance_factor[: len(usable)][usable]
    variance = variance.sum()
    return _upper_tail((size * seen).sum(), (size * pooled).sum(), variance)


def _upper_tail(count: float, mean: float, variance: float) -> float:
    """Return the probability of a count at least this large.

    A binomial distribution with the count's mean and variance. Unlike a normal one it is skewed,
    as counts of rare rows are; this keeps the level at the small p-values that matter.
    """
    if variance <= 0 or count <= 0:
        return 1.0
    if variance >= mean:
        return float(norm.sf((count - mean) / np.sqrt(variance)))
    share = 1 - variance / mean
    trials = max(mean / share, count)
    return float(betainc(count, trials - count + 1, share))


def estimate_rate(null: Margins, window: Margins) -> tuple[float, tuple[float, float]]:
    """Estimate the share of window rows that are not from the null, with a 95 % interval.

    Unknowns hardly reach the low ranks, so the window rows there are the known ones. The rate is
    one minus their share over the null's share. Few ranks give a noisy estimate without bias, many
    ranks the reverse; the cut with the least estimated error gives the rate. Every cut bounds the
    rate from below, so the strictest of these bounds is the lower limit. The lowest cut, which the
    fewest unknowns reach, guards the upper limit.
    """
    ranks, shares, sizes = null.rank(window)
    cuts = np.arange(GUARD, 0.96, 0.05)
    below = np.array([np.mean(ranks <= cut) for cut in cuts])
    rates = 1 - below / cuts
    # The error of a class is bounded, however few null rows it is compared with.
    of_null = np.minimum(np.divide.outer(cuts * (1 - cuts), sizes), (cuts[:, None] / STRICT) ** 2)
    variance = below * (1 - below) / len(ranks) + of_null @ shares**2
    errors = np.sqrt(np.maximum(variance, 1e-9)) / cuts
    best = int(np.argmin(errors**2 + np.maximum(rates.max() - errors - rates, 0) ** 2))
    z = norm.ppf(0.975)
    low = min((rates - STRICT * errors).max(), rates[best])
    high = max(rates[best] + z * errors[best], rates[0] + STRICT * errors[0])
    rate, low, high = (float(value) for value in np.clip([rates[best], low, high], 0, 1))
    return rate, (low, high)


def extract_rows(
    null: Margins, window: Margins, rate: float, false_discoveries: float = FALSE_DISCOVERY_RATE
) -> tuple[NDArray, float]:
    """Return which window rows are unknown, and the margin above which they lie.

    A row's local false discovery rate is the density of known rows over that of the window, which
    is assumed to fall with the margin. Rows are extracted, largest margin first, while they are
    more likely unknown than known and the expected share of known rows among them stays within
    `false_discoveries`.
    """
    margin = np.concatenate([null.margin, window.margin])
    is_window = np.repeat([0.0, 1.0], [len(null.margin), len(window.margin)])
    weight = np.concatenate([null.weight / null.weight.sum(), window.weight / window.weight.sum()])
    curve = IsotonicRegression(out_of_bounds="clip").fit(margin, is_window, sample_weight=weight)
    odds = curve.predict(window.margin)
    local = np.minimum((1 - rate) * (1 - odds) / np.maximum(odds, 1e-12), 1)
    order = np.argsort(-window.margin, kind="stable")
    expected = np.cumsum(local[order]) / np.arange(1, len(order) + 1)
    kept = (local[order] <= 0.5) & (expected <= false_discoveries)
    size = int(kept.sum()) if kept.all() else int(np.argmin(kept))
    flagged = np.zeros(len(order), dtype=bool)
    flagged[order[:size]] = True
    threshold = float(window.margin[order[size - 1]]) if size else float(window.margin.max())
    return flagged, threshold


def compare_excess(directions: Directions) -> Excess:
    """Compare the excess of the two directions.

    Drift flags as many rows one way as the other; a new class adds to the forward side only. The
    part beyond drift is the share of window rows in the tail of the reverse rows, minus that tail.
    """
    forward = directions.forward.excess_over(directions.forward_null, directions.home)
    reverse = directions.reverse.excess_over(directions.reverse_null, directions.home)
    matched = np.minimum(np.maximum(forward, 0), np.maximum(reverse, 0)).sum()
    above = directions.forward.share_above(directions.reverse.quantile(1 - REVERSE_TAIL))
    sizes = len(directions.forward.margin), len(directions.reverse.margin)
    shares = np.array([above, REVERSE_TAIL])
    error = norm.ppf(0.95) * np.sqrt((shares * (1 - shares) / sizes).sum())
    beyond = above - REVERSE_TAIL
    return Excess(
        forward=float(forward.sum()),
        reverse=float(reverse.sum()),
        beyond=beyond,
        beyond_interval=(float(beyond - error), float(beyond + error)),
        beyond_p_value=stratified_p_value(directions.reverse, directions.forward),
        unmatched=float(np.clip(1 - matched / max(forward.sum(), 1e-3), 0, 1)),
        reverse_p_value=stratified_p_value(directions.reverse_null, directions.reverse),
    )


def decide(p_value: float, excess: Excess | None, alpha: float) -> Verdict:
    """Return the verdict.

    Drift shows in both directions, a new class in the forward one only. A new class is claimed if
    the directions differ by more than chance: a small drift may show forward and, by chance, less
    in reverse. If the known classes moved, the window must also go clearly beyond what drift
    explains, or the flagged rows must fall to classes that lost nothing. If drift moved most rows,
    it hides everything else.
    """
    if excess is None or p_value >= alpha:
        return Verdict.NO_CHANGE
    if excess.beyond_p_value >= alpha:
        return Verdict.DRIFT
    if not excess.shows_drift(alpha):
        return Verdict.UNKNOWNS
    goes_beyond = (
        excess.beyond_interval[0] > TOLERANCE and excess.beyond > CLEARLY_BEYOND * excess.reverse
    )
    in_common = (excess.forward + excess.reverse) / 2 <= COVERED
    if in_common and (goes_beyond or excess.unmatched > UNMATCHED):
        return Verdict.UNKNOWNS_AND_DRIFT
    return Verdict.DRIFT
