"""The monitor: one window in, a verdict with its evidence out, and nothing taken without any."""

import pickle
from dataclasses import FrozenInstanceError, asdict

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator import gates, search
from rtscv_mlops.estimator.clusters import group_rows
from rtscv_mlops.outcomes import Verdict
from tests.windows import CENTRES, FAR, blobs, new_blob, split_digits

FOUND = {Verdict.UNKNOWNS, Verdict.UNKNOWNS_AND_DRIFT}


# -- a new class


@pytest.fixture(scope="module", params=[LogisticRegression(max_iter=500), SVC()], ids=["LR", "SVM"])
def rectified(request):
    """A model of nine digits that saw a window with the tenth, the window, and its truth."""
    X, y, window, truth = split_digits(hidden=(6,), seed=1)
    return RTSCVClassifier(request.param).fit(X, y, window), window, truth


def test_a_new_class_is_a_verdict(rectified):
    """A class that was never taught is called by its name: unknowns, with a tiny p-value."""
    model, _, _ = rectified

    assert model.assessment_.verdict == "unknowns"
    assert model.assessment_.detected is True
    assert model.assessment_.p_value < 1e-6
    assert model.assessment_.known_false_rate < 0.02


def test_the_extracted_rows_are_the_new_class(rectified):
    """Most hidden rows are extracted, and hardly another; the model calls them unknown."""
    model, window, truth = rectified
    extracted = truth[model.unknown_indices_]

    assert np.mean(extracted == 6) > 0.9
    assert len(extracted) > 0.8 * np.sum(truth == 6)
    assert np.mean(model.predict(window[truth == 6]) == model.unknown_label_) > 0.9
    assert np.mean(model.predict(window)[truth != 6] == truth[truth != 6]) > 0.9


def test_the_rate_has_an_interval_around_the_truth(rectified):
    """The share of unknowns lies within the interval that is given for it."""
    model, _, truth = rectified
    low, high = model.assessment_.unknown_rate_interval

    assert low <= np.mean(truth == 6) <= high
    assert low <= model.assessment_.unknown_rate <= high
    assert high - low < 0.35


def test_the_score_ranks_unknowns_on_rows_never_seen(rectified):
    """Scores lie in [0, 1], rank hidden rows above known ones, and begin to extract at a half."""
    model, window, _ = rectified
    fresh, fresh_truth = split_digits(hidden=(6,), seed=1, n_window=1_000)[2:]
    fresh, fresh_truth = fresh[len(window) :], fresh_truth[len(window) :]

    score = model.unknown_score(fresh)

    assert score.min() >= 0
    assert score.max() <= 1
    assert roc_auc_score(fresh_truth == 6, score) > 0.97
    assert np.mean(model.unknown_score(window[model.unknown_indices_]) >= 0.5) > 0.9


def test_the_facts_hold_diagnostics(rectified):
    """The diagnostics hold what the verdict is based on: the gate, the null, both directions."""
    model, _, _ = rectified
    facts = model.assessment_.diagnostics

    assert {"gate", "null", "class_shift", "looks_like", "excess"} <= set(facts)
    assert facts["excess"].forward > facts["excess"].reverse
    assert {"prepare", "forward", "reverse"} <= set(model.assessment_.timings)
    assert min(model.assessment_.timings.values()) >= 0


def test_the_facts_cannot_be_changed(rectified):
    """A reviewer's facts are frozen, their tables read-only, and a copy on disk is equal."""
    facts = rectified[0].assessment_

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'p_value'"):
        facts.p_value = 0.5
    with pytest.raises(TypeError, match="does not support item assignment"):
        facts.diagnostics["gate"] = "other"
    with pytest.raises(TypeError, match="does not support item assignment"):
        facts.timings["forward"] = 0.0
    assert pickle.loads(pickle.dumps(facts)) == facts


