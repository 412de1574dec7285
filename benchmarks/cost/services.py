"""What a run costs beside the work itself: MLflow over HTTP, and Airflow."""

from collections.abc import Iterator
from typing import Any

from benchmarks import airflow_cost, dag_parsing
from benchmarks.cluster import Cluster
from benchmarks.cost.measuring import take
from benchmarks.cost.rows import Row, World


def mlflow_traffic(world: World, large: int) -> Iterator[Row]:
    """Calls to an MLflow server, and the CPU seconds that the client spends on them."""
    stack = Cluster(world.folder / "server")
    (stack.folder / "logs").mkdir(parents=True)
    stack.start_mlflow()
    try:
        small, _ = _run_against(stack, world, 10_000)
        big, server = _run_against(stack, world, large)
    finally:
        stack.stop()
    yield Row(
        "mlflow",
        "calls of a run, more than on 10,000 rows",
        big["calls"] - small["calls"],
        0,
        told=f"{small['calls']} calls on 10,000 rows, {big['calls']} on {large:,}",
    )
    seconds = max(small["call_seconds"], big["call_seconds"])
    yield Row("mlflow", "CPU s of the client in calls", seconds, 1, told="with a server on HTTP")
    yield Row("mlflow", "calls of a run", big["calls"])
    yield Row("mlflow", "CPU s of the server for them", server, told="on SQLite, one worker")


def _run_against(stack: Cluster, world: World, rows: int) -> tuple[dict[str, Any], float]:
    """Run a window of a new model; return what it told, and the CPU seconds of the server."""
    monitor = world.monitor(rows, "logistic", stack.mlflow, f"of-{rows}")
    before = stack.cpu_seconds("mlflow")
    told = take("run", monitor, times=1).told
    return told, stack.cpu_seconds("mlflow") - before


def airflow(world: World, large: int) -> Iterator[Row]:
    """Parsing 100 monitors, and the tasks of a window against the same run in one process."""
    parsed = dag_parsing.compare(monitors=100, times=3)
    beyond = float(parsed["all"]["beyond_airflow_sdk"])
    told = f"airflow.sdk itself {parsed['airflow.sdk']['seconds']:.2f}"
    yield Row("airflow", "parsing 100 monitors, CPU s beyond airflow.sdk", beyond, 0.5, told=told)
    for kind, result in airflow_cost.measure_and_keep(times=1).items():
        told = f"{result['tasks_together']:.1f} / {result['one_process']:.1f} CPU s"
        what = f"tasks of a window / one process, {kind}"
        yield Row("airflow", what, result["ratio_tasks"], 2, told=told)
        yield Row("airflow", f"CPU s of the tasks of a window, {kind}", result["tasks_together"])
        rows = result["rows_left"]
        for service, left in rows.items():
            yield Row("airflow", f"rows that a window leaves in {service}, {kind}", left)
        size = result["artifact_bytes"] / 2**20
        yield Row("airflow", f"MB of artifacts that a window leaves, {kind}", size)
