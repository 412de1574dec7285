"""Two challengers, the champion refitted and the champion behind a gate, and which is offered."""

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.faults import challengers, poisoning
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.estimator.gated import GatedClassifier, limits_by_class
from rtscv_mlops.estimator.learner import is_of_trees
from rtscv_mlops.judging.contest import (
    Answers,
    Candidate,
    Contest,
    block,
    choose,
    compare,
    find_blocker,
)
from rtscv_mlops.judging.findings import count_distinct
from rtscv_mlops.models.trust import choose_serialization, known_types
from rtscv_mlops.text import class_rows
from rtscv_mlops.window import LabelledRows

LIMITS = {"min_unknowns": 10, "max_class_loss": 0.05}


class Brittle(ClassifierMixin, BaseEstimator):
    """Finds every class by its column; with fewer unknown rows than it needs, it loses "a"."""

    def __init__(self, needs=20, seen=10_000):
        self.needs, self.seen = needs, seen

    def fit(self, X, y):
        labels, counts = np.unique(y, return_counts=True)
        self.classes_ = labels
        n_unknown = dict(zip(labels, counts, strict=True)).get("unknown", self.needs)
        # The sum of a column that the folds differ in stands for chance.
        self.is_broken_ = n_unknown < self.needs or X["draw"].sum() > self.seen
        return self

    def predict(self, X):
        answers = np.array(["a", "b", "unknown"])[X["kind"].to_numpy(dtype=int)]
        return np.where((answers == "a") & self.is_broken_, "unknown", answers)


def brittle_contest(learner, n_unknown):
    """90 rows of either class, and unknown rows."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([0, 1], 90)
    table = pd.DataFrame({"kind": kinds, "draw": rng.random(180)})
    known = LabelledRows(table, np.array(["a", "b"])[kinds])
    unknowns = pd.DataFrame({"kind": np.full(n_unknown, 2), "draw": np.zeros(n_unknown)})
    fitted = clone(learner).fit(table, known.labels)
    labels = np.append(known.labels, ["unknown"] * n_unknown)
    refit = clone(learner).fit(pd.concat([table, unknowns]), labels)
    return Contest(fitted, learner, known, None, unknowns, "unknown", 0), refit


def candidate(kind, *, loss=0.0, found=0.9, unstable="", blocked=""):
    """A challenger whose one class of 200 rows loses so much."""
    changed = int(200 * loss)
    answers = np.array(["cat"] * 200)
    after = np.where(np.arange(200) < changed, "unknown", answers)
    compared = compare(Answers.of(answers, answers, after), "unknown", "")
    compared = compared.model_copy(update={"unstable": unstable})
    return Candidate(kind, kind, compared, found, 20, blocked)


# -- the comparison


def test_refits_see_all_unknown_rows():
    """A learner that needs 20 unknown rows and has 24 is judged as what is offered: it is sound."""
    contest, refit = brittle_contest(Brittle(needs=20), 24)

    judged, _ = contest.candidates(refit, None)

    assert {known.loss for known in judged.comparison.classes} == {0.0}
    assert find_blocker(judged.comparison, 24, **LIMITS) == ""


def test_the_model_that_is_offered_is_judged_itself():
    """A refit that broke where the refits of the folds did not is blocked by its own answers."""
    contest, refit = brittle_contest(Brittle(needs=20), 24)
    refit.is_broken_ = True

    judged, _ = contest.candidates(refit, None)

    assert "'a' loses too much: of the rows that both models were fitted on" in find_blocker(
        judged.comparison, 24, **LIMITS
    )


def test_an_unstable_learner_is_named_and_not_blocked():
    """Refits that differ by more than chance say so; what they lose is noise, not a loss."""
    rng = np.random.default_rng(0)
    truth, folds = np.array(["cat"] * 300), np.repeat([0, 1, 2], 100)
    after = np.where((folds == 1) & (rng.random(300) < 0.6), "unknown", truth)

    compared = compare(Answers.of(truth, truth, after, folds), "unknown", "")

    assert compared.unstable.startswith("class 'cat' loses 0 to ")
    assert compared.classes[0].loss_interval[0] < 0
    assert find_blocker(compared, 20, **LIMITS) == ""


@pytest.mark.parametrize(
    ("lost", "gained", "rows", "blocked"),
    [(30, 0, 250, True), (45, 32, 250, False), (14, 0, 250, True), (3, 0, 30, False)],
)
def test_chance_does_not_block(lost, gained, rows, blocked):
    """Of a loss beyond the limit, what pairs of answers explain by chance does not block."""
    truth, place = np.array(["cat"] * rows), np.arange(rows)
    before = np.where(place >= rows - gained, "unknown", truth)
    after = np.where(place < lost, "unknown", truth)

    compared = compare(Answers.of(truth, before, after), "unknown", "")

    assert compared.classes[0].loss == pytest.approx((lost - gained) / rows)
    low, high = compared.classes[0].loss_interval
    assert low < compared.classes[0].loss < high
    assert bool(find_blocker(compared, 20, **LIMITS)) == blocked


def test_the_noise_is_shown_beside_the_change():
    """A reader sees what chance may add to a change, or take from it."""
    truth = np.array(["cat"] * 100)
    after = np.where(np.arange(100) < 10, "unknown", truth)

    (row,) = class_rows(compare(Answers.of(truth, truth, after), "unknown", ""))

    assert row.change == "-10.0 points (-14.9 to -4.7)"


def test_a_group_inside_a_class_is_not_sacrificed():
    """Ten rows close together are blocked where ten scattered rows of the class are not."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("xyz"))
    table.iloc[:10] = 4 + rng.normal(scale=0.1, size=(10, 3))
    truth, place = np.array(["cat"] * 300), np.arange(300)

    def why(is_lost):
        after = np.where(is_lost, "unknown", truth)
        return find_blocker(
            compare(Answers.of(truth, truth, after), "unknown", "", table), 20, **LIMITS
        )

    assert why(place % 30 == 7) == ""
    assert "A part of class 'cat' is lost: of 12 rows that lie close together" in why(place < 10)


