"""What Airflow is told of our pages: where they are mounted, and where its own pages link to them.

Only declares; every process of Airflow loads it, so nothing here may be slow.
"""

from airflow.plugins_manager import AirflowPlugin

from rtscv_mlops.airflow.page.app import PREFIX_OF_PAGES, create_app

PAGES = {"app": create_app(), "url_prefix": PREFIX_OF_PAGES, "name": "rtscv"}
# Addresses without a leading slash start where Airflow does, also if that is below a path.
MENU = {
    "name": "Unknowns",
    "href": "rtscv/",
    "destination": "nav",
    "url_route": "unknowns",
    "category": "browse",
}
TAB = {
    "name": "Unknowns",
    "href": "rtscv/dags/{DAG_ID}/runs/{RUN_ID}",
    "destination": "dag_run",
    "url_route": "unknowns_of_run",
}


class RtscvPlugin(AirflowPlugin):
    """The page Unknowns in the menu, and a tab of the same name on each DAG run."""

    name = "rtscv"
    fastapi_apps = [PAGES]  # noqa: RUF012 Airflow declares it as a plain attribute
    external_views = [MENU, TAB]  # noqa: RUF012 same
