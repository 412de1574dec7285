"""J1 and the slack of the paper's theorems, checked by hand and by simulation."""

from collections import Counter
from dataclasses import astuple
from math import inf, isnan, log, nan

import numpy as np
import pytest

from benchmarks.paper import separation
from rtscv_mlops.errors import InputError


def rows_with_moments(mean, variance, repeats=1):
    """Return rows with exactly this mean and exactly this variance in every direction."""
    mean = np.asarray(mean, dtype=float)
    steps = np.sqrt(len(mean) * variance) * np.eye(len(mean))
    return np.tile(np.vstack([mean + steps, mean - steps]), (repeats, 1))


def known_rows(means, variances, repeats):
    """Return the rows and labels of known classes 0, 1, ... with exactly these moments."""
    tables = [
        rows_with_moments(*moments) for moments in zip(means, variances, repeats, strict=True)
    ]
    labels = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return np.vstack(tables), labels


def density(rows, mean, variance):
    """Return the likelihood of each row under a spherical Gaussian."""
    distances = np.square(rows - mean).sum(axis=1)
    return np.exp(-distances / (2 * variance)) / (2 * np.pi * variance) ** (len(mean) / 2)


class Problem:
    """A random problem of the paper's model, whose expectations are estimated by drawing rows."""

    def __init__(self, seed, n_known, n_features=2, n_draws=20_000, spread=1.5):
        self.random = np.random.default_rng(seed)
        self.n_draws = n_draws
        self.means = spread * self.random.normal(size=(n_known + 1, n_features))
        self.variances = np.exp(0.7 * self.random.normal(size=n_known + 1))
        self.repeats = self.random.integers(5, 40, size=n_known)
        self.sample_size = int(self.random.integers(5, 300))
        self.unknown_rate = self.random.uniform(0.05, 0.6)
        self.X, self.y = known_rows(self.means[:-1], self.variances[:-1], self.repeats)
        self.X_unknown = rows_with_moments(self.means[-1], self.variances[-1])
        # The shares of the classes in the window, unknowns last.
        self.shares = np.append(
            self.repeats / self.repeats.sum() * (1 - self.unknown_rate), self.unknown_rate
        )

    def slacks(self):
        return separation.separation_slack(
            self.X,
            self.y,
            self.X_unknown,
            sample_size=self.sample_size,
            unknown_rate=self.unknown_rate,
        )

    def expected_likelihoods(self, source):
        """Return, for rows of the source class, the mean likelihood under each class."""
        noise = self.random.normal(size=(self.n_draws, self.means.shape[1]))
        rows = self.means[source] + np.sqrt(self.variances[source]) * noise
        pairs = zip(self.means, self.variances, strict=True)
        return np.array([density(rows, mean, variance).mean() for mean, variance in pairs])

    def log_odds(self, source, other):
        """Return how much the other class is ahead of the dummy class, without and with priors.

        Both are logs of E(likelihood of other) / E(likelihood of dummy) for rows of the source.
        """
        expected = self.expected_likelihoods(source)
        plain = np.log(expected[other] / (self.shares @ expected))
        return plain, plain + np.log((self.y == other).sum() / self.sample_size)


def test_j1_of_the_known_classes_by_hand():
    """Means 0 and 4, shares 2/3 and 1/3, centre 2: scatter 4 between over 1 within, plus 1."""
    X, y = [[-1.0], [1.0], [-1.0], [1.0], [3.0], [5.0]], list("aaaabb")

    assert separation.j1_known(X, y) == 1 + 4 / 1


def test_j1_of_the_unknown_class_by_hand():
    """From the unknown mean 1, the known means 0 and 4 are 1 and 9 away; its own scatter is 2."""
    X, y = [[-1.0], [1.0], [-1.0], [1.0], [3.0], [5.0]], list("aaaabb")
    X_unknown = [[1 - 2**0.5], [1 + 2**0.5]]

    assert separation.j1_unknown(X, y, X_unknown) == pytest.approx(1 + (2 / 3 * 1 + 1 / 3 * 9) / 2)


