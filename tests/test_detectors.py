"""The detectors against the definitions of their sources, and what all of them promise."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pyod.models.ecod import ECOD as PyodECOD
from scipy.spatial.distance import mahalanobis
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, weibull_min
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from rtscv_mlops import metrics
from rtscv_mlops.bench.catalogue import DETECTORS
from rtscv_mlops.bench.detector import (
    UNKNOWN,
    RatedThreshold,
    Scaled,
    find_threshold,
    find_threshold_by_hiding,
    open_set_f,
    sample_by_class,
)
from rtscv_mlops.bench.machines import (
    EVM,
    OSNN,
    PISVM,
    WSVM,
    OneVsSet,
    Slab,
    Tail,
    fit_slab,
    fit_weibull,
)
from rtscv_mlops.bench.ours import SeededKMeans
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.search import sample_window

BLIND = [name for name in DETECTORS if not DETECTORS[name].make(SVC(), 0).sees_window]
BLIND_TO_FAR_ROWS = {
    "pre_rectified",  # calls no row unknown
    "brodley_friedl",  # all learners agree on the nearest class
}
HALF_BLIND = {
    "ecod",  # takes its tails from the window too, which holds the new class
    "one_vs_set",  # slabs are endless in all directions but one
}
FAR = 1_000.0


def base_model():
    return make_pipeline(StandardScaler(), SVC(C=10))


def make(name, seed=0):
    return DETECTORS[name].make(base_model(), seed)


def gaussians(n_classes, n_rows, seed, spread=1.0):
    """Return rows round the corners of a grid, ten apart, and their classes."""
    rng = np.random.default_rng(seed)
    centres = 10.0 * np.array([divmod(code, 3) for code in range(n_classes)])
    y = np.repeat(np.arange(n_classes), n_rows)
    return centres[y] + spread * rng.normal(size=(len(y), 2)), y


@pytest.fixture(scope="module")
def clusters():
    """Four known classes, and a window of them with a fifth cluster at its end."""
    X, y = gaussians(4, 60, seed=0)
    known, _ = gaussians(4, 30, seed=1)
    new = np.random.default_rng(2).normal([30, -25], 1.0, size=(40, 2))
    return X, y, np.vstack([known, new]), np.arange(160) >= 120


@pytest.fixture(scope="module")
def digits():
    """Digits 0 to 7 as known classes; the window holds all ten."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    training = np.flatnonzero(y[:450] < 8)
    return X[training], y[training], X[450:800], y[450:800]


# -- tails


def test_weibull_equals_scipys_fit():
    """The vectorised fit finds the shape and scale of scipy's maximum likelihood fit."""
    values = weibull_min.rvs(
        c=[[0.7], [2.0], [9.0]], scale=[[1e-3], [5.0], [80.0]], size=(3, 75), random_state=0
    )

    shapes, scales = fit_weibull(values)

    for row, shape, scale in zip(values, shapes, scales, strict=True):
        expected, _, expected_scale = weibull_min.fit(row, floc=0)
        assert shape == pytest.approx(expected, rel=1e-3)
        assert scale == pytest.approx(expected_scale, rel=1e-3)


def test_weibull_of_equal_or_zero_values_is_finite():
    """Copies among the known rows do not lead to a fit that is not finite."""
    shapes, scales = fit_weibull(np.array([[2.0] * 5, [0.0] * 5, [0.0, 0.0, 1.0, 2.0, 3.0]]))

    assert np.isfinite(shapes).all()
    assert np.isfinite(scales).all()
    assert scales[0] == pytest.approx(2.0, rel=1e-3)


def test_tail_is_scipys_distribution():
    """A tail's two probabilities are those of the Weibull with its parameters."""
    tail = Tail.of_lowest(np.random.default_rng(0).normal(size=200), 50)
    scores = np.array([-3.0, -1.0, 0.5])
    frozen = weibull_min(tail.shape, loc=tail.location, scale=tail.scale)

    assert np.exp(tail.log_cdf(scores)) == pytest.approx(frozen.cdf(scores))
    assert np.exp(tail.log_survival(scores)) == pytest.approx(frozen.sf(scores))


