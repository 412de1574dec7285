"""Models of many kinds through the stages, and a challenger that may not be approved."""

import mlflow
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier

from benchmarks.deployments import MODEL, NEW, WITH_FIGS, Deployment, leaves
from rtscv_mlops import log_champion
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ReviewError
from rtscv_mlops.facts import ClassComparison
from rtscv_mlops.judging.contest import find_blocker
from rtscv_mlops.pipeline.run import offer_challenger
from rtscv_mlops.pipeline.stages import rectify_window, take_window
from rtscv_mlops.review.answers import list_challengers, review_challenger, show_challenger
from rtscv_mlops.tracking.registry import write_facts
from rtscv_mlops.window import Interval
from tests.deployments import deployed
from tests.registries import client_of, new_database

NUMBERS = {"oak": 0, "elm": 1, "ash": 2, "fig": 7}


def fit_svm(X, y):
    """A `fit` factory."""
    return SVC(random_state=0).fit(X, y)


def mixed_pipeline():
    columns = make_column_transformer(
        (StandardScaler(), ["length", "width", "veins"]),
        (OneHotEncoder(handle_unknown="ignore"), ["edge", "side"]),
    )
    return make_pipeline(columns, SVC(random_state=0))


def with_words(rows):
    """Add text and a category, which say nothing."""
    rng = np.random.default_rng(len(rows))
    return rows.assign(
        edge=rng.choice(["smooth", "rough"], len(rows)),
        side=pd.Categorical(rng.choice(["left", "right"], len(rows))),
    )


def as_they_are(rows):
    return rows


CASES = {
    "pipeline, text and categories, str": (mixed_pipeline, with_words, str, "", str),
    "bool": (LogisticRegression, as_they_are, lambda kind: kind == "oak", "", int),
    "xgboost, int": (
        lambda: XGBClassifier(n_estimators=20, n_jobs=1),
        as_they_are,
        NUMBERS.get,
        "  allow_pickle: true\n",
        int,
    ),
    "lightgbm, str": (
        lambda: LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1),
        as_they_are,
        str,
        "  allow_pickle: true\n",
        str,
    ),
    "fit factory, int": (
        lambda: SVC(random_state=0),
        as_they_are,
        NUMBERS.get,
        f"  fit: {__name__}:fit_svm\n",
        int,
    ),
}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """MLflow without a model, and a day with fig leaves."""
    monkeypatch.chdir(tmp_path)  # MLflow makes its folder of artifacts here
    client_of(new_database(tmp_path))
    return Deployment(tmp_path)


@pytest.mark.parametrize(
    ("make", "dress", "name", "setting", "kind"), CASES.values(), ids=CASES.keys()
)
def test_each_kind_of_model_is_rectified(empty, make, dress, name, setting, kind):
    """The challenger takes the same columns and answers in the labels' own type."""
    rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash"), 80))
    rows, labels = dress(rows), np.array([name(one) for one in kinds])
    pickle = "allow_pickle" in setting
    log_champion(
        make().fit(rows, labels),
        rows,
        labels,
        name=MODEL,
        tracking_uri=empty.uri,
        allow_pickle=pickle,
    )
    served, truth = leaves(3, WITH_FIGS)
    empty.write_day(NEW, dress(served), truth)
    file = empty.write_monitor()
    file.write_text(file.read_text().replace(f"name: {MODEL}\n", f"name: {MODEL}\n{setting}"))

    taken = take_window(load_monitor(file), Interval.day(NEW))
    done = rectify_window(taken)

    assert done.facts.verdict in ("unknowns", "unknowns_and_drift"), done.facts.headline
    model_id = taken.run.tags()["rtscv.model_id"]
    challenger = mlflow.pyfunc.load_model(f"models:/{model_id}")
    sent = dress(served).astype({"side": str}) if "side" in dress(served) else served
    answers = np.asarray(challenger.predict(sent)).ravel().tolist()
    assert {type(answer) for answer in answers} == {kind}
    known = {int(one) if isinstance(one, bool) else one for one in labels.tolist()}
    (unknown,) = set(answers) - known
    found = [answer == unknown for answer, one in zip(answers, truth, strict=True) if one == "fig"]
    assert np.mean(found) > 0.8
    assert done.facts.unknown_label == str(unknown)
    if labels.dtype == bool:
        assert known | {unknown} == {0, 1, 2}
        assert any("true and false" in finding for finding in done.facts.findings)


def test_a_challenger_that_loses_a_class_is_blocked(tmp_path):
    """It is registered with the reason, has no alias, and nobody can approve it."""
    deployment = deployed(tmp_path)
    monitor = deployment.monitor()
    taken = take_window(monitor, Interval.day(NEW))
    done = rectify_window(taken)
    lost = ClassComparison(label="oak", rows=80, champion=1.0, challenger=0.8, unknown=0.2)
    worse = done.facts.comparison.model_copy(update={"classes": (lost,)})
    limits = {"min_unknowns": 1, "max_class_loss": monitor.review.max_class_loss}
    why = find_blocker(worse, done.facts.unknowns, **limits)

    blocked = done.facts.model_copy(update={"blocked": why})
    write_facts(taken.run, blocked)
    seal = taken.registry.seal(taken.run, blocked, "")
    version = offer_challenger(monitor, taken.run, blocked, seal)

    assert deployment.aliases() == {"champion": "1"}
    (blocked,) = list_challengers(monitor)
    assert (blocked.version, blocked.review) == (version, "blocked")
    assert "'oak' loses too much" in blocked.blocked
    assert "Blocked, cannot be approved" in show_challenger(monitor, version).description
    with pytest.raises(ReviewError, match="is blocked: Class 'oak' loses too much"):
        review_challenger(monitor, version, approve=True, reviewer="ada", reason="I like it")
    assert deployment.aliases() == {"champion": "1"}


def test_a_loss_beyond_the_limit_is_seen(tmp_path):
    """With no loss allowed, figs that look like oaks cost oaks, and the facts say which class."""
    deployment = deployed(tmp_path)
    rows, kinds = leaves(3, {**WITH_FIGS, "fig": 60})
    rows[kinds == "fig"] -= np.array([9.0, 9.0, 1.0])
    deployment.write_day(NEW, rows, kinds)
    monitor = deployment.monitor(more="review:\n  max_class_loss: 0\n")

    facts = rectify_window(take_window(monitor, Interval.day(NEW))).facts

    assert facts.comparison is not None
    worst = facts.comparison.classes[0]
    assert (worst.label, worst.loss > 0) == ("oak", True)
    assert "Class 'oak' loses too much" in facts.blocked
