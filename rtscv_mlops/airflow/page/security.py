"""Who may see and who may decide: the only place that speaks to Airflow's security.

What it imports is no public interface of Airflow, so an upgrade is checked here and nowhere else.
"""

from collections.abc import Callable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_dag,
    requires_authenticated,
)
from airflow.models.dag import DagModel
from fastapi import Depends

__all__ = ["GetUserDep", "guarded", "is_named", "may_read", "may_review", "readable_dag"]


def guarded() -> Any:
    """Return the guard of the whole app: somebody must be logged in."""
    return Depends(requires_authenticated())


def readable_dag() -> Any:
    """Return the guard of a route whose path has a `dag_id`, under exactly that name."""
    check: Callable[..., None] = requires_access_dag("GET")
    return Depends(check)


def may_read(user: GetUserDep, dag_id: str) -> bool:
    """Tell whether a user may see a DAG."""
    return _is_authorized(user, dag_id, "GET", None)


def may_review(user: GetUserDep, dag_id: str) -> bool:
    """Tell whether a user may answer the questions of a DAG."""
    return _is_authorized(user, dag_id, "PUT", DagAccessEntity.HITL_DETAIL)


def is_named(user: GetUserDep, reviewers: set[str]) -> bool:
    """Tell whether a user is among the reviewers; where none are named, everybody is."""
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
