"""One MLflow run per window: found again by its key, and listed by time.

Knows which run counts; knows nothing of what a run holds or how a window is judged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from mlflow.entities import LifecycleStage, Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME

from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, is_absent
from rtscv_mlops.tracking.ledger import Ledger, create_once, open_ledger, repeat, restore_run
from rtscv_mlops.tracking.window_run import WindowRun

PAGE = 1000


def open_run(
    client: MlflowClient, model: str, key: str, named: Mapping[str, str] | None = None
) -> WindowRun:
    """Return the one run of a key; it is made if there is none, with the tags in `named`.

    Many may ask at once, and any may die at any point: the ledger says which run counts, a run
    that a dead process left is taken over, and what lost is deleted.
    """
    with asking(f"open the run of a window of {model!r}"):
        ledger = open_ledger(client, model)
        holds = partial(_is_of_key, client, key)
        run_id = ledger.holder("window", key, holds)
        if run_id is None:
            made = _find_or_create(ledger, key, dict(named or {}))
            run_id = ledger.hold("window", key, made, holds)
        for rival in _runs_of(ledger, key):
            if rival != run_id:
                _discard(client, rival, run_id)
    return WindowRun(client, run_id)


def _is_of_key(client: MlflowClient, key: str, run_id: str) -> bool:
    """Tell whether a run is there and still the key's: one that came to nothing may be given on."""
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if not is_absent(error):
            raise
        return False
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        restore_run(client, run_id)
    return bool(run.data.tags.get(tags.KEY) == key)


def _find_or_create(ledger: Ledger, key: str, named: dict[str, str]) -> str:
    named = {**named, tags.KIND: "window", tags.KEY: key}
    name = named.get(MLFLOW_RUN_NAME) or named.get(tags.WINDOW, key[:12])
    create = partial(ledger.client.create_run, ledger.experiment_id, tags=named, run_name=name)
    return create_once(
        lambda: next(iter(_runs_of(ledger, key)), None),
        lambda: str(create().info.run_id),
    )


def _runs_of(ledger: Ledger, key: str) -> list[str]:
    """Return the live runs of a key, oldest first."""
    runs = _search(ledger, f"tags.`{tags.KEY}` = '{key}'")
    ordered = sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))
    return [str(run.info.run_id) for run in ordered if tags.DUPLICATE_OF not in run.data.tags]


def _search(ledger: Ledger, condition: str) -> Iterator[Run]:
    token: str | None = None
    while True:
        page = ledger.client.search_runs(
            [ledger.experiment_id], condition, ViewType.ACTIVE_ONLY, PAGE, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def _discard(client: MlflowClient, run_id: str, winner: str) -> None:
    """Delete a run that lost; its tag tells why if somebody restores it."""
    try:
        repeat(client.set_tag, run_id, tags.DUPLICATE_OF, winner)
        repeat(client.delete_run, run_id)
    except MlflowException:
        # Its own maker may be deleting it at this moment, which is as good.
        if client.get_run(run_id).info.lifecycle_stage != LifecycleStage.DELETED:
            raise


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


def find_runs(
    client: MlflowClient, model: str, monitor: str | None = None, window: str | None = None
) -> list[RunSummary]:
    """Return the runs of a model's windows by time, of one monitor or one window if named.

    A window that was judged more than once has its latest run last.
    """
    with asking(f"list the runs of {model!r}"):
        found = list(_search(open_ledger(client, model), _condition(monitor, window)))
        found.sort(key=lambda run: (run.info.start_time, run.info.run_id))
        runs = [_summary(run) for run in found if tags.DUPLICATE_OF not in run.data.tags]
    wanted = [
        run
        for run in runs
        if (monitor is None or run.monitor == monitor) and (window is None or run.window == window)
    ]
    return sorted(wanted, key=lambda run: (str(run.window_start or ""), run.window))


def _condition(monitor: str | None, window: str | None) -> str:
    """Have the server leave out what is not asked for, as far as a condition can be written."""
    wanted = {tags.KIND: "window", tags.MONITOR: monitor, tags.WINDOW: window}
    named = {tag: text for tag, text in wanted.items() if text and "'" not in text}
    return " and ".join(f"tags.`{tag}` = '{text}'" for tag, text in named.items())


def _summary(run: Run) -> RunSummary:
    named = run.data.tags
    return RunSummary(
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
        ended=_from_milliseconds(run.info.end_time),
        baseline=named.get(tags.BASELINE, ""),
        metrics=run.data.metrics,
    )


def moment(text: str | None) -> datetime | None:
    """Read a tag that holds a time; None if there is none or somebody changed it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None


def _from_milliseconds(time_of_run: int | None) -> datetime | None:
    return datetime.fromtimestamp(time_of_run / 1000, UTC) if time_of_run else None
