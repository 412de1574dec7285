"""A monitor file that cannot be used, shown as an import error of its own.

Airflow keeps import errors by file, and a file with one loses all its DAGs. So the error must not
be that of the DAG file, which builds the DAGs of all monitors, but of the monitor's own.
"""

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import (
    DAG,
    BaseOperator,
    CronDataIntervalTimetable,
    Param,
    TaskGroup,
    TriggerRule,
    get_parsing_context,
    task,
)
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DagRunTriggerException,
)

from rtscv_mlops.airflow.monitors import (
    PREFIX,
    challenger_asset,
    champion_asset,
    dag_id_of,
    interval_of,
    monitors_folder,
)
from rtscv_mlops.airflow.placement import placement
from rtscv_mlops.airflow.review_operator import ReviewOperator
from rtscv_mlops.config.loading import load_monitor, monitor_files, read_monitors
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.scheduling import AirflowSettings
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, ReviewError, RtscvError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.process import prepare_process


class BrokenMonitor(DAG):
    """Stands for a monitor that cannot be used: it is never stored, only its error is."""

    def __init__(self, path: Path, error: ConfigError) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:100]
        super().__init__(f"{PREFIX}{name}", schedule=None)
        self.__dict__["file"] = str(path)
        Unusable(task_id="monitor", dag=self, error=error)

    @property
    def relative_fileloc(self) -> str:
        """The monitor's own file, whatever the importer says: errors are kept under this name."""
        return str(self.__dict__.get("file", ""))

    @relative_fileloc.setter
    def relative_fileloc(self, given: Any) -> None:
        """Airflow's importer sets the DAG file here."""


class Unusable(BaseOperator):
    """Cannot be stored: whoever tries is told what is wrong with the monitor."""

    def __init__(self, *, error: ConfigError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    @property
    def task_type(self) -> str:
        # A new error: this one may be raised often, and each time its traceback would grow.
        raise ConfigError(str(self.error))


LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)
"""Start of a monitor that names none; without catchup only the last window before now is due."""
MAY_COME_LATE = (Code.NO_INPUT, Code.EMPTY_WINDOW)
"""Why a window could not be judged that may be otherwise when it is tried again."""
RUN_ID, HAS_CHALLENGER, STATUS = "run_id", "has_challenger", "status"


def build_dags(folder: Path | None = None) -> dict[str, DAG]:
    """Return a DAG for each monitor of a folder; a file that cannot be used stops no other."""
    return {dag.dag_id: dag for dag in _dags(folder or monitors_folder())}


def _dags(folder: Path) -> Iterator[DAG]:
    wanted = get_parsing_context().dag_id
    if wanted and (dag := _only(folder, wanted)):
        yield dag
        return
    for path, found in read_monitors(folder).items() if folder.is_dir() else ():
        yield _dag_of(path, found)


def _dag_of(path: Path, found: Monitor | ConfigError) -> DAG:
    """Return the DAG of a monitor, or what stands for one that cannot be used here."""
    try:
        if isinstance(found, ConfigError):
            raise found
        return build_dag(found, path)
    except ConfigError as error:
        return BrokenMonitor(path, error)


def _only(folder: Path, dag_id: str) -> DAG | None:
    """Return the one DAG that a worker needs, if its file is called like it."""
    for path in monitor_files(folder):
        if dag_id.endswith(path.stem):
            try:
                monitor = load_monitor(path)
            except ConfigError:
                continue
            if dag_id_of(monitor) == dag_id:
                return _dag_of(path, monitor)
    return None


def build_dag(monitor: Monitor, path: Path) -> DAG:
    """Return the DAG of one monitor; `path` is the monitor's file."""
    settings = monitor.airflow
    with DAG(
        dag_id_of(monitor),
        description=f"Does the traffic of {monitor.model.name} hold what it was never taught?",
        schedule=CronDataIntervalTimetable(settings.schedule, timezone=_zone(settings)),
        start_date=settings.start or LONG_AGO,
        catchup=settings.catchup,
        max_active_runs=settings.max_active_runs,
        tags={"rtscv", monitor.model.name[:100], *settings.tags},
        doc_md=_doc(monitor, path),
        params={"window": _window_param()},
        default_args={
            "owner": settings.owner,
            "pool": settings.pool,
            "retries": settings.retries,
            "retry_delay": settings.retry_delay,
            "execution_timeout": settings.timeout,
            **placement(settings),
        },
    ) as dag:
        with TaskGroup("window", prefix_group_id=False):
            judged = _rectify_window(monitor)
            reported = _write_report(monitor)
            registered = _register_challenger(monitor)
            alerted = _raise_alert(monitor)
        with TaskGroup("review", prefix_group_id=False):
            reviewed = ReviewOperator(
                task_id="review_challenger", monitor=monitor, monitor_file=path
            )
            promoted = _promote_challenger(monitor)
            asked_again = _ask_again(monitor)
        judged >> reported >> registered >> [alerted, reviewed]
        judged >> [registered, alerted]
        reported >> alerted
        reviewed >> promoted >> asked_again
        reviewed >> asked_again
    return dag