# -- which one is offered


def test_a_blocked_refit_is_not_the_end():
    """The champion behind a gate is offered, and the reason names what the refit would lose."""
    candidates = block(candidate("refit", loss=0.2), candidate("gated"), 20, **LIMITS)

    offer = choose(*candidates)

    assert (offer.chosen.kind, offer.chosen.blocked) == ("gated", "")
    assert "A refit may not be approved: Class 'cat' loses too much" in offer.why
    assert offer.facts.other.kind == "refit"


@pytest.mark.parametrize(
    ("refit", "gated", "offered"),
    [
        ({"found": 0.9}, {"found": 0.92}, "refit"),
        ({"found": 0.6}, {"found": 0.9}, "gated"),
        ({"loss": 0.03}, {}, "gated"),
        ({"unstable": "class 'cat' loses 0 to 30 points"}, {}, "gated"),
        ({"found": 0.9}, {"found": 0.3}, "gated"),
        ({"found": 0.9}, {"found": 0.05}, "refit"),
    ],
)
def test_the_better_challenger_is_offered(refit, gated, offered):
    """First what loses nothing, then what finds more; of two alike, the refit."""
    candidates = block(candidate("refit", **refit), candidate("gated", **gated), 20, **LIMITS)

    assert choose(*candidates).chosen.kind == offered


def test_a_refit_may_not_take_unknown_rows_from_known_ones():
    """Where even the gate cannot tell unknown rows from known ones, a small loss blocks."""
    candidates = block(candidate("refit", loss=0.03), candidate("gated", found=0.0), 20, **LIMITS)

    offer = choose(*candidates)

    assert "The unknown rows lie among known rows" in offer.chosen.blocked


# -- the gate


@pytest.fixture(scope="module", params=["logistic", "forest"])
def gated(request):
    """A champion behind the gate of a window with a new class, and what is fresh."""
    world = challengers.World.draw("generated", 1)
    learner = {
        "logistic": LogisticRegression(max_iter=500),
        "forest": RandomForestClassifier(30, random_state=0),
    }[request.param]
    recipe = make_pipeline(StandardScaler(), learner)
    known, window = challengers.as_table(world.X), np.vstack([world.later[:700], world.new[:100]])
    champion = clone(recipe).fit(known, world.y)
    model = RTSCVClassifier(recipe).fit(known, world.y, deployment=challengers.as_table(window))
    assert model.taught_gate_ is not None
    behind = GatedClassifier.around(champion, model.taught_gate_, world.y, model.unknown_label_)
    return world, champion, behind, window[model.unknown_indices_]


def test_a_gate_changes_answers_to_unknown_only(gated):
    """Every row has the champion's answer or unknown; no class loses 2 points on fresh rows."""
    world, champion, behind, _ = gated
    rows, truth = world.fresh
    before, after = (model.predict(challengers.as_table(rows)) for model in (champion, behind))

    assert set(after[after != before]) <= {behind.unknown_label}
    for label in np.unique(truth):
        lost = (before == truth) & (after != truth) & (truth == label)
        assert lost.sum() / np.sum(truth == label) < 0.02
    new = behind.predict(challengers.as_table(world.new[100:]))
    assert np.mean(new == behind.unknown_label) > 0.3


