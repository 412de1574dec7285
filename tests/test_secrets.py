"""No secret and no private value leaves: whole windows, good and bad, and then everything is read.

MLflow stands behind a login, the source in a PostgreSQL, alerts go by webhook and mail; each has a
canary for its secret. What was logged, printed, returned, sent or stored is searched byte by byte.
"""

import base64
import io
import logging
import os
import sqlite3
import struct
import sys
import threading
import traceback
import zipfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import psycopg2
import pyarrow.parquet as pq
import pytest
import requests
import sqlalchemy as sa
from mlflow.tracking import MlflowClient
from sklearn.naive_bayes import GaussianNB

from benchmarks.deployments import CANARY, COLUMNS, KNOWN, NEW, QUIET, WITH_FIGS, leaves
from benchmarks.faults.servers import sqlite_server
from rtscv_mlops import log_champion
from rtscv_mlops.cli import commands
from rtscv_mlops.config.inputs import SourceSettings
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.operations.check import check_monitor
from rtscv_mlops.operations.purge import purge_windows
from rtscv_mlops.pipeline import run as tasks
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.review.answers import (
    ask_reviewer,
    promote_challenger,
    review_challenger,
    roll_back,
)
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.window import Column, Interval
from tests.services import postgres_address, statements

__all__ = ["postgres_address"]  # a fixture

SECRETS = {
    "tracking password": "canary-tracking-9f3a",
    "wrong tracking password": "canary-mistyped-77c1",
    "database password": "canary-database-51d0",
    "webhook token": "canary-webhook-b21e",
    "mail password": "canary-mail-0c4d",
    "store secret": "canary-store-e66b",
}
DENIED = 98_765.4321
"""Stands in a column of the model that `report.columns` does not name."""
EXTRACTED = 9.123456789
"""Stands in a column that may be shown, of rows that are extracted."""
SINCE = Interval.day(NEW).end + timedelta(days=1)


