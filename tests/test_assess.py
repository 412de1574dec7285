"""What people look at: cards, the comparison of two models, the projection."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.estimator.learner import seeded
from rtscv_mlops.judging.contest import Contest, compare_on_holdout, predict
from rtscv_mlops.judging.describe import make_cards, project, sample_known
from rtscv_mlops.window import LabelledRows

CENTRES = np.array([[0.0, 0.0, 0.0], [8.0, 0.0, 0.0], [0.0, 8.0, 9.0]])


def shop(n_rows, classes, seed):
    """Rows of a shop: two measures, a colour, and how long they were on offer."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, n_rows)
    numbers = CENTRES[labels] + rng.normal(size=(n_rows, 3))
    frame = pd.DataFrame(numbers, columns=["width", "height", "weight"])
    frame["colour"] = np.array(["red", "blue", "green"])[labels]
    return frame, np.array(["bolt", "nut", "ring"])[labels]


def compare_by_folds(learner, known, unknowns, label, seed):
    """Compare a champion and its refit with unknown rows, without logged held-out rows."""
    learner = seeded(learner, seed)
    champion = clone(learner).fit(known.rows(), known.labels)
    labels = np.append(known.labels.astype(object), [label] * len(unknowns)).astype(str)
    table = pd.concat([known.features, unknowns], ignore_index=True)
    refit = clone(learner).fit(known.rows(table), labels)
    contest = Contest(champion, learner, known, None, unknowns, label, seed)
    return contest.candidates(refit, None)[0].comparison


@pytest.fixture(scope="module")
def found():
    """A model of bolts and nuts, and a window in which rings turn up."""
    features, labels = shop(400, [0, 1], 0)
    window, truth = shop(300, [0, 1, 1, 2], 1)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder=StandardScaler()
    )
    learner = make_pipeline(columns, LogisticRegression())
    known = LabelledRows(features, labels)
    champion = learner.fit(features, labels)
    model = RTSCVClassifier(learner).fit(features, labels, deployment=window)
    return known, champion, model, window, truth


def test_card_says_what_the_champion_made_of_the_rows(found):
    """A card has size and share, what the champion called its rows, and how sure it was."""
    known, champion, model, window, truth = found

    (card,) = make_cards(model, champion, known, window, columns=list(window.columns), exemplars=2)

    rows = model.clusters_[0].rows
    called = champion.predict(window.iloc[rows])
    assert (truth[rows] == "ring").mean() > 0.9
    assert card.size == len(rows)
    assert card.called == {
        name: np.mean(called == name) for name in pd.Series(called).value_counts().index
    }
    assert card.confidence == pytest.approx(
        np.median(champion.predict_proba(window.iloc[rows]).max(axis=1))
    )


def test_card_names_the_features_that_tell_rows_apart(found):
    """Colour, height and weight are what makes a ring no bolt; width is not among the first."""
    known, champion, model, window, _ = found

    (card,) = make_cards(model, champion, known, window, columns=list(window.columns), exemplars=2)

    told = {feature.name: feature for feature in card.features}
    assert {"height", "weight", "colour"} <= set(told)
    assert list(told)[:2] in (["weight", "height"], ["height", "weight"])
    assert float(told["height"].here) == pytest.approx(8, abs=0.5)
    assert told["colour"].here.startswith("green")


def test_card_shows_allowed_columns_only(found):
    """A column that may not leave the source is in no exemplar and no feature."""
    known, champion, model, window, _ = found

    (card,) = make_cards(model, champion, known, window, columns=["width"], exemplars=3)

    assert len(card.exemplars) == 3
    assert all(set(row) == {"width"} for row in card.exemplars)
    assert {feature.name for feature in card.features} <= {"width"}