def test_j1_is_the_ratio_of_the_papers_matrices():
    """Traces computed directly agree with those of the full scatter matrices."""
    random = np.random.default_rng(2)
    X = random.normal(size=(90, 4)) @ random.normal(size=(4, 4))
    y = random.choice(3, size=90, p=[0.6, 0.3, 0.1])
    X_unknown = random.normal(loc=2, size=(20, 4))
    shares = np.bincount(y) / 90
    means = [X[y == label].mean(axis=0) for label in range(3)]
    covariances = [np.cov(X[y == label].T, ddof=0) for label in range(3)]

    def j1(centre, within):
        between = sum(
            share * np.outer(mean - centre, mean - centre)
            for share, mean in zip(shares, means, strict=True)
        )
        return np.trace(within + between) / np.trace(within)

    within = sum(share * matrix for share, matrix in zip(shares, covariances, strict=True))
    assert separation.j1_known(X, y) == pytest.approx(j1(np.mean(means, axis=0), within))
    assert separation.j1_unknown(X, y, X_unknown) == pytest.approx(
        j1(X_unknown.mean(axis=0), np.cov(X_unknown.T, ddof=0))
    )


def test_j1_of_the_unknown_class_ignores_how_often_it_was_seen():
    """Twice the same unknown rows are as far away as once."""
    problem = Problem(seed=0, n_known=3)
    twice = np.vstack([problem.X_unknown, problem.X_unknown])

    once_j1 = separation.j1_unknown(problem.X, problem.y, problem.X_unknown)

    assert separation.j1_unknown(problem.X, problem.y, twice) == pytest.approx(once_j1)


def test_j1_does_not_depend_on_unit_or_origin():
    """Other units and another zero point are the same separation, far from the origin too."""
    problem = Problem(seed=1, n_known=3)

    moved = separation.j1_known(problem.X * 50 + 1e6, problem.y)

    assert moved == pytest.approx(separation.j1_known(problem.X, problem.y), rel=1e-6)


def test_j1_of_bytes_is_that_of_numbers():
    """Image bytes do not overflow."""
    X = np.random.default_rng(3).integers(0, 256, size=(60, 30), dtype=np.uint8)
    y = np.arange(60) % 3

    assert separation.j1_known(X, y) == separation.j1_known(X.astype(float), y)


def test_undefined_j1_is_nan():
    """One class, a class of one row, no scatter or no rows: no separation to speak of."""
    X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    nothing = np.empty((0, 1))

    assert isnan(separation.j1_known(X, np.zeros(4)))
    assert isnan(separation.j1_known(X[:3], y[:3]))
    assert isnan(separation.j1_known([[0.1]] * 3 + [[0.7]] * 3, [0] * 3 + [1] * 3))
    assert isnan(separation.j1_known(nothing, []))
    assert isnan(separation.j1_unknown(X, y, nothing))
    assert isnan(separation.j1_unknown(X, y, [[9.0]]))
    assert isnan(separation.j1_unknown(X, y, [[0.1]] * 3))
    assert isnan(separation.j1_unknown(nothing, [], X))


def test_slack_by_hand():
    """Means 0, 6 and 3 with variances 1, 1 and 2 in one dimension give these four conditions."""
    X, y = known_rows([[0.0], [6.0]], [1.0, 1.0], [2, 6])
    X_unknown = rows_with_moments([3.0], 2.0)

    first, second = separation.separation_slack(X, y, X_unknown, sample_size=8, unknown_rate=0.2)

    assert astuple(first) == pytest.approx(
        (
            0,
            9 / 3 - log(2 / 3),  # the unknown is nearer than class 1, at 36 / 2
            9 / 3 - 2 * log((1 - 0.8 / 4) / 0.2) - log(4 / 3),
            -2 * log(8 / 4),  # the dummy class is twice as large: it loses against itself
            9 / 3 - 2 * log((4 / 24 - 8 / 24 * 0.2) / (8 / 24 * 0.2)) - log(4 / 3),
        )
    )
    assert second.known_class == 1
    assert second.bayes_known == pytest.approx(-2 * log(8 / 12))
    assert second.likelihood_unknown == pytest.approx(9 / 3 - 2 * log(0.4 / 0.2) - log(4 / 3))


