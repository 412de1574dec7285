"""The MLflow runs of a model's windows: params, metrics, tags, datasets and artifacts.

Each window has one run, which its key finds again.
"""

import json
import logging
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mlflow import entities
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_RUN_NAME

from rtscv_mlops.errors import Code, InputError, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import (
    PAGE,
    asking,
    get_or_none,
    has_server,
    public_address,
    read_pages,
)
from rtscv_mlops.tracking.ledger import (
    NAME_LIMIT,
    VALUE_LIMIT,
    Ledger,
    create_once,
    repeat,
    restore_run,
    safe_name,
)

if TYPE_CHECKING:
    import pandas as pd

TAG_LIMIT = 5000
BATCH = 100
DIGEST_LIMIT = 36
"""Characters that MLflow keeps of a dataset's digest."""
SCHEMA_LIMIT = 1_000_000
KINDS = {"i": "long", "u": "long", "f": "double", "b": "boolean", "M": "datetime"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunLinks:
    """Where people find a run, its report and its model version; empty if there is no such page.

    The names of the fields, capitalized, are the labels that people see.
    """

    run: str = ""
    report: str = ""
    version: str = ""

    def labelled(self) -> dict[str, str]:
        """Return the links that there are, by the label that people see."""
        return {name.capitalize(): link for name, link in asdict(self).items() if link}


@dataclass(frozen=True, slots=True)
class WindowRun:
    """The MLflow run of one window. Every write may be repeated.

    `attempt` names the try that writes. A task that was frozen and replaced may wake up at any
    moment, so each write first checks that its attempt is still the latest. A task that wakes up
    between that check and the write still writes, but only what every attempt writes.
    """

    client: MlflowClient
    run_id: str
    attempt: str = ""

    def take_over(self) -> "WindowRun":
        """Return the run for a new attempt; earlier attempts have to stop."""
        ours = replace(self, attempt=uuid.uuid4().hex)
        with asking("take over the run"):
            repeat(self.client.set_tag, self.run_id, tags.ATTEMPT, ours.attempt)
        return ours

    def check_attempt(self) -> None:
        """Raise if another attempt has taken the run over; a run opened to read has no attempt."""
        if self.attempt and self.tags().get(tags.ATTEMPT) != self.attempt:
            raise ServiceError(
                f"Another try at this window has taken over its run {self.run_id}, so this one "
                "stops. Nothing is lost: run the window again to see what the other one found.",
                code=Code.TAKEN_OVER,
            )

    def tags(self) -> dict[str, str]:
        """Return all tags."""
        named: dict[str, str] = self._run().data.tags
        return named

    @property
    def is_complete(self) -> bool:
        return self.tags().get(tags.STATE) == tags.COMPLETE

    def set_tags(self, named: Mapping[str, str]) -> None:
        """Write tags; a value over MLflow's limit is shortened, and kept whole as an artifact."""
        self.check_attempt()
        shown = [
            entities.RunTag(name, self._fitting(name, text, TAG_LIMIT))
            for name, text in named.items()
        ]
        with asking("write tags"):
            for batch in _batches(shown):
                repeat(self.client.log_batch, self.run_id, tags=batch, synchronous=True)

    def drop_tags(self, names: Iterable[str]) -> None:
        """Remove these tags if they are set."""
        self.check_attempt()
        with asking("remove tags"):
            for name in set(names) & set(self.tags()):
                self.client.delete_tag(self.run_id, name)

    def log_params(self, named: Mapping[str, object]) -> list[str]:
        """Write params; those of an earlier try stay, and those that differ now are returned."""
        self.check_attempt()
        wanted = {entry_name(name): str(value) for name, value in named.items()}
        held = self._run().data.params
        shown = {
            name: self._fitting(name, text, VALUE_LIMIT)
            for name, text in wanted.items()
            if name not in held or held[name] != text
        }
        changed = sorted(name for name in shown if name in held and held[name] != shown[name])
        if changed:
            logger.warning("An earlier try ran with other settings, which stay: %s", changed)
        fresh = [entities.Param(name, text) for name, text in shown.items() if name not in held]
        with asking("write params"):
            for batch in _batches(fresh):
                repeat(self.client.log_batch, self.run_id, params=batch, synchronous=True)
        return changed

    def log_metrics(self, named: Mapping[str, float | None]) -> None:
        """Write metrics, without those that are None; the same value twice leaves one point."""
        self.check_attempt()
        run = self._run()
        held = run.data.metrics
        points = []
        for name, value in named.items():
            name = entry_name(name)
            if value is None:
                continue
            before = held.get(name)
            if before == value or (before != before and value != value):  # nan is not itself
                continue
            # MLflow drops a point that it has: with the run's own time, two concurrent writers
            # leave one point.
            moment = int(time.time() * 1000) if name in held else run.info.start_time
            points.append(entities.Metric(name, float(value), moment, 0))
        with asking("write metrics"):
            for batch in _batches(points):
                repeat(self.client.log_batch, self.run_id, metrics=batch, synchronous=True)

    def log_dataset(
        self,
        name: str,
        context: str,
        *,
        source: str,
        digest: str,
        frame: "pd.DataFrame | None" = None,
        profile: Mapping[str, object] | None = None,
    ) -> None:
        """Record input data; of a frame only the columns and their types are kept."""
        self.check_attempt()
        schema = None
        if frame is not None:
            columns = [
                {"type": KINDS.get(getattr(dtype, "kind", "O"), "string"), "name": str(name)}
                for name, dtype in frame.dtypes.items()
            ]
            schema = json.dumps({"mlflow_colspec": columns})
        dataset = entities.Dataset(
            name=safe_name(name),
            digest=digest[:DIGEST_LIMIT],
            source_type="rtscv",
            source=json.dumps({"uri": source}),
            schema=schema if schema and len(schema) < SCHEMA_LIMIT else None,
            profile=json.dumps({**(profile or {}), "digest": digest}, default=str),
        )
        named = [entities.InputTag(MLFLOW_DATASET_CONTEXT, context)]
        with asking(f"write the dataset {name!r}"):
            repeat(self.client.log_inputs, self.run_id, [entities.DatasetInput(dataset, named)])

    def write_json(self, name: str, content: object) -> None:
        """Write an artifact as JSON."""
        self.write_text(name, json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False))

    def write_text(self, name: str, text: str) -> None:
        """Write an artifact as text."""
        within, _, file = artifact_path(name).rpartition("/")
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / file
            local.write_bytes(text.encode("utf-8", "replace"))
            self.write_file(local, within)

    def write_file(self, local: Path | str, folder: str = "") -> None:
        """Write a file as an artifact of the same name."""
        self.check_attempt()
        artifact_path(Path(local).name)
        within = artifact_path(folder) if folder else None
        with _storing(f"write the artifact {Path(local).name!r}"):
            self.client.log_artifact(self.run_id, str(local), within)

    def list_artifacts(self, folder: str = "") -> set[str]:
        """Return the paths of the artifacts in a folder."""
        within = artifact_path(folder) if folder else None
        with _storing(f"list the artifacts in {folder!r}"):
            return {file.path for file in self.client.list_artifacts(self.run_id, within)}

    def has(self, name: str) -> bool:
        """Return whether there is an artifact of this name."""
        return name in self.list_artifacts(artifact_path(name).rpartition("/")[0])

    def address(self, name: str) -> str:
        """Return the address of an artifact in the artifact store."""
        return f"{self._run().info.artifact_uri.rstrip('/')}/{artifact_path(name)}"

    def read_json(self, name: str) -> Any:
        """Return an artifact that `write_json` wrote; None if there is none."""
        if not self.has(name):
            return None
        with tempfile.TemporaryDirectory() as folder:
            return json.loads(self.download(name, folder).read_text(encoding="utf-8"))

    def download(self, name: str, folder: Path | str) -> Path:
        """Download an artifact, a file or a folder of them, into a local folder."""
        if not self.has(name):
            raise ServiceError(
                f"The run {self.run_id} has no artifact {name!r}: it was removed, or never "
                "written. Run the window again.",
                code=Code.ARTIFACT_MISSING,
            )
        with _storing(f"read the artifact {name!r}"):
            return Path(self.client.download_artifacts(self.run_id, name, str(folder)))

    def delete_artifacts(self, folder: str) -> None:
        """Delete a folder of artifacts for good."""
        self.check_attempt()
        within = artifact_path(folder)
        root = self._run().info.artifact_uri
        with _storing(f"delete the artifacts in {folder!r}"):
            store: Any = get_artifact_repository(root, tracking_uri=self.client.tracking_uri)
            try:
                store.delete_artifacts(within)
            except NotImplementedError as error:
                raise ServiceError(
                    f"MLflow cannot delete in this artifact store. Delete {root}/{within} there.",
                    code=Code.CANNOT_DELETE,
                ) from error

    def finish(self) -> None:
        """Close the run as complete."""
        self.check_attempt()
        with asking("finish the run"):
            # The tag is last: a crash in between leaves a run that is not taken for complete.
            repeat(self.client.set_terminated, self.run_id, "FINISHED")
            self.set_tags({tags.STATE: tags.COMPLETE})

    def fail(self, code: str, sentence: str) -> None:
        """Close the run as failed, unless another try has completed it."""
        self.check_attempt()
        if self.is_complete:
            return
        with asking("mark the run as failed"):
            self.set_tags({tags.STATE: f"{tags.FAILED}:{code}", tags.ERROR: sentence})
            repeat(self.client.set_terminated, self.run_id, "FAILED")

    def reopen(self) -> None:
        """Open the run for another try."""
        self.check_attempt()
        with asking("reopen the run"):
            self.client.update_run(self.run_id, status="RUNNING")
            self.set_tags({tags.STATE: "running", tags.ERROR: ""})

    def links(self, model: str = "", version: str | None = None) -> RunLinks:
        """Return the web pages of the run and a version; none where MLflow has no server."""
        if not has_server(self.client):
            return RunLinks()
        root = public_address(self.client)
        experiment = self.client.get_run(self.run_id).info.experiment_id
        page = f"{root}/#/experiments/{experiment}/runs/{self.run_id}"
        models = f"{root}/#/models/{quote(model, safe='')}"
        return RunLinks(
            run=page,
            report=f"{page}/artifacts/report.html",
            version=f"{models}/versions/{version}" if version else "",
        )

    def _run(self) -> entities.Run:
        with asking(f"read the run {self.run_id}"):
            return self.client.get_run(self.run_id)

    def _fitting(self, name: str, text: str, limit: int) -> str:
        if len(text) <= limit:
            return text
        self.write_text(f"long/{safe_name(name)}.txt", text)
        return text[: limit - 1] + "…"