# -- nothing new


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(max_iter=500), DecisionTreeClassifier()], ids=["LR", "tree"]
)
def test_nothing_new_changes_nothing(estimator):
    """Without evidence no row is taken, and the model is the plain fit, answer by answer."""
    X, y, window, _ = split_digits()
    plain = RTSCVClassifier(estimator).fit(X, y)

    model = RTSCVClassifier(estimator).fit(X, y, window)

    assert model.assessment_.verdict == "no_change"
    assert model.assessment_.detected is False
    assert model.assessment_.p_value >= 0.01
    assert model.assessment_.unknown_rate_interval[0] < 0.02
    assert len(model.unknown_indices_) == 0
    assert model.clusters_ == ()
    np.testing.assert_array_equal(model.classes_, plain.classes_)
    np.testing.assert_array_equal(model.predict_proba(window), plain.predict_proba(window))


def test_other_class_shares_are_no_finding():
    """A window of two classes, nine to one, holds nothing that ten even classes do not."""
    X, y, window, truth = split_digits(n_window=900)
    chosen = np.concatenate([np.flatnonzero(truth == 3)[:80], np.flatnonzero(truth == 8)[:9]])

    model = RTSCVClassifier(SVC()).fit(X, y, window[chosen])

    assert model.assessment_.verdict == "no_change"
    shift = model.assessment_.diagnostics["class_shift"]
    assert max(shift, key=shift.get) == 3


def test_the_level_is_kept():
    """Of forty windows without news, few are called (alpha 0.05), whatever their shares."""
    p_values = []
    for seed in range(20):
        for shares in ((60, 60, 60), (150, 25, 5)):
            X, y = blobs(seed, (80, 80, 80), spread=2.5)
            window, _ = blobs(1_000 + seed, shares, spread=2.5)
            model = RTSCVClassifier(LogisticRegression(), random_state=seed).fit(X, y, window)
            p_values.append(model.assessment_.p_value)

    # More than 5 of 40 happens once in 70 times at a true level of 0.05.
    assert np.sum(np.array(p_values) < 0.05) <= 5


# -- drift, and a baseline


def drifted(rows):
    """The same rows through another sensor: brighter, and half a pixel to the side."""
    images = rows.reshape(-1, 8, 8)
    shifted = 0.5 * images + 0.5 * np.roll(images, 1, axis=2)
    return np.clip(1.15 * shifted, 0, 16).reshape(len(rows), -1)


def test_moved_classes_are_drift():
    """Known classes that all moved are drift: nothing new is claimed and no row is taken."""
    X, y, window, _ = split_digits(seed=2)

    model = RTSCVClassifier(SVC()).fit(X, y, drifted(window))

    assert model.assessment_.verdict == "drift"
    assert model.assessment_.detected is False
    assert len(model.unknown_indices_) == 0
    assert len(model.classes_) == 10


def test_a_baseline_explains_the_drift():
    """A change that an earlier clean window shares is no finding."""
    X, y, rest, _ = split_digits(seed=2, n_training=700, n_window=1_000)
    window, baseline = drifted(rest[:400]), drifted(rest[400:])

    model = RTSCVClassifier(SVC()).fit(X, y, window, baseline=baseline)

    assert model.assessment_.verdict == "no_change"
    assert model.assessment_.diagnostics["null"] == "baseline"
    assert len(model.unknown_indices_) == 0


def test_a_new_class_is_seen_behind_a_baseline():
    """What came on top of the shared change is found."""
    X, y, rest, truth = split_digits(hidden=(6,), seed=2, n_training=700, n_window=1_000)
    is_window = np.arange(len(rest)) < 400
    baseline = drifted(rest[~is_window & (truth != 6)])

    model = RTSCVClassifier(SVC()).fit(X, y, drifted(rest[is_window]), baseline=baseline)

    assert model.assessment_.verdict in FOUND
    assert np.mean(truth[is_window][model.unknown_indices_] == 6) > 0.9


# -- candidate classes


