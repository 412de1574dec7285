"""Tasks of a real Airflow that are killed, or freeze, are replaced and wake up."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from rtscv_mlops.demo import MODEL
from rtscv_mlops.review.answers import list_challengers
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.stacks import (
    TODAY,
    aliases,
    answer,
    client_of,
    monitor_of,
    running,
    states,
    tries,
    trigger,
    wait_for_question,
    wait_for_run,
    wait_for_task_at_work,
    wait_until,
)
from tools.stack import Stack

pytestmark = pytest.mark.slow

IMPATIENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Airflow that gives a task up after seconds without a heartbeat; nothing is scheduled."""
    stack = Stack(tmp_path_factory.mktemp("stack"), more=IMPATIENT)
    with running(stack, start=TODAY, catchup=False):
        yield stack


def of_window(found, start):
    """Those runs or versions whose window begins then."""
    return [one for one in found if one.window_start == start]


def test_a_killed_task_is_finished_by_its_retry(stack):
    """kill -9 amid rectify_window: Airflow tries again, and there is one run and one version."""
    noon = TODAY - timedelta(hours=12)
    trigger(stack, "killed", window=f"{noon.isoformat()}/{TODAY.isoformat()}")
    task = wait_for_task_at_work(stack, "killed", "rectify_window", "take_window: ")

    os.kill(task, signal.SIGKILL)

    asked = wait_for_question(stack)
    assert tries(stack, "killed", "rectify_window") == 2
    (window,) = of_window(ModelRegistry(client_of(stack), MODEL).runs.find(), noon)
    (version,) = of_window(list_challengers(monitor_of(stack)), noon)
    assert (window.verdict, window.version) == ("unknowns", version.version)
    assert answer(stack, "ann", asked, "Reject") == 200
    assert wait_for_run(stack, "killed") == "success"
    assert aliases(stack) == {"champion": "1"}


def parent(process: int) -> int:
    """Return the process that started this one."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_frozen_task_is_replaced_and_harms_nothing_when_it_wakes_up(stack):
    """The task and its supervisor stop, as on a machine that sleeps; the retry ends the window."""
    client = client_of(stack)
    trigger(stack, "frozen", window=f"{TODAY - timedelta(days=1):%Y-%m-%d}")
    task = wait_for_task_at_work(stack, "frozen", "rectify_window", "take_window: ")
    frozen = [task, parent(task)]
    for process in reversed(frozen):  # The supervisor first: it is who sends the heartbeat.
        os.kill(process, signal.SIGSTOP)

    wait_until(
        lambda: states(stack, "frozen").get("review_challenger") == "deferred", "the retry", stack
    )
    registry = ModelRegistry(client, MODEL)
    before = (
        registry.runs.find(),
        list_challengers(monitor_of(stack)),
        aliases(stack),
    )
    for process in frozen:
        os.kill(process, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{task}").exists(), "the end of the woken task", stack)

    assert tries(stack, "frozen", "rectify_window") == 2
    assert before == (
        registry.runs.find(),
        list_challengers(monitor_of(stack)),
        aliases(stack),
    )
    (window,), (version,) = (of_window(found, TODAY - timedelta(days=1)) for found in before[:2])
    assert (window.state, window.version) == ("complete", version.version)
    assert version.review == "pending"
