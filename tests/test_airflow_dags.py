"""The DAGs as Airflow parses them: one per monitor, light, and none stopped by another."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import TaskDeferred

from benchmarks.deployments import MODEL
from rtscv_mlops.airflow.monitors import find_file, interval_of, shared_name
from rtscv_mlops.airflow.review_operator import ReviewOperator
from rtscv_mlops.airflow.trigger import ReviewTrigger
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import NotAssessed, WindowError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.window import Interval
from tests.deployments import judged_copy
from tests.monitors import MINIMAL, write_monitor
from tests.stacks import TASKS

ROOT = Path(__file__).parents[1]
HEAVY = ("sklearn", "pandas", "numpy", "scipy", "mlflow", "evidently", "kubernetes")

PARSE = """
import json, sys
from pathlib import Path
import structlog
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.dag_processing.processor import _serialize_dags

POD = "pod_override"
file = Path({file!r})
bag = BundleDagBag(
    dag_folder=str(file), bundle_path=file.parent, bundle_name="dags", load_op_links=False
)
heavy = [name for name in {heavy} if name in sys.modules]
stored, errors = _serialize_dags(bag, structlog.get_logger())
dags = {{}}
for one in stored:
    dag = bag.dags[one.dag_id]
    dags[one.dag_id] = {{
        "tasks": sorted(dag.task_dict),
        "schedule": str(one.data["dag"]["timetable"]),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "tags": sorted(dag.tags),
        "owner": dag.owner,
        "doc": dag.doc_md,
        "pools": sorted({{task.pool for task in dag.tasks}}),
        "retries": sorted({{task.retries for task in dag.tasks}}),
        "queues": sorted({{task.queue for task in dag.tasks}}),
        "executors": sorted({{str(task.executor) for task in dag.tasks}}),
        "pods": [vars(pod) for task in dag.tasks if (pod := task.executor_config.get(POD))],
        "limits": {{name: str(task.execution_timeout) for name, task in dag.task_dict.items()}},
    }}
found = {{"dags": dags, "errors": bag.import_errors | errors, "heavy": heavy}}
print(json.dumps(found, default=vars))
"""

FULL = """\
  schedule: 15 3 * * 1
  timezone: Europe/Zurich
  start: 2026-01-05
  catchup: true
  owner: fraud-team
  tags: [fraud]
  pool: small
  queue: large
  retries: 5
  timeout: 10m
  max_active_runs: 2
