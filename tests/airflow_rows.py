"""Writes DAG runs with questions that wait for a person into Airflow's database.

Run as a program, with the settings of that Airflow in the environment and what to write as JSON:
importing Airflow settles which database a process speaks to, so the tests never do it themselves.
"""

import json
import sys
from datetime import datetime
from typing import Any

BUNDLE = "dags-folder"


def write_question(asked: dict[str, Any]) -> None:
    """Write a DAG, its run, and the task that asks; a DAG that is there is kept."""
    from airflow.models.dag import DagModel
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import select

    dag_id, run_id = asked["dag_id"], asked["run_id"]
    start, end = (datetime.fromisoformat(asked[name]) for name in ("start", "end"))
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
        session.flush()
        session.merge(DagModel(dag_id=dag_id, bundle_name=BUNDLE, fileloc="", is_stale=False))
        session.flush()
        version = session.scalar(select(DagVersion).where(DagVersion.dag_id == dag_id))
        if version is None:
            version = DagVersion(dag_id=dag_id, version_number=1, bundle_name=BUNDLE)
            session.add(version)
            session.flush()
        session.add(
            DagRun(
                dag_id=dag_id,
                run_id=run_id,
                logical_date=start,
                data_interval=(start, end),
                run_after=end,
                run_type=DagRunType.MANUAL,
                state="running",
                conf=asked.get("conf") or {},
            )
        )
        session.flush()
        review_challenger = EmptyOperator(task_id="review_challenger")
        instance = TaskInstance(review_challenger, run_id=run_id, dag_version_id=version.id)
        instance.dag_id, instance.state = dag_id, "awaiting_input"
        session.add(instance)
        session.flush()
        session.add(
            HITLDetail(
                ti_id=instance.id,
                options=["Approve", "Reject"],
                subject="May the challenger serve?",
                params=asked["params"],
                assignees=[{"id": name, "name": name} for name in asked.get("reviewers", [])],
            )
        )


if __name__ == "__main__":
    for question in json.loads(sys.argv[1]):
        write_question(question)
