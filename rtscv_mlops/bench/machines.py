"""The open-set classifiers of 2013 to 2018: EVM, OSNN, 1-vs-Set, P_I-SVM and W-SVM."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import pairwise_distances_chunked
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC, LinearSVC, OneClassSVM

from rtscv_mlops.bench import detector

CHUNK_MIB = 128
"""Memory for one chunk of a distance matrix."""

STEPS = 30
SHAPES = (1e-2, 1e4)
"""Bounds of the shape. Beyond them the values are equal, which no Weibull describes."""

LEAST = 1e-6
"""Smallest value, relative to the largest; smaller values are raised to it before the log."""

LARGEST_EXPONENT = 600.0


def fit_weibull(values: NDArray) -> tuple[NDArray, NDArray]:
    """Return the most likely shape and scale for each row of positive values, by Newton's method.

    The location is 0. The equation of the shape has one root, and its left side increases.
    """
    least = LEAST * np.maximum(values.max(axis=1, keepdims=True), LEAST)
    logs = np.log(np.maximum(values, least))
    # Relative to the largest value, so that no power of any shape overflows.
    top = logs.max(axis=1)
    logs = logs - top[:, None]
    middle = logs.mean(axis=1)
    shape = np.clip(np.pi / np.sqrt(6) / np.maximum(logs.std(axis=1), 1 / SHAPES[1]), *SHAPES)
    for _ in range(STEPS):
        powers = np.exp(shape[:, None] * logs)
        total = powers.sum(axis=1)
        first, second = ((powers * logs**order).sum(axis=1) / total for order in (1, 2))
        excess = first - 1 / shape - middle
        step = excess / (second - first**2 + 1 / shape**2)
        # A full step may leave the positive numbers; half the shape never does.
        shape = np.clip(np.maximum(shape - step, shape / 2), *SHAPES)
    scale = np.exp(shape[:, None] * logs).mean(axis=1) ** (1 / shape)
    return shape, scale * np.exp(top)


def sort_by_class(numbers: NDArray, codes: NDArray) -> tuple[NDArray, NDArray]:
    """Return the rows sorted by class, and the index at which each class begins."""
    order = np.argsort(codes, kind="stable")
    return numbers[order], np.searchsorted(codes[order], np.unique(codes[order]))


class EVM(detector.OpenSetClassifier):
    """The extreme value machine (Rudd et al. 2018).

    Every known row gets a Weibull, fitted to half its distances to the `TAIL` nearest rows of other
    classes. A row belongs to it with probability exp(-(distance / scale) ** shape), and to a class
    with the highest probability among the rows of the class. The score is the negative logarithm,
    which ranks distant rows too. All rows are kept: the source's reduction to a cover saves time
    and changes little else.
    """

    TAIL: ClassVar[int] = 75
    """The source's choice for Letter."""

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        self.rows_, self.starts_ = sort_by_class(numbers, codes)
        ends = np.append(self.starts_[1:], len(codes))
        fits = [
            fit_weibull(self._nearest_margins(slice(start, end)))
            for start, end in zip(self.starts_, ends, strict=True)
        ]
        self.shapes_, self.scales_ = np.concatenate(fits, axis=1)
        return self

    def _nearest_margins(self, of_class: slice) -> NDArray:
        """Return half the distances of a class' rows to the nearest rows of other classes."""
        others = np.delete(self.rows_, of_class, axis=0)
        tail = min(self.TAIL, len(others))

        def shortest(distances: NDArray, start: int) -> NDArray:
            return np.partition(distances, tail - 1, axis=1)[:, :tail] / 2

        return reduce_distances(self.rows_[of_class], others, shortest)

    def _membership(self, numbers: NDArray) -> NDArray:
        scale = np.log(np.maximum(self.scales_, np.finfo(float).tiny))

        def best_exponent(distances: NDArray, start: int) -> NDArray:
            with np.errstate(divide="ignore"):  # a known row itself: the log is -inf, psi is 1
                exponents = self.shapes_ * (np.log(distances) - scale)
            return np.minimum.reduceat(exponents, self.starts_, axis=1)

        exponents = reduce_distances(numbers, self.rows_, best_exponent)
        return -np.exp(np.minimum(exponents, LARGEST_EXPONENT))


def reduce_distances(rows: NDArray, others: NDArray, reduce: object) -> NDArray:
    """Reduce the distances from rows to others, in chunks of bounded memory."""
    chunks = pairwise_distances_chunked(rows, others, reduce_func=reduce, working_memory=CHUNK_MIB)
    return np.concatenate(list(chunks))


class OSNN(detector.OpenSetClassifier):
    """Nearest neighbour distance ratio (Mendes Júnior et al. 2016).

    The score is the distance to the nearest known row over that to the nearest row of any other
    class. Near 1, a row lies between classes or far from all of them. As in the source, the
    threshold has the best normalised accuracy when half of the classes are hidden.
    """

    GROUPS: ClassVar[int] = 2
    _quality = staticmethod(detector.normalised_accuracy)

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        self.rows_, self.starts_ = sort_by_class(numbers, codes)
        return self

    def _membership(self, numbers: NDArray) -> NDArray:
        def nearest(distances: NDArray, start: int) -> NDArray:
            return np.minimum.reduceat(distances, self.starts_, axis=1)

        return -reduce_distances(numbers, self.rows_, nearest)

    def _strangeness(self, membership: NDArray) -> NDArray:
        first, second = np.partition(-membership, 1, axis=1)[:, :2].T
        # A row that equals rows of two classes is fully ambiguous.
        return np.divide(first, second, out=np.ones(len(first)), where=second > 0)


