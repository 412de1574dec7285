"""Figures of merit, checked by hand and against scikit-learn."""

from dataclasses import FrozenInstanceError, asdict, astuple
from math import inf, isnan, nan

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, recall_score, roc_auc_score

from rtscv_mlops import metrics
from rtscv_mlops.errors import InputError

UNKNOWN = "unknown"

# Two known classes, two hidden ones ("x", "z"), one mistake of each kind.
TRUE = np.array(["a", "a", "a", "b", "b", "x", "x", "z"])
PREDICTED = np.array(["a", "a", "b", "b", UNKNOWN, UNKNOWN, "a", UNKNOWN])


@pytest.mark.parametrize(
    ("kept", "in_test", "percent"),
    [
        pytest.param(15, 26, 14.5, id="letter, 11 hidden"),
        pytest.param(10, 26, 25.5, id="letter, 16 hidden"),
        pytest.param(7, 10, 9.3, id="pendigits, 3 hidden"),
        pytest.param(5, 10, 18.4, id="pendigits, 5 hidden"),
        pytest.param(14, 20, 9.3, id="coil, 6 hidden"),
        pytest.param(10, 20, 18.4, id="coil, 10 hidden"),
        pytest.param(6, 10, 13.4, id="mnist, 4 hidden"),
        pytest.param(4, 10, 24.4, id="mnist, 6 hidden"),
        pytest.param(2, 10, 42.3, id="mnist, 8 hidden (the paper's text says 9)"),
    ],
)
def test_openness_reproduces_the_papers_first_table(kept, in_test, percent):
    """All nine opennesses of Table 1 come out as printed."""
    assert round(100 * metrics.openness(kept, in_test), 1) == percent


def test_openness_of_a_closed_problem_is_zero():
    """A test without hidden classes is not open at all."""
    assert metrics.openness(10, 10) == 0


def test_openness_counts_target_classes_apart():
    """Target classes beyond the training classes open the problem further."""
    assert metrics.openness(2, 4, 4) == 1 - 0.5**0.5


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((0, 3), "at least one class of each kind, got 0 training, 3 test and 0 target"),
        ((3, 3, 0), "at least one class of each kind, got 3 training, 3 test and 0 target"),
        ((5, 4), "4 test and 5 target classes are fewer than twice the 5 training classes"),
    ],
)
def test_openness_refuses_impossible_counts(counts, sentence):
    """Counts that no experiment can have are named, not turned into a negative openness."""
    with pytest.raises(InputError, match=sentence):
        metrics.openness(*counts)


def test_hidden_classes_collapse_into_one():
    """Every label that is not known becomes the unknown label, unabbreviated; the rest stays."""
    collapsed = metrics.collapse_unknown(TRUE, {"a", "b"}, UNKNOWN)

    assert collapsed.tolist() == ["a", "a", "a", "b", "b", UNKNOWN, UNKNOWN, UNKNOWN]


def test_collapsing_twice_changes_nothing():
    """Labels that are collapsed already can be passed again."""
    once = metrics.collapse_unknown(TRUE, ["a", "b"], UNKNOWN)

    assert metrics.collapse_unknown(once, ["a", "b"], UNKNOWN).tolist() == once.tolist()


def test_number_labels_survive_a_word_for_unknown():
    """The 0 of [0, "unknown"] stays a number, and numbers alone stay a column of numbers."""
    mixed = metrics.collapse_unknown(np.array([0, 1, 2]), [0, 1], UNKNOWN)
    numbers = metrics.collapse_unknown([0, 1, 2], np.array([0, 1]), -1)

    assert mixed.tolist() == [0, 1, UNKNOWN]
    assert numbers.tolist() == [0, 1, -1]
    assert numbers.dtype.kind == "i"


def test_macro_f_by_hand():
    """F is 2/3 for a (2 of 3, one intruder), 1/2 for b and 2/3 for the unknown: their mean."""
    expected = (2 / 3 + 1 / 2 + 2 / 3) / 3

    assert metrics.macro_f(TRUE, PREDICTED, ["a", "b"], UNKNOWN) == pytest.approx(expected)