"""


@pytest.fixture
def parse(tmp_path):
    """Parse the DAG file in a fresh process, as Airflow does; return what it found."""

    def parsed(**environment):
        program = PARSE.format(file=str(ROOT / "dags" / "rtscv_monitors.py"), heavy=HEAVY)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "AIRFLOW_HOME": str(tmp_path / "airflow"),
                "RTSCV_MONITORS_DIR": str(tmp_path),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return parsed


def watch(folder, name, more=""):
    """Write a monitor of a model and a source of its own."""
    text = MINIMAL.replace("digits", name).replace("windows/", f"{name}/") + more
    return write_monitor(folder, text, f"{name}.yaml")


def test_each_monitor_is_a_dag(tmp_path, parse):
    """A hundred files make a hundred DAGs, and parsing them loads no heavy library."""
    for number in range(100):
        watch(tmp_path, f"model-{number}")

    found = parse()

    assert sorted(found["dags"]) == sorted(f"rtscv__model-{number}" for number in range(100))
    assert found["errors"] == {}
    assert found["heavy"] == []
    assert found["dags"]["rtscv__model-7"]["tasks"] == sorted(TASKS)


def test_a_dag_has_the_settings_of_its_monitor(tmp_path, parse):
    """Schedule, owner, tags, pool, queue, retries and limits are those of the file."""
    watch(tmp_path, "digits", f"airflow:\n{FULL}")

    (dag,) = parse()["dags"].values()

    assert "CronDataIntervalTimetable" in dag["schedule"]
    assert "15 3 * * 1" in dag["schedule"]
    assert "Europe/Zurich" in dag["schedule"]
    assert (dag["catchup"], dag["max_active_runs"]) == (True, 2)
    assert dag["tags"] == ["digits", "fraud", "rtscv"]
    assert (dag["owner"], dag["pools"], dag["retries"]) == ("fraud-team", ["small"], [5])
    assert (dag["queues"], dag["executors"], dag["pods"]) == (["large"], ["None"], [])
    # A person may take longer than any task may.
    assert dag["limits"].pop("review_challenger") == "None"
    assert set(dag["limits"].values()) == {"0:10:00"}
    assert "`digits.yaml`" in dag["doc"]


def test_a_broken_file_stops_no_other(tmp_path, parse):
    """Its mistakes are an import error under its own name; a twin of another monitor is one too."""
    watch(tmp_path, "good")
    torn = write_monitor(tmp_path, "model:\n  nam: x\n", "torn.yaml")
    twin = write_monitor(
        tmp_path, MINIMAL.replace("digits", "good").replace("windows/", "good/"), "z.yaml"
    )

    found = parse()

    assert sorted(found["dags"]) == ["rtscv__good"]
    assert sorted(found["errors"]) == [str(torn), str(twin)]
    assert "torn.yaml:2: model.nam: unknown setting" in found["errors"][str(torn)]
    assert "have the same model and source" in found["errors"][str(twin)]


def test_a_worker_reads_one_monitor(tmp_path, parse):
    """Who runs a task parses its DAG only, also where a name of its own differs from the file's."""
    watch(tmp_path, "good")
    watch(tmp_path, "other", "name: renamed\n")
    write_monitor(tmp_path, ":", "torn.yaml")

    for wanted in ("rtscv__good", "rtscv__renamed"):
        found = parse(_AIRFLOW_PARSING_CONTEXT_DAG_ID=wanted)
        assert wanted in found["dags"]
        assert (len(found["dags"]) == 1) == (wanted == "rtscv__good")


# -- placement

KUBERNETES = {
    "__init__.py": "",
    "client/__init__.py": "",
    "client/models.py": """
class Part:
    def __init__(self, **given):
        vars(self).update(given)

class V1Pod(Part): pass
class V1PodSpec(Part): pass
class V1Container(Part): pass
class V1ResourceRequirements(Part): pass
""",
    "client/api_client.py": """
class ApiClient:
    def sanitize_for_serialization(self, given):
        inner = self.sanitize_for_serialization
        if isinstance(given, list):
            return [inner(one) for one in given]
        parts = given if isinstance(given, dict) else getattr(given, "__dict__", None)
        return given if parts is None else {name: inner(one) for name, one in parts.items()}
""",
}
"""As much of Kubernetes' client as Airflow needs to store a pod; the real one is not installed."""


@pytest.fixture
def kubernetes(tmp_path):
    """An environment with a stand-in for Kubernetes' client, or with none at all."""

    def environment(files):
        for name, text in files.items():
            file = tmp_path / "packages" / "kubernetes" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return {"PYTHONPATH": os.pathsep.join([str(tmp_path / "packages"), str(ROOT)])}

    return environment


def test_a_monitor_asks_for_its_own_pod(tmp_path, parse, kubernetes):
    """Memory is requested and limited, cores are requested only, and every task has its own."""
    watch(tmp_path, "half", "airflow: {resources: {cpu: 0.5, memory: 2Gi}}\n")
    watch(tmp_path, "two", "airflow: {resources: {cpu: 2, memory: 512Mi}}\n")
    watch(tmp_path, "plain")

    found = parse(**kubernetes(KUBERNETES))

    assert found["errors"] == {}
    pods = {name: dag["pods"] for name, dag in found["dags"].items()}
    assert pods["rtscv__half"] == [pod_of("0.5", "2Gi")] * len(TASKS)
    assert pods["rtscv__two"] == [pod_of("2", "512Mi")] * len(TASKS)
    assert pods["rtscv__plain"] == []