SLAB_PENALTY = 10.0
TOLERANCE = 1e-3
"""With the default tolerance the solver takes a thousand steps on separable classes."""

POSITIONS = 64
"""Positions that are tried for each plane."""


@dataclass(frozen=True, slots=True)
class Slab:
    """The scores between a near and a far plane."""

    near: float
    far: float

    def outside(self, scores: NDArray) -> NDArray:
        """Return how far each score is outside the slab; inside, the value is negative."""
        return np.maximum(self.near - scores, scores - self.far)


def open_space_risk(width: NDArray, needed: float) -> NDArray:
    """Return Scheirer's risk of a slab: high if it is much wider or much thinner than the class."""
    return width / needed + needed / width


def fit_slab(own: NDArray, others: NDArray) -> Slab:
    """Return the slab of least open space risk plus empirical risk (1 - F on training scores).

    The pressures on the planes are 0, as in the authors' program. Instead of their greedy search,
    all pairs of positions are tried: quantiles of the class' own scores, the near one also at the
    machine's plane.
    """
    needed = max(float(np.ptp(own)), np.finfo(float).eps)
    positions = np.quantile(own, np.linspace(0, 1, POSITIONS))
    near, far = (grid.ravel() for grid in np.meshgrid(np.append(positions, 0.0), positions))
    near, far = near[near < far], far[near < far]
    if len(near) == 0:
        return Slab(own.min(), own.max())
    hits, false_hits = _count_between(own, near, far), _count_between(others, near, far)
    f_measure = 2 * hits / (len(own) + hits + false_hits)
    best = np.argmin(open_space_risk(far - near, needed) + 1 - f_measure)
    return Slab(float(near[best]), float(far[best]))


def _count_between(scores: NDArray, near: NDArray, far: NDArray) -> NDArray:
    ordered = np.sort(scores)
    return np.searchsorted(ordered, far, side="right") - np.searchsorted(ordered, near)


class OneVsSet(detector.OpenSetClassifier):
    """The 1-vs-Set machine (Scheirer et al. 2013): linear, one class against the rest.

    A row outside all slabs is unknown, so the threshold is 0. If several slabs contain a row, the
    one whose machine gives it the highest score wins.
    """

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        self.machines_ = [
            LinearSVC(C=SLAB_PENALTY, tol=TOLERANCE, random_state=self.random_state).fit(
                numbers, codes == code
            )
            for code in np.unique(codes)
        ]
        values = _decision_values(self.machines_, numbers)
        self.slabs_ = [
            fit_slab(values[codes == code, code], values[codes != code, code])
            for code in range(len(self.machines_))
        ]
        return self

    def classify(self, X: object) -> NDArray:
        numbers = self.scaled_.transform(X)
        inside = self._membership(numbers)
        # Inside a slab the machine's own score decides, elsewhere the nearest slab.
        values = np.where(inside >= 0, _decision_values(self.machines_, numbers), -np.inf)
        return np.where((inside >= 0).any(axis=1), values.argmax(axis=1), inside.argmax(axis=1))

    def _membership(self, numbers: NDArray) -> NDArray:
        values = _decision_values(self.machines_, numbers)
        return -np.column_stack(
            [slab.outside(values[:, code]) for code, slab in enumerate(self.slabs_)]
        )

    def _choose_threshold(self, numbers: NDArray, codes: NDArray) -> float:
        return 0.0


PENALTY = 10.0
"""C of the benchmark's base model."""

LEAST_TAIL = 10
"""Fewest rows of a tail: an easy class has fewer support vectors than a fit needs."""

LEAST_LOG = -LARGEST_EXPONENT
"""Logarithm that stands for a probability of 0."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A Weibull on the lowest scores of a set; its location is a little below the smallest."""

    location: float
    shape: float
    scale: float

    @classmethod
    def of_lowest(cls, scores: NDArray, size: int) -> "Tail":
        """Fit the `size` lowest scores; the location is one standard deviation below them."""
        lowest = np.sort(scores)[: max(size, LEAST_TAIL)]
        location = lowest[0] - (lowest.std() or 1.0)
        shape, scale = fit_weibull((lowest - location)[None, :])
        return cls(float(location), float(shape[0]), float(scale[0]))

    def log_cdf(self, scores: NDArray) -> NDArray:
        """Return the log-probability of a value below each score."""
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(-np.expm1(-self._power(scores))), LEAST_LOG)

    def log_survival(self, scores: NDArray) -> NDArray:
        """Return the log-probability of a value above each score."""
        return np.maximum(-self._power(scores), LEAST_LOG)

    def _power(self, scores: NDArray) -> NDArray:
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(scores - self.location, 0) / self.scale)
        return np.exp(np.minimum(self.shape * logs, np.log(LARGEST_EXPONENT)))


