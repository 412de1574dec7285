"""What is known of one window, as an MLflow run: params, metrics, tags, datasets and artifacts.

Knows MLflow's limits; knows nothing of how a window is judged, nor of other runs.
"""

import json
import logging
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from rtscv_mlops.errors import Code, InputError, ServiceError
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking
from rtscv_mlops.tracking.ledger import NAME_LIMIT, VALUE_LIMIT, repeat, safe_name

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
class WindowRun:
    """What is known of one window, in MLflow. Every write may be repeated.

    `attempt` names the try that writes. A task that was frozen and replaced may wake up at any
    moment: each write first looks whether its attempt is still the latest. One that wakes up
    between that look and the write does still write, what every attempt writes.
    """

    client: MlflowClient
    run_id: str
    attempt: str = ""

    def take_over(self) -> "WindowRun":
        """Return the run for a new attempt; whoever wrote to it so far has to stop."""
        ours = replace(self, attempt=uuid.uuid4().hex)
        with asking("take over the run"):
            repeat(self.client.set_tag, self.run_id, tags.ATTEMPT, ours.attempt)
        return ours

    def check_attempt(self) -> None:
        """Stop if another attempt has taken the run over; a run opened to look at has none."""
        if self.attempt and self.tags().get(tags.ATTEMPT) != self.attempt:
            raise ServiceError(
                f"Another try at this window has taken over its run {self.run_id}, so this one "
                "stops. Nothing is lost: run the window again to see what the other one found.",
                code=Code.TAKEN_OVER,
            )

    def tags(self) -> dict[str, str]:
        """Return all tags."""
        found: dict[str, str] = self._run().data.tags
        return found

    @property
    def is_complete(self) -> bool:
        return self.tags().get(tags.STATE) == tags.COMPLETE

    def set_tags(self, named: Mapping[str, str]) -> None:
        """Write tags; a value over MLflow's limit is shortened, and kept whole as an artifact."""
        self.check_attempt()
        shown = [RunTag(name, self._fitting(name, text, TAG_LIMIT)) for name, text in named.items()]
        with asking("write tags"):
            for batch in _batches(shown):
                repeat(self.client.log_batch, self.run_id, tags=batch, synchronous=True)

    def drop_tags(self, names: Iterable[str]) -> None:
        """Remove those of these tags that there are."""
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
        fresh = [Param(name, text) for name, text in shown.items() if name not in held]
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
            if value is None or (name in held and _same(held[name], float(value))):
                continue
            # MLflow drops a point it has: with the run's own time, two writers at once leave one.
            moment = _milliseconds() if name in held else run.info.start_time
            points.append(Metric(name, float(value), moment, 0))
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
        """Name data that went in; of a frame only the columns and their types are kept."""
        self.check_attempt()
        dataset = Dataset(
            name=safe_name(name),
            digest=digest[:DIGEST_LIMIT],
            source_type="rtscv",
            source=json.dumps({"uri": source}),
            schema=None if frame is None else _schema(frame),
            profile=json.dumps({**(profile or {}), "digest": digest}, default=str),
        )
        named = [InputTag(MLFLOW_DATASET_CONTEXT, context)]
        with asking(f"write the dataset {name!r}"):
            repeat(self.client.log_inputs, self.run_id, [DatasetInput(dataset, named)])

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
        """Tell whether there is an artifact of this name."""
        return name in self.list_artifacts(artifact_path(name).rpartition("/")[0])

    def place(self, name: str) -> str:
        """Return the address of an artifact in the artifact store."""
        return f"{self._run().info.artifact_uri.rstrip('/')}/{artifact_path(name)}"

    def read_json(self, name: str) -> Any:
        """Return an artifact that `write_json` wrote; None if there is none."""
        if not self.has(name):
            return None
        with tempfile.TemporaryDirectory() as folder:
            return json.loads(self.download(name, folder).read_text(encoding="utf-8"))

    def download(self, name: str, folder: Path | str) -> Path:
        """Bring an artifact, a file or a folder of them, into a local folder."""
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
        place = self._run().info.artifact_uri
        with _storing(f"delete the artifacts in {folder!r}"):
            store: Any = get_artifact_repository(place, tracking_uri=self.client.tracking_uri)
            try:
                store.delete_artifacts(within)
            except NotImplementedError as error:
                raise ServiceError(
                    f"MLflow cannot delete in this artifact store. Delete {place}/{within} there.",
                    code=Code.CANNOT_DELETE,
                ) from error

    def finish(self) -> None:
        """Close the run as complete: nothing of the window is missing."""
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

    def _run(self) -> Run:
        with asking(f"read the run {self.run_id}"):
            return self.client.get_run(self.run_id)

    def _fitting(self, name: str, text: str, limit: int) -> str:
        if len(text) <= limit:
            return text
        self.write_text(f"long/{safe_name(name)}.txt", text)
        return text[: limit - 1] + "…"


def entry_name(name: str) -> str:
    """Return the name of a param or metric as MLflow takes it; / divides groups."""
    safe = "/".join(safe_name(part) for part in name.split("/"))
    return safe if len(safe) <= NAME_LIMIT else safe_name(name)


def artifact_path(name: str) -> str:
    """Return a relative path that cannot leave the run's folder, or refuse it."""
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
            f"MLflow's artifact store could not {what}: {error}. Check its space and rights.",
            code=Code.STORAGE,
        ) from error


def _batches(things: list[Any]) -> Iterator[list[Any]]:
    yield from (things[start : start + BATCH] for start in range(0, len(things), BATCH))


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _schema(frame: "pd.DataFrame") -> str | None:
    columns = [
        {"type": KINDS.get(getattr(dtype, "kind", "O"), "string"), "name": str(name)}
        for name, dtype in frame.dtypes.items()
    ]
    text = json.dumps({"mlflow_colspec": columns})
    return text if len(text) < SCHEMA_LIMIT else None