def test_a_gate_keeps_the_champion_s_probabilities(gated):
    """Rows that pass keep them, with 0 for unknown; rows that do not are unknown for certain."""
    world, champion, behind, _ = gated
    rows = challengers.as_table(np.vstack([world.new[:50], world.fresh[0][:200]]))
    is_unknown = behind.predict(rows) == behind.unknown_label
    known = behind.classes_ != behind.unknown_label

    given = behind.predict_proba(rows)

    assert 0 < is_unknown.sum() < len(rows)
    np.testing.assert_allclose(given.sum(axis=1), 1)
    assert (given[is_unknown][:, ~known] == 1).all()
    np.testing.assert_array_equal(
        given[~is_unknown][:, known], champion.predict_proba(rows)[~is_unknown]
    )


def test_a_gate_is_stored_without_pickle(gated):
    """Its types are reviewed, and what is read back answers the same."""
    world, _, behind, _ = gated
    rows = challengers.as_table(world.fresh[0][:200])

    format_, types = choose_serialization(behind, (), allow_pickle=False)
    restored = skops.io.loads(skops.io.dumps(behind), trusted=sorted(known_types(())))

    assert format_ == "skops"
    assert "rtscv_mlops.estimator.gated.GatedClassifier" in types
    np.testing.assert_array_equal(restored.predict(rows), behind.predict(rows))


def test_a_gated_champion_is_a_recipe(gated):
    """A clone learns champion and gate again from labelled rows; without unknown rows, no gate."""
    world, champion, behind, unknowns = gated
    rows = challengers.as_table(np.vstack([world.X, unknowns]))
    labels = np.append(world.y, [behind.unknown_label] * len(unknowns))
    fresh = challengers.as_table(world.fresh[0][:500])

    again = clone(behind).fit(rows, labels)
    plain = clone(behind).fit(rows[: len(world.y)], world.y)

    assert is_of_trees(behind) == is_of_trees(champion)
    assert again.classes_.tolist() == behind.classes_.tolist()
    new = again.predict(challengers.as_table(world.new[100:]))
    assert np.mean(new == behind.unknown_label) > 0.3
    assert np.mean(again.predict(fresh) == champion.predict(fresh)) > 0.97
    assert plain.gate_ is None
    np.testing.assert_array_equal(plain.predict(fresh), champion.predict(fresh))


def test_limits_reach_beyond_the_rows_of_a_class():
    """Fresh rows of each class cross its limit in about 0.2 % of cases, also of a small class."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1], [1_000, 60])
    scale = np.array([0.1, 0.3])
    limits = limits_by_class(rng.normal(size=len(codes)) * scale[codes], codes, 2)

    crossed = [np.mean(rng.normal(size=100_000) * scale[code] > limits[code]) for code in (0, 1)]

    assert max(crossed) < 0.005


# -- near-copies


def test_near_copies_count_once():
    """One row 150 times with jitter is one row; rows that are near by nature all count."""
    rng = np.random.default_rng(0)
    known = pd.DataFrame(rng.normal(size=(500, 4)), columns=list("wxyz"))
    spread = pd.DataFrame(5 + rng.normal(size=(150, 4)), columns=list("wxyz"))
    jittered = pd.DataFrame(5 + 1e-9 * rng.normal(size=(150, 4)), columns=list("wxyz"))

    assert count_distinct(jittered, known) == 1
    assert count_distinct(spread, known) == 150
    assert count_distinct(pd.concat([jittered, spread]), known) == 151
    assert count_distinct((spread > 5) * 1.0, (known > 0) * 1.0) == 150


def test_a_window_of_near_copies_teaches_no_class():
    """They are shown, and one row is too few to teach a class from, however often it comes."""
    traffic = poisoning.Traffic.draw(poisoning.small_digits(), 0)
    window = poisoning.invent(traffic, copies=150)
    columns = [name for name in window.columns if name.startswith("f")]
    jitter = 1e-9 * traffic.rng.normal(size=(len(window), len(columns)))
    window[columns] += jitter

    facts = poisoning.judge(traffic, window).facts

    assert facts.unknowns > 50
    assert any("unknown rows are near-copies of" in said for said in facts.findings)
    assert "could be identified as unknown, fewer than the 10" in facts.blocked