def _zone(settings: AirflowSettings) -> str:
    """Return the zone that a schedule is read in: its own, or UTC where Airflow loses its way.

    Airflow keeps an hourly schedule an hour apart when clocks change. Where they change by half an
    hour (Lord Howe Island) it then never finds the minute of the schedule again and stops, or
    makes windows that overlap.
    """
    every_hour = settings.schedule.split()[1] in ("*", "*/1", "0-23")
    offsets = {
        datetime(2026, month, 1, tzinfo=ZoneInfo(settings.timezone)).utcoffset()
        for month in range(1, 13)
    }
    minutes = {offset % timedelta(hours=1) for offset in offsets if offset is not None}
    return "UTC" if every_hour and len(minutes) > 1 else settings.timezone


def _window_param() -> Param:
    return Param(
        None,
        type=["null", "string"],
        title="Window",
        description="A day such as 2026-01-05, or two moments such as "
        "2026-01-05T00:00Z/2026-01-06T00:00Z. Empty: the run's own data interval.",
    )


def _rectify_window(monitor: Monitor) -> Any:
    # One at a time: windows are judged in order, and a backfill does not take all memory.
    @task(max_active_tis_per_dag=1, multiple_outputs=False)
    def rectify_window(**context: Any) -> dict[str, Any]:
        """Take the window, run RTSCV on it, and write the verdict to its MLflow run."""
        tasks = _pipeline_tasks()
        ti = context["ti"]
        try:
            judged = tasks.rectify_window(monitor, _interval(monitor, context))
        except NotAssessed as error:
            raise AirflowFailException(str(error)) from error
        ti.xcom_push(key=RUN_ID, value=judged.run_id)
        if not judged.assessed:
            _end_unassessed(monitor, judged, ti)
        return {"verdict": judged.verdict, HAS_CHALLENGER: judged.has_challenger}

    return rectify_window()


def _interval(monitor: Monitor, context: Any) -> Any:
    try:
        return interval_of(
            monitor,
            context["params"].get("window"),
            context.get("data_interval_start"),
            context.get("data_interval_end"),
        )
    except RtscvError as error:
        raise AirflowFailException(str(error)) from error


def _end_unassessed(monitor: Monitor, judged: Any, ti: Any) -> None:
    """End a window that could not be judged so that it is not taken for healthy."""
    if judged.code in MAY_COME_LATE and ti.try_number <= ti.max_tries:
        raise AirflowException(f"{judged.sentence} It is tried again: the rows may come late.")
    if monitor.airflow.not_assessed == "skipped":
        raise AirflowSkipException(judged.sentence)
    raise AirflowFailException(judged.sentence)


def _write_report(monitor: Monitor) -> Any:
    @task
    def write_report(ti: Any = None) -> None:
        """Compare the columns, and draw the page; the verdict stands without it."""
        _pipeline_tasks().write_report(monitor, _run_id(ti))

    return write_report()


