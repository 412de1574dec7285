"""Where the tasks of a monitor run: their queue, their executor, what their pod asks for.

Knows what Airflow's operators take for this. What is not set costs nothing: Kubernetes' client is
loaded only for a monitor that names resources.
"""

from typing import Any

from airflow.sdk import get_parsing_context

from rtscv_mlops.config.scheduling import AirflowSettings, ResourceSettings
from rtscv_mlops.errors import ConfigError

CONTAINER = "base"
"""How Airflow calls the container that runs a task."""


def placement(settings: AirflowSettings) -> dict[str, Any]:
    """Return the arguments of an operator that say where it runs; none for what is not set.

    A worker, who parses the one DAG that it runs, needs none of them. In a pod, Airflow often knows
    no executor but the local one, and would refuse a task that names another.
    """
    if get_parsing_context().dag_id:
        return {}
    found: dict[str, Any] = {}
    if settings.queue:
        found["queue"] = settings.queue
    if settings.executor:
        found["executor"] = _known_executor(settings.executor)
    if settings.resources:
        found["executor_config"] = {"pod_override": _pod(settings.resources)}
    return found


def _known_executor(name: str) -> str:
    """Return an executor's name if Airflow has it; else it would refuse the DAGs of all."""
    from airflow.exceptions import UnknownExecutorException
    from airflow.executors.executor_loader import ExecutorLoader
    from airflow.sdk.configuration import conf

    try:
        ExecutorLoader.lookup_executor_name_by_str(name, validate_teams=False)
    except UnknownExecutorException as error:
        raise ConfigError(
            f"airflow.executor is {name!r}, and Airflow has {conf.get('core', 'executor')!r} here. "
            "Add it to Airflow's setting core.executor, for the DAG processor and the scheduler "
            "alike, or take it out of the monitor."
        ) from error
    return name


def _pod(resources: ResourceSettings) -> Any:
    """Return the part of a pod that is the monitor's own; the rest is Airflow's template."""
    try:
        from kubernetes.client import models
    except ImportError as error:
        raise ConfigError(
            "airflow.resources needs the package kubernetes, which is not installed here. Install "
            "apache-airflow-providers-cncf-kubernetes where the DAG processor, the scheduler and "
            "the API server run, or take airflow.resources out of the monitor."
        ) from error
    needs = models.V1ResourceRequirements(
        requests={"cpu": f"{resources.cpu:g}", "memory": resources.memory},
        # A task that has too little memory is better killed than left to crowd out its node; with
        # too few cores it only takes longer.
        limits={"memory": resources.memory},
    )
    container = models.V1Container(name=CONTAINER, resources=needs)
    return models.V1Pod(spec=models.V1PodSpec(containers=[container]))
