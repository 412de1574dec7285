"""How the shares of the known classes changed, and which classes can be told apart in a window.

Knows the class each row is nearest to, and the known rows' labels; knows nothing of margins.
"""

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
"""A class stands for itself if this part of the window rows nearest to it are its own."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How the shares of the classes changed from the known rows to the window.

    `share` is a class's share of the window, `weight` that over its share of the known rows. `own`
    tells whether the window rows nearest to a class are mostly its own. Where a class has all but
    vanished, they are strays of other classes, for which the null has too few to compare; where a
    model mixes classes up, no class has rows of its own. `stratum` numbers groups of classes that
    do: a mixed class is joined with the classes that its rows come from.
    """

    share: NDArray
    weight: NDArray
    own: NDArray
    stratum: NDArray

    @property
    def variance(self) -> NDArray:
        """How much more the counts of a class vary than those of independent rows.

        Two folds judge each other by models that learned the same chance differences, which
        correlates their counts and may double the variance. It shows where a class takes a large
        part of the window and so of the dummy class; the slope keeps the level in measurements.
        """
        return np.clip(1 + 0.35 * (self.weight - 1), 1, 2)

    @property
    def joined_variance(self) -> NDArray:
        """The same of a stratum, whose classes count by their shares."""
        total = np.bincount(self.stratum, weights=self.share)
        varied = np.bincount(self.stratum, weights=self.share * self.variance)
        return np.divide(varied, total, out=np.ones(len(total)), where=total > 0)


def estimate_shift(
    nearest: NDArray, labels: NDArray, window_nearest: NDArray, n_classes: int
) -> Shift:
    """Solve "confusion of the known rows times shares = shares seen in the window".

    This is black-box shift estimation, which needs no calibrated probabilities.
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
    """Join the class that has least of its own with the one that most of its rows come from.

    Again, until each stratum has enough of its own. A class that no known row is nearest to has
    nothing to be compared with, and joins the largest.
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


TAILS = (0.90, 0.95, 0.98, 0.99)
"""The window is compared with the null above these shares of the pooled margins."""

FALSE_DISCOVERY_RATE = 0.1
"""The extracted rows may hold this expected share of known rows."""

FALSE_BESIDE_DRIFT = 0.5
"""The same beside drift, where the null is an estimate itself: better than a coin, row by row."""

STRICT = 2.5
"""Standard errors to a limit that is the best of several, or has to allow for a bias."""

GUARD = 0.35
"""Share of the null below the lowest threshold that a rate is read at."""

COVERED = 0.5
"""Above this mean of both excesses, window and training data have too little in common to compare
what is left."""

TOLERANCE = 0.04
"""The two directions are never quite alike: a tenth of the rows one way may be 14 % the other."""

UNMATCHED = 0.7
"""More of the forward excess than this in classes that lost nothing: that is not a class moving."""


REVERSE_TAIL = 0.1
"""Part of the training rows, seen from the window, above which a window row is beyond drift."""

CLEARLY_BEYOND = 0.35
"""What goes beyond drift has to be this part of it, or may be a flaw of the comparison."""

