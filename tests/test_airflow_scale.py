"""Several monitors on two Celery workers that share no disk, and the checks of that benchmark."""

from collections import Counter

import pytest

from benchmarks.celery_scale import run_fleet
from benchmarks.cluster import can_be_apart, cluster
from benchmarks.fleet import make_fleet
from benchmarks.outcomes import find_problems, local_paths, shared_folders, task_instances
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.stacks import wait_until

pytestmark = pytest.mark.slow

WORKERS = ["worker-1", "worker-2"]
FLEET = make_fleet(monitors=4, windows=2)


@pytest.fixture(scope="module")
def site():
    """A cluster whose two workers have judged every window."""
    with cluster() as site:
        run_fleet(site, FLEET, WORKERS)
        yield site


@pytest.fixture(scope="module")
def client(site):
    return MlflowClient(site.mlflow, site.mlflow)


def test_each_window_has_one_outcome(site, client):
    """No window is lost or judged twice, no version is offered twice, no champion moves."""
    assert find_problems(site, FLEET) == []

    new = {(one.name, day.id) for one in FLEET for n, day in enumerate(one.days) if one.is_new(n)}
    offered = {
        (one.name, v.window)
        for one in FLEET
        for v in ModelRegistry(client, one.name).versions.all()
    }
    assert new <= offered


def test_both_workers_worked(site):
    """Each worker ran tasks, and each window's tasks are those of one try."""
    tasks = task_instances(site)

    judged = Counter(task["dag_run_id"] for task in tasks if task["task_id"] == "rectify_window")
    assert judged.total() == len(FLEET) * 2
    assert {task["try_number"] for task in tasks} == {1}
    logs = [site.last_words(name, 10_000) for name in WORKERS]
    assert all("succeeded in" in log for log in logs)


def test_workers_share_no_folder(site):
    """A worker sees nothing that another process wrote, and writes to its own folder only."""
    if not can_be_apart():
        pytest.skip("no process may have its own view of the disk here")

    assert {task["hostname"] for task in task_instances(site)} == set(WORKERS)
    assert shared_folders(site, [*WORKERS, "triggerer"]) == []
    for name in WORKERS:
        assert (site.folder_of(name) / "airflow" / "logs").is_dir()

    # The check itself: the scheduler runs beside the services, and so sees their folder.
    assert shared_folders(site, ["scheduler"])


def test_an_answer_in_mlflow_reaches_the_run(site, client):
    """The triggerer finds the monitor, though the worker that asked keeps it in another folder."""
    (watched,) = [one for one in FLEET if any(map(one.is_new, range(one.windows)))]
    (version,) = ModelRegistry(client, watched.name).versions.all()

    for tag, words in ((tags.REVIEWER, "ann"), (tags.REASON, "seen"), (tags.REVIEW, "approved")):
        client.set_model_version_tag(watched.name, version.version, tag, words)

    def champion():
        return str(client.get_registered_model(watched.name).aliases["champion"])

    wait_until(lambda: champion() == version.version, "the promotion", site)


def test_what_is_lost_doubled_or_local_is_noticed(site, client):
    """The checks above can fail: for a window too many, one too few, and a path in a tag."""
    first, second, *_ = FLEET
    (run, _) = ModelRegistry(client, first.name).runs.find()
    experiment = client.get_run(run.run_id).info.experiment_id
    twin = {tags.KIND: "window", tags.KEY: "twin", tags.WINDOW: run.window, tags.STATE: "complete"}
    client.create_run(experiment, tags={**twin, tags.MONITOR: first.name})
    (lost, _) = ModelRegistry(client, second.name).runs.find()
    client.delete_run(lost.run_id)
    client.set_tag(run.run_id, "place", f"{site.folder_of('worker-1')}/rows.parquet")

    found = find_problems(site, [first, second])

    assert f"{first.name}: the window {run.window} has two outcomes" in found
    assert f"{second.name}: the window {lost.window} is lost" in found
    (named,) = local_paths(site, [first])
    assert named.startswith(f"{first.name} {run.window} tag place names a local path: ")