# -- open-set classifiers


def test_evm_probability_is_one_at_a_known_row_and_1_over_e_at_its_scale():
    """psi is exp(-(distance / scale) ** shape), fitted to half distances to other classes."""
    numbers, codes = np.array([[0.0], [10.0], [12.0], [18.0]]), np.array([0, 1, 1, 1])
    evm = EVM()._learn(numbers, codes)
    scale = evm.scales_[0]

    shape, _, expected_scale = weibull_min.fit([5.0, 6.0, 9.0], floc=0)
    probability = np.exp(evm._membership(np.array([[0.0], [-scale], [-2 * scale]]))[:, 0])

    assert scale == pytest.approx(expected_scale, rel=1e-3)
    assert probability == pytest.approx([1, np.exp(-1), np.exp(-(2**shape))], rel=1e-3)


def test_evm_asks_the_nearest_rows_of_other_classes_only():
    """The tail is made of the shortest distances; further rows of other classes do not count."""
    near, far = np.linspace(10, 20, EVM.TAIL), np.linspace(500, 900, 40)
    numbers = np.concatenate([[0.0], near, far])[:, None]
    codes = np.array([0] + [1] * (len(numbers) - 1))

    with_far = EVM()._learn(numbers, codes).scales_[0]
    without = EVM()._learn(numbers[: EVM.TAIL + 1], codes[: EVM.TAIL + 1]).scales_[0]

    assert with_far == pytest.approx(without)


def test_osnn_score_is_the_ratio_of_distances():
    """Nearest known row against nearest row of another class: 1 over 4, and 3 over 3."""
    osnn = OSNN()._learn(np.array([[0.0], [0.5], [6.0]]), np.array([0, 0, 1]))
    membership = osnn._membership(np.array([[-1.0], [1.5], [3.25], [6.0]]))

    assert osnn._strangeness(membership) == pytest.approx([1 / 7, 1 / 4.5, 1.0, 0.0])
    assert membership.argmax(axis=1)[[0, 1, 3]].tolist() == [0, 0, 1]


def test_osnn_calls_a_row_of_two_classes_ambiguous():
    """A row that both classes have as it is scores 1, not nan."""
    osnn = OSNN()._learn(np.array([[0.0], [0.0]]), np.array([0, 1]))

    assert osnn._strangeness(osnn._membership(np.array([[0.0]]))) == [1.0]


def test_slab_rejects_both_sides():
    """A row before the near plane or beyond the far one is outside; between them, it is not."""
    assert (Slab(-1.0, 2.0).outside(np.array([-3.0, 0.0, 2.5])) > 0).tolist() == [True, False, True]


def test_slab_leaves_strangers_out():
    """The near plane moves in when that loses few own rows and many of other classes."""
    own = np.append(np.linspace(1, 3, 95), np.linspace(-1, 0.9, 5))
    others = np.linspace(-2, 0.8, 500)

    slab = fit_slab(own, others)

    assert 0.4 < slab.near < 1.3
    assert slab.far == pytest.approx(3.0)


def test_one_vs_set_rejects_rows_beyond_the_far_plane(clusters):
    """A linear machine alone would be surer the farther a row lies; the slab says unknown."""
    X, y, _, _ = clusters
    model = OneVsSet().fit(X[y < 2], y[y < 2])

    assert model.predict([[0.0, -200.0], [0.0, 200.0]]).tolist() == [UNKNOWN, UNKNOWN]
    assert np.mean(model.predict(X[y < 2]) == y[y < 2]) > 0.9