def _register_challenger(monitor: Monitor) -> Any:
    asset = challenger_asset(monitor.model.name)

    # A report that failed must not stop this; a window that was not judged must.
    @task(outlets=[asset], trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
    def register_challenger(ti: Any = None, outlet_events: Any = None) -> str:
        """Register the rectified model as a version, and offer it for review."""
        judged, run_id = ti.xcom_pull(task_ids="rectify_window"), _run_id(ti)
        if not judged[HAS_CHALLENGER]:
            raise AirflowSkipException(f"Nothing to register: {judged['verdict']}.")
        try:
            version: str = _pipeline_tasks().register_challenger(monitor, run_id)
        except NotAssessed as error:
            raise AirflowSkipException(str(error)) from error
        outlet_events[asset].extra = _extra(monitor, version, run_id)
        return version

    return register_challenger()


def _raise_alert(monitor: Monitor) -> Any:
    @task(trigger_rule=TriggerRule.ALL_DONE)
    def raise_alert(**context: Any) -> str:
        """Tell somebody where the monitor's rule says so, and close the window's run."""
        from rtscv_mlops.airflow.notifiers import notifier_channels

        run_id = _run_id(context["ti"])
        channels = notifier_channels(monitor.airflow, context)
        why: str = _pipeline_tasks().raise_alert(monitor, run_id, channels)
        return why

    return raise_alert()


def _promote_challenger(monitor: Monitor) -> Any:
    asset = champion_asset(monitor.model.name)

    @task(outlets=[asset])
    def promote_challenger(ti: Any = None, outlet_events: Any = None) -> str:
        """Make the approved version the champion, if nothing has moved since it was approved."""
        version, status = _reviewed(ti)
        if status != ReviewStatus.APPROVED:
            raise AirflowSkipException(f"Version {version} is {status}; the champion stays.")
        from rtscv_mlops.review.answers import promote_challenger

        _be_quiet()
        try:
            promoted = promote_challenger(monitor, version)
        except ReviewError as error:
            if error.code != Code.STALE:
                raise AirflowFailException(str(error)) from error
            ti.xcom_push(key=STATUS, value=ReviewStatus.STALE.value)
            raise AirflowSkipException(str(error)) from error
        outlet_events[asset].extra = _extra(monitor, version, promoted.run_id)
        return version

    return promote_challenger()


def _ask_again(monitor: Monitor) -> Any:
    # Runs where there was a review, however it ended.
    @task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    def ask_again(**context: Any) -> None:
        """Judge the window once more if the question has gone stale, so that a new one is asked."""
        ti = context["ti"]
        version, status = _reviewed(ti)
        if ReviewStatus.STALE not in (
            status,
            ti.xcom_pull(task_ids="promote_challenger", key=STATUS),
        ):
            raise AirflowSkipException("The question was answered, or closed for good.")
        interval = _interval(monitor, context)
        # Once for each version that has gone stale: the run is named after it. What Airflow's own
        # operator for this imports is more than all else that is parsed here.
        raise DagRunTriggerException(
            trigger_dag_id=dag_id_of(monitor),
            dag_run_id=f"again__{interval.id}__after_version_{version}",
            conf={"window": f"{interval.start.isoformat()}/{interval.end.isoformat()}"},
            logical_date=None,
            reset_dag_run=False,
            skip_when_already_exists=True,
            wait_for_completion=False,
            allowed_states=[],
            failed_states=[],
            poke_interval=60,
            deferrable=False,
        )

    return ask_again()


def _reviewed(ti: Any) -> tuple[str, str]:
    """Return the version that was reviewed, and how that ended."""
    reviewed = ti.xcom_pull(task_ids="review_challenger")
    if not reviewed:
        raise AirflowSkipException("Nobody answered: review_challenger was marked by hand.")
    return str(reviewed["version"]), str(reviewed[STATUS])


def _run_id(ti: Any) -> str:
    """Return the MLflow run of this window."""
    run_id = ti.xcom_pull(task_ids="rectify_window", key=RUN_ID)
    if not run_id:
        raise AirflowSkipException("rectify_window opened no MLflow run; its log says why.")
    return str(run_id)


def _extra(monitor: Monitor, version: str, run_id: str) -> dict[str, str]:
    return {
        "model": monitor.model.name,
        "version": version,
        "run_id": run_id,
        "monitor": monitor.name,
    }


def _pipeline_tasks() -> Any:
    _be_quiet()
    from rtscv_mlops.pipeline import run

    return run


def _be_quiet() -> None:
    """Leave the task's log to the story of the window; vendors neither chat nor report usage."""
    prepare_process()
    for vendor in ("mlflow", "alembic"):
        logging.getLogger(vendor).setLevel(logging.WARNING)


def _doc(monitor: Monitor, path: Path) -> str:
    source = monitor.source.path or monitor.source.table or "a query"
    return f"""\
Looks at each window of the traffic of **{_code(monitor.model.name)}**, read from {_code(source)},
and says whether it holds something that the model was never taught. Settings: {_code(path.name)}.

| Task | What it does |
|---|---|
| `rectify_window` | takes the window and judges it; the verdict is in the MLflow run |
| `write_report` | draws the report; the verdict stands without it |
| `register_challenger` | only where something new was found: a version that waits for review |
| `raise_alert` | tells somebody where the monitor's rule says so |
| `review_challenger` | waits for a person: here, on the page *Unknowns*, or in MLflow |
| `promote_challenger` | moves the alias {_code(monitor.model.alias)}, only after a yes |
| `ask_again` | only where the champion moved meanwhile: judges the window once more |

A window that could not be judged ends as *{monitor.airflow.not_assessed}*. To judge another window,
trigger the DAG with the param `window`.
"""


def _code(text: str) -> str:
    """Return text as code in Markdown, whatever it holds."""
    return "`" + " ".join(text.replace("`", "'").split()) + "`"
