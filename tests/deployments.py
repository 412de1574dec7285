"""Deployments for tests: one is judged once, and tests that change it get a copy.

A copy is much faster than judging a window.
"""

import atexit
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from benchmarks.deployments import EMPTY, MODEL, MOVED, NEW, QUIET, Deployment, deploy
from rtscv_mlops.tracking.registry import REPORT, VERDICT, ModelRegistry


@cache
def _folder() -> Path:
    folder = Path(mkdtemp(prefix="leaves-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _deployed() -> Deployment:
    folder = _folder() / "deployed"
    folder.mkdir()
    return deploy(folder)


def judged() -> Deployment:
    """A deployment of which each day was judged; for looking at only."""
    deployment = _judged()
    assert deployment.client.tracking_uri == deployment.uri
    return deployment


@cache
def _judged() -> Deployment:
    deployment = deployed(_folder() / "judged")
    for day in (QUIET, MOVED, NEW, EMPTY):
        deployment.run(day)
    return deployment


def deployed(folder: Path) -> Deployment:
    """A deployment of one's own, in which nothing is judged yet."""
    return _copy(_deployed(), folder)


def judged_copy(folder: Path) -> Deployment:
    """A deployment of one's own, of which each day was judged."""
    return _copy(judged(), folder)


def _copy(deployment: Deployment, folder: Path) -> Deployment:
    """Copy a deployment; MLflow keeps whole addresses, so they are changed in its database."""
    shutil.copytree(deployment.folder, folder, dirs_exist_ok=True)
    with sqlite3.connect(folder / "mlflow.db") as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            for _, column, kind, *_ in database.execute(f"PRAGMA table_info('{table}')").fetchall():
                if "CHAR" in kind or "TEXT" in kind:
                    database.execute(
                        f"UPDATE {table} SET {column} = replace({column}, ?, ?)",
                        (str(deployment.folder), str(folder)),
                    )
    database.close()
    copy = Deployment(folder)
    copy.write_monitor()
    assert copy.client.tracking_uri == copy.uri
    return copy


def seal_again(deployment: Deployment, run_id: str, model: str = MODEL) -> None:
    """Seal what a run holds now, past MLflow: as if a monitor had written it."""
    registry = ModelRegistry(deployment.client, model)
    seal, run = registry.find_seal(run_id), registry.run(run_id)
    assert seal is not None
    digests = {}
    for name, field in ((VERDICT, "facts_sha256"), (REPORT, "report_sha256")):
        with TemporaryDirectory() as folder:
            digests[field] = sha256(run.download(name, folder).read_bytes()).hexdigest()
    with sqlite3.connect(deployment.folder / "mlflow.db") as database:
        database.execute(
            "UPDATE params SET value = ? WHERE key = ?",
            (replace(seal, **digests).text, f"seal.{run_id}"),
        )
    database.close()


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]], list[int]]]:
    """Listen for alerts: the address, what came, and the answers to give before 200."""
    received: list[dict[str, Any]] = []
    answers: list[int] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/alerts", received, answers
    server.shutdown()
    server.server_close()
