"""The MLflow runs of a model's windows: one for each key, found again by it, listed by time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mlflow.entities import LifecycleStage, Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME

from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, get_or_none, read_pages
from rtscv_mlops.tracking.ledger import Ledger, create_once, repeat, restore_run
from rtscv_mlops.tracking.window_run import WindowRun

PAGE = 1000


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

    @property
    def unknown_rate(self) -> float | None:
        return self.metrics.get("unknown_rate")

    @property
    def p_value(self) -> float | None:
        return self.metrics.get("p_value")

    @classmethod
    def of(cls, run: Run) -> "RunSummary":
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
        with asking(f"list the runs of {self.model!r}"):
            ledger = Ledger.open(self.client, self.model)
            runs = [RunSummary.of(run) for run in _search(ledger, condition)]
        return sorted(
            (
                run
                for run in runs
                if (monitor is None or run.monitor == monitor)
                and (window is None or run.window == window)
            ),
            key=lambda run: (str(run.window_start or ""), run.window),
        )


def _search(ledger: Ledger, condition: str) -> list[Run]:
    """Return the model's live runs without duplicates, oldest first."""
    runs: Iterator[Run] = read_pages(
        lambda token: ledger.client.search_runs(
            [ledger.experiment_id], condition, ViewType.ACTIVE_ONLY, PAGE, page_token=token
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
        if run.info.lifecycle_stage == LifecycleStage.DELETED:
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
        runs = _search(self.ledger, f"tags.`{tags.KEY}` = '{key}'")
        return [str(run.info.run_id) for run in runs]

    def discard(self, run_id: str, winner: str) -> None:
        """Delete a run that lost; its tag says why, should it be restored."""
        client = self.ledger.client
        try:
            repeat(client.set_tag, run_id, tags.DUPLICATE_OF, winner)
            repeat(client.delete_run, run_id)
        except MlflowException:
            # The process that created it may be deleting it at this moment, which is as good.
            if client.get_run(run_id).info.lifecycle_stage != LifecycleStage.DELETED:
                raise


def moment(text: str | None) -> datetime | None:
    """Read a tag that holds a time; None if it is missing or does not hold one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None