DESERTED, PLAINLY_DESERTED, LARGE_PART = 0.2, 0.4, 0.05
"""Reverse over forward excess that is drift if it is proven, and if it is not; the least of it."""


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins of some rows: the class each is nearest to, what it counts, where it lies."""

    margin: NDArray
    nearest: NDArray
    weight: NDArray
    rows: NDArray

    @classmethod
    def of(cls, margin: NDArray, nearest: NDArray, rows: NDArray) -> "Margins":
        return cls(margin, nearest, np.ones(len(margin)), rows)

    def near(self, classes: NDArray) -> "Margins":
        """Return the rows whose nearest class is marked."""
        kept = classes[self.nearest]
        return Margins(self.margin[kept], self.nearest[kept], self.weight[kept], self.rows[kept])

    def within(self, stratum: NDArray) -> "Margins":
        """Return the same rows, with the stratum of the nearest class in its place."""
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


@dataclass(frozen=True, slots=True)
class Turned:
    """The test and the same test turned round, on equally many rows.

    `forward` are window rows against training classes, `reverse` are training rows against window
    classes, each with its null; `window` is the forward side of the whole window. `home` is the
    class that every row of the table is nearest to. The models of both learn from equally many
    rows; `reverse` has all rows of the training data, whether a model learned from them or not.
    """

    forward_null: Margins
    forward: Margins
    window: Margins
    reverse_null: Margins
    reverse: Margins
    home: NDArray


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more often window rows are flagged than the null says, and the other way round.

    `unmatched` is the share of the forward excess that falls to classes whose own training rows
    are all still there: a class that moved leaves a hole behind, a new class does not.
    `beyond_p_value` tests the forward side with the reverse side as its null.
    """

    forward: float
    reverse: float
    beyond: float
    beyond_interval: tuple[float, float]
    beyond_p_value: float
    unmatched: float
    reverse_p_value: float


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one window showed; every page and every metric is made from these facts."""

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
        share = f"bout {round(100 * self.unknown_rate)} % ({low}-{high} %) of this window"
        untaught = "belongs to something the model was never taught."
        return {
            Verdict.NO_CHANGE: f"Nothing new is shown; at most {high} % of this window is unknown.",
            Verdict.DRIFT: "The known classes look different; nothing new is shown beside that.",
            Verdict.UNKNOWNS: f"A{share} {untaught}",
            Verdict.UNKNOWNS_AND_DRIFT: f"The known classes moved, and a{share} {untaught}",
        }[self.verdict]

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and a fitted model must be.
        values = (getattr(self, name) for name in self.__slots__)
        plain = (dict(value) if isinstance(value, Mapping) else value for value in values)
        return (type(self), tuple(plain))


def change_p_value(null: Margins, window: Margins, shift: Shift) -> float:
    """Test whether the window leads the null: class by class, and with mixed classes joined.

    Either has its blind spot. By class, rows near a mixed class take no part; joined, one rare
    class that seems to have grown leaves the others in its stratum little to compare with.
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
    """Test, one-sided and within classes, whether window rows lead the null in the far tail.

    A Cochran-Mantel-Haenszel test with weighted null rows at each tail of the pooled margins;
    the smallest p-value counts, times the number of tails looked at.
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
    # Rows on a tail's edge belong to it: many may share the largest margin.
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
    """Return the chance of a count at least this large.

    A binomial law with the count's mean and variance: unlike a normal one it is skewed as counts
    of rare rows are, which is what keeps the level at the small p-values that matter.
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

    Among the low ranks, which unknowns hardly reach, the window has as many rows as its known part
    has: one less their share over the null's is the rate. Few ranks are unbiased and noisy, many
    the reverse; the cut with the least estimated error gives the rate. Every cut bounds the rate
    from below, so the best of them, taken strictly, is the lower limit; the lowest cut, which the
    fewest unknowns reach, guards the upper limit.
    """
    ranks, shares, sizes = _ranks_within_class(null, window)
    cuts = np.arange(GUARD, 0.96, 0.05)
    below = np.array([np.mean(ranks <= cut) for cut in cuts])
    rates = 1 - below / cuts
    # A class is all known or all unknown at most, however few null rows it is compared with.
    of_null = np.minimum(np.divide.outer(cuts * (1 - cuts), sizes), (cuts[:, None] / STRICT) ** 2)
    variance = below * (1 - below) / len(ranks) + of_null @ shares**2
    errors = np.sqrt(np.maximum(variance, 1e-9)) / cuts
    best = int(np.argmin(errors**2 + np.maximum(rates.max() - errors - rates, 0) ** 2))
    z = norm.ppf(0.975)
    low = min((rates - STRICT * errors).max(), rates[best])
    high = max(rates[best] + z * errors[best], rates[0] + STRICT * errors[0])
    rate, low, high = (float(value) for value in np.clip([rates[best], low, high], 0, 1))
    return rate, (low, high)


def _ranks_within_class(null: Margins, window: Margins) -> tuple[NDArray, NDArray, NDArray]:
    """Return each window row's rank among the null rows of its class.

    Ranks within a class do not move when the shares of the classes do. The classes' shares of the
    window and the null rows that each is worth, for their weights, come along.
    """
    ranks, shares, sizes = np.ones(len(window.margin)), [], []
    for group in np.unique(window.nearest):
        of_null, of_window = null.nearest == group, window.nearest == group
        if not of_null.any():
            continue  # No null row looks like this class: a rank of 1 says "beyond all of them".
        order = np.argsort(null.margin[of_null])
        weight = null.weight[of_null][order]
        heights = np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum()
        sorted_null = null.margin[of_null][order]
        left = heights[np.searchsorted(sorted_null, window.margin[of_window], side="left")]
        right = heights[np.searchsorted(sorted_null, window.margin[of_window], side="right")]
        ranks[of_window] = (left + right) / 2
        shares.append(of_window.mean())
        sizes.append(weight.sum() ** 2 / (weight**2).sum())
    return ranks, np.array(shares), np.array(sizes)


def extract_rows(
    null: Margins, window: Margins, rate: float, false_discoveries: float = FALSE_DISCOVERY_RATE
) -> tuple[NDArray, float]:
    """Return which window rows to call unknown, and the margin above which they lie.

    A row's local false discovery rate is the known part's density over the window's, taken to
    fall with the margin. Rows are kept while they are more likely unknown than known and the
    expected share of known rows among them stays within `false_discoveries`.
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