@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_against_one_known_class_the_slack_is_the_simulated_margin(seed, n_features):
    """With a single known class the proofs lose nothing: half of each slack is a log of odds."""
    # Close together: draws do not reach the tails that a far class is judged by.
    problem = Problem(seed, n_known=1, n_features=n_features, n_draws=200_000, spread=0.5)
    (slack,) = problem.slacks()
    of_known, of_unknown = (problem.expected_likelihoods(source) for source in (0, 1))
    ratio = (problem.y == 0).sum() / problem.sample_size
    rest = ratio - problem.shares[0]

    assert slack.likelihood_known / 2 == pytest.approx(log(of_known[0] / of_known[1]), abs=0.05)
    assert slack.likelihood_unknown / 2 == pytest.approx(
        log(of_unknown[1] / of_unknown[0]), abs=0.05
    )
    assert slack.bayes_known / 2 == pytest.approx(
        log(ratio) + min(0, log(of_known[0] / of_known[1])), abs=0.05
    )
    if rest > 0:
        margin = log(problem.unknown_rate * of_unknown[1] / (rest * of_unknown[0]))
        assert slack.bayes_unknown / 2 == pytest.approx(margin, abs=0.05)
    else:
        assert slack.bayes_unknown == inf


def test_a_condition_that_holds_implies_the_theorems_inequality():
    """In 60 random problems no class with slack is sorted wrongly in expectation."""
    held, failed = Counter(), Counter()
    noise = 0.05  # of a simulated log of odds

    for seed in range(60):
        problem = Problem(seed, n_known=1 + seed % 4, spread=0.5 + seed % 3)
        unknown = len(problem.means) - 1
        for slack in problem.slacks():
            label = slack.known_class
            own, own_with_priors = problem.log_odds(source=label, other=label)
            other, other_with_priors = problem.log_odds(source=unknown, other=label)
            ahead = {  # of the wrong answer
                "likelihood_known": own,
                "likelihood_unknown": -other,
                "bayes_known": own_with_priors,
                "bayes_unknown": -other_with_priors,
            }
            for condition, margin in ahead.items():
                holds = getattr(slack, condition) >= 0
                (held if holds else failed)[condition] += 1
                assert margin > -noise or not holds, (seed, slack, condition)

    assert min(held[condition] for condition in ahead) >= 20
    assert min(failed[condition] for condition in ahead) >= 20


def test_a_class_that_the_dummy_class_outnumbers_is_not_safe():
    """However far it lies, such a class is swallowed; Theorem 3.2 says so, and 3.1 does not."""
    X, y = known_rows([[0.0, 0.0], [90.0, 0.0]], [1.0, 1.0], [10, 10])
    X_unknown = rows_with_moments([0.0, 90.0], 1.0)

    first, _ = separation.separation_slack(X, y, X_unknown, sample_size=400, unknown_rate=0.2)

    # 400 rows drawn, 40 % of them of this class, against its 40 training rows.
    assert first.likelihood_known > 1000
    assert first.bayes_known == pytest.approx(-2 * log(400 / 40))


def test_the_second_theorem_promises_likelihoods_not_posteriors():
    """In 20 dimensions its condition can hold while the expected posterior prefers the class."""
    mean, variance = np.append(np.zeros(19), 0.57**0.5), 0.574
    X, y = known_rows([np.zeros(20)], [1.0], [25])
    ratio, rate = 176 / 1000, 0.376

    (slack,) = separation.separation_slack(
        X, y, rows_with_moments(mean, variance), sample_size=176, unknown_rate=rate
    )

    rows = mean + variance**0.5 * np.random.default_rng(0).normal(size=(20_000, 20))
    known = density(rows, np.zeros(20), 1.0)
    dummy = ratio * (rate * density(rows, mean, variance) + (1 - rate) * known)
    assert slack.bayes_unknown > 1
    assert dummy.mean() > known.mean()
    assert (dummy / (dummy + known)).mean() < 0.4


def test_slack_does_not_depend_on_unit_or_origin():
    """Other units and another zero point leave every condition as it was."""
    problem = Problem(seed=5, n_known=3)
    before = np.array([astuple(slack) for slack in problem.slacks()])

    problem.X, problem.X_unknown = problem.X * 7 - 40, problem.X_unknown * 7 - 40

    after = np.array([astuple(slack) for slack in problem.slacks()])
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_a_class_too_small_to_attract_unknowns_has_infinite_slack():
    """Where the dummy class holds more rows of a class than the class itself, nothing is lost."""
    X, y = known_rows([[0.0], [1.0]], [1.0, 1.0], [1, 1])

    slacks = separation.separation_slack(X, y, [[0.0], [1.0]], sample_size=100, unknown_rate=0.1)

    assert [slack.bayes_unknown for slack in slacks] == [inf, inf]


