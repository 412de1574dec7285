"""Airflow's api-server alone, for tests of the pages: with users and monitors of its own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tools.stack import ROLES, ROOT, Stack

__all__ = ["ROLES", "Site", "airflow_site"]


class Site(Stack):
    """An Airflow to visit."""

    @property
    def address(self) -> str:
        return self.airflow

    def ask(self, *questions: dict[str, Any]) -> None:
        """Let tasks of DAG runs wait for a person."""
        self.run("python", "-m", "tests.airflow_rows", json.dumps(questions))

    def get(self, path: str, user: str | None = "ann", method: str = "GET") -> requests.Response:
        """Visit an address as a logged-in user, by the cookie that a browser would send."""
        cookies = {"_token": self.token(user)} if user else {}
        address = f"{self.address}{path}"
        return requests.request(method, address, cookies=cookies, timeout=60, allow_redirects=False)


@contextmanager
def airflow_site(folder: Path) -> Iterator[Site]:
    """Start Airflow's api-server, and end it with all that it started."""
    site = Site(folder, more={"PYTHONPATH": str(ROOT), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"})
    site.prepare()
    try:
        site.start("api-server", "airflow", "api-server")
        site.wait_for(f"{site.airflow}/api/v2/monitor/health", "api-server")
        yield site
    finally:
        site.stop()