def test_inclusion_rises_with_a_class_score(clusters):
    """P_I-SVM orders the rows by the class' machine, and grants its middle nearly all."""
    X, y, _, _ = clusters
    model = PISVM().fit(X, y)
    path = np.linspace([0.0, 0.0], [0.0, 5.0], 20)

    own = model._membership(model.scaled_.transform(path))[:, 0]

    assert np.exp(own[0]) > 0.9
    assert np.all(np.diff(own) <= 0)
    assert np.exp(own[-1]) < 0.5


@pytest.mark.parametrize(("rating", "sharpness"), [(0.9, 1.0), (0.2, 4.0)])
def test_kernel_is_the_one_that_finds_hidden_classes(rating, sharpness, monkeypatch):
    """Of several kernels the one with the best rating is fitted to all rows."""
    X, y = gaussians(4, 30, seed=0)
    ratings = {1.0: rating, 4.0: 0.5}
    monkeypatch.setattr(
        PISVM,
        "_hide_classes",
        lambda self, numbers, codes: RatedThreshold(0.0, ratings[self.sharpness_]),
    )

    model = PISVM().fit(X, y)

    assert model.machines_[0].gamma == pytest.approx(sharpness / 2)


def test_w_svm_needs_both_probabilities_and_the_one_class_machine(clusters):
    """The product of match and non-match probabilities counts, and only where the CAP allows."""
    X, y, window, _ = clusters
    model = WSVM().fit(X, y)
    rows = model.scaled_.transform(window)
    machine = model.machines_[0].decision_function(rows)

    joint = model._membership(rows)[:, 0]

    expected = model.matches_[0].log_cdf(machine) + model.non_matches_[0].log_survival(-machine)
    assert set(np.round(joint - expected, 6)) == {0, WSVM.REFUSED}
    assert model.threshold_ < -WSVM.REFUSED


# -- scores


def learned(name, X, y):
    """Return a fitted detector over a linear model, whose decision values are easily had."""
    return DETECTORS[name].make(LogisticRegression(), 0).fit(X, y)


def test_msp_is_the_largest_probability(clusters):
    """The score is what the largest probability, or else decision value, lacks to 1."""
    X, y, window, _ = clusters
    with_probabilities, svm = learned("msp", X, y), DETECTORS["msp"].make(SVC(), 0).fit(X, y)

    probabilities = LogisticRegression().fit(X, y).predict_proba(window)
    values = SVC(random_state=0).fit(X, y).decision_function(window)

    assert with_probabilities.score(window) == pytest.approx(1 - probabilities.max(axis=1))
    assert svm.score(window) == pytest.approx(1 - values.max(axis=1))


def test_energy_is_minus_logsumexp(clusters):
    """Low energy is a known row; two classes share one decision value evenly."""
    X, y, window, _ = clusters
    values = LogisticRegression().fit(X, y).decision_function(window)
    one = LogisticRegression().fit(X[y < 2], y[y < 2]).decision_function(window)

    of_two = learned("energy", X[y < 2], y[y < 2]).score(window)

    assert learned("energy", X, y).score(window) == pytest.approx(-logsumexp(values, axis=1))
    assert of_two == pytest.approx(-np.log(2 * np.cosh(one / 2)))


def test_energy_of_probabilities_is_refused(clusters):
    """A forest has no decision values, and a constant energy would look like a result."""
    X, y, _, _ = clusters

    with pytest.raises(InputError, match="energy needs decision values, and RandomForestClassifi"):
        DETECTORS["energy"].make(RandomForestClassifier(), 0).fit(X, y)


def test_mahalanobis_equals_scipys_distance(clusters):
    """The nearest class mean counts, in the pooled covariance within the classes."""
    X, y, window, _ = clusters
    means = np.stack([X[y == code].mean(axis=0) for code in range(4)])
    inverse = np.linalg.inv((X - means[y]).T @ (X - means[y]) / len(X))

    expected = [min(mahalanobis(row, mean, inverse) for mean in means) ** 2 for row in window]

    assert learned("mahalanobis", X, y).score(window) == pytest.approx(expected, rel=1e-4)


