"""Algorithm 1 against a second, literal reading of the paper."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_predict,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.errors import InputError
from tests.windows import blobs, new_blob, split_digits


def algorithm_1(estimator, X, y, Y, c, cv, seed):
    """The paper's five steps, in its own words and with scikit-learn's cross-validation."""
    dummy = y.max() + 1
    # Randomly sample c of the deployment set Y.
    sample = np.sort(np.random.default_rng(seed).permutation(len(Y))[: round(c * len(Y))])
    # Label the sample as one dummy class, and merge it with the training set.
    X_merged = np.vstack([X, Y[sample]])
    y_merged = np.append(y, np.full(len(sample), dummy))
    # Cross-validate; what is still predicted as the dummy class is unknown.
    predicted = cross_val_predict(estimator, X_merged, y_merged, cv=cv)
    unknown = sample[predicted[len(X) :] == dummy]
    # Retrain on the training set and the unknowns.
    rectified = clone(estimator).fit(
        np.vstack([X, Y[unknown]]), np.append(y, np.full(len(unknown), dummy))
    )
    return sample, unknown, rectified


@pytest.mark.parametrize(
    "estimator",
    [SVC(), KNeighborsClassifier(), DecisionTreeClassifier(random_state=0)],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize(("c", "k", "seed"), [(0.1, 3, 0), (0.3, 3, 5), (0.3, 5, 0)])
def test_it_is_algorithm_1(estimator, c, k, seed):
    """Sample, unknowns and answers are those of a literal reading of the paper."""
    X, y, window, _ = split_digits(hidden=(7, 8, 9), seed=seed, n_training=400, n_window=400)
    folds = StratifiedKFold(k, shuffle=True, random_state=seed)
    sample, unknown, rectified = algorithm_1(estimator, X, y, window, c, folds, seed)

    model = RTSCVClassifier(estimator, mode="paper", sample_rate=c, cv=k, random_state=seed)
    model.fit(X, y, deployment=window)

    assert len(unknown) > 0
    np.testing.assert_array_equal(model.sample_indices_, sample)
    np.testing.assert_array_equal(model.unknown_indices_, unknown)
    np.testing.assert_array_equal(model.predict(window), rectified.predict(window))
    assert model.unknown_label_ == y.max() + 1
    assert model.assessment_ is None


@pytest.mark.parametrize(
    "splitter",
    [KFold(4, shuffle=True, random_state=1), StratifiedKFold(3), LeaveOneOut()],
    ids=lambda splitter: type(splitter).__name__,
)
def test_any_splitter_will_do(splitter):
    """A splitter that covers all rows gives what cross_val_predict gives with it."""
    X, y, window, _ = new_blob(n_new=20)
    X, y, window = X[:90], y[:90], window[:100]
    _, unknown, _ = algorithm_1(KNeighborsClassifier(), X, y, window, 0.3, splitter, 0)

    model = RTSCVClassifier(KNeighborsClassifier(), mode="paper", sample_rate=0.3, cv=splitter)
    model.fit(X, y, window)

    assert len(unknown) > 0
    np.testing.assert_array_equal(model.unknown_indices_, unknown)


THIRD = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=0)
QUARTER = ShuffleSplit(1, test_size=0.25, random_state=3)


@pytest.mark.parametrize(
    ("cv", "splitter"), [("holdout", THIRD), (QUARTER, QUARTER)], ids=["holdout", "ShuffleSplit"]
)
def test_holdout_keeps_held_out_rows_only(cv, splitter):
    """Holdout validation judges the held-out part of the sample, and keeps no row unjudged."""
    X, y, window, _ = new_blob(n_new=60)
    model = RTSCVClassifier(SVC(), mode="paper", sample_rate=0.5, cv=cv).fit(X, y, window)

    sample = model.sample_indices_
    layout = np.append(y, np.full(len(sample), 3))
    train, test = next(splitter.split(np.zeros(len(layout)), layout))
    judge = SVC().fit(np.vstack([X, window[sample]])[train], layout[train])
    held_out = sample[test[test >= len(X)] - len(X)]

    expected = held_out[judge.predict(window[held_out]) == 3]
    assert 0 < len(expected) < len(held_out)
    np.testing.assert_array_equal(np.sort(model.unknown_indices_), np.sort(expected))


@pytest.mark.parametrize(
    ("rate", "of", "size"),
    [
        (0.1, "window", 22),
        (1.0, "window", 220),
        (0.1, "training", 24),
        (0.5, "training", 120),
        (5.0, "training", 220),  # no more than there are
        ("auto", "window", 48),  # 0.2 of the 240 training rows, whatever sample_of says
        ("auto", "training", 48),
    ],
)
def test_the_size_of_the_sample(rate, of, size):
    """sample_rate is a share of the window, or of the number of training rows, as asked."""
    X, y, window, _ = new_blob()

    model = RTSCVClassifier(SVC(), mode="paper", sample_rate=rate, sample_of=of)
    model.fit(X, y, window)

    assert len(model.sample_indices_) == size
    assert len(set(model.sample_indices_)) == size
    assert set(model.unknown_indices_) <= set(model.sample_indices_)


def test_weights_reach_the_folds():
    """A training class that weighs nothing is no rival: its rows in the window become unknown."""
    X, y, window, truth = new_blob()
    weight = np.where(y == 0, 1e-9, 1.0)
    model = RTSCVClassifier(LogisticRegression(), mode="paper", sample_rate=0.5)

    without = model.fit(X, y, window).unknown_indices_
    weighed = model.fit(X, y, window, sample_weight=weight).unknown_indices_

    assert np.sum(truth[without] == 0) < 6
    assert np.sum(truth[weighed] == 0) > 20


def test_unknown_score_is_the_model_s_own():
    """The score is the probability of the unknown label, or 0 and 1 where there is none."""
    X, y, window, truth = new_blob()

    soft = RTSCVClassifier(KNeighborsClassifier(), mode="paper").fit(X, y, window)
    hard = RTSCVClassifier(SVC(), mode="paper").fit(X, y, window)

    np.testing.assert_array_equal(soft.unknown_score(window), soft.predict_proba(window)[:, -1])
    np.testing.assert_array_equal(hard.unknown_score(window), hard.predict(window) == 3)
    assert np.mean(hard.unknown_score(window) == (truth == 3)) > 0.95


def test_nothing_found_leaves_the_model_alone():
    """A window that the known classes cover, and few of it: no row is kept, no label added."""
    X, y = blobs(0, (80, 80, 80))
    window, _ = blobs(1, (20, 20, 20))

    model = RTSCVClassifier(KNeighborsClassifier(9), mode="paper", sample_rate=0.1)
    model.fit(X, y, window)

    assert len(model.sample_indices_) == 6
    assert len(model.unknown_indices_) == 0
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_array_equal(model.unknown_score(window), np.zeros(60))


def test_a_sample_smaller_than_the_folds_is_refused():
    """A sample that cannot be spread over the folds is refused before any fit."""
    X, y, window, _ = new_blob()

    with pytest.raises(InputError, match=r"sample has 2 row\(s\), fewer than the 3 folds. Raise"):
        RTSCVClassifier(SVC(), mode="paper", sample_rate=0.01).fit(X, y, window)


def test_a_splitter_that_cannot_split_says_so():
    """Holdout keeps the shares of the classes, which a class of one row does not allow."""
    X, y, window, _ = new_blob()
    X, y = np.vstack([X, [[50.0, 50.0]]]), np.append(y, 7)

    with pytest.raises(InputError, match=r"cannot split the rows: .* Choose another cv"):
        RTSCVClassifier(SVC(), mode="paper", cv="holdout").fit(X, y, window)


def test_a_baseline_is_refused():
    """Algorithm 1 has no baseline; one that would be ignored is refused."""
    X, y, window, _ = new_blob()

    with pytest.raises(
        InputError, match="mode='paper' is the published algorithm, which has no baseline"
    ):
        RTSCVClassifier(SVC(), mode="paper").fit(X, y, window, baseline=window)
