"""Bad input gets a sentence, and odd input a sane answer; nothing ends in a bare traceback."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.rows import find_distinct, fingerprints
from tests.windows import new_blob, split_digits

X, Y, WINDOW, TRUTH = new_blob()
FRAME = pd.DataFrame(X, columns=["a", "b"])
FRAME_WINDOW = pd.DataFrame(WINDOW, columns=["a", "b"])


def gap(rows, value=np.nan):
    """The same rows with one value that is none."""
    rows = rows.copy()
    if isinstance(rows, pd.DataFrame):
        rows.iloc[3, 1] = value
    else:
        rows[3, 1] = value
    return rows


REFUSED_WINDOWS = {
    "empty": (X, WINDOW[:0], r"deployment window has 0 row\(s\), fewer than the 3 folds\. Use a"),
    "empty table": (FRAME, FRAME_WINDOW[:0], r"deployment window has 0 row\(s\)"),
    "empty list": (X, [], r"deployment window has 0 row\(s\)"),
    "fewer rows than folds": (X, WINDOW[:2], r"has 2 row\(s\), fewer than the 3 folds"),
    "one column too many": (X, np.c_[WINDOW, WINDOW], "has 4 columns, the training data 2. Select"),
    "one column too few": (X, WINDOW[:, :1], "has 1 columns, the training data 2"),
    "too few, sparse": (sparse.csr_matrix(X), sparse.csr_matrix(WINDOW[:, :1]), "has 1 columns"),
    "one dimension": (
        X,
        WINDOW[:, 0],
        r"row of the deployment window has the shape \(\), .*\(2,\)",
    ),
    "missing column": (FRAME, FRAME_WINDOW[["a"]], "other columns .*: missing b; extra none"),
    "extra column": (FRAME, FRAME_WINDOW.assign(c=1, d=2), "missing none; extra c, d. Select"),
    "renamed column": (FRAME, FRAME_WINDOW.rename(columns={"a": "z"}), "missing a; extra z"),
    "numbered columns": (pd.DataFrame(X), FRAME_WINDOW, "missing 0, 1; extra a, b"),
    "column twice": (FRAME, FRAME_WINDOW[["a", "b", "b"]], "has 3 columns, the training data 2"),
    "table too wide": (FRAME, np.c_[WINDOW, WINDOW], "has 4 columns, the training data 2"),
    "text for numbers": (
        X,
        np.full((9, 2), "tall"),
        "contains text where .* numbers: could not conv",
    ),
    "text column": (
        FRAME,
        FRAME_WINDOW.assign(b="tall"),
        r"another type than in the training data: b \(float64 in training, str now\)",
    ),
    "ragged": (X, [[1.0, 2.0], [3.0]] * 5, "deployment window cannot be read as a table"),
    "NaN": (X, gap(WINDOW), "deployment window cannot be used: Input X contains NaN"),
    "NaN in a table": (FRAME, gap(FRAME_WINDOW), r"contains NaN in column\(s\) b, which Log.*Fill"),
    "infinity": (X, gap(WINDOW, np.inf), "deployment window cannot be used: Input X contains inf"),
    "infinity in a table": (
        FRAME,
        gap(FRAME_WINDOW, -np.inf),
        r"contains infinity in column\(s\) b. Cap",
    ),
}


@pytest.mark.parametrize("mode", ["monitor", "paper"])
@pytest.mark.parametrize("case", REFUSED_WINDOWS)
def test_a_window_that_cannot_be_used(case, mode):
    """A window that the model could not serve is refused with what is wrong and what to do."""
    rows, window, sentence = REFUSED_WINDOWS[case]

    with pytest.raises(InputError, match=sentence):
        RTSCVClassifier(LogisticRegression(), mode=mode).fit(rows, Y, window)


@pytest.mark.parametrize("case", REFUSED_WINDOWS)
def test_a_baseline_that_cannot_be_used(case):
    """A baseline is held to the same, and named as what it is."""
    rows, baseline, sentence = REFUSED_WINDOWS[case]
    window = {pd.DataFrame: pd.DataFrame(WINDOW, columns=getattr(rows, "columns", None))}

    with pytest.raises(InputError, match=sentence.replace("deployment window", "baseline")):
        RTSCVClassifier(LogisticRegression()).fit(
            rows, Y, window.get(type(rows), WINDOW), baseline=baseline
        )


ONES = np.ones(len(Y))
REFUSED_TRAINING = {
    "one class": (
        {"y": 0 * Y},
        {},
        "training data has only one class .0.. RTSCV needs at least two",
    ),
    "known name": ({}, {"unknown_label": 2}, "unknown_label=2 is already a known class.*Choose"),
    "too few labels": ({"y": Y[:-1]}, {}, "inconsistent numbers of samples: 240 rows and 239 lab"),
    "missing labels": ({"y": np.where(Y, Y, np.nan)}, {}, "80 of 240 labels are missing .NaN.. Dr"),
    "None as label": ({"y": np.where(Y, "a", None)}, {}, "80 of 240 labels are missing"),
    "no labels": ({"y": None}, {}, "requires y to be passed, but the target y is None"),
    "continuous labels": ({"y": X[:, 0]}, {}, "Unknown label type: continuous"),
    "table of labels": ({"y": X}, {}, "y should be a 1d array, got an array of shape"),
    "NaN": ({"X": gap(X)}, {}, "Input X contains NaN"),
    "NaN in a table": ({"X": gap(FRAME)}, {}, r"training data contains NaN in column\(s\) b"),
    "infinity": ({"X": gap(X, np.inf)}, {}, "Input X contains infinity"),
    "ragged": ({"X": [[1.0, 2.0], [3.0]]}, {}, "training data cannot be read as a table"),
    "empty": ({"X": FRAME[:0], "y": Y[:0]}, {}, "training data has 0 rows"),
    "baseline alone": ({"deployment": None, "baseline": WINDOW}, {}, "baseline was given without"),
    "holdout": ({}, {"cv": "holdout"}, "cv='holdout' leaves rows without a held-out score"),
    "ShuffleSplit": ({}, {"cv": ShuffleSplit(2)}, "ShuffleSplit.* never holds out .* mode='paper'"),
    "NaN weight": ({"sample_weight": ONES * np.nan}, {}, "Input sample_weight contains NaN"),
    "few weights": (
        {"sample_weight": ONES[:9]},
        {},
        "sample_weight.shape == .9,., expected .240,.",
    ),
    "mode": ({}, {"mode": "magic"}, "'mode' parameter of RTSCVClassifier must be a str among"),
    "alpha": (
        {},
        {"alpha": 5},
        "'alpha' parameter of RTSCVClassifier must be a float in the range",
    ),
    "cv": ({}, {"cv": 1}, "'cv' parameter of RTSCVClassifier"),
    "sample_rate": ({}, {"sample_rate": 0}, "'sample_rate' parameter of RTSCVClassifier"),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("case", REFUSED_TRAINING)
def test_training_that_cannot_be_used(case):
    """What is wrong with training rows, labels, weights or settings is said in a sentence."""
    data, settings, sentence = REFUSED_TRAINING[case]
    data = {"X": X, "y": Y, "deployment": WINDOW, **data}

    with pytest.raises(ValueError, match=sentence):
        RTSCVClassifier(LogisticRegression(), **settings).fit(**data)


def test_gaps_that_a_later_step_refuses():
    """NaN that passes the first step and not the last is refused in fit, not first in service."""
    model = RTSCVClassifier(make_pipeline(StandardScaler(), SVC()))

    with pytest.raises(InputError, match="1 of 220 rows of the deployment window have missing"):
        model.fit(X, Y, gap(WINDOW))


def test_rows_of_another_kind_than_training():
    """Texts for a model of numbers, and the reverse, are refused."""
    texts = np.array(["a wave", "the tide", "some bread", "an oven"] * 5)
    reader = make_pipeline(TfidfVectorizer(), LogisticRegression())

    with pytest.raises(InputError, match=r"row of the deployment window has the shape \(\)"):
        RTSCVClassifier(LogisticRegression()).fit(X, Y, texts)
    with pytest.raises(InputError, match=r"row of the deployment window has the shape \(2,\)"):
        RTSCVClassifier(reader).fit(texts, [0, 0, 1, 1] * 5, WINDOW)


def test_other_columns_are_refused_in_service():
    """predict holds new rows to the training data's columns, by scikit-learn's own words."""
    model = RTSCVClassifier(LogisticRegression()).fit(FRAME, Y, FRAME_WINDOW)

    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names should match"):
        model.unknown_score(FRAME[["a"]])


# -- odd, but usable


def answers(rows, y, window, **settings):
    """Fit in monitor mode, score and answer; nothing may be missing from any of it."""
    estimator = settings.pop("estimator", LogisticRegression())
    model = RTSCVClassifier(estimator, **settings).fit(rows, y, window)
    scores = model.unknown_score(window)
    assert np.all((scores >= 0) & (scores <= 1))
    assert len(model.predict(window)) == len(scores)
    assert 0 <= model.assessment_.p_value <= 1
    low, high = model.assessment_.unknown_rate_interval
    assert 0 <= low <= model.assessment_.unknown_rate <= high <= 1
    return model


def test_columns_in_another_order_are_accepted():
    """A window's columns are found by name."""
    in_order, reordered = (
        RTSCVClassifier(LogisticRegression()).fit(FRAME, Y, window).unknown_indices_
        for window in (FRAME_WINDOW, FRAME_WINDOW[["b", "a"]])
    )

    assert len(in_order) > 0
    np.testing.assert_array_equal(reordered, in_order)


