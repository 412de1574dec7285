"""What the pages read: Airflow's database, a user's rights, and summaries from MLflow."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api import security
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import State
from fastapi import Depends, HTTPException, Request
from sqlalchemy import select
from sqlalchemy.orm import Session

from rtscv_mlops.airflow.monitors import QUESTION, Task, dag_id_of, interval_of
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, RtscvError, ServiceError, WindowError
from rtscv_mlops.window import Interval

if TYPE_CHECKING:
    from rtscv_mlops.operations.overview import MonitorSummary

GetUserDep = security.GetUserDep
PATIENCE = 8.0
"""Seconds that a page waits for all of its monitors together."""
FRESH = 60.0
"""Seconds after which an answer that came too late for its page is too old for the next."""
THREADS = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question to reviewers whose task still waits, answered or not."""

    dag_run_id: str
    question: str
    """The `question_id` of what it is about."""
    reviewers: tuple[str, ...] = ()
    chosen: str = ""
    """The answer; empty while there is none."""
    by: str = ""
    at: datetime | None = None


def find_interval(session: Session, monitor: Monitor, dag_run_id: str) -> Interval:
    """Return the window of a DAG run."""
    dag_id = dag_id_of(monitor)
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == dag_run_id))
    if run is None:
        raise WindowError(f"{dag_id} has no run {dag_run_id!r} in Airflow.", code=Code.NO_DAG_RUN)
    asked = run.conf.get("window") if isinstance(run.conf, Mapping) else None
    window = str(asked) if asked else None
    return interval_of(monitor, window, run.data_interval_start, run.data_interval_end)


def find_questions(session: Session, dag_id: str) -> list[OpenQuestion]:
    """Return the questions about a monitor's challengers whose tasks have not ended, newest first.

    A task that was ended by hand leaves a question behind for which no task waits.
    """
    rows = session.execute(
        select(HITLDetail, TaskInstance.run_id, TaskInstance.state)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .where(
            TaskInstance.dag_id == dag_id,
            TaskInstance.task_id == Task.REVIEW.value,
            TaskInstance.map_index == -1,
        )
        .order_by(HITLDetail.created_at.desc())
    ).unique()
    questions = []
    for detail, run_id, state in rows:
        if state in State.unfinished:
            param = (detail.params or {}).get(QUESTION)
            # Airflow keeps some params bare, and some with their schema.
            value = param.get("value") if isinstance(param, Mapping) else param
            questions.append(
                OpenQuestion(
                    dag_run_id=run_id,
                    question=str(value) if value else "",
                    reviewers=tuple(str(user["id"]) for user in detail.assigned_users),
                    chosen=", ".join(detail.chosen_options or ()) if detail.responded_at else "",
                    by=detail.responded_by_user_name or "",
                    at=detail.responded_at,
                )
            )
    return questions


def guarded() -> Any:
    """Return the guard of the whole app: a user must be logged in."""
    return Depends(security.requires_authenticated())


def readable_dag() -> Any:
    """Return the guard of a route whose path has a `dag_id`, under exactly that name."""
    check: Callable[..., None] = security.requires_access_dag("GET")
    return Depends(check)


def may_read(user: GetUserDep, dag_id: str) -> bool:
    """Return whether a user may see a DAG."""
    return _is_authorized(user, dag_id, "GET", None)


def may_review(user: GetUserDep, dag_id: str) -> bool:
    """Return whether a user may answer the questions of a DAG."""
    return _is_authorized(user, dag_id, "PUT", DagAccessEntity.HITL_DETAIL)


def may_trigger(user: GetUserDep, dag_id: str) -> bool:
    """Return whether a user may start a run of a DAG."""
    return _is_authorized(user, dag_id, "POST", DagAccessEntity.RUN)


def from_own_page() -> Any:
    """Return the guard of a route that writes: no page of another site can have sent this.

    A browser asks before it sends JSON to another site, and no route answers that question.
    """

    def check(request: Request) -> None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        site = request.headers.get("sec-fetch-site", "same-origin")
        if kind != "application/json" or site != "same-origin":
            raise HTTPException(
                HTTPStatus.FORBIDDEN, "Answers are taken as JSON, from this site's own page only."
            )

    return Depends(check)


def is_named(user: GetUserDep, reviewers: set[str]) -> bool:
    """Return whether a user is a reviewer; if no reviewers are named, everyone is."""
    if not reviewers:
        return True
    return bool(get_auth_manager().is_authorized_hitl_task(assigned_users=reviewers, user=user))


def _is_authorized(
    user: GetUserDep, dag_id: str, method: ResourceMethod, entity: DagAccessEntity | None
) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method, user=user, access_entity=entity, details=details
        )
    )


class Gatherer:
    """Summarizes monitors, each at most once at a time however often its page is reloaded.

    An answer that comes too late for one page is kept for the next.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._late: dict[str, tuple[float, Future[MonitorSummary]]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rtscv-page")

    def look_at(self, monitors: Iterable[Monitor]) -> "dict[str, MonitorSummary | RtscvError]":
        """Return a summary of each monitor by name, or what went wrong with it."""
        asked = [(monitor, self._ask(monitor)) for monitor in monitors]
        wait_for([future for _, future in asked], self._patience)
        return {monitor.name: self._answer(monitor, future) for monitor, future in asked}

    def _ask(self, monitor: Monitor) -> "Future[MonitorSummary]":
        settings, now = monitor.model_dump_json(), time.monotonic()
        with self._lock:
            since, future = self._late.get(settings, (now, None))
            if future is None or (future.done() and now - since > FRESH):
                since, future = now, self._pool.submit(self._summarize, monitor)
            self._late[settings] = since, future
        return future

    @staticmethod
    def _summarize(monitor: Monitor) -> "MonitorSummary":
        # MLflow takes seconds to load, and plugins are loaded by every process of Airflow.
        from rtscv_mlops.operations.overview import summarize_monitor

        return summarize_monitor(monitor)

    def _answer(
        self, monitor: Monitor, asked: "Future[MonitorSummary]"
    ) -> "MonitorSummary | RtscvError":
        if not asked.done():
            return ServiceError(
                f"MLflow has not answered about {monitor.model.name!r} within "
                f"{self._patience:.0f} seconds and is still being asked. Reload in a moment, or "
                "check that its server is up.",
                code=Code.SLOW,
            )
        with self._lock:
            self._late.pop(monitor.model_dump_json(), None)
        error = asked.exception()
        if error is None:
            return asked.result()
        if isinstance(error, RtscvError):
            return error
        # A bug that concerns one monitor must not hide the others.
        log.error("The summary of %s failed", monitor.name, exc_info=error)
        return ServiceError(
            "This monitor cannot be shown because of a bug in rtscv-mlops. "
            "See the log of the api-server."
        )