def test_card_without_probabilities_has_no_confidence(found):
    """A champion that gives no probability is not asked for one."""
    known, _, model, window, _ = found

    class Blunt:
        def predict(self, rows):
            return np.full(len(rows), "bolt")

    (card,) = make_cards(model, Blunt(), known, window, columns=[], exemplars=2)

    assert card.confidence is None
    assert card.called == {"bolt": 1.0}
    assert card.features == ()
    assert card.exemplars == ()


def test_comparison_by_folds_finds_a_lost_class(found):
    """Unknown rows that lie on a known class cost that class its recall, and only that class."""
    known, _, _, _, _ = found
    numbers = LabelledRows(known.features[["width", "height"]], known.labels)
    stolen = shop(400, [0], 3)[0][["width", "height"]]

    result = compare_by_folds(GaussianNB(), numbers, stolen, "unknown", seed=0)

    by_label = {one.label: one for one in result.classes}
    assert result.rows == len(known.labels)
    assert result.classes[0].label == "bolt"
    assert by_label["bolt"].loss > 0.3
    assert by_label["bolt"].unknown == pytest.approx(by_label["bolt"].loss, abs=0.05)
    assert by_label["nut"].loss == pytest.approx(0, abs=0.01)
    assert result.challenger_accuracy < result.champion_accuracy
    assert result.challenger_macro_f < result.champion_macro_f


def test_comparison_by_folds_leaves_harmless_unknowns_alone(found):
    """Unknown rows far from all classes cost nothing."""
    known, champion, model, window, _ = found

    unknowns = window.iloc[model.unknown_indices_]
    result = compare_by_folds(champion, known, unknowns, "unknown", seed=0)

    assert result.challenger_accuracy == pytest.approx(result.champion_accuracy, abs=0.01)
    assert "each held out once" in result.how


def test_comparison_by_folds_can_be_repeated(found):
    """A learner without a seed is given the monitor's, so both refits are the same each time."""
    known, _, _, window, _ = found
    learner = ExtraTreesClassifier(3, max_features=1, max_depth=2)
    numbers = LabelledRows(known.features[["width"]], known.labels)
    unknowns = window[["width"]].head(40)

    first, second = (
        compare_by_folds(learner, numbers, unknowns, "unknown", seed=0) for _ in range(2)
    )

    assert first == second


def test_comparison_on_holdout_uses_the_models_themselves(found):
    """Rows that were held out from the start judge the two models as they are."""
    _, champion, model, _, _ = found
    holdout = LabelledRows(*shop(200, [0, 1], 9))

    result = compare_on_holdout(champion, model.estimator_, holdout, "unknown")

    assert result.rows == 200
    assert result.champion_accuracy == champion.score(holdout.features, holdout.labels)


def test_booleans_compare_as_numbers():
    """A rectified model answers 0, 1 and 2 where its champion said false and true."""

    class Yes:
        def predict(self, rows):
            return np.ones(len(rows), dtype=bool)

    assert predict(Yes(), [[0], [1]]).tolist() == [1, 1]


def test_projection_draws_unknown_rows_first(found):
    """Every drawn row has a place, unknown rows are among the drawn, and others are nan."""
    known, _, model, window, _ = found
    unknown = np.zeros(len(window), dtype=bool)
    unknown[model.unknown_indices_] = True
    large = pd.concat([window] * 5, ignore_index=True)

    drawn = project(known, large, np.tile(unknown, 5), seed=0)

    is_drawn = ~np.isnan(drawn.window[:, 0])
    assert is_drawn.sum() == 300
    assert is_drawn[np.tile(unknown, 5)].sum() == 120
    assert len(drawn.reference) == len(drawn.labels) == 300


def test_sampling_keeps_every_class():
    """A class of ten rows among thousands survives a cap."""
    labels = np.repeat(["common", "rare"], [5000, 10])
    known = LabelledRows(pd.DataFrame({"x": np.arange(5010.0)}), labels)

    few = sample_known(known, 100, seed=0)

    assert len(few.labels) == 100
    assert (few.labels == "rare").sum() == 10
    assert (few.features["x"].to_numpy() >= 5000).sum() == 10