def entry_name(name: str) -> str:
    """Return the name of a param or metric as MLflow accepts it; / divides groups."""
    safe = "/".join(safe_name(part) for part in name.split("/"))
    return safe if len(safe) <= NAME_LIMIT else safe_name(name)


def artifact_path(name: str) -> str:
    """Return a relative path that cannot leave the run's folder; raise if it is not one."""
    parts = name.split("/")
    if any(part != safe_name(part) for part in parts):
        raise InputError(
            f"{name[:NAME_LIMIT]!r} cannot be the name of an artifact: letters, digits, dots, "
            f"dashes and underscores only, in folders divided by /, each of at most {NAME_LIMIT} "
            "characters."
        )
    return name


@contextmanager
def _storing(what: str) -> Iterator[None]:
    try:
        with asking(what):
            yield
    except OSError as error:
        raise ServiceError(
            f"MLflow's artifact store could not {what}: {error}. Check its space and permissions.",
            code=Code.STORAGE,
        ) from error


def _batches(things: list[Any]) -> Iterator[list[Any]]:
    yield from (things[start : start + BATCH] for start in range(0, len(things), BATCH))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One window's run, as lists and timelines show it."""

    run_id: str
    key: str
    monitor: str
    window: str
    window_start: datetime | None
    window_end: datetime | None
    verdict: str
    state: str
    champion_version: str
    version: str
    alert: str
    ended: datetime | None
    baseline: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tried: int = 0
    """The number of this try among all tries at the window."""

    @property
    def age(self) -> tuple[bool, int, float]:
        """Sorts the runs of a window by when they were judged; a run in progress comes first."""
        return self.ended is not None, self.tried, self.ended.timestamp() if self.ended else 0.0

    @property
    def unknown_rate(self) -> float | None:
        return self.metrics.get("unknown_rate")

    @property
    def p_value(self) -> float | None:
        return self.metrics.get("p_value")

    @classmethod
    def of(cls, run: entities.Run) -> "RunSummary":
        """Summarize a run from its tags."""
        named, ended = run.data.tags, run.info.end_time
        return cls(
            run_id=run.info.run_id,
            key=named.get(tags.KEY, ""),
            monitor=named.get(tags.MONITOR, ""),
            window=named.get(tags.WINDOW, ""),
            window_start=moment(named.get(tags.WINDOW_START)),
            window_end=moment(named.get(tags.WINDOW_END)),
            verdict=named.get(tags.VERDICT, ""),
            state=named.get(tags.STATE, ""),
            champion_version=named.get(tags.CHAMPION_VERSION, ""),
            version=named.get(tags.VERSION, ""),
            alert=named.get(tags.ALERT, ""),
            ended=datetime.fromtimestamp(ended / 1000, UTC) if ended else None,
            baseline=named.get(tags.BASELINE, ""),
            metrics=run.data.metrics,
            tried=int(tried) if (tried := named.get(tags.TRY, "")).isdecimal() else 0,
        )


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a model's windows."""

    client: MlflowClient
    model: str

    def open(self, key: str, named: Mapping[str, str] | None = None) -> WindowRun:
        """Return the one run of a key; it is created if there is none, with the tags in `named`."""
        with asking(f"open the run of a window of {self.model!r}"):
            ledger = Ledger.open(self.client, self.model)
            run_id = ledger.settle("window", key, _RunsOfKey(ledger, named or {}))
        return WindowRun(self.client, run_id)

    def find(self, monitor: str | None = None, window: str | None = None) -> list[RunSummary]:
        """Return the runs of windows by time, of one monitor or one window if named.

        A window that was judged more than once has its latest run last.
        """
        wanted = {tags.KIND: "window", tags.MONITOR: monitor, tags.WINDOW: window}
        # A name with a quote in it cannot be part of a condition, so it is compared below.
        condition = " and ".join(
            f"tags.`{tag}` = '{text}'" for tag, text in wanted.items() if text and "'" not in text
        )
        place = Ledger(self.client, self.model).find()
        if place is None:
            return []
        with asking(f"list the runs of {self.model!r}"):
            found = _search(self.client, place.experiment_id, condition)
            runs = [RunSummary.of(run) for run in found]
        return sorted(
            (
                run
                for run in runs
                if (monitor is None or run.monitor == monitor)
                and (window is None or run.window == window)
            ),
            key=lambda run: (str(run.window_start or ""), run.window, run.tried),
        )


