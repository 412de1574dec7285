"""Airflow and MLflow on this machine, as real processes: for `make up`, and for the tests.

Knows how the services are started, waited for and stopped; knows nothing of what runs on them.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent
PATIENCE = 180.0
"""Seconds that a service may take to answer."""
LAST_MOMENTS = 10.0
"""Seconds that a service is given to stop by itself."""
PARTS = ("scheduler", "dag-processor", "triggerer")
ROLES = {"ada": "admin", "otto": "op", "ann": "user", "ben": "user", "vic": "viewer"}


@dataclass
class Stack:
    """The services of one folder; `environment` is what their programs, and ours, need to know."""

    folder: Path
    sql: str = ""
    executor: str = "LocalExecutor"
    mlflow_store: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    airflow_port: int = 0
    mlflow_port: int = 0
    passwords: dict[str, str] = field(default_factory=dict)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.airflow_port = self.airflow_port or free_port()
        self.mlflow_port = self.mlflow_port or free_port()
        self.sql = self.sql or f"sqlite:///{self.folder}/airflow.db"
        self.mlflow_store = self.mlflow_store or f"sqlite:///{self.folder}/mlflow.db"
        self.passwords = self.passwords or {name: secrets.token_urlsafe(9) for name in ROLES}
        self._secret = secrets.token_hex(64)

    @property
    def airflow(self) -> str:
        return f"http://127.0.0.1:{self.airflow_port}"

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.mlflow_port}"

    @property
    def monitors(self) -> Path:
        return self.folder / "monitors"

    @property
    def environment(self) -> dict[str, str]:
        users = ",".join(f"{name}:{role}" for name, role in ROLES.items())
        return {
            **os.environ,
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": self.executor,
            # Each slot of the local executor is a process that waits for work.
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.folder / "users.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.airflow}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.sql,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.airflow_port),
            "AIRFLOW__API__BASE_URL": self.airflow,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secret,
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "RTSCV_MONITORS_DIR": str(self.monitors),
            "MLFLOW_TRACKING_URI": self.mlflow,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            # Tasks run side by side on few cores, where threads only get in each other's way.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **self.more,
        }

    def prepare(self) -> None:
        """Make the folder and Airflow's database."""
        self.monitors.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        users = self.folder / "users.json"
        users.write_text(json.dumps(self.passwords))
        users.chmod(0o600)
        self.run("airflow", "db", "migrate")

    def run(self, program: str, *words: str) -> str:
        """Run a program of ours to its end; return what it printed."""
        done = subprocess.run(
            [PROGRAMS / program, *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(
        self,
        name: str,
        program: str,
        *words: str,
        folder: Path | None = None,
        more: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        """Start a program in a session of its own; its words go to a file in `logs`.

        `folder` is where it works, `more` is what only its environment says, and `through` is a
        program that starts it.
        """
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*through, PROGRAMS / program, *words],
                env={**self.environment, **(more or {})},
                cwd=folder or self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start_mlflow(self) -> None:
        """Start MLflow's server, and wait until it answers."""
        where = ("--host", "127.0.0.1", "--port", str(self.mlflow_port))
        store = ("--backend-store-uri", self.mlflow_store)
        files = ("--artifacts-destination", str(self.folder / "artifacts"))
        self.start("mlflow", "mlflow", "server", *where, *store, *files, "--workers", "1")
        self.wait_for(f"{self.mlflow}/health", "mlflow")

    def start_airflow(self, parts: Sequence[str] = PARTS) -> None:
        """Start Airflow's API server, wait until it answers, and start its other parts."""
        self.start("api-server", "airflow", "api-server")
        self.wait_for(f"{self.airflow}/api/v2/monitor/health", "api-server")
        for part in parts:
            self.start(part, "airflow", part)

    def wait_for(self, address: str, name: str) -> None:
        """Wait until an address answers well."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended:\n{self.last_words(name)}")
            with suppress(requests.RequestException):
                if requests.get(address, timeout=5).ok:
                    return
            time.sleep(0.5)
        raise RuntimeError(f"{name} did not answer in {PATIENCE:.0f} s:\n{self.last_words(name)}")

    def last_words(self, name: str, lines: int = 40) -> str:
        """Return the end of a program's log."""
        log = (self.folder / "logs" / f"{name}.log").read_text(errors="replace")
        return "\n".join(log.splitlines()[-lines:])

    def token(self, user: str) -> str:
        """Log a user in; return the token."""
        answer = requests.post(
            f"{self.airflow}/auth/token",
            json={"username": user, "password": self.passwords[user]},
            timeout=30,
        )
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def call(self, user: str, method: str, path: str, **given: Any) -> requests.Response:
        """Ask Airflow's API as a user; the path begins behind `/api/v2`."""
        return requests.request(
            method,
            f"{self.airflow}/api/v2{path}",
            headers={"Authorization": f"Bearer {self.token(user)}"},
            timeout=60,
            **given,
        )

    def stop(self) -> None:
        """Stop everything that was started, and what that has started."""
        for process in self.processes.values():
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + LAST_MOMENTS
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
        for process in self.processes.values():
            # Airflow's workers outlive the scheduler that started them, and ignore a request.
            _signal(process, signal.SIGKILL)
            process.wait()
        self.processes.clear()


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with closing(socket.socket()) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])
