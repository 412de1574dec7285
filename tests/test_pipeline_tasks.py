"""The stages by ids alone: what one process leaves, another goes on from; and the answer by tag."""

import subprocess
import sys
from collections import defaultdict
from datetime import timedelta
from unittest.mock import Mock

import pandas as pd
import pytest

from benchmarks.deployments import EMPTY, MODEL, NEW, QUIET
from rtscv_mlops.alerts.channels import Channel
from rtscv_mlops.errors import Code, NotAssessed, ReviewError, ServiceError
from rtscv_mlops.estimator.gated import GatedClassifier
from rtscv_mlops.judging import judge
from rtscv_mlops.judging.contest import Offer
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.operations.purge import purge_windows
from rtscv_mlops.pipeline import run as tasks
from rtscv_mlops.pipeline import stages
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.review.answers import (
    ask_reviewer,
    collect_answer,
    find_answer,
    list_challengers,
    promote_challenger,
    question_id,
    review_challenger,
    roll_back,
)
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.registry import ModelRegistry, read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import deployed

DAY = Interval.day(NEW)


@pytest.fixture
def deployment(tmp_path):
    """A deployment of which no window was judged."""
    return deployed(tmp_path)


def by_ids(monitor, interval, **alert):
    """Take a window through all stages, with nothing but ids between them."""
    judged = tasks.rectify_window(monitor, interval)
    tasks.write_report(monitor, judged.run_id, judged.facts_sha256)
    version = (
        tasks.register_challenger(monitor, judged.run_id, judged.facts_sha256)
        if judged.has_challenger
        else None
    )
    tasks.raise_alert(monitor, judged.run_id, judged.facts_sha256, **alert)
    return judged, version


def test_ids_are_enough(deployment):
    """The result is that of one process, to the report's last byte; no rows are left behind."""
    monitor = deployment.monitor()
    taken = stages.take_window(monitor, DAY)
    done = stages.rectify_window(taken)
    stages.write_report(monitor, taken.run, done.facts, done.evidence)
    in_one_process = taken.run.tags()[tags.REPORT_SHA256]

    found, version = by_ids(monitor, DAY)

    run = WindowRun(deployment.client, found.run_id)
    assert found.run_id == taken.run.run_id
    assert (found.verdict, version) == ("unknowns", "2")
    assert run.tags()[tags.REPORT_SHA256] == in_one_process
    assert run.is_complete
    assert run.list_artifacts("handed_over") == set()
    assert deployment.aliases() == {"champion": "1", "challenger": "2"}


def test_stages_done_again_leave_one_effect(deployment):
    """A second and third time finds what the first left; nobody is told twice."""
    monitor, told = deployment.monitor(), []
    channels = (Channel("test", lambda alert: str(told.append(alert.subject))),)

    first = by_ids(monitor, DAY, channels=channels)
    again = [by_ids(monitor, DAY, channels=channels) for _ in range(2)]

    results = [(judged.run_id, judged.verdict, version) for judged, version in (first, *again)]
    assert len(set(results)) == 1
    assert len(told) == 1
    assert [one.version for one in list_challengers(monitor)] == ["2"]


def test_a_quiet_window_has_no_challenger(deployment):
    """Nothing is registered, and the run is closed."""
    found, version = by_ids(deployment.monitor(), Interval.day(QUIET))

    assert (found.verdict, found.has_challenger, version) == ("no_change", False, None)
    assert WindowRun(deployment.client, found.run_id).is_complete


def test_what_cannot_be_judged_is_recorded(deployment):
    """An empty window has a run that says so, is not closed, and can be tried again."""
    monitor = deployment.monitor()

    found = tasks.rectify_window(monitor, Interval.day(EMPTY))
    tasks.raise_alert(monitor, found.run_id, found.facts_sha256)

    assert not found.assessed
    assert found.code == "empty_window"
    run = WindowRun(deployment.client, found.run_id)
    assert run.tags()[tags.VERDICT] == "not_assessed:empty_window"
    assert not run.is_complete
    assert tasks.rectify_window(monitor, Interval.day(EMPTY)).run_id == found.run_id


def test_a_report_that_failed_loses_no_verdict(deployment):
    """The version is offered without it, and the facts say that it is missing."""
    monitor = deployment.monitor()
    found = tasks.rectify_window(monitor, DAY)

    version = tasks.register_challenger(monitor, found.run_id, found.facts_sha256)
    tasks.raise_alert(monitor, found.run_id, found.facts_sha256)

    run = WindowRun(deployment.client, found.run_id)
    assert tasks.NO_REPORT in read_facts(run).findings
    assert run.is_complete
    assert (
        review_challenger(monitor, version, approve=True, reviewer="ada", reason="figs").review
        == "approved"
    )
    assert tasks.write_report(monitor, found.run_id, found.facts_sha256)