class Guard(ThreadingHTTPServer):
    """Asks for a login before it passes a request on to MLflow."""

    daemon_threads = True

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), _Passage)
        self.behind, self.let_in, self.refused = behind, 0, 0
        login = f"ann:{SECRETS['tracking password']}".encode()
        self.expected = f"Basic {base64.b64encode(login).decode()}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passage(BaseHTTPRequestHandler):
    def _pass(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != self.server.expected:
            self.server.refused += 1
            self._answer(401, b"You are not authenticated.", "text/plain")
            return
        self.server.let_in += 1
        kept = {"content-type", "accept"}
        headers = {name: text for name, text in self.headers.items() if name.lower() in kept}
        answer = requests.request(
            self.command, self.server.behind + self.path, data=body, headers=headers, timeout=60
        )
        self._answer(answer.status_code, answer.content, answer.headers.get("Content-Type", ""))

    def _answer(self, status, content, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    def log_message(self, *_):
        """Keep quiet."""


class Hook(ThreadingHTTPServer):
    """Takes alerts at a secret path, or fails."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Taking)
        self.paths, self.bodies, self.status = [], [], 200
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/hooks/{SECRETS['webhook token']}"


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.paths.append(self.path)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        """Keep quiet."""


# -- the world, in which every way out is written down


@pytest.fixture(scope="module")
def environment():
    """Variables that are as they were after the module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def world(tmp_path_factory, postgres_address, environment):
    """Windows that were judged, reviewed, promoted, and that failed in every way; all it left."""
    folder = tmp_path_factory.mktemp("world")
    with sqlite_server() as mlflow:
        made = World(folder, mlflow, Guard(mlflow.address), Hook(), postgres_address)
        made.set_secrets(environment)
        with made.everything_written_down():
            made.succeed()
            made.fail(environment)
        yield made


class World:
    """A deployment with secrets; `found` are the texts and files that came out of it, by place."""

    def __init__(self, folder, mlflow, guard, hook, postgres):
        self.folder, self.mlflow, self.guard, self.hook = folder, mlflow, guard, hook
        self.postgres = postgres
        self.said = {"returned": [], "raised": []}
        self.log, self.printed = io.StringIO(), io.StringIO()

    def set_secrets(self, environment):
        login = f"postgres:{SECRETS['database password']}@"
        environment.setenv("MLFLOW_TRACKING_USERNAME", "ann")
        environment.setenv("MLFLOW_TRACKING_PASSWORD", SECRETS["tracking password"])
        environment.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        environment.setenv("SERVED_URL", self.postgres.replace("postgres:@", login))
        environment.setenv("DEAD_URL", f"postgresql+psycopg2://{login}127.0.0.1:9/served")
        environment.setenv("HOOK_URL", self.hook.url)
        environment.setenv("MAIL_USER", "ann")
        environment.setenv("MAIL_PASSWORD", SECRETS["mail password"])
        environment.setenv("STORE_KEY", "tester")
        environment.setenv("STORE_SECRET", SECRETS["store secret"])

    @contextmanager
    def everything_written_down(self):
        """Keep all that is logged, at the finest level, and all that is printed."""
        keeper, root = logging.StreamHandler(self.log), logging.getLogger()
        before = root.level
        root.addHandler(keeper)
        root.setLevel(logging.DEBUG)
        try:
            with redirect_stdout(self.printed), redirect_stderr(self.printed):
                yield
        finally:
            root.removeHandler(keeper)
            root.setLevel(before)

    def monitor(self, name="leaves", source="table: served\n  url_env: SERVED_URL", address=""):
        file = self.folder / f"{name}.yaml"
        file.write_text(
            f"source:\n  {source}\n  timestamp: seen_at\n  key: leaf\n"
            f"model:\n  name: leaves\n  tracking_uri: {address or self.guard.address}\n"
            "report:\n  columns: [length, width]\n"
            "alert:\n  webhook_url_env: HOOK_URL\n  cooldown: 0s\n"
            "  email: {to: [team@example.com], port: 9, user_env: MAIL_USER, "
            "password_env: MAIL_PASSWORD}\n"
        )
        return load_monitor(file)

    def succeed(self):
        """Register a champion, judge two days, ask, decide and promote."""
        rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash"), 80))
        log_champion(
            GaussianNB().fit(rows, kinds), rows, kinds, name="leaves",
            tracking_uri=self.guard.address,
        )  # fmt: skip
        engine = sa.create_engine(self.postgres)
        for number, (day, counts) in enumerate({QUIET: KNOWN, NEW: WITH_FIGS}.items()):
            days_rows(day, counts).to_sql(
                "served", engine, index=False, if_exists="append" if number else "replace"
            )
        engine.dispose()
        monitor = self.monitor()
        self.note(list(check_monitor(monitor)))
        for day in (QUIET, NEW):
            self.judge_by_ids(monitor, Interval.day(day))

    def judge_by_ids(self, monitor, interval):
        """Take a window through the tasks of the DAG; what they return is what XCom holds."""
        judged = tasks.rectify_window(monitor, interval)
        tasks.write_report(monitor, judged.run_id, judged.facts_sha256)
        self.note(judged)
        if judged.has_challenger:
            version = tasks.register_challenger(monitor, judged.run_id, judged.facts_sha256)
            self.note(version, ask_reviewer(monitor, version))
        self.note(tasks.raise_alert(monitor, judged.run_id, judged.facts_sha256))
        if judged.has_challenger:
            review_challenger(monitor, version, approve=True, reviewer="ada", reason="Figs.")
            self.note(promote_challenger(monitor, version))

    def fail(self, environment):
        """Meet each secret's service where it does not work."""
        dead = "table: served\n  url_env: DEAD_URL"
        store = (
            "path: s3://absent/\n  storage_options: {endpoint_url: 'http://127.0.0.1:9', "
            "key_env: STORE_KEY, secret_env: STORE_SECRET}"
        )
        self.hook.status = 403
        # What the challenger was fitted on is not kept here, and no window is read without it.
        self.note(roll_back(self.monitor(), reviewer="ada", reason="Back."))
        self.attempt(self.monitor("dead", dead))
        self.attempt(self.monitor("store", store))
        self.command("run", self.folder / "dead.yaml", "--window", NEW)
        self.command("check", self.folder / "store.yaml")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg2, "connect", talkative_driver)
            self.attempt(self.monitor("talkative", dead))
            self.attempt(self.monitor("talkative-too", dead))
        environment.setenv("MLFLOW_TRACKING_PASSWORD", SECRETS["wrong tracking password"])
        self.attempt(self.monitor())
        self.command("-v", "run", self.folder / "leaves.yaml", "--window", NEW)
        environment.setenv("MLFLOW_TRACKING_PASSWORD", SECRETS["tracking password"])

    def attempt(self, monitor):
        try:
            self.note(run_window(monitor, Interval.day(NEW)))
        except RtscvError:
            self.said["raised"].append(traceback.format_exc())

    def command(self, *words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["rtscv-mlops", *map(str, words)])
            with pytest.raises(SystemExit):
                commands.main()

    def note(self, *returned):
        self.said["returned"] += map(repr, returned)

    @property
    def found(self):
        """Everything that came out, as bytes by place."""
        places = {place: "\n".join(texts).encode() for place, texts in self.said.items()}
        places |= {"log": self.log.getvalue().encode(), "printed": self.printed.getvalue().encode()}
        places["alerts"] = b"\n".join(self.hook.bodies)
        for file in self.mlflow.folder.rglob("*"):
            if file.is_file():
                places[str(file.relative_to(self.mlflow.folder))] = decoded(file)
        return places


def days_rows(day, counts):
    """Rows of a day with the truth, a private column, and canaries in the rows that are new."""
    rows, kinds = leaves(3, counts)
    # Of every second new row only: a model may know the mean of a class, which is no row.
    new = (kinds == "fig") & (np.arange(len(rows)) % 2 == 0)
    start = pd.Timestamp(day, tz="UTC")
    return rows.assign(
        veins=rows["veins"].where(~new, DENIED),
        length=rows["length"].where(~new, EXTRACTED),
        leaf=[f"{day}-{number}" for number in range(len(rows))],
        seen_at=[start + pd.Timedelta(minutes=number) for number in range(len(rows))],
        kind=kinds,
        finder=CANARY,
    )


def talkative_driver(*_, **given):
    """Fail like a driver that quotes the whole address."""
    where = f"postgresql://{given['user']}:{given['password']}@127.0.0.1/served"
    raise psycopg2.OperationalError(f"cannot open {where}: the database does not exist")


def decoded(file):
    """Return the bytes of a file, and those of what is packed into it."""
    content = file.read_bytes()
    if file.suffix == ".parquet":
        content += pq.read_table(file).to_pandas().to_string().encode()
    elif zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            content += b"\n".join(archive.read(name) for name in archive.namelist())
    elif content.startswith(b"SQLite format 3"):
        with sqlite3.connect(file) as database:
            content += "\n".join(database.iterdump()).encode()
        database.close()
    return content


def needles(secret):
    """The ways in which a text may be written."""
    pairs = [f"ann:{secret}", secret]
    return [
        secret.encode(),
        quote(secret, safe="").encode(),
        *(base64.b64encode(text.encode()).rstrip(b"=")[:-1] for text in pairs),
    ]


def number_needles(number):
    """The ways in which a number may be written, or stand in an array."""
    return [repr(number).encode(), f"{number:,}".encode(), struct.pack("<d", number)]


def places_of(wanted, found):
    return [place for place, content in found.items() if any(each in content for each in wanted)]


# -- what was promised


def test_the_search_would_find_them(world, tmp_path):
    """The canaries were in use, and are found in a table, in a packed file and in an array."""
    token, rows = SECRETS["webhook token"], pd.DataFrame({"a": [CANARY], "b": [DENIED]})
    rows.to_parquet(tmp_path / "a.parquet", compression="zstd")
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", CANARY * 2 + struct.pack("<d", DENIED).decode("latin-1"))
    files = {name: decoded(tmp_path / name) for name in ("a.parquet", "b.npz")}

    assert set(world.hook.paths) == {f"/hooks/{token}"}
    assert world.guard.let_in > 100
    assert world.guard.refused > 0
    assert places_of(needles(CANARY), files) == ["a.parquet", "b.npz"]
    assert places_of(number_needles(DENIED), files)[0] == "a.parquet"
    assert places_of([b"oak"], world.found)
    assert places_of(number_needles(EXTRACTED), world.found)
    assert {"log", "printed", "returned", "raised", "alerts", "mlflow.db"} <= set(world.found)
    assert len(world.said["raised"]) >= 2


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_nowhere(world, name, record_property):
    """Not in a log at its finest, an output, a task's result, a trace, an alert, or MLflow."""
    assert places_of(needles(SECRETS[name]), world.found) == []
    record_property("trials", len(world.found))


def test_a_private_column_is_nowhere(world, record_property):
    """A column that the model does not use leaves the source in no form."""
    assert places_of(needles(CANARY), world.found) == []
    record_property("trials", len(world.found))


def test_a_denied_column_of_the_model_is_nowhere(world, record_property):
    """With report.columns, values of other columns are in no file, log or field."""
    assert places_of(number_needles(DENIED), world.found) == []
    record_property("trials", len(world.found))


def test_the_reader_asks_for_no_other_column(world):
    """The statement that reads a window names the columns of the model, the key and the time."""
    source = world.monitor().source
    with statements() as asked:
        window = read_window(
            source, Interval.day(NEW), [Column(name, "float") for name in COLUMNS],
            max_rows=100, seed=0,
        )  # fmt: skip

    reading = [text for text in asked if "served" in text and "pg_catalog" not in text]
    assert window.rows == sum(WITH_FIGS.values())
    assert any("veins" in text for text in reading)
    assert not [text for text in reading if "finder" in text or "kind" in text or "*" in text]


def test_a_file_s_other_columns_are_not_read(tmp_path):
    """A Parquet file whose other columns are garbage is read as if they were not there."""
    file = tmp_path / "leaves.parquet"
    days_rows(NEW, WITH_FIGS).to_parquet(file)
    source = SourceSettings(path=str(file), timestamp="seen_at", key="leaf")
    columns = [Column(name, "float") for name in COLUMNS]
    before = read_window(source, Interval.day(NEW), columns, max_rows=100, seed=0)
    group = pq.read_metadata(file).row_group(0)
    spoilt = [group.column(place) for place in range(group.num_columns)]
    content = bytearray(file.read_bytes())
    for column in spoilt:
        if column.path_in_schema in ("finder", "kind"):
            first = column.dictionary_page_offset or column.data_page_offset
            content[first : first + column.total_compressed_size] = os.urandom(
                column.total_compressed_size
            )
    file.write_bytes(content)

    after = read_window(source, Interval.day(NEW), columns, max_rows=100, seed=0)

    assert after.digest == before.digest
    with pytest.raises(OSError, match=r".+"):
        pd.read_parquet(file, columns=["finder"])


def test_the_doctor_tells_a_server_without_login(world):
    """A real server that answers anybody is warned of; behind a login it is not."""
    warnings = [
        [one.found for one in check_monitor(monitor) if (one.what, one.state) == OPEN_SERVER]
        for monitor in (world.monitor("open", address=world.mlflow.address), world.monitor())
    ]

    assert ["answers without a login" in each for each in warnings[0]] == [True]
    assert warnings[1] == []


OPEN_SERVER = ("mlflow", "warning")


def test_purge_removes_the_rows(world):
    """After a purge no value of an extracted row is in any file of MLflow; numbers stay."""
    monitor = world.monitor()
    client = MlflowClient(world.guard.address)
    files = {place: text for place, text in world.found.items() if place.startswith("artifacts")}
    before = places_of(number_needles(EXTRACTED), files)

    client.delete_registered_model_alias("leaves", "champion")
    purged = purge_windows(monitor, SINCE)

    left = {place: text for place, text in world.found.items() if place.startswith("artifacts")}
    assert {Path(place).name for place in before} >= {"unknowns.parquet", "verdict.json"}
    assert places_of(number_needles(EXTRACTED), left) == []
    assert any(Path(place).name == "verdict.json" for place in left)
    assert [one for one in purged if "unknowns.parquet" in one.removed]
