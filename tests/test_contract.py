"""scikit-learn's contract: its own checks, copies on disk, seeds, and a plain fit left plain."""

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from rtscv_mlops import RTSCVClassifier
from tests.windows import new_blob, split_digits

WEIGHT_CHECKS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)


class Watched(RTSCVClassifier):
    """Always fitted with a window, so that the checks walk the monitor's whole path."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, deployment=X, sample_weight=sample_weight)


def expected_failures(model):
    """The checks that cannot pass, each with its reason."""
    if isinstance(model, Watched):
        # The check hands in folds made for the training rows alone, by number.
        return dict.fromkeys(WEIGHT_CHECKS, "its cv does not cover the rows of the window")
    if isinstance(model.estimator, SVC):
        # scikit-learn expects the same of a bare SVC (its issue 16298).
        return dict.fromkeys(WEIGHT_CHECKS, "a weighted SVC is not quite one with repeated rows")
    return {}


@parametrize_with_checks(
    [
        RTSCVClassifier(LogisticRegression()),
        RTSCVClassifier(LogisticRegression(), mode="paper"),
        RTSCVClassifier(DecisionTreeClassifier()),
        RTSCVClassifier(SVC(), mode="paper"),
        Watched(LogisticRegression()),
        Watched(DecisionTreeClassifier()),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_accepts_it(estimator, check):
    """Every check of scikit-learn for a classifier passes, with and without a window."""
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """Digits with one hidden class: training rows, labels, window."""
    return split_digits(hidden=(8,), n_training=500, n_window=300)[:3]


MODELS = {
    "monitor": RTSCVClassifier(LogisticRegression(max_iter=500)),
    "forest": RTSCVClassifier(RandomForestClassifier(20)),
    "estimator": RTSCVClassifier(KNeighborsClassifier(), gate="estimator"),
    "paper": RTSCVClassifier(SVC(), mode="paper"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["pickle", "joblib"])
def test_a_stored_model_answers_alike(name, way, digits, tmp_path):
    """A rectified model that went to disk and back gives the same answers and the same facts."""
    model = clone(MODELS[name]).fit(*digits)

    if way == "pickle":
        copy = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, tmp_path / "model.joblib")
        copy = joblib.load(tmp_path / "model.joblib")

    assert len(model.unknown_indices_) > 0
    np.testing.assert_array_equal(copy.predict(digits[2]), model.predict(digits[2]))
    np.testing.assert_array_equal(copy.unknown_score(digits[2]), model.unknown_score(digits[2]))
    assert copy.assessment_ == model.assessment_
    assert copy.get_params()["mode"] == model.mode


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_fixes_the_result_whatever_the_processes(name, digits):
    """The same seed gives the same rows and answers twice, and with two processes."""
    alone, again, together = (
        clone(MODELS[name]).set_params(n_jobs=n_jobs).fit(*digits) for n_jobs in (1, 1, 2)
    )

    for other in (again, together):
        np.testing.assert_array_equal(other.sample_indices_, alone.sample_indices_)
        np.testing.assert_array_equal(other.unknown_indices_, alone.unknown_indices_)
        np.testing.assert_array_equal(other.predict(digits[2]), alone.predict(digits[2]))
        np.testing.assert_allclose(other.unknown_score(digits[2]), alone.unknown_score(digits[2]))


def test_another_seed_draws_another_sample(digits):
    """The seed is used: the paper's sample is another one for another seed."""
    first, second = (
        clone(MODELS["paper"]).set_params(random_state=seed).fit(*digits) for seed in (0, 1)
    )

    assert set(first.sample_indices_) != set(second.sample_indices_)


def test_an_unseeded_estimator_is_seeded(digits):
    """An estimator without a seed takes the model's; a seed of its own is kept."""
    X, y, _ = digits
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(5))

    first, second = (RTSCVClassifier(estimator).fit(X, y) for _ in range(2))
    own = RTSCVClassifier(RandomForestClassifier(5, random_state=7)).fit(X, y)

    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert own.estimator_.random_state == 7
    assert estimator[-1].random_state is None


@pytest.mark.parametrize("mode", ["monitor", "paper"])
def test_a_fit_without_a_window_is_the_bare_estimator(mode, digits):
    """Without deployment data nothing is added to the estimator, and nothing taken from it."""
    X, y, window = digits
    bare = LogisticRegression(max_iter=500).fit(X, y)

    model = RTSCVClassifier(LogisticRegression(max_iter=500), mode=mode).fit(X, y)

    np.testing.assert_array_equal(model.predict(window), bare.predict(window))
    np.testing.assert_array_equal(model.predict_proba(window), bare.predict_proba(window))
    np.testing.assert_array_equal(model.decision_function(window), bare.decision_function(window))
    np.testing.assert_array_equal(model.classes_, bare.classes_)
    assert model.assessment_ is None
    assert model.unknown_label_ is None
    assert len(model.sample_indices_) == len(model.unknown_indices_) == 0


def test_the_given_estimator_stays_unfitted(digits):
    """The estimator, and a gate of one's own, are cloned, so that one object can serve two fits."""
    estimator, gate = SVC(), KNeighborsClassifier()

    RTSCVClassifier(estimator, gate=gate).fit(*digits)

    assert not hasattr(estimator, "classes_")
    assert not hasattr(gate, "classes_")


def test_a_second_fit_forgets_the_first(digits):
    """What an earlier window showed is gone after a fit without one."""
    X, y, window = digits
    model = RTSCVClassifier(SVC()).fit(X, y, window)

    model.fit(X, y)

    assert model.assessment_ is None
    assert model.clusters_ == ()
    assert model.gate_ is None
    assert len(model.classes_) == len(np.unique(y))


def test_methods_follow_the_estimator(digits):
    """predict_proba is there exactly where the estimator has it."""
    X, y, _ = digits

    assert hasattr(RTSCVClassifier(LogisticRegression()), "predict_proba")
    assert hasattr(RTSCVClassifier(SVC()), "decision_function")
    assert not hasattr(RTSCVClassifier(SVC()).fit(X, y), "predict_proba")
    assert not hasattr(RTSCVClassifier(KNeighborsClassifier()), "decision_function")


def test_a_failed_fit_is_no_fit():
    """A model whose fit was refused says so, instead of answering from nothing."""
    X, y, window, _ = new_blob()
    model = RTSCVClassifier(LogisticRegression())
    with pytest.raises(ValueError, match="labels are missing"):
        model.fit(X, np.where(y == 0, np.nan, y), window)

    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.predict(X)


def test_it_lives_inside_scikit_learn():
    """It can be cross-validated, searched, and be a step of a pipeline."""
    X, y, _, _ = new_blob()
    model = make_pipeline(StandardScaler(), RTSCVClassifier(LogisticRegression()))

    search = GridSearchCV(model, {"rtscvclassifier__estimator__C": [0.1, 1.0]}, cv=2).fit(X, y)

    assert cross_val_score(model, X, y, cv=2).min() > 0.9
    assert search.best_score_ > 0.9
