"""How Airflow runs a monitor: schedule, retries, reviewers, where its tasks run."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from rtscv_mlops.config.values import (
    Conflict,
    Duration,
    Moment,
    Options,
    Patience,
    Settings,
    Texts,
    Zone,
)

CRON = r"^\S+( \S+){4}$"
NOTIFIER = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
MEMORY = r"^[1-9][0-9]*[MG]i$"


class ResourceSettings(Settings):
    """What a pod of the monitor's tasks asks for, where Airflow runs them on Kubernetes.

    Both are asked for together: they take the place of all that Airflow's pod template says.
    """

    cpu: float = Field(
        gt=0, description="Cores that are requested; there is no limit.", examples=[1]
    )
    memory: str = Field(
        pattern=MEMORY,
        description="Memory that is requested, and the limit: a whole number of Mi or Gi.",
        examples=["2Gi"],
    )


class AirflowSettings(Settings):
    """How Airflow runs the monitor; the commands take no notice of it."""

    schedule: str = Field(
        default="0 2 * * *",
        pattern=CRON,
        description="Cron expression: a window ends, and is judged, at each of its times.",
    )
    timezone: Zone = Field(default="UTC", description="Time zone of the schedule and of days.")
    start: Moment | None = Field(
        default=None,
        description="First moment that may be judged.",
        examples=["2026-01-05"],
    )
    catchup: bool = Field(
        default=False, description="Judge the windows between the start and now as well."
    )
    owner: str = Field(default="rtscv", min_length=1, description="Owner that Airflow shows.")
    tags: Texts = Field(default=(), description="Tags beside `rtscv` and the model's name.")
    pool: str = Field(default="default_pool", min_length=1, description="Pool of the tasks.")
    queue: str | None = Field(
        default=None,
        min_length=1,
        description="Queue of the tasks, for workers that take certain queues only.",
        examples=["large"],
    )
    executor: str | None = Field(
        default=None,
        min_length=1,
        description="Executor of the tasks, where Airflow has more than one.",
        examples=["KubernetesExecutor"],
    )
    resources: ResourceSettings | None = None
    retries: int = Field(default=2, ge=0, le=100, description="Tries after one that failed.")
    retry_delay: Duration = Field(
        default=timedelta(minutes=5), description="Time between two tries."
    )
    timeout: Patience = Field(
        default=timedelta(hours=2), description="Time after which a task that works is stopped."
    )
    max_active_runs: int = Field(
        default=4,
        ge=2,
        le=100,
        description="Runs at once; one that waits for a review counts, so one is not enough.",
    )
    not_assessed: Literal["failed", "skipped"] = Field(
        default="failed", description="How a window that could not be judged ends."
    )
    reviewers: Texts = Field(
        default=(),
        description="User ids that may answer in Airflow; without them, everybody with the right.",
        examples=[["ann", "ben"]],
    )
    poll: Patience = Field(
        default=timedelta(seconds=30),
        description="Time between two looks at the MLflow registry while a review waits.",
    )
    notifiers: dict[Annotated[str, Field(pattern=NOTIFIER)], Options] = Field(
        default_factory=dict,
        description="Airflow notifiers that get alerts too: the path of each class, any "
        "`BaseNotifier`, with its arguments. `{{ rtscv.subject }}` and `{{ rtscv.text }}` stand "
        "for the alert in those that it templates.",
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

    def conflicts(self) -> Iterator[Conflict]:
        if self.catchup and self.start is None:
            yield Conflict(("catchup", "start"), "catchup needs a start to catch up from")