def test_scores_agree_with_scikit_learn():
    """On random labels of both kinds, the scores are those of scikit-learn on collapsed labels."""
    random = np.random.default_rng(0)
    y_true, y_pred = random.integers(0, 9, 400), random.integers(0, 7, 400)
    y_pred[y_pred == 6] = -1
    score = random.normal(size=400).round(1) + (y_true >= 6)
    collapsed = metrics.collapse_unknown(y_true, range(6), -1)
    known, unknown = y_true < 6, y_true >= 6

    scores = metrics.open_set_scores(y_true, y_pred, score, range(6), -1)

    assert asdict(scores) == pytest.approx(
        {
            "macro_f": f1_score(collapsed, y_pred, average="macro"),
            "classification_accuracy": accuracy_score(y_true[known], y_pred[known]),
            "detection_accuracy": recall_score(unknown, y_pred == -1),
            "auroc": roc_auc_score(unknown, score),
            "fpr_at_95_tpr": metrics.fpr_at_tpr(unknown, score, 0.95),
        }
    )


def test_macro_f_leaves_out_a_class_without_true_rows():
    """No true row of b: the mean is over a and the unknown, and calling a row b costs a its row."""
    y_true = ["a", "a", "x"]

    value = metrics.macro_f(y_true, ["a", "b", UNKNOWN], ["a", "b"], UNKNOWN)

    assert value == pytest.approx((2 / 3 + 1) / 2)


def test_macro_f_of_a_closed_window_ignores_the_unknown_class():
    """Without unknown rows, a false alarm costs the known class, not a whole class at zero."""
    assert metrics.macro_f(["a", "a"], ["a", "a"], ["a"], UNKNOWN) == 1
    assert metrics.macro_f(["a", "a"], ["a", UNKNOWN], ["a"], UNKNOWN) == pytest.approx(2 / 3)


def test_accuracies_by_hand():
    """3 of 5 known rows have their label; 2 of 3 unknown rows are called unknown."""
    assert metrics.classification_accuracy(TRUE, PREDICTED, ["a", "b"], UNKNOWN) == 3 / 5
    assert metrics.detection_accuracy(TRUE, PREDICTED, ["a", "b"], UNKNOWN) == 2 / 3


def test_labels_of_mixed_kinds_are_scored():
    """Classes may be numbers while the unknown label is a word."""
    scores = metrics.open_set_scores(
        np.array([0, 1, 2]), [0, 1, UNKNOWN], [0.1, 0.2, 0.9], [0, 1], UNKNOWN
    )

    assert astuple(scores) == (1, 1, 1, 1, 0)


def test_known_classes_may_be_read_once_only():
    """An iterator of known classes serves all scores, not just the first."""
    scores = metrics.open_set_scores(TRUE, PREDICTED, None, iter("ab"), UNKNOWN)

    assert scores.classification_accuracy == 3 / 5
    assert scores.detection_accuracy == 2 / 3


def test_auroc_counts_ties_half():
    """Of the four pairs, two are won, one is lost and one is tied."""
    assert metrics.auroc([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.3]) == pytest.approx((1 + 0.5 + 1 + 0) / 4)


def test_fpr_at_tpr_by_hand():
    """To catch 19 of 20 unknowns the threshold falls to the second lowest of them, no further."""
    unknown_scores = np.arange(20.0)
    known_scores = np.array([-1.0, 0.0, 0.5, 1.0, 5.5])
    is_unknown = np.repeat([True, False], [20, 5])
    score = np.concatenate([unknown_scores, known_scores])

    assert metrics.fpr_at_tpr(is_unknown, score) == 2 / 5
    assert metrics.fpr_at_tpr(is_unknown, score, tpr=1) == 4 / 5
    assert metrics.fpr_at_tpr(is_unknown, score, tpr=0.5) == 0


def test_a_score_that_tells_nothing_flags_as_many_known_rows():
    """Catching half of the unknowns by such a score flags half of the known rows, not all."""
    assert metrics.fpr_at_tpr(np.repeat([0, 1], 10), np.tile(np.arange(10), 2), tpr=0.5) == 0.5


def test_fpr_at_tpr_is_one_of_a_real_threshold():
    """On random scores with ties, no higher threshold catches enough and this one does."""
    random = np.random.default_rng(1)
    is_unknown = random.random(300) < 0.3
    score = (random.normal(size=300) + is_unknown).round(1)

    value = metrics.fpr_at_tpr(is_unknown, score, tpr=0.8)

    enough = [t for t in np.unique(score) if (score[is_unknown] >= t).mean() >= 0.8]
    assert value == (score[~is_unknown] >= max(enough)).mean()