def test_likelihood_equals_scipys_density(clusters):
    """The best class' Gaussian counts, with one variance for all of its directions."""
    X, y, window, _ = clusters
    scaled = Scaled().fit(X)
    known, rows = scaled.transform(X), scaled.transform(window)

    densities = [
        multivariate_normal(
            known[y == code].mean(axis=0), known[y == code].var(axis=0).mean()
        ).logpdf(rows)
        for code in range(4)
    ]

    assert learned("lh", X, y).score(window) == pytest.approx(-np.max(densities, axis=0))


def test_outlier_detectors_are_those_of_their_libraries(clusters):
    """Isolation forest, LOF and ECOD run with their defaults, on scaled known rows."""
    X, y, window, _ = clusters
    scaled = Scaled().fit(X)
    known, rows = scaled.transform(X), scaled.transform(window)

    expected = {
        "isolation_forest": -IsolationForest(random_state=0).fit(known).score_samples(rows),
        "lof": -LocalOutlierFactor(novelty=True).fit(known).score_samples(rows),
        "ecod": PyodECOD().fit(known).decision_function(rows),
    }

    for name, scores in expected.items():
        assert learned(name, X, y).score(window) == pytest.approx(scores), name


def test_ecod_says_how_to_install_pyod(clusters, monkeypatch):
    """Without PyOD the error is a pip line, not a traceback of imports."""
    X, y, _, _ = clusters
    monkeypatch.setitem(sys.modules, "pyod.models.ecod", None)

    with pytest.raises(InputError, match=r"pip install 'rtscv-mlops\[bench\]'"):
        make("ecod").fit(X, y)


# -- detectors that see the window


def test_csi_is_k_means_from_the_classes_means(clusters):
    """Unknown are the sample's rows in the cluster that began at the sample's mean."""
    X, y, window, _ = clusters
    sample = sample_window(len(window), len(y), 0.2, "training", 0)
    scaled = Scaled().fit(X)
    known, rows = scaled.transform(X), scaled.transform(window[sample])
    seeds = [*(known[y == code].mean(axis=0) for code in range(4)), rows.mean(axis=0)]

    model = SeededKMeans(base_model()).fit(X, y, window)

    labels = KMeans(5, init=np.array(seeds), n_init=1).fit(rows).labels_
    assert model.unknown_indices_.tolist() == sample[labels == 4].tolist()
    assert 0 < len(model.unknown_indices_) < len(sample)


def test_csi_needs_a_sample_for_its_clusters(clusters):
    """A window too short for the clusters is refused with a sentence."""
    X, y, window, _ = clusters

    with pytest.raises(InputError, match="too few for 5 clusters"):
        make("csi").fit(X, y, window[:4])


def test_domain_classifier_scores_the_window_by_models_that_have_not_seen_it(clusters):
    """A window like the training data looks like it, however well trees can memorise."""
    X, y, window, unknown = clusters
    model = make("domain_classifier").fit(X, y, window)
    more = gaussians(4, 60, seed=5)[0]
    quiet = make("domain_classifier").fit(X, y, more)

    assert metrics.auroc(unknown, model.window_scores_) > 0.95
    assert np.mean(quiet.predict_window(more) == UNKNOWN) < 0.15
    assert quiet.window_scores_.mean() < quiet.score(more).mean()


def test_label_filters_go_by_majority():
    """Window rows whose label two of three learners contradict are unknown, one is not enough."""
    X, y = gaussians(4, 60, seed=0)

    class Misled(SVC):
        """Calls everything left of the middle class 3."""

        def predict(self, rows):
            return np.where(np.asarray(rows)[:, 0] < 5, 3, super().predict(rows))

    window, truth = gaussians(4, 30, seed=1)
    model = DETECTORS["brodley_friedl"].make(Misled(), 0).fit(X, y, window)

    wrong = model.classify(window) != truth
    assert np.mean(model.predict_window(window)[wrong] == UNKNOWN) > 0.6
    assert np.mean(model.predict_window(window)[~wrong] == UNKNOWN) < 0.1
    assert set(np.round(model.window_scores_ * 3)) <= {0, 1, 2, 3}
    assert 1 / 3 < model.threshold_ < 2 / 3