def pod_of(cpu, memory):
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    return {"spec": {"containers": [{"name": "base", "resources": resources}]}}


def test_resources_without_kubernetes_stop_no_other_monitor(tmp_path, parse, kubernetes):
    """The file says which package is missing, and the others are DAGs as before."""
    asking = watch(tmp_path, "asking", "airflow: {resources: {cpu: 1, memory: 2Gi}}\n")
    watch(tmp_path, "plain")

    found = parse(**kubernetes({"__init__.py": "raise ImportError('not here')"}))

    assert sorted(found["dags"]) == ["rtscv__plain"]
    assert sorted(found["errors"]) == [str(asking)]
    assert "apache-airflow-providers-cncf-kubernetes" in found["errors"][str(asking)]


def test_an_executor_that_airflow_lacks_stops_no_other_monitor(tmp_path, parse):
    """A monitor may choose among Airflow's executors; one that is not there is its own error."""
    watch(tmp_path, "chosen", "airflow: {executor: CeleryExecutor}\n")
    lost = watch(tmp_path, "lost", "airflow: {executor: KubernetesExecutor}\n")

    found = parse(AIRFLOW__CORE__EXECUTOR="LocalExecutor,CeleryExecutor")

    assert sorted(found["dags"]) == ["rtscv__chosen"]
    assert found["dags"]["rtscv__chosen"]["executors"] == ["CeleryExecutor"]
    assert sorted(found["errors"]) == [str(lost)]
    assert "Airflow has 'LocalExecutor,CeleryExecutor' here" in found["errors"][str(lost)]


def test_a_worker_takes_its_place_as_given(tmp_path, parse, kubernetes):
    """A pod where Airflow knows neither the executor nor Kubernetes' client still runs its task."""
    resources = "{cpu: 1, memory: 2Gi}"
    watch(tmp_path, "placed", f"airflow: {{executor: Elsewhere, resources: {resources}}}\n")
    nowhere = kubernetes({"__init__.py": "raise ImportError('not here')"})

    found = parse(**nowhere, _AIRFLOW_PARSING_CONTEXT_DAG_ID="rtscv__placed")

    assert (sorted(found["dags"]), found["errors"]) == (["rtscv__placed"], {})


def test_other_processes_find_a_monitor_by_its_name(tmp_path, monkeypatch):
    """The triggerer may keep the monitors in another folder than the worker that names one."""
    monkeypatch.setenv("RTSCV_MONITORS_DIR", "/worker/monitors")
    names = [shared_name(Path(path)) for path in ("/worker/monitors/a.yaml", "/elsewhere/b.yaml")]

    monkeypatch.setenv("RTSCV_MONITORS_DIR", str(tmp_path))
    assert [find_file(name) for name in names] == [tmp_path / "a.yaml", Path("/elsewhere/b.yaml")]


def test_a_misspelt_answer_is_told_once_in_the_log(tmp_path, monkeypatch, caplog):
    """The run that waits says that nobody understands the tag, and not again at each look."""
    deployment = judged_copy(tmp_path)
    monkeypatch.setenv("RTSCV_MONITORS_DIR", str(tmp_path))
    trigger = ReviewTrigger(monitor_file="leaves.yaml", version="2", ti_id="", poll=1.0)
    monkeypatch.setattr(trigger, "_log", logging.getLogger("trigger"))
    deployment.client.set_model_version_tag(MODEL, "2", "rtscv.review", "aproved")

    answered = [asyncio.run(trigger._is_answered()) for _ in range(2)]

    assert answered == [False, False]
    assert caplog.text.count("version 2 says 'aproved', which is neither approved nor") == 1


def test_an_empty_place_is_no_error(tmp_path, parse):
    """Before the first monitor there is nothing to run, and nothing wrong."""
    assert parse(RTSCV_MONITORS_DIR=str(tmp_path / "none")) == {
        "dags": {},
        "errors": {},
        "heavy": [],
    }


# -- windows


