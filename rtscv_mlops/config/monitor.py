"""The settings of a monitor, each with its default, its limits and its description.

Knows names, defaults and limits; knows nothing of YAML or of the worlds the settings point at.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from rtscv_mlops.config.inputs import LabelSettings, ReferenceSettings, SourceSettings
from rtscv_mlops.config.scheduling import AirflowSettings
from rtscv_mlops.config.values import (
    Address,
    Alias,
    Conflict,
    Duration,
    EnvName,
    Moment,
    Name,
    Names,
    Patience,
    Settings,
    Share,
    Texts,
    WebAddress,
)

MAX_SEED = 2**32 - 1  # of numpy, hence of scikit-learn
MONITOR_NAME = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"
MODEL_NAME = r"^[^/:]*[^/:.][^/:]*$"
FIT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
MAIL = r"^[^@\s]+@[^@\s]+$"
SCHEDULER = r"^(tcp|tls|ws|wss)://[^\s/]"


class ModelSettings(Settings):
    """Which registered model is monitored, and how it is refitted and saved."""

    name: str = Field(
        max_length=256,
        pattern=MODEL_NAME,
        description="Registered model in MLflow.",
        examples=["digits"],
    )
    alias: Alias = Field(default="champion", description="Alias that means production.")
    tracking_uri: Address | None = Field(
        default=None,
        description="MLflow server or database; without it, MLFLOW_TRACKING_URI counts.",
        examples=["http://localhost:5000"],
    )
    tracking_uri_env: EnvName | None = Field(
        default=None,
        description="Environment variable that holds the address instead.",
        examples=["TEAM_MLFLOW_URI"],
    )
    columns: Annotated[Names, Field(min_length=1)] | None = Field(
        default=None,
        description="Feature columns, for a model without a signature.",
        examples=[["height", "width"]],
    )
    fit: str | None = Field(
        default=None,
        pattern=FIT,
        description="`package.module:function` that fits a model on (X, y), if cloning fails.",
        examples=["team.training:fit"],
    )
    allow_pickle: bool = Field(
        default=False, description="Load and save models by pickle, which can run code."
    )
    trusted_types: Texts = Field(
        default=(), description="Types that skops may load beyond the reviewed list."
    )

    def conflicts(self) -> Iterator[Conflict]:
        if self.tracking_uri and self.tracking_uri_env:
            yield Conflict(
                ("tracking_uri_env", "tracking_uri"),
                "give tracking_uri or tracking_uri_env, not both",
            )


class BaselineSettings(Settings):
    """A clean deployment period as the null, for a harmless change since training."""

    start: Moment | None = Field(
        default=None,
        description="Start of a period known to be clean; in UTC unless it names a zone.",
        examples=["2026-01-05"],
    )
    end: Moment | None = Field(
        default=None, description="Its end, not included.", examples=["2026-01-12"]
    )
    first: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Or: the first N quiet or approved windows.",
        examples=[7],
    )

    def conflicts(self) -> Iterator[Conflict]:
        every = ("start", "end", "first")
        if (self.start is None) != (self.end is None):
            yield Conflict(("start", "end"), "a baseline period needs both start and end")
        elif (self.start is None) == (self.first is None):
            yield Conflict(every, "give either start and end, or first")
        if self.start and self.end and self.start >= self.end:
            yield Conflict(("end", "start"), f"start {self.start} is not before end {self.end}")


class RectifySettings(Settings):
    """How RTSCV looks for unknowns; the words are those of `RTSCVClassifier`."""

    alpha: float = Field(default=0.01, gt=0, lt=1, description="Level of the test.")
    gate: Literal["auto", "kernel", "forest", "network", "estimator"] = Field(
        default="auto", description="What scores rows."
    )
    cv: int = Field(default=3, ge=2, le=20, description="Folds.")
    sample_rate: Literal["auto"] | Annotated[float, Field(gt=0)] = Field(
        default="auto", description="What the window weighs against the training rows."
    )
    unknown_label: Name | int | None = Field(
        default=None,
        description="How unknowns are called, in the labels' own type; without it, the largest "
        "label plus one, or `unknown`.",
        examples=["unknown"],
    )
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="Seed of every random choice.")
    min_rows: int = Field(default=50, ge=2, description="Fewer rows are not assessed.")
    max_rows: int = Field(
        default=20_000, ge=50, description="A larger window is sampled to this many rows."
    )

    def conflicts(self) -> Iterator[Conflict]:
        if self.max_rows < self.min_rows:
            yield Conflict(
                ("max_rows", "min_rows"),
                f"max_rows {self.max_rows} is below min_rows {self.min_rows}: "
                "no window could be assessed",
            )
        if self.min_rows < self.cv:
            yield Conflict(
                ("min_rows", "cv"), f"min_rows {self.min_rows} is below the {self.cv} folds of cv"
            )


class CanarySettings(Settings):
    """A known class hidden on purpose in each window, to see that a new one would be found."""

    hide: Name | int = Field(
        default="rotate",
        description="Class to hide; `rotate` takes each in turn. Costs one more run of RTSCV per "
        "window, and changes no verdict.",
    )
    rate: float = Field(
        default=0.1, gt=0, le=0.5, description="Share of the window that the hidden class makes."
    )


class ComputeSettings(Settings):
    """Where the work of a window is done; the result does not depend on it."""

    engine: Literal["local", "dask"] = Field(
        default="local", description="This machine, or the workers of a Dask cluster."
    )
    jobs: int = Field(
        default=1, ge=1, le=1_000, description="Processes on this machine, with one thread each."
    )
    address: Annotated[Address, Field(pattern=SCHEDULER)] | None = Field(
        default=None,
        description="Dask scheduler, for `engine: dask`.",
        examples=["tcp://dask-scheduler:8786"],
    )
    address_env: EnvName | None = Field(
        default=None,
        description="Environment variable that holds the address instead.",
        examples=["DASK_SCHEDULER"],
    )
    timeout: Patience = Field(
        default=timedelta(seconds=30),
        description="Time to wait for the scheduler, and then for a first worker.",
    )
    fallback: bool = Field(
        default=False,
        description="Use this machine, and say so, while the cluster cannot be used; otherwise "
        "the window fails.",
    )

    def conflicts(self) -> Iterator[Conflict]:
        given = [name for name in ("address", "address_env") if getattr(self, name) is not None]
        if self.engine == "dask" and len(given) != 1:
            found = "both are given" if given else "none is given"
            yield Conflict(
                ("address_env", "address", "engine"),
                f"a Dask cluster needs either address or address_env; {found}",
            )
        if self.engine == "local" and given:
            yield Conflict((*given, "engine"), f"{given[0]} is of no use without engine: dask")


DISTANCES = {"wasserstein", "jensenshannon", "psi", "kl_div", "hellinger", "ed"}
"""Drift measures that grow with the distance; the others are tests, whose outcome depends on n."""


class DriftSettings(Settings):
    """How Evidently compares columns."""

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
    ] = Field(default="wasserstein", description="Evidently's method for numbers.")
    num_threshold: float = Field(default=0.1, gt=0, description="Its threshold.")
    cat_method: Literal["jensenshannon", "psi", "chisquare", "hellinger", "kl_div", "TVD"] = Field(
        default="jensenshannon", description="Evidently's method for categories."
    )
    cat_threshold: float = Field(default=0.1, gt=0, description="Its threshold.")
    max_columns: int = Field(default=60, ge=1, description="Columns shown, most drifted first.")
    max_rows: int = Field(
        default=5_000,
        ge=100,
        description="Rows a side that Evidently sees; for distances, these stand for all rows.",
    )

    def is_distance(self, kind: str) -> bool:
        """Tell whether a kind of column is measured by a distance, and not by a test."""
        return (self.num_method if kind == "number" else self.cat_method) in DISTANCES


class Email(Settings):
    """E-mail by SMTP; user and password come from the environment."""

    to: Annotated[
        tuple[Annotated[str, Field(pattern=MAIL)], ...], Field(strict=False, min_length=1)
    ] = Field(description="Recipients.", examples=[["team@example.com"]])
    sender: str = Field(default="rtscv-mlops@localhost", pattern=MAIL, description="From.")
    host: str = Field(default="localhost", min_length=1, description="SMTP server.")
    port: int = Field(default=25, ge=1, le=65535, description="Its port.")
    tls: bool = Field(default=False, description="Use STARTTLS.")
    user_env: EnvName | None = Field(
        default=None, description="Variable with the user name.", examples=["SMTP_USER"]
    )
    password_env: EnvName | None = Field(
        default=None, description="Variable with the password.", examples=["SMTP_PASSWORD"]
    )

    def conflicts(self) -> Iterator[Conflict]:
        if (self.user_env is None) != (self.password_env is None):
            yield Conflict(("user_env", "password_env"), "give both user_env and password_env")


class AlertSettings(Settings):
    """When a window is worth waking somebody."""

    on: Annotated[
        tuple[Literal["unknowns", "unknowns_and_drift", "drift", "not_assessed"], ...],
        Field(strict=False),
    ] = Field(
        default=("unknowns", "unknowns_and_drift", "drift", "not_assessed"),
        description="Verdicts that count.",
    )
    min_rate: Share = Field(default=0.01, description="Smallest unknown rate that counts.")
    max_p_value: float = Field(default=0.01, gt=0, le=1, description="Largest p-value that counts.")
    windows: int = Field(default=1, ge=1, description="N: windows that must count ...")
    of: int = Field(default=1, ge=1, le=100, description="... of the last M, this one included.")
    cooldown: Duration = Field(
        default=timedelta(days=1),
        description="Time since an alert was sent in which nothing else is told, but for what is "
        "worse: unknowns hold back unknowns and drift, drift only drift, a window that was not "
        "assessed only one with the same reason. Where the log is the only channel, an alert there "
        "counts too, also one by the command line.",
    )
    webhook_url: WebAddress | None = Field(
        default=None,
        description="Address that gets the alert as JSON.",
        examples=["https://example.com/alerts"],
    )
    webhook_url_env: EnvName | None = Field(
        default=None,
        description="Variable that holds the address instead.",
        examples=["ALERT_WEBHOOK_URL"],
    )
    email: Email | None = Field(default=None, description="E-mail by SMTP.")

    def conflicts(self) -> Iterator[Conflict]:
        if self.windows > self.of:
            yield Conflict(
                ("windows", "of"),
                f"{self.windows} of the last {self.of} windows can never be met",
            )
        if self.webhook_url and self.webhook_url_env:
            yield Conflict(
                ("webhook_url_env", "webhook_url"),
                "give webhook_url or webhook_url_env, not both",
            )


class ReviewSettings(Settings):
    """What a challenger must hold before a person may approve it."""

    max_class_loss: Share = Field(
        default=0.05, description="Recall that no known class may lose beyond; else: blocked."
    )
    min_unknowns: int = Field(
        default=10, ge=1, description="A challenger taught from fewer unknown rows is blocked."
    )
    expires: Patience = Field(
        default=timedelta(days=14), description="Silence means no after this."
    )


class ReportSettings(Settings):
    """What may leave the source."""

    columns: Literal["model", "none"] | Names = Field(
        default="model",
        description="Columns that reports and artifacts may show: those of the model, none, "
        "or a list.",
    )
    key: bool = Field(
        default=False,
        description="Whether unknown rows are kept with their source.key, as if columns named it.",
    )
    max_unknowns: int = Field(default=1_000, ge=0, description="Unknown rows kept as Parquet.")
    exemplars: int = Field(default=5, ge=0, le=50, description="Typical rows shown per cluster.")


class Monitor(Settings):
    """One monitored model."""

    name: str = Field(
        default="",
        pattern=MONITOR_NAME,
        max_length=100,
        description="How the monitor is called; without it, like its file.",
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

    def conflicts(self) -> Iterator[Conflict]:
        features = self.model.columns or ()
        for section, part in (("source", self.source), ("reference", self.reference)):
            if part is not None and part.label in features:
                yield Conflict(
                    (section, "model"),
                    f"{section}.label {part.label} is also among model.columns: "
                    "a label is never a feature",
                )
        if self.labels is not None and self.source.key is None:
            yield Conflict(
                ("labels", "source"), "labels are joined by a key: name its column in source.key"
            )

        if self.report.key and self.source.key is None:
            yield Conflict(
                ("report", "source"), "report.key keeps a key: name its column in source.key"
            )

    def result_settings(self) -> dict[str, Any]:
        """Return what decides a window's result, as plain JSON; the rest may change freely."""
        parts = {"source", "reference", "baseline", "rectify"}
        # An origin changes no verdict; a window that is read with it has another digest anyway.
        cap = {"source": {"max_bytes", "origin"}, "reference": {"max_bytes"}}
        model = self.model.model_dump(mode="json", include={"name", "alias", "columns", "fit"})
        return {"model": model, **self.model_dump(mode="json", include=parts, exclude=cap)}
