"""A deployed model: MLflow in a folder, a champion, days of traffic. Tests use it too."""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.tracking import MlflowClient
from mlflow.tracking._tracking_service import utils
from sklearn.svm import SVC

from benchmarks.registries import client_of, new_database
from rtscv_mlops import log_champion
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.pipeline.run import Outcome, run_window
from rtscv_mlops.tracking.ledger import experiment_name
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary, WindowRun
from rtscv_mlops.tracking.versions import VersionSummary
from rtscv_mlops.window import Interval

MODEL = "leaves"
COLUMNS = ["length", "width", "veins"]
KINDS = {
    "oak": (0.0, 0.0, 0.0),
    "elm": (8.0, 0.0, 0.0),
    "ash": (0.0, 8.0, 0.0),
    "fig": (9.0, 9.0, 4.0),
}
"""The mean of each kind of leaf; the champion is not taught fig leaves."""

KNOWN = {"oak": 70, "elm": 70, "ash": 70}
WITH_FIGS = {**KNOWN, "fig": 40}

QUIET, MOVED, NEW, EMPTY = "2026-01-05", "2026-01-06", "2026-01-07", "2026-01-04"
"""Days of nothing new, of known leaves that grew, of fig leaves, and of no leaves at all."""

CANARY = "canary@example.com"
"""A value of a column of the source that the model does not use."""


def leaves(seed: int, counts: dict[str, int], shift: float = 0.0) -> tuple[pd.DataFrame, Any]:
    """Return leaves of each kind in random order, and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat(list(counts), list(counts.values())))
    values = np.array([KINDS[kind] for kind in kinds]) + rng.normal(size=(len(kinds), 3))
    return pd.DataFrame(values + shift, columns=COLUMNS), kinds


@dataclass(frozen=True)
class Deployment:
    """A folder with MLflow, windows and monitor files."""

    folder: Path

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    @property
    def client(self) -> MlflowClient:
        """A client; from now on, all of MLflow in this process uses this deployment."""
        # MLflow caches where the artifacts of a run are, and copies have the same run ids.
        utils._artifact_repos_cache.clear()
        return client_of(self.uri)

    def write_day(self, day: str, rows: pd.DataFrame, kinds: Any, part: str = "0") -> None:
        """Write rows with a key, a time on that day, the truth, and a private column."""
        start = pd.Timestamp(day, tz="UTC")
        times = start + pd.to_timedelta(np.linspace(0, 86_000, len(rows)), unit="s")
        table = rows.assign(
            leaf=[f"{day}-{part}-{number}" for number in range(len(rows))],
            seen_at=times,
            kind=kinds,
            finder=CANARY,
        )
        folder = self.folder / "windows" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        table.to_parquet(folder / f"{part}.parquet", index=False)

    def write_monitor(self, name: str = MODEL, more: str = "", model: str = MODEL) -> Path:
        file = self.folder / f"{name}.yaml"
        # Renamed when it is complete: processes that race write the same file and read it at once.
        draft = file.with_suffix(f".{uuid.uuid4().hex}")
        draft.write_text(
            f"source:\n  path: windows/\n  timestamp: seen_at\n  key: leaf\n"
            f"model:\n  name: {model}\n  tracking_uri: {self.uri}\n{more}"
        )
        return draft.replace(file)

    def monitor(self, name: str = MODEL, more: str = "", model: str = MODEL) -> Monitor:
        return load_monitor(self.write_monitor(name, more, model))

    def add_champion(self, model: Any = None, seed: int = 0, **given: Any) -> str:
        rows, kinds = leaves(seed, dict.fromkeys(("oak", "elm", "ash"), 80))
        model = SVC(random_state=0) if model is None else model
        given = {"name": MODEL, "experiment": MODEL} | given
        return log_champion(model.fit(rows, kinds), rows, kinds, tracking_uri=self.uri, **given)

    def run(self, day: str, monitor: Monitor | None = None, **given: Any) -> Outcome:
        return run_window(monitor or self.monitor(), Interval.day(day), **given)

    def runs(self, day: str, monitor: str = MODEL) -> list[RunSummary]:
        window = Interval.day(day).id
        return ModelRegistry(self.client, MODEL).runs.find(monitor=monitor, window=window)

    def versions(self, day: str) -> list[VersionSummary]:
        versions = ModelRegistry(self.client, MODEL).versions.all()
        return [version for version in versions if version.window == Interval.day(day).id]

    def window_run(self, day: str) -> WindowRun:
        (run,) = self.runs(day)
        return WindowRun(self.client, run.run_id)

    def aliases(self) -> dict[str, str]:
        aliases = self.client.get_registered_model(MODEL).aliases
        return {name: str(version) for name, version in aliases.items()}


def deploy(folder: Path) -> Deployment:
    """Set up MLflow, a champion, and a day of each kind; nothing is judged yet."""
    client = client_of(new_database(folder))
    for experiment in (MODEL, experiment_name(MODEL)):
        client.create_experiment(experiment, artifact_location=(folder / "artifacts").as_uri())
    deployment = Deployment(folder)
    deployment.add_champion()
    deployment.write_day(QUIET, *leaves(1, KNOWN))
    deployment.write_day(MOVED, *leaves(2, KNOWN, shift=1.2))
    deployment.write_day(NEW, *leaves(3, WITH_FIGS))
    return deployment