def compare_excess(turned: Turned) -> Excess:
    """Compare the test with itself turned round.

    Drift flags as many rows one way as the other; a new class adds to the forward side only.
    `beyond` is the part of the window above the margin that the reverse rows' tail exceeds, less
    that tail: what drift alone does not explain.
    """
    forward = _excess_per_class(turned.forward, turned.forward_null, turned.home)
    reverse = _excess_per_class(turned.reverse, turned.reverse_null, turned.home)
    matched = np.minimum(np.maximum(forward, 0), np.maximum(reverse, 0)).sum()
    above = turned.forward.share_above(turned.reverse.quantile(1 - REVERSE_TAIL))
    sizes = len(turned.forward.margin), len(turned.reverse.margin)
    shares = np.array([above, REVERSE_TAIL])
    error = norm.ppf(0.95) * np.sqrt((shares * (1 - shares) / sizes).sum())
    beyond = above - REVERSE_TAIL
    return Excess(
        forward=float(forward.sum()),
        reverse=float(reverse.sum()),
        beyond=beyond,
        beyond_interval=(float(beyond - error), float(beyond + error)),
        beyond_p_value=stratified_p_value(turned.reverse, turned.forward),
        unmatched=float(np.clip(1 - matched / max(forward.sum(), 1e-3), 0, 1)),
        reverse_p_value=stratified_p_value(turned.reverse_null, turned.reverse),
    )


def _excess_per_class(rows: Margins, null: Margins, home: NDArray) -> NDArray:
    limit = null.quantile(0.95)
    flagged, expected = (
        np.bincount(home[side.rows[side.margin > limit]], minlength=home.max() + 1)
        / len(side.margin)
        for side in (rows, null)
    )
    return flagged - expected


def decide(p_value: float, excess: Excess | None, alpha: float) -> Verdict:
    """Say in one word what changed.

    Drift shows both ways, a new class forward only: it is claimed where the two differ by more than
    chance, since a small drift may show forward and, by chance, less in reverse. Where the known
    classes moved, the window has to go clearly beyond what drift explains as well, or what is
    flagged to fall to classes that lost nothing. Where drift moved most rows, nothing can be seen
    behind it.
    """
    if excess is None or p_value >= alpha:
        return Verdict.NO_CHANGE
    if excess.beyond_p_value >= alpha:
        return Verdict.DRIFT
    if not _has_drifted(excess, alpha):
        return Verdict.UNKNOWNS
    goes_beyond = (
        excess.beyond_interval[0] > TOLERANCE and excess.beyond > CLEARLY_BEYOND * excess.reverse
    )
    in_common = (excess.forward + excess.reverse) / 2 <= COVERED
    if in_common and (goes_beyond or excess.unmatched > UNMATCHED):
        return Verdict.UNKNOWNS_AND_DRIFT
    return Verdict.DRIFT


def _has_drifted(excess: Excess, alpha: float) -> bool:
    """Tell whether training rows were deserted: proven and not minute, or plainly a large part.

    The second matters in small windows, where the reverse has too few rows to prove anything.
    """
    proven = excess.reverse_p_value < alpha and excess.reverse > DESERTED * excess.forward
    return proven or excess.reverse > max(PLAINLY_DESERTED * excess.forward, LARGE_PART)