@pytest.fixture
def monitor(tmp_path):
    """A monitor whose days are those of Zurich."""
    return load_monitor(watch(tmp_path, "digits", "airflow:\n  timezone: Europe/Zurich\n"))


def hours(day, start, end=None):
    return [datetime(2026, 7, day, hour, tzinfo=UTC) for hour in (start, end) if hour is not None]


def test_a_window_is_the_data_interval(monitor):
    """Without a param, the run's own interval counts."""
    start, end = hours(5, 0, 6)

    assert interval_of(monitor, None, start, end) == Interval(start, end)


@pytest.mark.parametrize(
    ("window", "interval"),
    [
        ("2026-07-05", ("2026-07-04T22:00+00:00", "2026-07-05T22:00+00:00")),
        (" 2026-07-05T00:00Z/2026-07-05T06:00Z ", ("2026-07-05T00:00Z", "2026-07-05T06:00Z")),
        ("2026-07-05T02:00/2026-07-05T04:00", ("2026-07-05T00:00Z", "2026-07-05T02:00Z")),
    ],
)
def test_a_window_can_be_named(monitor, window, interval):
    """A day, or two moments, in the schedule's zone unless they name one; the interval yields."""
    assert interval_of(monitor, window, *hours(1, 0, 1)) == Interval.parse(*interval)


@pytest.mark.parametrize(
    ("window", "bounds", "error", "sentence"),
    [
        (None, (None, None), WindowError, "Trigger it with the param window"),
        ("", (None, None), WindowError, "has no data interval"),
        ("yesterday", (None, None), WindowError, "'yesterday' is not a valid day"),
        ("2026-07-05/", (None, None), WindowError, "'' is not a valid time"),
        (None, hours(5, 0) * 2, NotAssessed, "has no length"),
    ],
)
def test_a_run_without_a_window_is_refused(monitor, window, bounds, error, sentence):
    """The sentence says what is missing, and how to give it."""
    with pytest.raises(error, match=sentence):
        interval_of(monitor, window, *bounds)


# -- answers in Required Actions


def required_action(deployment, file, **given):
    """Let the review task take an answer that Airflow has accepted; return what it ended with."""
    operator = ReviewOperator(
        task_id="review_challenger", monitor=deployment.monitor(), monitor_file=file
    )
    user = {"id": "ann", "name": "ann"}
    event = {"responded_by_user": user, "chosen_options": ["Reject"], "params_input": given}
    return operator.execute_complete({"ti": Mock(id=uuid4())}, event, version="2")


def test_an_answer_without_a_reason_is_kept_and_the_review_stays_open(tmp_path):
    """Airflow takes one answer: the task waits on for one on the page, in MLflow or by command."""
    deployment = judged_copy(tmp_path)

    with pytest.raises(TaskDeferred) as waiting:
        required_action(deployment, tmp_path / "leaves.yaml", reason=" ")

    assert isinstance(waiting.value.trigger, ReviewTrigger)
    registry = ModelRegistry(deployment.client, MODEL)
    assert registry.versions.get("2").review == "pending"
    (kept,) = registry.decisions.history().records
    assert (kept.kind, kept.who, kept.version) == ("not_carried_out", "ann", "2")
    assert kept.what.startswith("rejected, but not carried out (A decision needs a reason")


def test_an_answer_that_airflow_took_before_a_newer_challenger_is_in_the_record(tmp_path):
    """The version was superseded before the task could record it: the history says who and why."""
    deployment = judged_copy(tmp_path)
    registry = ModelRegistry(deployment.client, MODEL)
    registry.versions.close_review("2", ReviewStatus.SUPERSEDED, "3")

    ended = required_action(deployment, tmp_path / "leaves.yaml", reason="not ours")

    assert ended == {"version": "2", "status": "superseded"}
    kept = registry.decisions.history().records[-1]
    assert (kept.who, kept.reason) == ("ann", "not ours")
    assert kept.what == "rejected, but not carried out (too late: version 3 had superseded it)"