def test_a_report_needs_rows(deployment):
    """Where the rows are gone and there is no report, the sentence says what to clear."""
    monitor = deployment.monitor()
    found = tasks.rectify_window(monitor, DAY)
    WindowRun(deployment.client, found.run_id).delete_artifacts("handed_over")

    with pytest.raises(ServiceError, match="Clear rectify_window"):
        tasks.write_report(monitor, found.run_id, found.facts_sha256)


def test_rows_that_were_handed_over_can_be_purged(deployment):
    """Rows that a killed stage left, and those of a version that has no alias, go by purge."""
    monitor = deployment.monitor()
    found = tasks.rectify_window(monitor, DAY)

    (purged,) = purge_windows(monitor, DAY.end + timedelta(days=1))

    assert {"handed_over", "training", "unknowns.parquet"} <= set(purged.removed)
    left = [file.name for file in (deployment.folder / "mlartifacts").rglob("*.parquet")]
    assert not {"window.parquet", "unknowns.parquet"} & set(left)
    assert found.verdict == "unknowns"


# -- after the promotion


def test_a_gated_champion_is_watched(deployment, monkeypatch):
    """The champion behind a gate is stored, tried in a new process, promoted and judged again."""
    monkeypatch.setattr(judge, "choose", lambda refit, gated: Offer(gated, refit, "A gate."))
    monitor = deployment.monitor()
    first = run_window(monitor, DAY)
    assert (first.facts.challenger.kind, first.facts.blocked) == ("gated", "")
    review_challenger(monitor, first.version, approve=True, reviewer="ada", reason="figs")
    promote_challenger(monitor, first.version)
    monkeypatch.undo()

    again = run_window(monitor, DAY)

    champion = load_champion(deployment.client, monitor.model)
    assert isinstance(champion.estimator, GatedClassifier)
    assert (again.facts.champion_version, again.facts.verdict) == (first.version, "no_change")
    assert run_window(monitor, Interval.day(QUIET)).facts.verdict == "no_change"


def test_a_promoted_challenger_is_watched(deployment):
    """The window that held unknowns is quiet for the model that was taught them."""
    monitor = deployment.monitor()
    first = run_window(monitor, DAY)
    review_challenger(monitor, first.version, approve=True, reviewer="ada", reason="figs")
    promote_challenger(monitor, first.version)

    again = run_window(monitor, DAY)

    assert again.facts.verdict == "no_change", again.facts.headline
    assert again.facts.champion_version == first.version
    assert again.facts.unknown_label == "unknown_2"
    purge_windows(monitor, DAY.end)
    assert run_window(monitor, Interval.day(QUIET)).facts.verdict == "no_change"
    assert roll_back(monitor, "ada", "too early") == "1"


def test_rows_that_may_not_leave_are_not_kept(deployment):
    """With report.columns the challenger's rows stay in the source, and the facts say so."""
    outcome = run_window(deployment.monitor(more="report:\n  columns: [length]\n"), DAY)

    assert any("is not kept" in one or "are not kept" in one for one in outcome.facts.findings)
    for file in (deployment.folder / "mlartifacts").rglob("*.parquet"):
        if outcome.run_id in str(file):
            assert "veins" not in pd.read_parquet(file).columns


# -- answers


@pytest.fixture
def offered(deployment):
    """A monitor whose challenger waits, and the version."""
    monitor = deployment.monitor()
    return monitor, str(run_window(monitor, DAY).version)


def say(deployment, version, **said):
    for name, text in said.items():
        deployment.client.set_model_version_tag(MODEL, version, f"rtscv.{name}", text)


def test_a_review_waits(offered):
    """Without an answer there is none."""
    assert find_answer(*offered) is None
    assert collect_answer(*offered) is None


@pytest.mark.parametrize(("said", "review"), [(" Approved", "approved"), ("rejected", "rejected")])
def test_a_tag_is_an_answer(deployment, offered, said, review):
    """What the tag says is recorded with who and why, and promoted only by the stage for that."""
    monitor, version = offered
    say(deployment, version, reviewer="mara", reason="seen", review=said)

    answer = collect_answer(monitor, version)

    assert (answer.status, answer.who, answer.reason) == (review, "mara", "seen")
    (found,) = list_challengers(monitor)
    assert (found.review, found.reviewer, found.reason) == (review, "mara", "seen")
    assert deployment.aliases() == {"champion": "1"}


def test_a_tag_without_a_name_says_so(deployment, offered):
    """Whoever answers by tag and does not say who is recorded as somebody."""
    monitor, version = offered
    say(deployment, version, reason="not ours", review="rejected")

    assert collect_answer(monitor, version).who == "an unnamed user of the MLflow registry"