def test_two_far_classes_are_two_candidates():
    """Two new classes far apart become two groups, each with a quality and rows of its own."""
    X, y = blobs(0, (80, 80, 80))
    window, truth = blobs(1, (50, 50, 50, 40, 30), [*CENTRES, FAR, -FAR])

    model = RTSCVClassifier(SVC()).fit(X, y, window)
    first, second = model.clusters_

    assert first.size >= second.size
    assert first.share + second.share == pytest.approx(1)
    assert {np.bincount(truth[cluster.rows]).argmax() for cluster in (first, second)} == {3, 4}
    for cluster in (first, second):
        assert cluster.quality > 0.6
        assert set(cluster.medoids) <= set(cluster.rows.tolist())
        assert len(set(truth[list(cluster.medoids)])) == 1
    together = np.sort(np.concatenate([first.rows, second.rows]))
    np.testing.assert_array_equal(together, model.unknown_indices_)


def test_one_round_cloud_is_one_candidate():
    """One new class is one group, without a quality, for there is no structure to measure."""
    X, y, window, _ = new_blob(n_new=60)

    (cluster,) = RTSCVClassifier(SVC()).fit(X, y, window).clusters_

    assert np.isnan(cluster.quality)
    assert cluster.share == 1


@pytest.mark.parametrize("n_columns", [1, 2, 10])
@pytest.mark.parametrize("n_rows", [1, 2, 20, 200])
def test_a_cloud_is_not_cut_up(n_rows, n_columns):
    """However few or many rows one cloud has, it stays one group."""
    cloud = np.random.default_rng(5).normal(size=(n_rows, n_columns))

    clusters = group_rows(cloud, np.arange(n_rows), np.ones(n_columns), seed=0)

    assert [cluster.size for cluster in clusters] == [n_rows]
    assert len(clusters[0].medoids) == min(n_rows, 5)


def test_a_distance_in_one_column_is_seen_among_many():
    """Two groups apart in one of ten columns are found: their own spread is not divided away."""
    rows = np.random.default_rng(0).normal(size=(120, 10))
    rows[60:, 3] += 8

    clusters = group_rows(rows, np.arange(120), np.ones(10), seed=0)

    assert sorted(cluster.size for cluster in clusters) == [60, 60]


# -- windows larger than what enters a fit


@pytest.mark.parametrize(
    "estimator", [SVC(), DecisionTreeClassifier(min_samples_leaf=3)], ids=["kernel", "forest"]
)
def test_a_window_beyond_the_caps(estimator, monkeypatch):
    """Only some rows enter the fits, but every window row is scored; the verdict is the same."""
    X, y, window, truth = new_blob(n_new=60)
    whole = RTSCVClassifier(estimator).fit(X, y, window)
    monkeypatch.setattr(search, "MAX_WINDOW", 120)
    monkeypatch.setattr(search, "MIN_KNOWN", 150)
    monkeypatch.setattr(gates, "CHUNK", 32)

    capped = RTSCVClassifier(estimator).fit(X, y, window)

    assert len(whole.sample_indices_) == len(window)
    assert len(capped.sample_indices_) == 120
    assert capped.assessment_.diagnostics["known_rows"] == 150
    assert capped.assessment_.diagnostics["window_rows"] == len(window)
    assert capped.assessment_.verdict == whole.assessment_.verdict == "unknowns"
    unsampled = np.setdiff1d(capped.unknown_indices_, capped.sample_indices_)
    assert len(unsampled) > 10
    assert np.mean(truth[unsampled] == 3) > 0.9


# -- before a window


def test_the_score_needs_a_window():
    """A model that saw no window cannot score unknowns, and its error says what to do."""
    X, y, window, _ = new_blob()
    model = RTSCVClassifier(SVC()).fit(X, y)

    with pytest.raises(InputError, match=r"fitted without a deployment window.*deployment=\.\.\."):
        model.unknown_score(window)


def test_the_facts_are_plain():
    """The assessment can be written down: names to numbers, words and tables."""
    X, y, window, _ = new_blob()
    facts = RTSCVClassifier(SVC()).fit(X, y, window).assessment_

    values = {name: getattr(facts, name) for name in facts.__slots__}

    assert isinstance(values["verdict"], str)
    assert all(isinstance(values[name], float) for name in ("p_value", "unknown_rate"))
    assert asdict(facts.diagnostics["excess"])["forward"] > 0
