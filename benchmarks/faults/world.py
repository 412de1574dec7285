"""A small deployment on a real MLflow server, its workers, and the oracle that judges it.

A trial gets a registered model of its own, whose champion shares one set of files, so that many
trials fit on one server. A worker is a fresh process that takes one window the whole way: judge,
register, alert, approve, promote. What a fresh process would take seconds to import is imported
before it is forked, and the challenger is tried in the worker itself, not in yet another process.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from benchmarks.deployments import EMPTY, KNOWN, NEW, QUIET, WITH_FIGS, Deployment, leaves
from benchmarks.faults import failpoints
from benchmarks.faults.servers import MlflowServer
from rtscv_mlops import log_champion
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.models import save
from rtscv_mlops.models.trust import model_digest
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.journal import MOVES
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.window import Interval

__all__ = ["EMPTY", "NEW", "QUIET", "Trial", "World"]

PRELOAD = ["benchmarks.faults.warm"]
MANNERS = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # Workers are forked from a process that has fitted models, and a pool of threads that GNU
    # OpenMP made there would hang in them.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
ALERT_PATIENCE = timedelta(seconds=3)
BASE = "leaves"
MONITOR = """\
source: {{path: windows/, timestamp: seen_at, key: leaf}}
model: {{name: {model}, tracking_uri: {address}}}
alert: {{webhook_url: {webhook}}}
"""


class World:
    """One MLflow server with a champion, days of traffic, and a receiver of alerts."""

    def __init__(self, server: MlflowServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        os.environ |= MANNERS | {"MLFLOW_TRACKING_URI": server.address}
        self.days = Deployment(folder)
        self.days.write_day(QUIET, *leaves(1, KNOWN))
        self.days.write_day(NEW, *leaves(3, WITH_FIGS))
        self._numbers = count(1)
        self.alerts = _AlertTaker()
        from sklearn.svm import SVC

        rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash"), 80))
        log_champion(
            SVC(random_state=0).fit(rows, kinds),
            rows,
            kinds,
            name=BASE,
            experiment=BASE,
            tracking_uri=server.address,
        )
        self._champion = self.client.get_model_version(BASE, "1")

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.server.address, self.server.address)

    def trial(self, address: str = "") -> "Trial":
        """Return a model of its own with a monitor; `address` is a way round to the server."""
        model = f"leaves-{next(self._numbers):05d}"
        client = self.client
        client.create_registered_model(model)
        client.create_model_version(
            model,
            self._champion.source,
            self._champion.run_id,
            model_id=self._champion.source.removeprefix("models:/"),
            await_creation_for=0,
        )
        client.set_registered_model_alias(model, "champion", "1")
        file = self.folder / f"{model}.yaml"
        text = MONITOR.format(
            model=model,
            address=address or self.server.address,
            webhook=f"{self.alerts.address}/{model}",
        )
        file.write_text(text)
        return Trial(self, model, file)


@dataclass(frozen=True)
class Trial:
    """One model in the world, and one try at a promise."""

    world: World
    model: str
    file: Path

    @property
    def monitor(self) -> Monitor:
        return load_monitor(self.file)

    def start(self, day: str = NEW, decide: bool = True, **environment: str) -> BaseProcess:
        """Start a worker on a day; `decide`: it also approves and promotes what it offers."""
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        process = context.Process(target=_work, args=(self.file, day, decide, environment))
        process.start()
        return process

    def finish(self, day: str = NEW, decide: bool = True, **environment: str) -> int | None:
        """Run a worker to its end; return its exit code, which is 0 where all went well."""
        process = self.start(day, decide, **environment)
        process.join(300)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode

    def problems(self, day: str = NEW, champion: str = "2", alerts: int | None = 1) -> list[str]:
        """Return what is wrong after the last try: see `find_problems`."""
        expected = partial(find_problems, self.world.client, self.model, day)
        found = expected(champion)
        told = self.world.alerts.count(self.model)
        if alerts is not None and told < alerts:
            found.append(f"{told} alerts instead of {alerts}")
        return found

    def half_done_problems(self) -> list[str]:
        """Return what a user could see that is wrong while the window is not finished."""
        client = self.world.client
        found = list(_version_problems(client, self.model))
        registry = ModelRegistry(client, self.model)
        now = registry.versions.champion()
        records = registry.decisions.history().records
        moves = [record.version for record in records if record.kind in MOVES]
        if now not in ("1", *moves):
            found.append(f"champion is {now}, without a decision")
        return found


def find_problems(client: MlflowClient, model: str, day: str, champion: str) -> list[str]:
    """Compare the registry with what is promised; return a sentence for each thing wrong.

    One run of the window, complete; one live version at most, with all of its files; the champion
    is the version expected, and is what the record of decisions says.
    """
    window = Interval.day(day).id
    registry = ModelRegistry(client, model)
    runs = registry.runs.find(window=window)
    found = [] if len(runs) == 1 else [f"{len(runs)} runs of the window"]
    found += [f"run is {run.state or 'unfinished'}" for run in runs if run.state != "complete"]
    found += list(_version_problems(client, model))
    history = registry.decisions.history()
    found += history.problems
    now = registry.versions.champion()
    if now != champion:
        found.append(f"champion is {now} and not {champion}")
    return found


def _version_problems(client: MlflowClient, model: str) -> Iterator[str]:
    versions = ModelRegistry(client, model).versions.all()
    keys = [version.key for version in versions]
    if len(keys) != len(set(keys)):
        yield f"{len(keys)} versions for {len(set(keys))} keys"
    pending = [version for version in versions if version.review == "pending"]
    if len(pending) > 1:
        yield f"{len(pending)} versions await review"
    for version in versions:
        if version.review:
            digest = model_digest(client, f"models:/{model}/{version.version}")
            if digest != version.model_sha256:
                yield f"version {version.version} is offered with other files"


def _work(file: Path, day: str, decide: bool, environment: Mapping[str, str]) -> None:
    """Take one window the whole way, in a process of its own."""
    os.environ.update(environment)
    failpoints.arm()
    save.run_trial = try_here
    from rtscv_mlops.alerts import sending
    from rtscv_mlops.review.answers import promote_challenger, review_challenger

    sending.PATIENCE = ALERT_PATIENCE

    monitor = load_monitor(file)
    try:
        version = _judge(monitor, Interval.day(day))
        if decide and version:
            review_challenger(monitor, version, approve=True, reviewer="ann", reason="figs are new")
            promote_challenger(monitor, version)
    except RtscvError as error:
        print(f"{error.code}: {error}", flush=True)
        raise SystemExit(_exit_code(error)) from error


def _judge(monitor: Monitor, interval: Interval) -> str | None:
    """Judge a window, unless that is done: as in Airflow, only what is not done is tried again.

    With the champion that it led to, the window would be judged once more, in a run of its own.
    """
    from rtscv_mlops.pipeline.run import run_window

    client = connect(monitor.model)
    runs = ModelRegistry(client, monitor.model.name).runs.find(window=interval.id)
    done = [run.version for run in runs if run.state == "complete"]
    return done[0] if done else run_window(monitor, interval).version


def _exit_code(error: RtscvError) -> int:
    return {"taken_over": 3, "mlflow": 4, "storage": 5, "mlflow_refused": 6}.get(error.code, 1)


def try_here(uri: str, arguments: list[str], work: str, timeout: float) -> list[Any]:
    """Try a challenger in this process, which is a fresh one as well."""
    import mlflow

    loaded = mlflow.pyfunc.load_model(arguments[0])
    answers: list[Any] = list(loaded.predict(loaded.input_example))
    return answers


class _AlertTaker(ThreadingHTTPServer):
    """Takes alerts, and counts them by model."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TakeAlert)
        self.paths: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, model: str) -> int:
        return self.paths.count(f"/{model}")


class _TakeAlert(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def was_killed(exit_code: int | None) -> bool:
    """Return whether a worker died by the signal that cannot be caught."""
    return exit_code == -signal.SIGKILL


@contextmanager
def world_on(server: MlflowServer) -> Iterator[World]:
    """A world on a running server."""
    folder = server.folder / "world"
    folder.mkdir()
    yield World(server, folder)
