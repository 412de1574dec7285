"""Whatever holds the rows and the labels: the folds get it as it came."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.estimator.rows import Numbers
from tests.windows import new_blob

MODES = [{"mode": "paper", "sample_rate": 0.5}, {"gate": "estimator"}, {}]


def by_mode(test):
    """Run a test in paper mode, in monitor mode through the estimator, and in monitor mode."""
    return pytest.mark.parametrize("mode", MODES, ids=["paper", "estimator", "monitor"])(test)


def finds_the_new(model, X, y, window, is_new):
    """Fit, and check that the window's new rows, and few others, are called unknown."""
    model.fit(X, y, window)
    called = model.predict(window) == model.unknown_label_
    assert np.mean(called[is_new]) > 0.8
    assert np.mean(called[~is_new]) < 0.1
    scores = model.unknown_score(window)
    assert scores[is_new].mean() > scores[~is_new].mean()
    return model


# -- rows


def table(rows, classes, rng):
    """Two numbers, a word, a category and a flag; the word follows the class, the rest does not."""
    words = np.array(["ash", "birch", "cedar", "elm"])
    return pd.DataFrame(
        {
            "width": rows[:, 0],
            "height": rows[:, 1],
            "wood": words[classes],
            "grade": pd.Categorical(rng.choice(["low", "high"], len(rows)), ["low", "high"]),
            "checked": rng.random(len(rows)) < 0.5,
        },
        index=rng.permutation(len(rows)) + 1_000,
    )


@pytest.fixture(scope="module")
def tables():
    """Training table, labels, window table, and which of its rows are new."""
    X, y, window, truth = new_blob()
    rng = np.random.default_rng(0)
    return table(X, y, rng), y, table(window, truth, rng), truth == 3


class Spy(TransformerMixin, BaseEstimator):
    """Passes rows on and notes what they were."""

    seen: ClassVar[list] = []

    def fit(self, X, y=None):
        self.seen.append((type(X), dict(X.dtypes)))
        return self

    def transform(self, X):
        return X


@by_mode
def test_tables_stay_tables_through_the_folds(mode, tables):
    """Every fold gets a DataFrame with the training data's columns and types."""
    X, y, window, is_new = tables
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["wood", "grade"]),
        (StandardScaler(), ["width", "height"]),
        remainder="passthrough",
    )
    model = RTSCVClassifier(make_pipeline(Spy(), columns, SVC()), **mode)
    Spy.seen.clear()

    finds_the_new(model, X, y, window, is_new)

    # The kernel gate spares the folds: then only the last fit is the estimator's own.
    assert (len(Spy.seen) > 1) == bool(mode)
    assert all(kind is pd.DataFrame for kind, _ in Spy.seen)
    assert all(dtypes == dict(X.dtypes) for _, dtypes in Spy.seen)


@by_mode
def test_categories_and_gaps_reach_an_estimator_that_takes_them(mode, tables):
    """A category stays one, also with values that only the window has; gaps stay gaps."""
    X, y, window, is_new = (
        part.copy() if isinstance(part, pd.DataFrame) else part for part in tables
    )
    X, window = X.astype({"wood": "category"}), window.astype({"wood": "category"})
    X.iloc[:10, 0] = window.iloc[:10, 0] = np.nan
    assert "elm" not in X["wood"].cat.categories
    boosting = HistGradientBoostingClassifier(
        max_iter=15, min_samples_leaf=5, categorical_features="from_dtype"
    )

    model = finds_the_new(RTSCVClassifier(boosting, **mode), X, y, window, is_new)

    assert "elm" in model.estimator_._preprocessor.named_transformers_["encoder"].categories_[0]


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
@by_mode
def test_sparse_rows(mode, container):
    """Sparse rows stay sparse where the estimator takes them."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.full(10, 3.0)) + 0.2
    y, truth = np.repeat([0, 1, 2], 60), np.repeat([0, 1, 2, 3], [50, 50, 50, 40])
    X, window = (container(rng.poisson(topics[labels])) for labels in (y, truth))

    finds_the_new(RTSCVClassifier(MultinomialNB(), **mode), X, y, window, truth == 3)


def as_frame(rows):
    return pd.DataFrame(rows, columns=["a", "b"])


@pytest.mark.parametrize("known", [np.asarray, as_frame, sparse.csr_matrix])
@pytest.mark.parametrize("other", [np.asarray, list, sparse.csr_matrix, as_frame])
def test_the_window_may_come_in_another_container(known, other):
    """A window in another container than the training data is brought into that one."""
    X, y, window, truth = new_blob()
    model = RTSCVClassifier(KNeighborsClassifier())

    model.fit(known(X), y, other(window))

    np.testing.assert_array_equal(
        model.unknown_indices_, model.fit(known(X), y, known(window)).unknown_indices_
    )
    assert np.mean(truth[model.unknown_indices_] == 3) > 0.9


TEXTS = {
    "sport": "goal match team coach league striker".split(),
    "food": "bread soup oven salt recipe butter".split(),
    "sea": "wave boat harbour tide sail anchor".split(),
}


def texts(topics, rng):
    """One text of eight words per topic, two of them common to all."""
    return [" ".join([*rng.choice(TEXTS[topic], 6), "the", "and"]) for topic in topics]


@pytest.mark.parametrize("container", [list, np.array, pd.Series])
@pytest.mark.parametrize("mode", MODES[:1] + MODES[2:], ids=["paper", "monitor"])
def test_texts(mode, container):
    """A pipeline that starts with texts gets texts, from a list, an array or a Series."""
    rng = np.random.default_rng(0)
    y = np.repeat(["sport", "food"], 80)
    truth = np.repeat(["sport", "food", "sea"], 50)
    X, window = (container(texts(topics, rng)) for topics in (y, truth))
    model = RTSCVClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), **mode)

    finds_the_new(model, X, y, window, truth == "sea")

    assert model.unknown_label_ == "unknown"
    assert not hasattr(model, "n_features_in_")


def test_gaps_that_a_pipeline_fills_are_let_through():
    """NaN is the pipeline's business where its first step takes it."""
    X, y, window, truth = new_blob()
    X[:5, 0] = window[:5, 1] = np.nan
    model = RTSCVClassifier(make_pipeline(SimpleImputer(), SVC()))

    model.fit(X, y, window)

    assert np.mean(truth[model.unknown_indices_] == 3) > 0.9


