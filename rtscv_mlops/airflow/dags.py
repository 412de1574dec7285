"""A DAG for each monitor of a folder.

Airflow parses this again and again, so vendors are imported inside the tasks.
"""

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn
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

from rtscv_mlops.airflow import monitors
from rtscv_mlops.airflow.monitors import Task
from rtscv_mlops.airflow.review_operator import ReviewOperator
from rtscv_mlops.config.loading import load_monitor, monitor_files, read_monitors
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.scheduling import AirflowSettings, ResourceSettings
from rtscv_mlops.errors import Code, ConfigError, NotAssessed, ReviewError, RtscvError
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.process import prepare_process
from rtscv_mlops.window import Interval

LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC)
"""Default start of a monitor; without catchup only the last window before now is due."""
MAY_COME_LATE = (Code.NO_INPUT, Code.EMPTY_WINDOW)
"""Why a window could not be judged that may be judged when it is tried again."""
RUN_ID, HAS_CHALLENGER, VERSION, STATUS = "run_id", "has_challenger", "version", "status"
FACTS_SHA256 = "facts_sha256"
"""What later tasks must find in MLflow, where others can write; they cannot write here."""
CONTAINER = "base"
"""Airflow's name for the container that runs a task."""


class BrokenMonitor(DAG):
    """Stands for a monitor that cannot be used, and shows its error as an import error.

    Airflow keeps import errors by file, and a file with one loses all its DAGs. So the error must
    not be that of the DAG file, which has the DAGs of all monitors, but of the monitor's own file.
    This DAG itself is never stored.
    """

    def __init__(self, path: Path, error: ConfigError) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:100]
        super().__init__(f"{monitors.PREFIX}{name}", schedule=None)
        self.__dict__["file"] = str(path)
        Unusable(task_id="monitor", dag=self, error=error)

    @property
    def relative_fileloc(self) -> str:
        """The monitor's own file: Airflow keeps errors under this name."""
        return str(self.__dict__.get("file", ""))

    @relative_fileloc.setter
    def relative_fileloc(self, given: Any) -> None:
        """Ignore the DAG file, which Airflow's importer sets here."""