def test_scores_without_unknown_rows_are_nan():
    """A window of known rows says nothing about detection, and does not pretend to."""
    scores = metrics.open_set_scores(["a", "b"], ["a", "a"], [0.1, 0.2], ["a", "b"], UNKNOWN)

    assert scores.classification_accuracy == 0.5
    assert isnan(scores.detection_accuracy)
    assert isnan(scores.auroc)
    assert isnan(scores.fpr_at_95_tpr)


def test_scores_without_known_rows_are_nan():
    """A window of unknown rows says nothing about the known classes or about false alarms."""
    scores = metrics.open_set_scores(["x", "z"], [UNKNOWN, "a"], [0.1, 0.2], ["a"], UNKNOWN)

    assert scores.detection_accuracy == 0.5
    assert isnan(scores.classification_accuracy)
    assert isnan(scores.auroc)
    assert isnan(scores.fpr_at_95_tpr)


def test_scores_of_no_rows_are_nan():
    """An empty window has no score of any kind, and raises no warning."""
    scores = metrics.open_set_scores([], [], [], ["a"], UNKNOWN)

    assert all(isnan(value) for value in astuple(scores))


def test_a_model_without_scores_is_not_ranked():
    """Without a score per row only the label scores are given."""
    scores = metrics.open_set_scores(TRUE, PREDICTED, None, ["a", "b"], UNKNOWN)

    assert scores.detection_accuracy == 2 / 3
    assert isnan(scores.auroc)
    assert isnan(scores.fpr_at_95_tpr)


def test_scores_cannot_be_changed():
    """The numbers of a page are the numbers that were computed."""
    scores = metrics.open_set_scores(TRUE, PREDICTED, None, ["a", "b"], UNKNOWN)

    with pytest.raises(FrozenInstanceError, match="macro_f"):
        scores.macro_f = 1.0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "known", "sentence"),
    [
        (["a"], ["a", "b"], ["a", "b"], r"y_true has 1 row\(s\) and y_pred has 2"),
        ([["a"]], ["a"], ["a"], "y_true must have one dimension, got 2"),
        (["a"], ["a"], ["a", UNKNOWN], "unknown label 'unknown' is also a known class"),
        (["a"] * 5, list("abcde"), ["a"], "y_pred contains 'b', 'c', 'd' and 1 more, neither"),
        ([0], ["0"], [0], "y_pred contains '0', neither a known class nor the unknown label"),
    ],
)
def test_unusable_labels_are_refused(y_true, y_pred, known, sentence):
    """A mistake in the labels is a sentence, not a bad score."""
    with pytest.raises(InputError, match=sentence):
        metrics.macro_f(y_true, y_pred, known, UNKNOWN)


@pytest.mark.parametrize(
    ("is_unknown", "score", "sentence"),
    [
        ([0, 1], [0.5], r"is_unknown has 2 row\(s\) and score has 1"),
        ([0, 2], [0.5, 0.5], "is_unknown must be true or false for each row"),
        (["a", "b"], [0.5, 0.5], "is_unknown must be true or false for each row"),
        ([0, 1], [nan, inf], r"score has 2 value\(s\) that are not finite"),
        ([0, 1], [[0.1], [0.2]], "score must have one dimension, got 2"),
    ],
)
def test_unusable_rankings_are_refused(is_unknown, score, sentence):
    """A ranking that cannot be one is refused by both figures made from it."""
    for figure in (metrics.auroc, metrics.fpr_at_tpr):
        with pytest.raises(InputError, match=sentence):
            figure(is_unknown, score)


@pytest.mark.parametrize("tpr", [0, -0.1, 1.1, nan, 95])
def test_a_share_of_caught_unknowns_is_above_zero_and_at_most_one(tpr):
    """A percentage passed for a share is refused."""
    with pytest.raises(InputError, match="tpr must be above 0 and at most 1"):
        metrics.fpr_at_tpr([0, 1], [0, 1], tpr)


def test_every_public_name_exists():
    """What __all__ lists can be imported, and it is sorted."""
    assert [name for name in metrics.__all__ if not hasattr(metrics, name)] == []
    assert metrics.__all__ == sorted(metrics.__all__)