@pytest.mark.parametrize("rows", [[[9.0, 9.0]], [[0.1, 0.7]] * 3], ids=["one row", "equal rows"])
def test_a_class_without_variance_has_no_slack(rows):
    """It has none itself, and no class can be promised to be safe from it; the rest is defined."""
    X, y = known_rows([[0.0, 0.0], [5.0, 0.0]], [1.0, 1.0], [3, 3])
    X, y = np.vstack([X, rows]), np.append(y, [2] * len(rows))

    *others, degenerate = separation.separation_slack(
        X, y, rows_with_moments([0.0, 5.0], 1.0), sample_size=10, unknown_rate=0.1
    )

    assert all(isnan(value) for value in astuple(degenerate)[1:])
    for slack in others:
        assert isnan(slack.likelihood_known)
        assert isnan(slack.bayes_known)
        assert np.isfinite([slack.likelihood_unknown, slack.bayes_unknown]).all()


@pytest.mark.parametrize("n_unknown", [0, 1])
def test_too_few_unknown_rows_give_no_slack(n_unknown):
    """An empty or single find is not a class yet, so every condition is undefined."""
    X, y = known_rows([[0.0], [5.0]], [1.0, 1.0], [3, 3])

    slacks = separation.separation_slack(
        X, y, np.ones((n_unknown, 1)), sample_size=4, unknown_rate=0.1
    )

    assert all(isnan(value) for slack in slacks for value in astuple(slack)[1:])


def test_a_window_without_unknowns_has_no_unknown_condition():
    """At an unknown rate of 0 only the known conditions mean something."""
    X, y = known_rows([[0.0], [5.0]], [1.0, 1.0], [3, 3])

    first, _ = separation.separation_slack(X, y, [[8.0], [9.0]], sample_size=4, unknown_rate=0)

    assert isnan(first.likelihood_unknown)
    assert isnan(first.bayes_unknown)
    assert np.isfinite([first.likelihood_known, first.bayes_known]).all()


def test_slack_names_its_classes_in_sorted_order():
    """Each slack carries the label of its class, as plain Python."""
    X, y = [[0.0], [1.0], [8.0], [9.0]], np.array(["b", "b", "a", "a"])

    slacks = separation.separation_slack(X, y, [[4.0], [5.0]], sample_size=4, unknown_rate=0.1)

    assert [slack.known_class for slack in slacks] == ["a", "b"]
    assert type(slacks[0].known_class) is str


@pytest.mark.parametrize(
    ("X", "y", "X_unknown", "sentence"),
    [
        ([[0.0], [1.0]], [0], [[1.0]], r"X has 2 row\(s\) and y has 1"),
        ([0.0, 1.0], [0, 0], [[1.0]], r"X must be a table .* got shape \(2,\)"),
        (np.empty((2, 0)), [0, 0], [[1.0]], r"at least one feature, got shape \(2, 0\)"),
        ([["a"], ["b"]], [0, 0], [[1.0]], "X must hold numbers, got dtype <U1"),
        ([[0.0], [nan]], [0, 0], [[1.0]], "X contains values that are not finite"),
        ([[0.0], [1.0]], [0, 0], [[inf]], "X_unknown contains values that are not finite"),
        ([[0.0], [1.0]], [0, 0], [[1.0, 2.0]], r"X_unknown has 2 feature\(s\) and X has 1"),
        ([[0.0], [1.0]], [[0], [0]], [[1.0]], "y must have one dimension, got 2"),
    ],
)
def test_unusable_tables_are_refused(X, y, X_unknown, sentence):
    """A table that cannot be measured is a sentence, for J1 and for the slack."""
    with pytest.raises(InputError, match=sentence):
        separation.j1_unknown(X, y, X_unknown)
    with pytest.raises(InputError, match=sentence):
        separation.separation_slack(X, y, X_unknown, sample_size=1, unknown_rate=0.1)


@pytest.mark.parametrize(
    ("sample_size", "unknown_rate", "sentence"),
    [
        (0, 0.1, "sample_size must be at least 1 row, got 0"),
        (5, 10, "unknown_rate must be a share between 0 and 1, got 10"),
        (5, nan, "unknown_rate must be a share between 0 and 1, got nan"),
    ],
)
def test_an_impossible_sample_is_refused(sample_size, unknown_rate, sentence):
    """A percentage passed for a rate is refused, and so is an empty sample."""
    with pytest.raises(InputError, match=sentence):
        separation.separation_slack(
            [[0.0]], [0], [[1.0]], sample_size=sample_size, unknown_rate=unknown_rate
        )