BOTH_GATES = pytest.mark.parametrize(
    "estimator", [SVC(), DecisionTreeClassifier()], ids=["kernel", "forest"]
)
SAME_ROWS = {
    "a constant column": lambda rows: np.c_[rows, np.full(len(rows), 7.0)],
    "a huge column": lambda rows: np.c_[rows, rows[:, 0] * 1e30],
    "tiny values": lambda rows: rows * 1e-30,
    "far from zero": lambda rows: rows + 1e9,
    "half precision": lambda rows: rows.astype(np.float16),
    "integers": lambda rows: rows.astype(np.int8),
}


@BOTH_GATES
@pytest.mark.parametrize("case", SAME_ROWS)
def test_the_same_rows_written_otherwise(case, estimator):
    """Units, offsets and idle columns do not hide a new class."""
    write = SAME_ROWS[case]

    model = answers(write(X), Y, write(WINDOW), estimator=estimator)

    assert model.assessment_.verdict == "unknowns"
    assert np.mean(TRUTH[model.unknown_indices_] == 3) > 0.9


@BOTH_GATES
@pytest.mark.parametrize("make", [np.ones, sparse.csr_matrix], ids=["ones", "sparse zeros"])
def test_rows_that_are_all_alike(make, estimator):
    """Columns that say nothing give no evidence."""
    model = answers(make((60, 3)), np.repeat([0, 1, 2], 20), make((30, 3)), estimator=estimator)

    assert model.assessment_.verdict == "no_change"