@pytest.mark.parametrize("name", sorted(set(DETECTORS) - set(BLIND)))
def test_window_is_asked_for(name, clusters):
    """A detector that learns from a window does not silently go without."""
    X, y, _, _ = clusters

    with pytest.raises(InputError, match="learns from a window, and none was given"):
        make(name).fit(X, y)


# -- ours


def test_monitor_is_the_products_classifier(clusters):
    """The detector's codes are the rectified model's labels, with unknown as -1."""
    X, y, window, unknown = clusters
    model = make("monitor").fit(X, y, window)

    labels = model.model_.predict(window)

    assert model.predict(window).tolist() == np.where(labels == 4, UNKNOWN, labels).tolist()
    assert model.window_scores_ is model.model_.window_scores_
    assert np.array_equal(model.score(X), model.model_.unknown_score(X))
    assert np.array_equal(model.predict_window(window) == UNKNOWN, unknown)


def test_monitor_leaves_a_quiet_window_alone(clusters):
    """Where nothing is new, no row is called unknown and the score still ranks."""
    X, y, _, _ = clusters
    quiet = gaussians(4, 50, seed=9)[0]

    model = make("monitor").fit(X, y, quiet)

    assert not model.decide(quiet).any()
    assert np.isfinite(model.score(quiet)).all()


def test_paper_mode_ranks_by_the_lead_of_the_unknown_class(clusters):
    """Rows that the rectified model calls unknown score above those it does not."""
    X, y, window, _ = clusters
    model = make("paper_mode").fit(X, y, window)

    scores, decided = model.score(window), model.decide(window)

    assert scores[decided].min() > scores[~decided].max()
    assert set(model.classify(window)) <= set(range(4))


def test_pre_rectified_never_says_unknown(clusters):
    """The base model alone calls no row unknown, whatever it is shown."""
    X, y, window, _ = clusters
    model = make("pre_rectified").fit(X, y)

    rows = np.vstack([window, [[FAR, FAR]]])

    assert model.predict(rows).tolist() == base_model().fit(X, y).predict(rows).tolist()


# -- thresholds


def test_known_rows_are_kept():
    """95 % of the held-out known rows lie below the threshold."""
    assert find_threshold(np.arange(1001.0)) == 950


def test_hidden_classes_set_the_threshold():
    """Each class is hidden in one round, and the threshold lies between known and hidden rows."""
    codes = np.repeat(np.arange(6), 30)
    seen = []

    def judge(known, known_codes, rows):
        seen.append(set(known[:, 0]))
        strange = ~np.isin(rows[:, 0], known[:, 0])
        visible = np.unique(known[:, 0])
        best = np.minimum(np.searchsorted(visible, rows[:, 0]), len(visible) - 1)
        return best, strange + 0.1 * np.sin(np.arange(len(rows)))

    found = find_threshold_by_hiding(
        judge, codes[:, None], codes, groups=3, quality=open_set_f, seed=0
    )

    assert 0.09 < found.threshold < 0.9
    assert found.quality == 1
    assert sorted(code for group in seen for code in set(range(6)) - group) == list(range(6))


def test_two_known_classes_fall_back_to_known_rows():
    """With two classes none can be hidden: held-out known rows alone set the threshold."""
    X, y = gaussians(2, 100, seed=0)
    fresh, truth = gaussians(2, 300, seed=1)

    for method in (EVM, OSNN, PISVM, WSVM):
        model = method().fit(X, y)
        assert 0.85 < np.mean(model.predict(fresh) == truth) < 1, method


