"""The settings of a monitor, each with its default, limits and description.

The descriptions are published: in editors by the JSON schema, in the reference page, and in the
file that `rtscv-mlops init` writes.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from rtscv_mlops.config import values
from rtscv_mlops.config.inputs import LabelSettings, ReferenceSettings, SourceSettings
from rtscv_mlops.config.scheduling import AirflowSettings
from rtscv_mlops.outcomes import AlertVerdict, ChannelName, ReviewChannel

MAX_SEED = 2**32 - 1  # the limit of NumPy
MONITOR_NAME = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"
MODEL_NAME = r"^[^/:]*[^/:.][^/:]*$"
FIT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
MAIL = r"^[^@\s]+@[^@\s]+$"
SCHEDULER = r"^(tcp|tls|ws|wss)://[^\s/]"


class ModelSettings(values.Settings):
    """The registered model to monitor, and how to refit and save it."""

    name: str = Field(
        max_length=256,
        pattern=MODEL_NAME,
        description="Name of the registered model in MLflow.",
        examples=["digits"],
    )
    alias: values.Alias = Field(
        default=values.CHAMPION, description="Alias of the version in production."
    )
    tracking_uri: values.Address | None = Field(
        default=None,
        description="MLflow tracking server or database. Defaults to the environment variable "
        "MLFLOW_TRACKING_URI.",
        examples=["http://localhost:5000"],
    )
    tracking_uri_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the tracking URI.",
        examples=["TEAM_MLFLOW_URI"],
    )
    columns: Annotated[values.Names, Field(min_length=1)] | None = Field(
        default=None,
        description="Feature columns. Needed only if the model has no signature.",
        examples=[["height", "width"]],
    )
    fit: str | None = Field(
        default=None,
        pattern=FIT,
        description="Function, as `package.module:function`, that takes (X, y) and returns a "
        "fitted model. Needed only if the model cannot be cloned.",
        examples=["team.training:fit"],
    )
    allow_pickle: bool = Field(
        default=False,
        description="Load and save models with pickle. A pickle can run any code, so enable this "
        "only if you trust everyone who can write the model's files.",
    )
    trusted_types: values.Texts = Field(
        default=(),
        description="Types that skops may load in addition to the built-in list of safe types.",
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        if self.tracking_uri and self.tracking_uri_env:
            yield values.Conflict(
                ("tracking_uri_env", "tracking_uri"),
                "set either tracking_uri or tracking_uri_env, not both",
            )


class BaselineSettings(values.Settings):
    """Clean production data to compare windows with, instead of the training data."""

    start: values.Time | None = Field(
        default=None,
        description="Start of a period that is known to be clean. In UTC unless it has an offset.",
        examples=["2026-01-05"],
    )
    end: values.Time | None = Field(
        default=None, description="End of that period, exclusive.", examples=["2026-01-12"]
    )
    first: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Number of windows to collect as the baseline: the first ones that were quiet "
        "or approved. Until then, windows are compared with the training data.",
        examples=[7],
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        every = ("start", "end", "first")
        if (self.start is None) != (self.end is None):
            yield values.Conflict(("start", "end"), "a baseline period needs both start and end")
        elif (self.start is None) == (self.first is None):
            yield values.Conflict(every, "set either start and end, or first")
        if self.start and self.end and self.start >= self.end:
            yield values.Conflict(
                ("end", "start"), f"start {self.start} is not before end {self.end}"
            )


class RectifySettings(values.Settings):
    """How RTSCV looks for unknowns. The names are those of `RTSCVClassifier`."""

    alpha: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="Significance level of the test that a window holds nothing new. A lower "
        "value gives fewer false alarms.",
    )
    gate: Literal["auto", "kernel", "forest", "network", "estimator"] = Field(
        default="auto",
        description="Model that scores rows. `auto` chooses by the type of the champion; "
        "`estimator` cross-validates the champion itself.",
    )
    cv: int = Field(default=3, ge=2, le=20, description="Number of cross-validation folds.")
    sample_rate: Literal["auto"] | Annotated[float, Field(gt=0)] = Field(
        default="auto",
        description="Total weight of the window relative to the training rows. `auto` is 0.2.",
    )
    unknown_label: values.Name | int | None = Field(
        default=None,
        description="Label of unknown rows, in the type of the other labels. Defaults to the "
        "largest label plus one if labels are numbers, otherwise to `unknown`.",
        examples=["unknown"],
    )
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="Seed of all random choices.")
    min_rows: int = Field(
        default=50, ge=2, description="Minimum number of rows. A smaller window is not assessed."
    )
    max_rows: int = Field(
        default=20_000,
        ge=50,
        description="Maximum number of rows. A larger window is sampled at random to this size.",
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        if self.max_rows < self.min_rows:
            yield values.Conflict(
                ("max_rows", "min_rows"),
                f"max_rows {self.max_rows} is below min_rows {self.min_rows}, so no window could "
                "be assessed",
            )
        if self.min_rows < self.cv:
            yield values.Conflict(
                ("min_rows", "cv"), f"min_rows {self.min_rows} is below the {self.cv} folds of cv"
            )


class CanarySettings(values.Settings):
    """A known class to hide in each window, as a check that a new class would be detected.

    This takes one more run of RTSCV per window. It does not affect the verdict.
    """

    hide: values.Name | int = Field(
        default="rotate",
        description="Label of the class to hide. `rotate` takes each class in turn.",
    )
    rate: float = Field(
        default=0.1, gt=0, le=0.5, description="Share of the window that the hidden class makes up."
    )


class ComputeSettings(values.Settings):
    """Where a window is processed. The result does not depend on it."""

    engine: Literal["local", "dask"] = Field(
        default="local",
        description="`local` uses this machine, `dask` the workers of a Dask cluster.",
    )
    jobs: int = Field(
        default=1,
        ge=1,
        le=1_000,
        description="Number of processes on this machine, with one thread each.",
    )
    address: Annotated[values.Address, Field(pattern=SCHEDULER)] | None = Field(
        default=None,
        description="Address of the Dask scheduler.",
        examples=["tcp://dask-scheduler:8786"],
    )
    address_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the address of the Dask scheduler.",
        examples=["DASK_SCHEDULER"],
    )
    timeout: values.PositiveDuration = Field(
        default=timedelta(seconds=30),
        description="Maximum wait for the scheduler, and then for the first worker.",
    )
    fallback: bool = Field(
        default=False,
        description="If the cluster is unavailable, use this machine and report that. Otherwise "
        "the window fails.",
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        given = [name for name in ("address", "address_env") if getattr(self, name) is not None]
        if self.engine == "dask" and len(given) != 1:
            count = "both are set" if given else "neither is set"
            yield values.Conflict(
                ("address_env", "address", "engine"),
                f"engine: dask needs either address or address_env; {count}",
            )
        if self.engine == "local" and given:
            yield values.Conflict((*given, "engine"), f"{given[0]} needs engine: dask")


DISTANCES = {"wasserstein", "jensenshannon", "psi", "kl_div", "hellinger", "ed"}
"""Methods that measure a distance. The others are tests, whose result depends on the row count."""


class DriftSettings(values.Settings):
    """How Evidently measures the drift of columns."""

    num_method: Literal[
        "wasserstein",
        "ks",
        "psi",
        "jensenshannon",
        "hellinger",
        "kl_div",
        "anderson",
        "cramer_von_mises",
        "ed",
        "es",
        "mannw",
        "t_test",
    ] = Field(default="wasserstein", description="Evidently method for numeric columns.")
    num_threshold: float = Field(
        default=0.1,
        gt=0,
        description="Threshold of `num_method`. A distance above it, or a p-value below it, is "
        "drift.",
    )
    cat_method: Literal["jensenshannon", "psi", "chisquare", "hellinger", "kl_div", "TVD"] = Field(
        default="jensenshannon", description="Evidently method for categorical columns."
    )
    cat_threshold: float = Field(
        default=0.1,
        gt=0,
        description="Threshold of `cat_method`. A distance above it, or a p-value below it, is "
        "drift.",
    )
    max_columns: int = Field(
        default=60, ge=1, description="Maximum number of columns to show, the most drifted first."
    )
    max_rows: int = Field(
        default=5_000,
        ge=100,
        description="Maximum number of rows per side, training data and window, to pass to "
        "Evidently. For distances, these represent all rows.",
    )

    def is_distance(self, kind: str) -> bool:
        """Return whether a kind of column is measured by a distance, not by a test."""
        return (self.num_method if kind == "number" else self.cat_method) in DISTANCES


class Email(values.Settings):
    """E-mail over SMTP. User and password come from environment variables."""

    to: Annotated[
        tuple[Annotated[str, Field(pattern=MAIL)], ...], Field(strict=False, min_length=1)
    ] = Field(description="Addresses of the recipients.", examples=[["team@example.com"]])
    sender: str = Field(
        default="rtscv-mlops@localhost", pattern=MAIL, description="Address of the sender."
    )
    host: str = Field(
        default="localhost", min_length=1, description="Host name of the SMTP server."
    )
    port: int = Field(default=25, ge=1, le=65535, description="Port of the SMTP server.")
    tls: bool = Field(
        default=False,
        description="Encrypt with STARTTLS. Required to send a password to another machine.",
    )
    user_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the user name.",
        examples=["SMTP_USER"],
    )
    password_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the password.",
        examples=["SMTP_PASSWORD"],
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        if (self.user_env is None) != (self.password_env is None):
            yield values.Conflict(
                ("user_env", "password_env"), "set both user_env and password_env, or neither"
            )


class AlertSettings(values.Settings):
    """When to send an alert, and where to."""

    on: Annotated[tuple[AlertVerdict, ...], Field(strict=False)] = Field(
        default=get_args(AlertVerdict), description="Verdicts that can raise an alert."
    )
    min_rate: values.Share = Field(
        default=0.01, description="Smallest unknown rate that can raise an alert about unknowns."
    )
    max_p_value: float = Field(
        default=0.01, gt=0, le=1, description="Largest p-value that can raise an alert."
    )
    windows: int = Field(
        default=1,
        ge=1,
        description="Number of windows, among the last `of`, that must match `on`, `min_rate` and "
        "`max_p_value`.",
    )
    of: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Number of recent windows to consider, including the current one.",
    )
    cooldown: values.Duration = Field(
        default=timedelta(days=1),
        description="Minimum time between alerts. A more severe verdict is sent anyway: an alert "
        "about unknowns suppresses unknowns and drift, one about drift only drift, and one about "
        "a window that was not assessed only the same reason. If no channel is set, alerts in the "
        "log count, including those from the command line.",
    )
    webhook_url: values.WebAddress | None = Field(
        default=None,
        description="URL that receives the alert as a JSON POST request.",
        examples=["https://example.com/alerts"],
    )
    webhook_url_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the webhook URL.",
        examples=["ALERT_WEBHOOK_URL"],
    )
    email: Email | None = Field(default=None, description="E-mail over SMTP.")

    def conflicts(self) -> Iterator[values.Conflict]:
        if self.windows > self.of:
            yield values.Conflict(
                ("windows", "of"),
                f"windows {self.windows} is above of {self.of}, so no alert could be sent",
            )
        if self.webhook_url and self.webhook_url_env:
            yield values.Conflict(
                ("webhook_url_env", "webhook_url"),
                "set either webhook_url or webhook_url_env, not both",
            )


class ReviewSettings(values.Settings):
    """What a challenger must meet before a reviewer may approve it."""

    max_class_loss: values.Share = Field(
        default=0.05,
        description="Largest recall loss allowed for any known class. A bigger loss blocks "
        "approval, unless chance explains it.",
    )
    min_unknowns: int = Field(
        default=10,
        ge=1,
        description="Minimum number of unknown rows to train a challenger on, near-copies counted "
        "once. Fewer rows block approval.",
    )
    expires: values.PositiveDuration = Field(
        default=timedelta(days=14),
        description="How long a review stays open. An unanswered challenger is closed without "
        "promotion.",
    )
    reason: Literal["required", "optional"] = Field(
        default="required",
        description="Whether an approval, a rejection or a rollback must say why. Without a "
        "required reason it is not carried out.",
    )

    channels: tuple[ChannelName, ...] | None = Field(
        default=None,
        description="How decisions may come. Default: every way; if airflow.reviewers names "
        "people, only those where Airflow proves who decided.",
        examples=[["airflow_page", "required_actions"]],
    )


class ReportSettings(values.Settings):
    """What reports and artifacts may copy from the source."""

    columns: Literal["model", "none"] | values.Names = Field(
        default="model",
        description="Columns that may be copied: those of the `model`, `none`, or a list of names.",
    )
    key: bool = Field(
        default=False,
        description="Store the value of `source.key` with each unknown row, even if `columns` does "
        "not list that column.",
    )
    max_unknowns: int = Field(
        default=1_000,
        ge=0,
        description="Maximum number of unknown rows to store as Parquet. 0 stores none.",
    )
    exemplars: int = Field(
        default=5,
        ge=0,
        le=50,
        description="Number of typical rows to show per cluster. 0 shows none.",
    )


class Monitor(values.Settings):
    """A monitor of one registered model.

    Attributes
    ----------
    name : str
        Name of the monitor; the name of its file by default.
    model, source, reference, labels, baseline, rectify, canary
        Sections of the file: what is watched, and how it is judged.
    compute, drift, alert, review, report, airflow
        Sections of the file: where the work is done, and what becomes of the result.
    """

    name: str = Field(
        default="",
        pattern=MONITOR_NAME,
        max_length=100,
        description="Name of the monitor. Defaults to the name of the file.",
        examples=["digits-daily"],
    )
    model: ModelSettings
    source: SourceSettings
    reference: ReferenceSettings | None = None
    labels: LabelSettings | None = None
    baseline: BaselineSettings | None = None
    rectify: RectifySettings = RectifySettings()
    canary: CanarySettings | None = None
    compute: ComputeSettings = ComputeSettings()
    drift: DriftSettings = DriftSettings()
    alert: AlertSettings = AlertSettings()
    review: ReviewSettings = ReviewSettings()
    report: ReportSettings = ReportSettings()
    airflow: AirflowSettings = AirflowSettings()

    def conflicts(self) -> Iterator[values.Conflict]:
        features = self.model.columns or ()
        for section, part in (("source", self.source), ("reference", self.reference)):
            if part is not None and part.label in features:
                yield values.Conflict(
                    (section, "model"),
                    f"{section}.label {part.label} is also listed in model.columns, but a label "
                    "cannot be a feature",
                )
        if self.labels is not None and self.source.key is None:
            yield values.Conflict(
                ("labels", "source"), "labels are joined by key: set source.key to its column"
            )
        if self.report.key and self.source.key is None:
            yield values.Conflict(
                ("report", "source"), "report.key needs a key: set source.key to its column"
            )

    @property
    def open_channels(self) -> tuple[ReviewChannel, ...]:
        """How decisions may come."""
        if self.review.channels is not None:
            return tuple(ReviewChannel(name) for name in self.review.channels)
        named = bool(self.airflow.reviewers)
        return tuple(channel for channel in ReviewChannel if channel.proves_identity or not named)

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that decide a window's result, as plain JSON."""
        parts = {"source", "reference", "baseline", "rectify"}
        # `origin` does not affect the verdict, and reading it changes the window's digest anyway.
        ignored = {"source": {"max_bytes", "origin"}, "reference": {"max_bytes"}}
        model = self.model.model_dump(mode="json", include={"name", "alias", "columns", "fit"})
        return {"model": model, **self.model_dump(mode="json", include=parts, exclude=ignored)}
