"""What became of a fleet: one outcome for each window, nothing twice, nothing that names a disk.

Every check returns one sentence for each thing that is wrong.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.cluster import Cluster
from benchmarks.fleet import Watched
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.registry import find_versions
from rtscv_mlops.tracking.runs import RunSummary, find_runs

PAGE = 100
"""Rows that Airflow's API gives at once."""


def find_problems(site: Cluster, fleet: list[Watched]) -> list[str]:
    """Return all that is wrong with the outcomes of a fleet."""
    client = MlflowClient(site.mlflow, site.mlflow)
    found = [problem for watched in fleet for problem in _problems(client, watched)]
    return [*found, *local_paths(site, fleet)]


def _problems(client: MlflowClient, watched: Watched) -> Iterator[str]:
    runs = find_runs(client, watched.name)
    yield from _window_problems(watched, runs)
    yield from _version_problems(client, watched, runs)
    champion = client.get_registered_model(watched.name).aliases.get("champion")
    if str(champion) != "1":
        yield f"{watched.name}: its champion moved to version {champion}"


def _window_problems(watched: Watched, runs: list[RunSummary]) -> Iterator[str]:
    wanted = Counter({day.id: 1 for day in watched.days})
    there = Counter(run.window for run in runs if run.state == tags.COMPLETE)
    yield from (f"{watched.name}: the window {one} is lost" for one in wanted - there)
    yield from (f"{watched.name}: the window {one} has two outcomes" for one in there - wanted)
    for run in runs:
        if run.state != tags.COMPLETE:
            yield f"{watched.name}: the window {run.window} is {run.state or 'unfinished'}"


def _version_problems(
    client: MlflowClient, watched: Watched, runs: list[RunSummary]
) -> Iterator[str]:
    offered = Counter(version.window for version in find_versions(client, watched.name))
    wanted = Counter({run.window: 1 for run in runs if run.verdict.startswith("unknowns")})
    yield from (f"{watched.name}: {one} offers no version" for one in wanted - offered)
    yield from (f"{watched.name}: {one} offers a version too many" for one in offered - wanted)
    every = len(client.search_model_versions(f"name = '{watched.name}'"))
    if every != 1 + offered.total():
        yield f"{watched.name}: {every} versions, where 1 + {offered.total()} were expected"


def right_verdicts(site: Cluster, fleet: list[Watched]) -> int:
    """Count the windows whose verdict says what was put there."""
    client = MlflowClient(site.mlflow, site.mlflow)
    right = 0
    for watched in fleet:
        new = {day.id for number, day in enumerate(watched.days) if watched.is_new(number)}
        for run in find_runs(client, watched.name):
            right += run.verdict.startswith("unknowns") == (run.window in new)
    return right


def local_paths(site: Cluster, fleet: list[Watched]) -> list[str]:
    """Return where something that tasks pass on contains a path on a disk."""
    said = [*_xcoms(site), *_runs_say(site, fleet)]
    places = (str(site.base), "file:", os.path.expanduser("~") + "/")
    return [
        f"{where} names a local path: {text[:200]}"
        for where, text in said
        if text.startswith("/") or any(place in text for place in places)
    ]


def _xcoms(site: Cluster) -> Iterator[tuple[str, str]]:
    engine = sa.create_engine(site.sql)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("select dag_id, task_id, key, value from xcom"))
        yield from ((f"XCom {dag}.{task}.{key}", str(value)) for dag, task, key, value in rows)
        # What a task that waits hands to the triggerer.
        waits = connection.execute(sa.text("select classpath, kwargs from trigger"))
        yield from ((f"trigger {path}", str(kwargs)) for path, kwargs in waits)
    engine.dispose()


def _runs_say(site: Cluster, fleet: list[Watched]) -> Iterator[tuple[str, str]]:
    client = MlflowClient(site.mlflow, site.mlflow)
    for watched in fleet:
        for summary in find_runs(client, watched.name):
            run = client.get_run(summary.run_id)
            where = f"{watched.name} {summary.window}"
            yield f"{where} artifacts", run.info.artifact_uri
            yield from ((f"{where} tag {name}", text) for name, text in run.data.tags.items())
            yield from ((f"{where} param {name}", text) for name, text in run.data.params.items())
            for used in run.inputs.dataset_inputs:
                yield f"{where} dataset {used.dataset.name}", used.dataset.source
        for version in client.search_model_versions(f"name = '{watched.name}'"):
            where = f"{watched.name} version {version.version}"
            yield f"{where} source", version.source
            yield from ((f"{where} tag {name}", text) for name, text in version.tags.items())


def shared_folders(site: Cluster, programs: Iterable[str]) -> list[str]:
    """Return what a program sees or could write to that is not its own."""
    return [problem for name in programs for problem in _sees(site, name)]


def _sees(site: Cluster, name: str) -> Iterator[str]:
    view = Path(f"/proc/{site.processes[name].pid}/root")
    own = site.folder_of(name)
    beside = view / str(site.base).lstrip("/")
    yield from (f"{name} sees {one.name}" for one in beside.iterdir() if one.name != own.name)
    places = {beside, view / "tmp", view / "var/tmp", view / str(Path.home()).lstrip("/")}
    for place in sorted(place for place in places if place.exists()):
        if place != beside and not os.statvfs(place).f_flag & os.ST_RDONLY:
            yield f"{name} can write to {place.relative_to(view)}"


def task_instances(site: Cluster) -> list[dict[str, Any]]:
    """Return all that Airflow knows of tasks that a worker ran."""
    found: list[dict[str, Any]] = []
    while True:
        place = f"/dags/~/dagRuns/~/taskInstances?limit={PAGE}&offset={len(found)}&order_by=id"
        page = site.call("ada", "GET", place).json()
        found += page["task_instances"]
        if len(found) >= page["total_entries"] or not page["task_instances"]:
            return [one for one in found if one["hostname"]]
