"""A task of a real Airflow has its work done by a real Dask cluster: a scheduler and two workers.

One stack for the whole file, and one story: the tests stand in its order.
"""

import os
import signal
from datetime import timedelta

import pytest
from distributed import Client

from rtscv_mlops.config.monitor import ComputeSettings
from rtscv_mlops.demo import MODEL, make_days, prepare
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.tracking.registry import ModelRegistry, read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.stacks import (
    FIRST,
    SETTINGS,
    TODAY,
    clear,
    client_of,
    log_of,
    monitor_of,
    runs,
    trigger,
    wait_for_question,
    wait_for_run,
    wait_until,
)
from tools.stack import ROOT, Stack, free_port

pytestmark = pytest.mark.slow

WORKERS = ("dask-worker-1", "dask-worker-2")
MORE = """\
compute:
  engine: dask
  address_env: TEST_SCHEDULER
  timeout: 10s
rectify:
  gate: estimator
"""


@pytest.fixture(scope="module")
def dask_address():
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def stack(tmp_path_factory, dask_address):
    """Airflow with the demo's monitor, to begin with yesterday, and Dask beside it."""
    more = {"PYTHONPATH": str(ROOT), "TEST_SCHEDULER": dask_address}
    stack = Stack(tmp_path_factory.mktemp("stack"), more=more)
    try:
        stack.prepare()
        start_dask(stack, dask_address)
        stack.start_mlflow()
        told = SETTINGS.format(start=TODAY - timedelta(days=1), catchup="true", more=MORE)
        prepare(stack.monitors, list(make_days(FIRST)), stack.mlflow, told)
        file = stack.monitors / "digits.yaml"
        slowly = "model:\n  fit: tests.clusters:fit_slowly\n"
        file.write_text(file.read_text().replace("model:\n", slowly, 1))
        stack.start_airflow()
        yield stack
    finally:
        stack.stop()


def start_dask(stack, address):
    port = address.rpartition(":")[2]
    stack.start("dask-scheduler", "dask", "scheduler", "--port", port, "--no-dashboard")
    for name in WORKERS:
        words = ("--nthreads", "1", "--no-dashboard", "--name", name)
        stack.start(name, "dask", "worker", address, *words)


def at_work(dask_address):
    """The worker that is busy with a fit of ours, if there is one."""
    with Client(dask_address, set_as_default=False) as client:
        names = {one: info["name"] for one, info in workers(client).items()}
        return next(
            (
                names[worker]
                for worker, keys in client.processing().items()
                if any(str(key).startswith("rtscv_fit-") for key in keys)
            ),
            None,
        )


def workers(client):
    return client.scheduler_info(n_workers=-1)["workers"]


@pytest.fixture(scope="module")
def killed(stack, dask_address):
    """The worker that was killed in the middle of the scheduled window."""
    name = wait_until(lambda: at_work(dask_address), "a fit on a worker", stack)
    os.killpg(stack.processes[name].pid, signal.SIGKILL)
    return name


@pytest.fixture(scope="module")
def question(stack, killed):
    """The question that the run ends in all the same."""
    return wait_for_question(stack)


def test_a_killed_worker_does_not_stop_a_task(stack, killed, question, dask_address):
    """The task that lost a worker ends well at its first try, with the work of the other one."""
    log = log_of(stack, question["task_instance"]["dag_run_id"], "rectify_window")

    assert "the work is done by 2 workers of the Dask cluster at the address in TEST_SCHED" in log
    assert dask_address not in log
    assert killed in WORKERS
    with Client(dask_address, set_as_default=False) as client:
        (left,) = {info["name"] for info in workers(client).values()}
    assert left in set(WORKERS) - {killed}
    (window,) = ModelRegistry(client_of(stack), MODEL).runs.find()
    assert (window.verdict, window.version) == ("unknowns", "2")


def test_the_facts_are_those_of_one_process(stack, question, tmp_path):
    """The same window, judged here with another MLflow, has the same facts to the last digit."""
    (window,) = ModelRegistry(client_of(stack), MODEL).runs.find()
    there = read_facts(WindowRun(client_of(stack), window.run_id))
    prepare(tmp_path, list(make_days(FIRST))[:1], f"sqlite:///{tmp_path}/mlflow.db")
    monitor = monitor_of(stack)
    model = monitor.model.model_copy(update={"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"})
    alone = monitor.model_copy(update={"model": model, "compute": ComputeSettings()})

    here = run_window(alone, Interval(TODAY - timedelta(days=1), TODAY)).facts

    timeless = {"timings": {}}
    assert here.comparison is not None
    assert here.model_copy(update=timeless) == there.model_copy(update=timeless)


def test_an_absent_cluster_fails_the_task(stack, question):
    """Without a fallback the task fails and says why; the window's run says so, too."""
    os.killpg(stack.processes["dask-scheduler"].pid, signal.SIGKILL)

    trigger(stack, "no-cluster", window=f"{TODAY - timedelta(days=2):%Y-%m-%d}")

    assert wait_for_run(stack, "no-cluster") == "failed"
    told = log_of(stack, "no-cluster", "rectify_window")
    assert "The Dask scheduler at the address in TEST_SCHEDULER did not answer within 10 s" in told
    first, _ = ModelRegistry(client_of(stack), MODEL).runs.find()
    assert first.verdict == "not_assessed:compute_unreachable"


def test_a_task_may_use_processes_of_its_own(stack, question):
    """`jobs` needs no cluster: the window that could not be judged is, as soon as it is cleared."""
    file = stack.monitors / "digits.yaml"
    file.write_text(file.read_text().replace(MORE, "compute:\n  jobs: 2\n"))

    clear(stack, "no-cluster", "rectify_window")
    wait_until(lambda: runs(stack)["no-cluster"] != "failed", "the cleared run", stack)

    wait_until(
        lambda: ModelRegistry(client_of(stack), MODEL).runs.find()[0].verdict == "unknowns",
        "a verdict",
        stack,
    )
    told = log_of(stack, "no-cluster", "rectify_window")
    assert "the work is done by 2 processes on this machine" in told