class PISVM(detector.OpenSetClassifier):
    """Probability of inclusion (Jain et al. 2014): a Weibull on each class' lowest own scores.

    One RBF machine per class against the rest; the tail has as many rows as the class has support
    vectors. The sources fit training scores, where a flexible machine puts every support vector at
    exactly 1, and the tail has no width. Here the scores are those of held-out rows. The kernel is
    scikit-learn's default or a sharper one, depending on which finds hidden classes better.
    """

    SHARPNESSES: ClassVar[tuple[float, ...]] = (1.0, 4.0)
    """Kernels that are tried, as multiples of the default gamma. The sources try more; an even
    sharper kernel makes every row a support vector, and takes minutes."""

    TRIAL_ROWS: ClassVar[int] = 3_000
    """Known rows that the choice of the kernel is based on."""

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        machine = SVC(C=PENALTY, gamma=self._gamma(numbers))
        self.machines_ = _fit_machines(machine, numbers, codes)
        held_out = np.empty((len(codes), len(self.machines_)))
        for train, test in detector.split_folds(codes, self.random_state):
            machines = _fit_machines(machine, numbers[train], codes[train])
            held_out[test] = _decision_values(machines, numbers[test])
        self._fit_tails(numbers, codes, held_out)
        return self

    def _gamma(self, numbers: NDArray) -> float:
        return self.sharpness_ / (numbers.shape[1] * max(numbers.var(), np.finfo(float).tiny))

    def _choose_threshold(self, numbers: NDArray, codes: NDArray) -> float:
        self.sharpness_ = self._choose_sharpness(numbers, codes)
        return super()._choose_threshold(numbers, codes)

    def _choose_sharpness(self, numbers: NDArray, codes: NDArray) -> float:
        some = detector.sample_by_class(codes, self.random_state, self.TRIAL_ROWS)
        qualities = []
        for sharpness in self.SHARPNESSES:
            self.sharpness_ = sharpness
            qualities.append(self._hide_classes(numbers[some], codes[some]).quality)
        return self.SHARPNESSES[int(np.argmax(qualities))]

    def _fit_tails(self, numbers: NDArray, codes: NDArray, held_out: NDArray) -> None:
        self.matches_ = [
            Tail.of_lowest(held_out[codes == code, code], machine.n_support_[1])
            for code, machine in enumerate(self.machines_)
        ]

    def _membership(self, numbers: NDArray) -> NDArray:
        values = _decision_values(self.machines_, numbers)
        return np.column_stack(
            [tail.log_cdf(values[:, code]) for code, tail in enumerate(self.matches_)]
        )


class WSVM(PISVM):
    """The Weibull-calibrated SVM (Scheirer et al. 2014).

    First, the one-class machine of a class must give a row some probability. Then the probability
    that its score is a match, times the probability that it is not a non-match, decides.
    """

    GRANTED: ClassVar[float] = 0.001
    """The source's lowest probability by the one-class machine."""

    REFUSED: ClassVar[float] = 3 * LEAST_LOG
    """Added to the log-probability of a class whose one-class machine refuses a row."""

    def _fit_tails(self, numbers: NDArray, codes: NDArray, held_out: NDArray) -> None:
        super()._fit_tails(numbers, codes, held_out)
        self.non_matches_ = [
            Tail.of_lowest(-held_out[codes != code, code], machine.n_support_[0])
            for code, machine in enumerate(self.machines_)
        ]
        one_class = OneClassSVM(gamma=self._gamma(numbers))
        of_class = [numbers[codes == code] for code in range(len(self.machines_))]
        self.one_class_ = [clone(one_class).fit(rows) for rows in of_class]
        own = [
            cross_val_predict(one_class, rows, method="decision_function", cv=detector.FOLDS)
            for rows in of_class
        ]
        self.supports_ = [Tail.of_lowest(scores, len(scores) // 2) for scores in own]

    def _membership(self, numbers: NDArray) -> NDArray:
        values = _decision_values(self.machines_, numbers)
        no_non_match = [
            tail.log_survival(-values[:, c]) for c, tail in enumerate(self.non_matches_)
        ]
        refused = [
            tail.log_cdf(machine.decision_function(numbers)) <= np.log(self.GRANTED)
            for machine, tail in zip(self.one_class_, self.supports_, strict=True)
        ]
        joint = super()._membership(numbers) + np.column_stack(no_non_match)
        return joint + self.REFUSED * np.column_stack(refused)

    def _choose_threshold(self, numbers: NDArray, codes: NDArray) -> float:
        # If all one-class machines refuse a row, it is unknown, whatever hidden classes suggest.
        return min(super()._choose_threshold(numbers, codes), -2 * LEAST_LOG)


def _fit_machines(machine: SVC, numbers: NDArray, codes: NDArray) -> list[SVC]:
    return [clone(machine).fit(numbers, codes == code) for code in np.unique(codes)]


def _decision_values(machines: list[SVC], numbers: NDArray) -> NDArray:
    return np.column_stack([machine.decision_function(numbers) for machine in machines])