@pytest.mark.parametrize("name", BLIND)
def test_threshold_does_not_depend_on_the_window(name, clusters):
    """A detector that does not see windows is the same whatever window it is given."""
    X, y, window, _ = clusters

    first, second = make(name).fit(X, y, window), make(name).fit(X, y, window + FAR)

    assert first.threshold_ == second.threshold_
    assert np.array_equal(first.score(window), second.score(window))


# -- every detector


@pytest.mark.parametrize("name", DETECTORS)
def test_far_cluster_is_found(name, clusters):
    """A new class far from all others is found, or the detector is listed as blind to it."""
    X, y, window, unknown = clusters
    model = make(name).fit(X, y, window)

    decided = model.predict_window(window) == UNKNOWN

    assert np.mean(decided[~unknown]) < 0.1
    if name in BLIND_TO_FAR_ROWS:
        assert not decided[unknown].any()
    else:
        assert np.mean(decided[unknown]) > (0.5 if name in HALF_BLIND else 0.95)


@pytest.mark.parametrize("name", DETECTORS)
def test_digits_with_two_hidden_classes(name, digits):
    """Every detector takes real data, keeps most known rows, and repeats itself by its seed."""
    X, y, window, truth = digits
    first, again = make(name).fit(X, y, window), make(name).fit(X, y, window)

    scores, predicted = first.score_window(window), first.predict_window(window)

    known = truth < 8
    assert np.isfinite(scores).all()
    assert np.mean(predicted[known] == truth[known]) > 0.6
    assert set(predicted) <= {UNKNOWN, *range(8)}
    assert np.array_equal(scores, again.score_window(window))
    assert np.array_equal(predicted, again.predict_window(window))


@pytest.mark.parametrize("name", DETECTORS)
def test_tables_with_categories(name):
    """A frame with text and numbers works, as far as the base model itself takes it."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    table = pd.DataFrame(
        {
            "length": 8.0 * y + rng.normal(size=120),
            "width": rng.normal(size=120),
            "kind": pd.Categorical(np.array(["oak", "elm", "ash"])[y]),
        }
    )
    prepare = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())

    model = DETECTORS[name].make(make_pipeline(prepare, SVC()), 0).fit(table, y, table[::2])

    assert np.isfinite(model.score(table)).all()
    assert np.mean(model.classify(table) == y) > 0.9


@pytest.mark.parametrize("method", [EVM, OSNN, OneVsSet, PISVM, WSVM])
def test_one_known_class_is_refused(method):
    """A detector that bounds classes by each other refuses a single class."""
    with pytest.raises(InputError, match="only one class is known"):
        method().fit(np.zeros((5, 2)), np.zeros(5, dtype=int))


def test_large_training_sets_are_thinned_by_class():
    """A detector of quadratic cost keeps a bounded number of rows, and the share of each class."""
    codes = np.repeat([0, 1, 2], [8_000, 1_990, 10])

    kept = codes[sample_by_class(codes, seed=0, limit=1_000)]

    assert np.bincount(kept).tolist() == [800, 199, 1]
    assert sample_by_class(codes, seed=0).tolist() == list(range(10_000))


def test_catalogue_names_its_detectors():
    """A detector's key is its name, and each has a title, a kind and a source."""
    assert all(
        key == entry.name and entry.title and entry.source for key, entry in DETECTORS.items()
    )
    assert {entry.kind for entry in DETECTORS.values()} == {"ours", "paper", "today"}


def test_importing_the_catalogue_is_cheap():
    """Heavy libraries that only some detectors need are not loaded with the catalogue."""
    heavy = "{'pyod', 'numba', 'torch'} & {name.split('.')[0] for name in sys.modules}"

    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, rtscv_mlops.bench.catalogue; assert not {heavy}, {heavy}",
        ],
        check=True,
    )
