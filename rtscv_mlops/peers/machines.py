"""Support vector machines with Weibull tails: W-SVM and the probability of inclusion.

Knows numbers, one-vs-rest machines and their held-out scores.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC, OneClassSVM

from rtscv_mlops.peers.extremes import LARGEST_EXPONENT, fit_weibull
from rtscv_mlops.peers.models import keep_some
from rtscv_mlops.peers.open_set import OpenSetClassifier
from rtscv_mlops.peers.thresholds import FOLDS, folds

PENALTY = 10.0
"""C of the benchmark's base learner."""

LEAST_TAIL = 10
"""Rows of a tail at least; an easy class has fewer support vectors than a fit needs."""

LEAST_LOG = -LARGEST_EXPONENT
"""Logarithm of a probability that has become 0."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A Weibull on the lowest scores of a set, which begins a little below the smallest."""

    location: float
    shape: float
    scale: float

    @classmethod
    def of_lowest(cls, scores: NDArray, size: int) -> "Tail":
        """Fit the `size` lowest scores; the location lies one spread of them below."""
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


class PISVM(OpenSetClassifier):
    """Probability of inclusion (Jain et al. 2014): a Weibull on each class' lowest own scores.

    One RBF machine per class against the rest; the tail is as long as the class has support
    vectors. The sources fit training scores. There, a flexible machine puts every support vector at
    exactly 1, and the tail has no width; here, the scores are those of held-out rows. The kernel is
    scikit-learn's usual one or a sharper one, whichever finds hidden classes better.
    """

    SHARPNESSES: ClassVar[tuple[float, ...]] = (1.0, 4.0)
    """Kernels that are tried, as multiples of the usual gamma. The sources search more widely; a
    still sharper kernel makes every row a support vector, and takes minutes."""

    TRIAL_ROWS: ClassVar[int] = 3_000
    """Known rows that the kernel is chosen from."""

    def _learn(self, numbers: NDArray, codes: NDArray) -> Self:
        machine = SVC(C=PENALTY, gamma=self._gamma(numbers))
        self.machines_ = _fit_machines(machine, numbers, codes)
        held_out = np.empty((len(codes), len(self.machines_)))
        for train, test in folds(codes, self.random_state):
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
        some = keep_some(codes, self.random_state, self.TRIAL_ROWS)
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

    A one-class machine per class must first grant a row some probability; then the chance that its
    score is a match times the chance that it is no non-match decides.
    """

    GRANTED: ClassVar[float] = 0.001
    """The source's least probability by the one-class machine."""

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
            cross_val_predict(one_class, rows, method="decision_function", cv=FOLDS)
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
        # A refusal by all one-class machines is final, whatever the hidden classes suggest.
        return min(super()._choose_threshold(numbers, codes), -2 * LEAST_LOG)


def _fit_machines(machine: SVC, numbers: NDArray, codes: NDArray) -> list[SVC]:
    return [clone(machine).fit(numbers, codes == code) for code in np.unique(codes)]


def _decision_values(machines: list[SVC], numbers: NDArray) -> NDArray:
    return np.column_stack([machine.decision_function(numbers) for machine in machines])
