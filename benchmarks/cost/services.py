"""What a run costs beside the work itself: MLflow over HTTP, and Airflow."""

from collections.abc import Iterator

from benchmarks import airflow_cost, dag_parsing
from benchmarks.cost.measuring import take
from benchmarks.cost.rows import Row, World
from tools.stack import Stack


def mlflow_traffic(world: World, large: int) -> Iterator[Row]:
    """Calls to an MLflow server, and the CPU seconds that the client spends on them."""
    stack = Stack(world.folder / "server")
    (stack.folder / "logs").mkdir(parents=True)
    stack.start_mlflow()
    try:
        small, big = (
            take("run", world.monitor(rows, "logistic", stack.mlflow, f"of-{rows}"), times=1).told
            for rows in (10_000, large)
        )
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


def airflow(world: World, large: int) -> Iterator[Row]:
    """Parsing 100 monitors, and the tasks of a window against the same run in one process."""
    parsed = dag_parsing.compare(monitors=100, times=3)
    beyond = float(parsed["all"]["beyond_airflow_sdk"])
    told = f"airflow.sdk itself {parsed['airflow.sdk']['seconds']:.2f}"
    yield Row("airflow", "parsing 100 monitors, CPU s beyond airflow.sdk", beyond, 0.5, told=told)
    for kind, found in airflow_cost.measure(times=1).items():
        result = airflow_cost.summary(found)
        told = f"{result['tasks_together']:.1f} / {result['one_process']:.1f} CPU s"
        what = f"tasks of a window / one process, {kind}"
        yield Row("airflow", what, result["ratio_tasks"], 2, told=told)
        rows = result["rows_left"]
        for service, left in rows.items():
            yield Row("airflow", f"rows that a window leaves in {service}, {kind}", left)
        size = result["artifact_bytes"] / 2**20
        yield Row("airflow", f"MB of artifacts that a window leaves, {kind}", size)