def test_a_moved_champion_makes_the_question_stale(deployment, offered):
    """Also where a tag says yes: nothing is promoted, and the review is closed for good."""
    monitor, version = offered
    deployment.client.copy_model_version(f"models:/{MODEL}/1", MODEL)
    deployment.client.set_registered_model_alias(MODEL, "champion", "3")
    say(deployment, version, review="approved")

    answer = collect_answer(monitor, version)

    assert answer.status == "stale"
    assert "The champion is version 3; it was version 1 when this was asked" in answer.reason
    assert [one.review for one in list_challengers(monitor)] == ["stale"]
    with pytest.raises(ReviewError, match="is stale: The champion is version 3"):
        review_challenger(monitor, version, approve=True, reviewer="ada", reason="figs")
    with pytest.raises(ReviewError, match="was not approved"):
        promote_challenger(monitor, version)


def test_silence_means_no(deployment, offered):
    """After its time a review is closed as expired."""
    _, version = offered
    short = deployment.monitor(more="review:\n  expires: 1s\n")

    answer = collect_answer(short, version)

    assert (answer.status, answer.recorded) == ("expired", True)


def test_an_answer_is_bound_to_what_was_seen(offered):
    """An answer to another question is refused, and the right one counts."""
    monitor, version = offered
    asked = ask_reviewer(monitor, version)
    words = {"approve": True, "reviewer": "ada", "reason": "figs"}

    with pytest.raises(ReviewError, match="is not what was reviewed"):
        review_challenger(monitor, version, question="version-2.champion-7.a.b", **words)

    assert asked.id == question_id(list_challengers(monitor)[0])
    assert asked.id in asked.body.replace("&#58;", ":")
    assert review_challenger(monitor, version, question=asked.id, **words).review == "approved"


def test_alerts_and_questions_load_no_learner():
    """A task that alerts or asks a reviewer loads no learner, which would take a second."""
    program = (
        "import sys, rtscv_mlops.pipeline.run, rtscv_mlops.operations.overview\n"
        "heavy = {'sklearn', 'skops', 'evidently', 'rtscv_mlops.estimator', 'rtscv_mlops.sources',"
        "'rtscv_mlops.judging.judge'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []


# -- in Airflow


def register_task(deployment, run_id, facts_sha256):
    """Run the task register_challenger of a DAG; return what it returned, and its XComs."""
    from rtscv_mlops.airflow.dags import MonitorTasks

    pushed = {}
    pulled = {"rectify_window": {"verdict": "unknowns", "has_challenger": True}}

    def pull(task_ids, key=None):
        if key == "facts_sha256":
            return facts_sha256
        if key == "run_id":
            return pushed.get(key) if task_ids == "register_challenger" else run_id
        return pulled[task_ids]

    ti = Mock(xcom_pull=pull, xcom_push=lambda key, value: pushed.update({key: value}))
    context = {
        "ti": ti,
        "params": {"window": NEW},
        "outlet_events": defaultdict(Mock),
    }
    return MonitorTasks(deployment.monitor()).register_challenger(**context), pushed


def test_a_dag_run_judges_a_stale_window_again(deployment):
    """The champion moved after rectify_window: the same run ends with a verdict and a version."""
    monitor = deployment.monitor()
    second = deployment.add_champion(seed=5, alias=None)
    found = tasks.rectify_window(monitor, DAY)
    tasks.write_report(monitor, found.run_id, found.facts_sha256)
    deployment.client.set_registered_model_alias(MODEL, "champion", second)

    version, pushed = register_task(deployment, found.run_id, found.facts_sha256)
    tasks.raise_alert(monitor, pushed["run_id"], "")

    assert pushed["run_id"] != found.run_id
    run = WindowRun(deployment.client, pushed["run_id"])
    facts = read_facts(run)
    assert (facts.verdict, facts.champion_version) == ("unknowns", second)
    assert run.is_complete
    (offered,) = list_challengers(monitor)
    assert (offered.version, offered.champion_version) == (version, second)


def test_a_window_that_stays_stale_ends_no_run_green(deployment, monkeypatch):
    """The task fails, the window says that nothing is known, and shows none of the groups."""
    from airflow.sdk.exceptions import AirflowFailException

    monitor = deployment.monitor()
    found = tasks.rectify_window(monitor, DAY)

    def stale(*given):
        raise NotAssessed(Code.STALE, "The champion moved again.")

    monkeypatch.setattr(tasks, "_check_champion", stale)
    monkeypatch.setattr(tasks, "MOST_JUDGEMENTS", 1)

    with pytest.raises(AirflowFailException, match="The champion moved again"):
        register_task(deployment, found.run_id, found.facts_sha256)

    facts = ModelRegistry(deployment.client, MODEL).read_facts(found.run_id)
    assert facts.verdict == "not_assessed:stale"
    assert (facts.clusters, facts.comparison, facts.unknown_rate) == ((), None, None)