@by_mode
def test_images_keep_their_shape(mode):
    """Rows of more than one dimension are handed on as they are."""
    X, y, window, truth = new_blob()

    class Flat(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            assert X.ndim == 3
            self.fitted_ = True
            return self

        def transform(self, X):
            return X.reshape(len(X), -1)

    model = RTSCVClassifier(make_pipeline(Flat(), SVC()), **mode)

    finds_the_new(model, X[:, :, None], y, window[:, :, None], truth == 3)


def test_any_table_becomes_numbers():
    """Times, gaps, nullable and mixed columns become finite numbers, and fine differences stay."""
    dates = pd.to_datetime(["2026-01-01", "2026-01-02", None, "2026-01-04"])
    odd = pd.DataFrame(
        {
            "when": dates,
            "since": dates - dates[0],
            "there": dates.tz_localize("UTC"),
            "count": pd.array([1, None, 3, 4], dtype="Int64"),
            "flag": pd.array([True, None, False, True], dtype="boolean"),
            "mixed": [1, "one", None, 2.5],
            "empty": [np.nan] * 4,
            "stamp": 1_780_000_000 + np.arange(4),
            "huge": [1e300, -1e300, np.inf, 0],
        }
    )

    numbers = Numbers().fit(odd).transform(odd)

    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    stamp = numbers[:, 6]
    np.testing.assert_array_equal(np.diff(stamp), [1, 1, 1])
    # One row beyond what was seen in fit: a value that no single precision holds.
    assert np.isfinite(Numbers().fit(np.ones((3, 1))).transform(np.full((1, 1), 1e300))).all()


# -- labels


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        (["a", "b", "c"], "unknown"),
        (["a", "unknown", "unknown_"], "unknown__"),
        (np.array(["a", "b", "c"], dtype=object), "unknown"),
        (pd.Categorical(["a", "b", "c"]), "unknown"),
        ([3, 7, 5], 8),
        ([-2, -1, 0], 1),
        (np.array([0, 7, 255], dtype=np.uint8), 256),
        (np.array([0, 7, 127], dtype=np.int8), 128),
        ([1.0, 2.0, 9.0], 10.0),
        ([False, True, True], "unknown"),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["paper", "monitor"])
def test_a_free_name_for_unknowns(names, unknown, mode):
    """Unknowns get a label of the labels' own type that no class has; bools have none to spare."""
    X, y, window, truth = new_blob()
    y = np.asarray(names)[y]

    model = RTSCVClassifier(DecisionTreeClassifier(), mode=mode).fit(X, y, window)

    assert model.unknown_label_ == unknown
    assert type(model.unknown_label_) is type(unknown)
    assert model.classes_.tolist() == [*np.unique(y).tolist(), unknown]
    assert set(model.predict(X)) <= set(model.classes_)
    assert np.mean(model.predict(window[truth == 3]) == unknown) > 0.8
    assert np.mean(model.predict(X) == y) > 0.9
    assert model.predict_proba(X).shape == (len(X), len(model.classes_))


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        (["a", "b", "c"], "new"),
        (["a", "b", "c"], -1),
        (["a", "b", "c"], None),
        ([0, 1, 2], -1),
        ([0, 1, 2], "new"),
        ([0, 1, 2], 1.5),
        ([False, True, True], -1),
        ([False, True, True], "new"),
    ],
    ids=str,
)
def test_a_name_of_one_s_own_for_unknowns(names, unknown):
    """The name that was asked for is what predict answers, of the type that was asked for."""
    X, y, window, truth = new_blob()
    y = np.asarray(names)[y]

    model = RTSCVClassifier(SVC(), unknown_label=unknown).fit(X, y, window)
    answers = model.predict(window).tolist()

    expected = "unknown" if unknown is None else unknown
    assert model.unknown_label_ == expected
    assert answers.count(expected) > 0.8 * (truth == 3).sum()
    assert {type(answer) for answer in answers} == {type(y.tolist()[0]), type(expected)}
    assert np.mean(model.predict(X) == y) > 0.95
