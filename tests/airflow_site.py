"""A real Airflow api-server for tests: its own home, database, users and monitors.

Runs in processes of its own, since importing Airflow settles what a process is configured to.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).parents[1]
ROLES = {"vic": "viewer", "ann": "user", "otto": "op", "ada": "admin"}
PATIENCE = 120


@dataclass
class Site:
    """An Airflow to visit."""

    folder: Path
    port: int
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def monitors(self) -> Path:
        return self.folder / "monitors"

    @property
    def settings(self) -> dict[str, str]:
        """The environment that makes a process part of this Airflow."""
        return os.environ | {
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this test only, " * 3,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.folder / "passwords"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in ROLES.items()
            ),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow.db",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "PYTHONPATH": str(ROOT),
            "RTSCV_MONITORS_DIR": str(self.monitors),
        }

    def run(self, *command: str) -> str:
        """Run a program of this Python within this Airflow; return what it printed."""
        done = subprocess.run(
            [sys.executable, *command],
            env=self.settings,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, *questions: dict[str, Any]) -> None:
        """Let tasks of DAG runs wait for a person."""
        self.run("-m", "tests.airflow_rows", json.dumps(questions))

    def token(self, user: str) -> str:
        if user not in self.tokens:
            login = {"username": user, "password": f"{user}-password"}
            answer = requests.post(f"{self.address}/auth/token", json=login, timeout=30)
            self.tokens[user] = answer.json()["access_token"]
        return self.tokens[user]

    def get(self, path: str, user: str | None = "ann", method: str = "GET") -> requests.Response:
        """Visit an address as a logged-in user, by the cookie that a browser would send."""
        cookies = {"_token": self.token(user)} if user else {}
        address = f"{self.address}{path}"
        return requests.request(method, address, cookies=cookies, timeout=60, allow_redirects=False)


@contextmanager
def airflow_site(folder: Path) -> Iterator[Site]:
    """Start Airflow's api-server, and end it with all that it started."""
    site = Site(folder, _free_port())
    site.monitors.mkdir()
    (folder / "dags").mkdir()
    passwords = {name: f"{name}-password" for name in ROLES}
    (folder / "passwords").write_text(json.dumps(passwords))
    site.run("-m", "airflow", "db", "migrate")
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "airflow", "api-server"],
            env=site.settings,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_up(site, server)
        yield site
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_until_up(site: Site, server: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and server.poll() is None:
        try:
            requests.get(f"{site.address}/api/v2/version", timeout=5).raise_for_status()
            return
        except requests.RequestException:
            time.sleep(0.3)
    raise AssertionError((site.folder / "server.log").read_text()[-3000:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
