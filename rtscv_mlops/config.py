"""The monitor: one YAML file per monitored model, validated before anything else happens.

Knows names, defaults and limits; knows nothing of the worlds that the settings point at.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Share = Annotated[float, Field(ge=0, le=1)]


class Settings(BaseModel):
    """Immutable, and strict about names: a typo is an error, not a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSettings(Settings):
    """Which registered model is monitored, and how it is refitted and saved."""

    name: str = Field(min_length=1, description="Registered model in MLflow.")
    alias: str = Field(default="champion", description="Alias that means production.")
    tracking_uri: str | None = Field(
        default=None, description="MLflow server or database; default: MLFLOW_TRACKING_URI."
    )
    tracking_uri_env: EnvName | None = Field(
        default=None, description="Environment variable that holds the address instead."
    )
    columns: tuple[str, ...] | None = Field(
        default=None, description="Feature columns, for a model without a signature."
    )
    fit: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="`package.module:function` that fits a model on (X, y), if cloning fails.",
    )
    allow_pickle: bool = Field(
        default=False, description="Load and save models by pickle, which can run code."
    )
    trusted_types: tuple[str, ...] = Field(
        default=(), description="Types that skops may load beyond the reviewed list."
    )


class CsvSettings(Settings):
    """How CSV files are written."""

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Between fields.")
    decimal: Literal[".", ","] = Field(default=".", description="Decimal sign of numbers.")
    encoding: str = Field(default="utf-8", description="Encoding of the text.")
    null_values: tuple[str, ...] = Field(default=("",), description="Texts that mean missing.")


class TableSettings(Settings):
    """Where rows are read: files, folders and object stores, or a database."""

    path: str | None = Field(
        default=None, description="File, glob, folder or object-store address of Parquet or CSV."
    )
    format: Literal["auto", "parquet", "csv"] = Field(
        default="auto", description="Format of the files; auto goes by their names."
    )
    csv: CsvSettings = Field(default=CsvSettings(), description="How CSV files are written.")
    storage_options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Options of the object store, such as endpoint_url."
    )
    on_bad_file: Literal["fail", "skip"] = Field(
        default="fail", description="What an unreadable file among several does."
    )
    max_bytes: int = Field(
        default=20_000_000_000,
        ge=1_000_000,
        description="More bytes than this, uncompressed, are refused: a guard against bombs.",
    )
    table: str | None = Field(
        default=None, description="Database table, `schema.table` or `table`."
    )
    query: str | None = Field(
        default=None, description="SELECT statement instead of a table; may use :start and :end."
    )
    url: str | None = Field(
        default=None, description="Database address without user or password (e.g. SQLite)."
    )
    url_env: EnvName | None = Field(
        default=None, description="Environment variable that holds the database address."
    )

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        given = [name for name in ("path", "table", "query") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"name one place to read from, path, table or query; got {given or 'none'}"
            )
        if self.path is None and (self.url is None) == (self.url_env is None):
            raise ValueError("a table or query needs either url or url_env")
        if self.path is not None and (self.url or self.url_env):
            raise ValueError("url and url_env belong to a table or query, not to a path")
        return self


class SourceSettings(TableSettings):
    """Where deployment data lands, and which column says when."""

    timestamp: str = Field(min_length=1, description="Column that says when a row was served.")
    timezone: str | None = Field(
        default=None, description="Zone of timestamps that carry none, e.g. UTC or Europe/Zurich."
    )
    key: str | None = Field(default=None, description="Column that identifies a row, for `score`.")
    label: str | None = Field(
        default=None,
        description="Column with the true label, if the window has it; never a feature.",
    )


class ReferenceSettings(TableSettings):
    """Training data, where it is not logged as a dataset on the champion's run."""

    label: str = Field(min_length=1, description="Column with the label.")
    digest: str | None = Field(
        default=None, description="Expected digest; another one stops the run."
    )


class LabelSettings(TableSettings):
    """Where true labels arrive later, for `score`."""

    key: str = Field(min_length=1, description="Column that identifies a row.")
    label: str = Field(min_length=1, description="Column with the true label.")