@BOTH_GATES
def test_a_class_of_one_row(estimator):
    """A class too small to be in every fold is kept, and hides nothing."""
    rows, labels = np.vstack([X, [[30.0, 30.0]]]), np.append(Y, 9)

    model = answers(rows, labels, WINDOW, estimator=estimator)

    assert model.assessment_.verdict == "unknowns"
    assert 9 in model.classes_


def test_a_class_of_one_row_with_the_estimator_as_gate():
    """The fold that holds the only row of a class out knows a class less."""
    answers(np.vstack([X, [[30.0, 30.0]]]), np.append(Y, 9), WINDOW, gate="estimator")


@BOTH_GATES
def test_a_window_from_another_world(estimator):
    """A window in which no row is anywhere near training is a change, whatever it is called."""
    model = answers(X, Y, WINDOW + 100, estimator=estimator)

    assert model.assessment_.verdict != "no_change"


def test_a_window_of_nothing_but_a_new_class():
    """A window without a known row gets an answer."""
    model = answers(X, Y, WINDOW[TRUTH == 3])

    assert model.assessment_.verdict != "no_change"


@pytest.mark.parametrize("n_rows", [3, 5, 10])
def test_a_handful_of_rows_is_no_evidence(n_rows):
    """Few training rows and a short window give an answer, and that is no change."""
    model = answers(X[:9], Y[:9], WINDOW[TRUTH < 3][:n_rows])

    assert model.assessment_.verdict == "no_change"


