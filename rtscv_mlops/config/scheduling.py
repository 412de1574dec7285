"""The settings of a monitor's DAG in Airflow: schedule, retries, reviewers, resources."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from rtscv_mlops.config import values

CRON = r"^\S+( \S+){4}$"
NOTIFIER = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
MEMORY = r"^[1-9][0-9]*[MG]i$"


class ResourceSettings(values.Settings):
    """Resources of the pod that runs a task, for Airflow on Kubernetes.

    Together they replace the resources of Airflow's pod template.
    """

    cpu: float = Field(gt=0, description="CPU cores to request. No limit is set.", examples=[1])
    memory: str = Field(
        pattern=MEMORY,
        description="Memory to request, in Mi or Gi. It is also the limit.",
        examples=["2Gi"],
    )


class AirflowSettings(values.Settings):
    """How Airflow runs the monitor. The commands ignore this section."""

    schedule: str = Field(
        default="0 2 * * *",
        pattern=CRON,
        description="Cron expression of five fields. A window ends, and is judged, at each of its "
        "times.",
    )
    timezone: values.Zone = Field(
        default="UTC",
        description="Time zone of the schedule, and of days given to a manual run.",
    )
    start: values.Time | None = Field(
        default=None,
        description="Time from which windows are judged. Required for `catchup`.",
        examples=["2026-01-05"],
    )
    catchup: bool = Field(default=False, description="Also judge all past windows since `start`.")
    owner: str = Field(default="rtscv", min_length=1, description="Owner shown in Airflow.")
    tags: values.Texts = Field(
        default=(), description="Tags of the DAG, in addition to `rtscv` and the model's name."
    )
    pool: str = Field(
        default="default_pool", min_length=1, description="Airflow pool of the tasks."
    )
    queue: str | None = Field(
        default=None,
        min_length=1,
        description="Queue of the tasks, if workers serve specific queues.",
        examples=["large"],
    )
    executor: str | None = Field(
        default=None,
        min_length=1,
        description="Executor of the tasks, if Airflow has several.",
        examples=["KubernetesExecutor"],
    )
    resources: ResourceSettings | None = None
    retries: int = Field(default=2, ge=0, le=100, description="Retries of a failed task.")
    retry_delay: values.Duration = Field(
        default=timedelta(minutes=5), description="Delay before each retry."
    )
    timeout: values.PositiveDuration = Field(
        default=timedelta(hours=2),
        description="Maximum run time of a task. A task that takes longer fails.",
    )
    max_active_runs: int = Field(
        default=4,
        ge=2,
        le=100,
        description="Maximum number of runs at a time. A run that waits for a review counts, "
        "so the minimum is 2.",
    )
    not_assessed: Literal["failed", "skipped"] = Field(
        default="failed",
        description="State of the task when a window could not be judged.",
    )
    reviewers: values.Texts = Field(
        default=(),
        description="Airflow user ids that may answer a review. If empty, every user with the "
        "permission may.",
        examples=[["ann", "ben"]],
    )
    poll: values.PositiveDuration = Field(
        default=timedelta(seconds=30),
        description="Time between checks of the MLflow registry while a review is open.",
    )
    notifiers: dict[Annotated[str, Field(pattern=NOTIFIER)], values.Options] = Field(
        default_factory=dict,
        description="Airflow notifiers that also receive alerts: the import path of each "
        "`BaseNotifier` class, with its arguments. In templated arguments, `{{ rtscv.subject }}` "
        "and `{{ rtscv.text }}` insert the alert.",
        examples=[
            {
                "airflow.providers.smtp.notifications.smtp.SmtpNotifier": {
                    "to": "team@example.com",
                    "subject": "{{ rtscv.subject }}",
                    "html_content": "<pre>{{ rtscv.text }}</pre>",
                }
            }
        ],
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        if self.catchup and self.start is None:
            yield values.Conflict(
                ("catchup", "start"), "catchup needs a start: set the start of the first window"
            )