def _search(client: MlflowClient, experiment_id: str, condition: str) -> list[entities.Run]:
    """Return the model's live runs without duplicates, oldest first."""
    runs: Iterator[entities.Run] = read_pages(
        lambda token: client.search_runs(
            [experiment_id], condition, entities.ViewType.ACTIVE_ONLY, PAGE, page_token=token
        )
    )
    return sorted(
        (run for run in runs if tags.DUPLICATE_OF not in run.data.tags),
        key=lambda run: (run.info.start_time, run.info.run_id),
    )


@dataclass(frozen=True, slots=True)
class _RunsOfKey:
    """Runs that want to hold a key; a new one gets the tags in `named`."""

    ledger: Ledger
    named: Mapping[str, str]

    def is_of_key(self, key: str, run_id: str) -> bool:
        """Return whether a run exists and still has this key: a failed window's run is reused."""
        run = get_or_none(self.ledger.client.get_run, run_id)
        if run is None:
            return False
        if run.info.lifecycle_stage == entities.LifecycleStage.DELETED:
            restore_run(self.ledger.client, run_id)
        return bool(run.data.tags.get(tags.KEY) == key)

    def create(self, key: str) -> str:
        named = {**self.named, tags.KIND: "window", tags.KEY: key}
        name = named.get(MLFLOW_RUN_NAME) or named.get(tags.WINDOW, key[:12])
        client, experiment = self.ledger.client, self.ledger.experiment_id
        return create_once(
            lambda: next(iter(self.find(key)), None),
            lambda: str(client.create_run(experiment, tags=named, run_name=name).info.run_id),
        )

    def find(self, key: str) -> list[str]:
        client, experiment = self.ledger.client, self.ledger.experiment_id
        runs = _search(client, experiment, f"tags.`{tags.KEY}` = '{key}'")
        return [str(run.info.run_id) for run in runs]

    def discard(self, run_id: str, winner: str) -> None:
        """Delete a run that lost; its tag says why, should it be restored."""
        client = self.ledger.client
        try:
            repeat(client.set_tag, run_id, tags.DUPLICATE_OF, winner)
            repeat(client.delete_run, run_id)
        except MlflowException:
            # The process that created it may be deleting it at this moment, which is as good.
            if client.get_run(run_id).info.lifecycle_stage != entities.LifecycleStage.DELETED:
                raise


def moment(text: str | None) -> datetime | None:
    """Read a tag that holds a time; None if it is missing or does not hold one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None