def test_gaps_and_infinity_reach_an_estimator_that_takes_them():
    """Where the estimator takes missing and infinite values, so does the gate."""
    rows, window = gap(FRAME), gap(gap(FRAME_WINDOW), np.inf)

    model = answers(rows, Y, window, estimator=HistGradientBoostingClassifier(max_iter=10))

    assert np.mean(TRUTH[model.unknown_indices_] == 3) > 0.9


# -- copies


@BOTH_GATES
@pytest.mark.parametrize("copied", ["training", "window", "baseline"])
def test_copies_are_not_witnesses(copied, estimator):
    """An event that was logged twice is no news, neither are training rows taken twice."""
    rows, y, window, _ = split_digits(n_window=600)
    window, baseline = window[:300], window[300:]
    if copied == "training":
        rows, y = np.repeat(rows, 2, axis=0), np.repeat(y, 2)
    elif copied == "window":
        window = np.repeat(window, 2, axis=0)
    baseline = np.repeat(baseline, 2, axis=0) if copied == "baseline" else None

    model = RTSCVClassifier(estimator).fit(rows, y, window, baseline=baseline)

    assert model.assessment_.verdict == "no_change"
    assert model.assessment_.diagnostics.get("copies", 0) == (300 if copied == "window" else 0)


def test_copies_of_unknowns_are_unknown():
    """All copies of an extracted row are extracted with it."""
    window, truth = np.repeat(WINDOW, 3, axis=0), np.repeat(TRUTH, 3)

    model = answers(X, Y, window)

    assert np.mean(truth[model.unknown_indices_] == 3) > 0.9
    assert len(model.unknown_indices_) % 3 == 0
    assert len(model.unknown_indices_) > 90


def test_a_window_that_repeats_one_row():
    """A source that is stuck is named as such."""
    with pytest.raises(InputError, match=r"has 1 distinct row\(s\) in 50, fewer than the 3 folds"):
        RTSCVClassifier(SVC()).fit(X, Y, np.repeat(WINDOW[:1], 50, axis=0))


@pytest.mark.parametrize(
    "container",
    [np.array, pd.DataFrame, sparse.csr_matrix, lambda rows: np.array(rows, dtype=object)],
    ids=["array", "table", "sparse", "objects"],
)
def test_equal_rows_are_known_in_any_container(container):
    """Equal rows share a fingerprint; rows of few values recur by nature and are all kept."""
    rows = container([[1.0, 0.0], [2.0, 5.0], [1.0, 0.0], [0.0, 1.0]])
    prints = fingerprints(rows)

    assert prints[0] == prints[2]
    assert len(set(prints.tolist())) == 3
    assert find_distinct(prints, np.array([7, 8])).tolist() == [0, 1, 3]
    assert find_distinct(prints, prints).tolist() == [0, 1, 2, 3]