class BaselineSettings(Settings):
    """A clean deployment period as the null, for a harmless change since training."""

    start: datetime | None = Field(default=None, description="Start of a period known to be clean.")
    end: datetime | None = Field(default=None, description="Its end, not included.")
    first: int | None = Field(
        default=None, ge=1, le=100, description="Or: the first N quiet or approved windows."
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if (self.start is None) != (self.end is None):
            raise ValueError("a baseline period needs both start and end")
        if (self.start is None) == (self.first is None):
            raise ValueError("give either start and end, or first")
        if self.start and self.end and self.start >= self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")
        return self


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
    unknown_label: str | int | None = Field(
        default=None, description="How unknowns are called; default: a free label of the same type."
    )
    seed: int = Field(default=0, ge=0, description="Seed of every random choice.")
    min_rows: int = Field(default=50, ge=2, description="Fewer rows are not assessed.")
    max_rows: int = Field(
        default=20_000, ge=50, description="A larger window is sampled to this many rows."
    )
    max_reference_rows: int = Field(
        default=50_000, ge=50, description="More training rows are sampled for the search."
    )

    @model_validator(mode="after")
    def _caps_fit(self) -> Self:
        if self.max_rows < self.min_rows:
            raise ValueError(
                f"max_rows {self.max_rows} is below min_rows {self.min_rows}: no window could pass"
            )
        if self.min_rows < self.cv:
            raise ValueError(f"min_rows {self.min_rows} is below the {self.cv} folds")
        return self


class DriftSettings(Settings):
    """How Evidently compares columns."""

    num_method: str = Field(default="wasserstein", description="Evidently's method for numbers.")
    num_threshold: float = Field(default=0.1, gt=0, description="Its threshold.")
    cat_method: str = Field(
        default="jensenshannon", description="Evidently's method for categories."
    )
    cat_threshold: float = Field(default=0.1, gt=0, description="Its threshold.")
    max_columns: int = Field(default=60, ge=1, description="Columns shown, most drifted first.")
    max_rows: int = Field(default=10_000, ge=100, description="Rows a side that Evidently sees.")


class Email(Settings):
    """E-mail by SMTP; user and password come from the environment."""

    to: tuple[str, ...] = Field(min_length=1, description="Recipients.")
    sender: str = Field(default="rtscv-mlops@localhost", description="From.")
    host: str = Field(default="localhost", description="SMTP server.")
    port: int = Field(default=25, ge=1, le=65535, description="Its port.")
    tls: bool = Field(default=False, description="Use STARTTLS.")
    user_env: EnvName | None = Field(default=None, description="Variable with the user name.")
    password_env: EnvName | None = Field(default=None, description="Variable with the password.")


class AlertSettings(Settings):
    """When a window is worth waking somebody."""

    on: tuple[Literal["unknowns", "unknowns_and_drift", "drift", "not_assessed"], ...] = Field(
        default=("unknowns", "unknowns_and_drift", "not_assessed"),
        description="Verdicts that count.",
    )
    min_rate: Share = Field(default=0.01, description="Smallest unknown rate that counts.")
    max_p_value: Share = Field(default=0.01, description="Largest p-value that counts.")
    windows: int = Field(default=1, ge=1, description="N: windows that must count ...")
    of: int = Field(default=1, ge=1, le=100, description="... of the last M, this one included.")
    cooldown: timedelta = Field(
        default=timedelta(days=1), description="Time after an alert without another (ISO 8601)."
    )
    webhook_url: str | None = Field(
        default=None, description="Address that gets the alert as JSON."
    )
    webhook_url_env: EnvName | None = Field(
        default=None, description="Variable that holds the address instead."
    )
    email: Email | None = Field(default=None, description="E-mail by SMTP.")

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if self.windows > self.of:
            raise ValueError(f"{self.windows} of the last {self.of} windows can never be met")
        if self.webhook_url and self.webhook_url_env:
            raise ValueError("give webhook_url or webhook_url_env, not both")
        return self


class ReviewSettings(Settings):
    """What a challenger must hold before a person may approve it."""

    max_class_loss: Share = Field(
        default=0.05, description="Recall that no known class may lose beyond; else: blocked."
    )
    expires: timedelta = Field(
        default=timedelta(days=14), description="Silence means no after this."
    )


class ReportSettings(Settings):
    """What may leave the source."""

    columns: tuple[str, ...] | Literal["model", "none"] = Field(
        default="model", description="Columns that reports and artifacts may show."
    )
    max_unknowns: int = Field(default=1_000, ge=0, description="Unknown rows kept as Parquet.")
    exemplars: int = Field(default=5, ge=0, le=50, description="Typical rows shown per cluster.")


class Monitor(Settings):
    """One monitored model."""

    name: str = Field(
        default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100, description="Default: file name."
    )
    model: ModelSettings
    source: SourceSettings
    reference: ReferenceSettings | None = None
    labels: LabelSettings | None = None
    baseline: BaselineSettings | None = None
    rectify: RectifySettings = RectifySettings()
    drift: DriftSettings = DriftSettings()
    alert: AlertSettings = AlertSettings()
    review: ReviewSettings = ReviewSettings()
    report: ReportSettings = ReportSettings()

    def result_settings(self) -> dict[str, Any]:
        """Return what decides a window's result, as plain JSON; the rest may change freely."""
        parts = {"source", "reference", "baseline", "rectify"}
        model = self.model.model_dump(mode="json", include={"name", "alias", "columns", "fit"})
        return {"model": model, **self.model_dump(mode="json", include=parts)}