class Unusable(BaseOperator):
    """Raises the monitor's error when Airflow tries to store it."""

    def __init__(self, *, error: ConfigError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    @property
    def task_type(self) -> str:
        # A new error each time: the traceback of one that is raised often would grow.
        raise ConfigError(str(self.error))


def build_dags(folder: Path | None = None) -> dict[str, DAG]:
    """Return a DAG for each monitor of a folder; a file that cannot be used stops no other.

    Parameters
    ----------
    folder : Path or None
        The folder of monitor files. None means the folder that `RTSCV_MONITORS_DIR` names, or
        `monitors` in Airflow's DAGs folder.

    Returns
    -------
    dict of str to DAG
        The DAGs by their id. A file with mistakes is shown as an import error in Airflow.
    """
    folder = folder or monitors.monitors_folder()
    wanted = get_parsing_context().dag_id
    if wanted:
        # A worker needs one DAG; the monitor's file usually has the same name.
        for path in monitor_files(folder):
            if wanted.endswith(path.stem):
                try:
                    monitor = load_monitor(path)
                except ConfigError:
                    continue
                if monitors.dag_id_of(monitor) == wanted:
                    return {wanted: _dag_of(path, monitor)}
    every = read_monitors(folder).items() if folder.is_dir() else ()
    return {dag.dag_id: dag for dag in (_dag_of(path, read) for path, read in every)}


def _dag_of(path: Path, read: Monitor | ConfigError) -> DAG:
    """Return the DAG of a monitor, or the stand-in for one that cannot be used here."""
    try:
        if isinstance(read, ConfigError):
            raise read
        return build_dag(read, path)
    except ConfigError as error:
        return BrokenMonitor(path, error)


def build_dag(monitor: Monitor, path: Path) -> DAG:
    """Return the DAG of one monitor; `path` is the monitor's file."""
    settings, tasks = monitor.airflow, MonitorTasks(monitor)
    with DAG(
        monitors.dag_id_of(monitor),
        description=f"Does the traffic of {monitor.model.name} hold unknown classes?",
        schedule=CronDataIntervalTimetable(settings.schedule, timezone=_timezone(settings)),
        start_date=settings.start or LONG_AGO,
        catchup=settings.catchup,
        max_active_runs=settings.max_active_runs,
        tags={"rtscv", monitor.model.name[:100], *settings.tags},
        doc_md=_doc(monitor, path),
        params={
            "window": Param(
                None,
                type=["null", "string"],
                title="Window",
                description="A day such as 2026-01-05, or two times such as "
                "2026-01-05T00:00Z/2026-01-06T00:00Z. Empty: the run's own data interval.",
            )
        },
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
            # One at a time: windows are judged in order, and a backfill does not take all memory.
            judged = task(max_active_tis_per_dag=1, multiple_outputs=False)(tasks.rectify_window)()
            reported = task(tasks.write_report)()
            # A report that failed must not stop this; a window that was not judged must.
            registered = task(
                outlets=[monitors.challenger_asset(monitor.model.name)],
                trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
            )(tasks.register_challenger)()
            alerted = task(trigger_rule=TriggerRule.ALL_DONE)(tasks.raise_alert)()
        with TaskGroup("review", prefix_group_id=False):
            reviewed = ReviewOperator(task_id=Task.REVIEW.value, monitor=monitor, monitor_file=path)
            promoted = task(outlets=[monitors.champion_asset(monitor.model.name)])(
                tasks.promote_challenger
            )()
            # Runs after every review, however it ended.
            asked_again = task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)(
                tasks.ask_again
            )()
        judged >> reported >> registered >> [alerted, reviewed]
        judged >> [registered, alerted]
        reported >> alerted
        reviewed >> promoted >> asked_again
        reviewed >> asked_again
    return dag


@dataclass(frozen=True, slots=True)
class MonitorTasks:
    """The tasks of one monitor; the name of each method is the id of its task."""

    monitor: Monitor

    def rectify_window(self, **context: Any) -> dict[str, Any]:
        """Take the window, run RTSCV on it, and write the verdict to its MLflow run."""
        ti = context["ti"]
        try:
            judged = _pipeline_tasks().rectify_window(self.monitor, self._interval(context))
        except NotAssessed as error:
            raise AirflowFailException(str(error)) from error
        ti.xcom_push(key=RUN_ID, value=judged.run_id)
        if judged.assessed:
            ti.xcom_push(key=FACTS_SHA256, value=judged.facts_sha256)
        if not judged.assessed:
            if judged.code in MAY_COME_LATE and ti.try_number <= ti.max_tries:
                raise AirflowException(f"{judged.sentence} It is tried again: rows may come late.")
            self._end_unassessed(judged.sentence)
        return {"verdict": judged.verdict, HAS_CHALLENGER: judged.has_challenger}

    def write_report(self, ti: Any = None) -> None:
        """Compare the columns, and draw the page; the verdict stands without it."""
        _pipeline_tasks().write_report(self.monitor, _run_id(ti), _facts_sha256(ti))

    def register_challenger(self, **context: Any) -> str:
        """Register the rectified model as a version, and offer it for review.

        If the champion has moved since the window was judged, it is first judged again.
        """
        ti, pipeline = context["ti"], _pipeline_tasks()
        judged, run_id = ti.xcom_pull(task_ids=Task.RECTIFY.value), _run_id(ti)
        if not judged[HAS_CHALLENGER]:
            raise AirflowSkipException(f"Nothing to register: {judged['verdict']}.")
        try:
            version: str | None = pipeline.register_challenger(
                self.monitor, run_id, _facts_sha256(ti)
            )
        except NotAssessed as error:
            if error.code != Code.STALE:
                self._end_unassessed(str(error))
            again = pipeline.judge_again(self.monitor, self._interval(context))
            version, run_id, facts = again.version, again.run_id, again.facts
            ti.xcom_push(key=RUN_ID, value=run_id)
            if not facts.assessed:
                self._end_unassessed(facts.headline)
            if version is None:
                raise AirflowSkipException(f"Nothing to register: {facts.verdict}.") from error
        asset = monitors.challenger_asset(self.monitor.model.name)
        context["outlet_events"][asset].extra = self._extra(str(version), run_id)
        return str(version)

    def raise_alert(self, **context: Any) -> str:
        """Send an alert if the monitor's rule says so, and close the window's run."""
        from rtscv_mlops.alerts.channels import notifier_channels

        ti = context["ti"]
        channels = notifier_channels(self.monitor.airflow, context)
        why: str = _pipeline_tasks().raise_alert(
            self.monitor, _run_id(ti), _facts_sha256(ti), channels
        )
        return why

    def promote_challenger(self, ti: Any = None, outlet_events: Any = None) -> str:
        """Make the approved version the champion, if nothing has moved since it was approved."""
        version, status = _reviewed(ti)
        if not ReviewStatus(status).may_promote:
            raise AirflowSkipException(f"Version {version} is {status}; the champion stays.")
        from rtscv_mlops.review.answers import promote_challenger

        _quiet_vendors()
        try:
            promoted = promote_challenger(self.monitor, version)
        except ReviewError as error:
            if error.code != Code.STALE:
                raise AirflowFailException(str(error)) from error
            ti.xcom_push(key=STATUS, value=str(error.code))
            raise AirflowSkipException(str(error)) from error
        asset = monitors.champion_asset(self.monitor.model.name)
        outlet_events[asset].extra = self._extra(version, promoted.run_id)
        return version

    def ask_again(self, **context: Any) -> None:
        """Judge the window again if the question has become stale, so that a new one is asked."""
        ti = context["ti"]
        version, status = _reviewed(ti)
        promotion = ti.xcom_pull(task_ids=Task.PROMOTE.value, key=STATUS)
        if not ReviewStatus(promotion or status).asks_again:
            raise AirflowSkipException("The question was answered, or closed for good.")
        interval = self._interval(context)
        # Once for each stale version: the run is named after it. Airflow's own operator for this
        # would import more than everything else that is parsed here.
        raise DagRunTriggerException(
            trigger_dag_id=monitors.dag_id_of(self.monitor),
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

    def _end_unassessed(self, sentence: str) -> NoReturn:
        """End a task so that its window is not taken for a quiet one."""
        if self.monitor.airflow.not_assessed == "skipped":
            raise AirflowSkipException(sentence)
        raise AirflowFailException(sentence)

    def _interval(self, context: Any) -> Interval:
        try:
            return monitors.interval_of(
                self.monitor,
                context["params"].get("window"),
                context.get("data_interval_start"),
                context.get("data_interval_end"),
            )
        except RtscvError as error:
            raise AirflowFailException(str(error)) from error

    def _extra(self, version: str, run_id: str) -> dict[str, str]:
        model, monitor = self.monitor.model.name, self.monitor.name
        return {"model": model, "version": version, "run_id": run_id, "monitor": monitor}


def _reviewed(ti: Any) -> tuple[str, str]:
    """Return the version that was reviewed, and how the review ended."""
    reviewed = ti.xcom_pull(task_ids=Task.REVIEW.value)
    if not reviewed:
        raise AirflowSkipException(f"There is no answer: {Task.REVIEW} was marked by hand.")
    return str(reviewed[VERSION]), str(reviewed[STATUS])


def _run_id(ti: Any) -> str:
    """Return the MLflow run of this window; one that was judged again may have another."""
    runs = [ti.xcom_pull(task_ids=str(name), key=RUN_ID) for name in (Task.REGISTER, Task.RECTIFY)]
    run_id = next(filter(None, runs), None)
    if not run_id:
        raise AirflowSkipException(f"{Task.RECTIFY} opened no MLflow run; see its log.")
    return str(run_id)


def _facts_sha256(ti: Any) -> str:
    """Return the digest of the verdict; empty if the window was not assessed."""
    return str(ti.xcom_pull(task_ids=Task.RECTIFY.value, key=FACTS_SHA256) or "")


def _pipeline_tasks() -> Any:
    _quiet_vendors()
    from rtscv_mlops.pipeline import run

    return run


def _quiet_vendors() -> None:
    """Keep the task's log readable: no progress messages or telemetry of vendors."""
    prepare_process()
    monitors.use_signing_key()
    for vendor in ("mlflow", "alembic"):
        logging.getLogger(vendor).setLevel(logging.WARNING)


def placement(settings: AirflowSettings) -> dict[str, Any]:
    """Return the arguments of an operator that choose where it runs; none for what is not set.

    A worker parses the one DAG that it runs and needs none of them. In a pod Airflow often knows
    only the local executor, and would refuse a task that names another.
    """
    if get_parsing_context().dag_id:
        return {}
    arguments: dict[str, Any] = {}
    if settings.queue:
        arguments["queue"] = settings.queue
    if settings.executor:
        _check_executor(settings.executor)
        arguments["executor"] = settings.executor
    if settings.resources:
        arguments["executor_config"] = {"pod_override": _pod(settings.resources)}
    return arguments


def _check_executor(name: str) -> None:
    """Refuse an executor that Airflow does not have: it would reject the DAGs of all monitors."""
    from airflow.exceptions import UnknownExecutorException
    from airflow.executors.executor_loader import ExecutorLoader
    from airflow.sdk.configuration import conf

    try:
        ExecutorLoader.lookup_executor_name_by_str(name, validate_teams=False)
    except UnknownExecutorException as error:
        raise ConfigError(
            f"airflow.executor is {name!r}, and Airflow has {conf.get('core', 'executor')!r} here. "
            "Add it to Airflow's setting core.executor, for both the DAG processor and the "
            "scheduler, or remove it from the monitor."
        ) from error


def _pod(resources: ResourceSettings) -> Any:
    """Return the monitor's own part of a pod; the rest is Airflow's template."""
    try:
        from kubernetes.client import models
    except ImportError as error:
        raise ConfigError(
            "airflow.resources needs the package kubernetes, which is not installed here. Install "
            "apache-airflow-providers-cncf-kubernetes where the DAG processor, the scheduler and "
            "the API server run, or remove airflow.resources from the monitor."
        ) from error
    needs = models.V1ResourceRequirements(
        requests={"cpu": f"{resources.cpu:g}", "memory": resources.memory},
        # A task without enough memory is better killed than left to crowd out its node; without
        # enough cores it only takes longer.
        limits={"memory": resources.memory},
    )
    container = models.V1Container(name=CONTAINER, resources=needs)
    return models.V1Pod(spec=models.V1PodSpec(containers=[container]))


def _timezone(settings: AirflowSettings) -> str:
    """Return the time zone of a schedule: its own, or UTC if Airflow cannot handle that one.

    Airflow keeps an hourly schedule an hour apart when clocks change. If they change by half an
    hour (Lord Howe Island) it never finds the minute of the schedule again, and stops or makes
    windows that overlap.
    """
    every_hour = settings.schedule.split()[1] in ("*", "*/1", "0-23")
    offsets = {
        datetime(2026, month, 1, tzinfo=ZoneInfo(settings.timezone)).utcoffset()
        for month in range(1, 13)
    }
    minutes = {offset % timedelta(hours=1) for offset in offsets if offset is not None}
    return "UTC" if every_hour and len(minutes) > 1 else settings.timezone


def _doc(monitor: Monitor, path: Path) -> str:
    def code(text: str) -> str:
        return "`" + " ".join(text.replace("`", "'").split()) + "`"

    source = monitor.source.path or monitor.source.table or "a query"
    return f"""\
Checks each window of the traffic of **{code(monitor.model.name)}**, read from {code(source)}, for
classes that the model was never taught. Settings: {code(path.name)}.

| Task | What it does |
|---|---|
| `{Task.RECTIFY}` | takes the window and judges it; the verdict is in the MLflow run |
| `{Task.REPORT}` | draws the report; the verdict stands without it |
| `{Task.REGISTER}` | only if something new was found: registers a version that waits for review |
| `{Task.ALERT}` | sends an alert if the monitor's rule says so |
| `{Task.REVIEW}` | waits for a reviewer: here, on the page *Unknowns*, or in MLflow |
| `{Task.PROMOTE}` | moves the alias {code(monitor.model.alias)}, only after a yes |
| `{Task.ASK_AGAIN}` | only if the champion has moved: judges the window again |

A window that could not be judged ends as *{monitor.airflow.not_assessed}*. To judge another window,
trigger the DAG with the param `window`.
"""
