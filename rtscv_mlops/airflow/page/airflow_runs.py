"""What Airflow's database says of a monitor's DAG: the window of a run, and the open questions.

Reads within the api-server; knows nothing of MLflow, and writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import State
from sqlalchemy import select
from sqlalchemy.orm import Session

from rtscv_mlops.airflow.monitors import dag_id_of, interval_of
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import WindowError
from rtscv_mlops.window import Interval

REVIEW_TASK = "review_challenger"
NO_DAG_RUN = "no_dag_run"


@dataclass(frozen=True, slots=True)
class Question:
    """A question that Airflow has put to people, answered or not, while its task still waits."""

    dag_run_id: str
    question: str
    """What it is about, in the words of `question_id`."""
    reviewers: tuple[str, ...] = ()
    chosen: str = ""
    """The answer; empty while there is none."""
    by: str = ""
    at: datetime | None = None


def find_interval(session: Session, monitor: Monitor, dag_run_id: str) -> Interval:
    """Return the window that a DAG run looks at."""
    dag_id = dag_id_of(monitor)
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == dag_run_id))
    if run is None:
        raise WindowError(f"{dag_id} has no run {dag_run_id!r} in Airflow.", code=NO_DAG_RUN)
    asked = run.conf.get("window") if isinstance(run.conf, Mapping) else None
    window = str(asked) if asked else None
    return interval_of(monitor, window, run.data_interval_start, run.data_interval_end)


def find_questions(session: Session, dag_id: str) -> list[Question]:
    """Return the questions about a monitor's challengers whose tasks have not ended, newest first.

    A task that somebody ended by hand leaves a question behind that nobody waits for.
    """
    rows = session.execute(
        select(HITLDetail, TaskInstance.run_id, TaskInstance.state)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .where(
            TaskInstance.dag_id == dag_id,
            TaskInstance.task_id == REVIEW_TASK,
            TaskInstance.map_index == -1,
        )
        .order_by(HITLDetail.created_at.desc())
    ).unique()
    return [
        _question(detail, run_id) for detail, run_id, state in rows if state in State.unfinished
    ]


def _question(detail: HITLDetail, dag_run_id: str) -> Question:
    return Question(
        dag_run_id=dag_run_id,
        question=_value((detail.params or {}).get("question")),
        reviewers=tuple(str(user["id"]) for user in detail.assigned_users),
        chosen=", ".join(detail.chosen_options or ()) if detail.responded_at else "",
        by=detail.responded_by_user_name or "",
        at=detail.responded_at,
    )


def _value(param: Any) -> str:
    """Return what a param holds; Airflow keeps some bare and some with their schema."""
    held = param.get("value") if isinstance(param, Mapping) else param
    return str(held) if held else ""
