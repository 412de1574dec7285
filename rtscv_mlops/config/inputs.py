"""The settings of the data that a monitor reads: windows, training data and late labels."""

import os
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from rtscv_mlops.config import values
from rtscv_mlops.errors import ConfigError

Option = str | int | float | bool


class CsvSettings(values.Settings):
    """The dialect of CSV files."""

    delimiter: str = Field(
        default=",", min_length=1, max_length=1, description="Character between fields."
    )
    decimal: Literal[".", ","] = Field(default=".", description="Decimal separator of numbers.")
    encoding: values.Encoding = Field(
        default="utf-8", description="Text encoding, by its name in Python."
    )
    null_values: values.Texts = Field(default=("",), description="Texts to read as missing values.")

    def conflicts(self) -> Iterator[values.Conflict]:
        if self.delimiter == self.decimal:
            yield values.Conflict(
                ("delimiter", "decimal"),
                f"{self.decimal!r} cannot be both the delimiter and the decimal separator",
            )
        if self.delimiter in '"\r\n':
            yield values.Conflict(("delimiter",), "the delimiter cannot be a quote or a line break")


class TableSettings(values.Settings):
    """Where to read rows: files, an object store, or a database."""

    path: values.Address | None = Field(
        default=None,
        description="Parquet or CSV files: a file, folder, glob pattern or object-store URL.",
        examples=["windows/"],
    )
    format: Literal["auto", "parquet", "csv"] = Field(
        default="auto",
        description="File format. `auto` decides by the file extension.",
    )
    csv: CsvSettings = Field(default=CsvSettings(), description="The dialect of CSV files.")
    storage_options: values.Options = Field(
        default_factory=dict,
        description="Options for the object store. An option whose name ends in `_env` takes its "
        "value from the environment variable it names.",
        examples=[{"endpoint_url": "http://localhost:9000", "secret_env": "STORE_SECRET"}],
    )
    on_bad_file: Literal["fail", "skip"] = Field(
        default="fail",
        description="What to do with an unreadable file that may hold needed rows: `fail` stops "
        "the run, `skip` leaves the file out and reports it.",
    )
    max_bytes: int = Field(
        default=20_000_000_000,
        ge=1_000_000,
        description="Maximum amount of uncompressed data to read, in bytes. More data stops the "
        "run, as a guard against decompression bombs.",
    )
    table: values.Name | None = Field(
        default=None,
        description="Database table to read, as `table` or `schema.table`.",
        examples=["served.requests"],
    )
    query: values.Name | None = Field(
        default=None,
        description="SELECT statement to read instead of a table. It may use `:start` and `:end`.",
        examples=["SELECT * FROM requests WHERE served_at >= :start AND served_at < :end"],
    )
    url: values.Address | None = Field(
        default=None,
        description="SQLAlchemy URL of the database, without user or password.",
        examples=["sqlite:///requests.db"],
    )
    url_env: values.EnvName | None = Field(
        default=None,
        description="Environment variable that holds the database URL.",
        examples=["REQUESTS_DATABASE_URL"],
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        inputs = [name for name in ("path", "table", "query") if getattr(self, name) is not None]
        urls = [name for name in ("url", "url_env") if getattr(self, name) is not None]
        if len(inputs) != 1:
            given = f"{' and '.join(inputs)} are set" if inputs else "none is set"
            yield values.Conflict(
                ("path", "table", "query"), f"set exactly one of path, table and query; {given}"
            )
        elif inputs == ["path"] and urls:
            yield values.Conflict(
                (urls[0], "path"), f"{urls[0]} belongs to a table or query, not to a path"
            )
        elif inputs != ["path"] and len(urls) != 1:
            yield values.Conflict(
                ("url", "url_env", inputs[0]), f"a {inputs[0]} needs url or url_env"
            )


class SourceSettings(TableSettings):
    """The production data to monitor, and the roles of its columns."""

    timestamp: values.Name = Field(
        description="Column with the time at which a row was served.", examples=["served_at"]
    )
    timezone: values.Zone | None = Field(
        default=None,
        description="Time zone of timestamps that carry none. Unless it is set, such timestamps "
        "are refused.",
        examples=["Europe/Zurich"],
    )
    key: values.Name | None = Field(
        default=None,
        description="Column that identifies a row. `labels` and `report.key` need it.",
        examples=["request_id"],
    )
    label: values.Name | None = Field(
        default=None,
        description="Column with the true label, if the data has one. It is never used as a "
        "feature.",
        examples=["true_class"],
    )
    origin: values.Name | None = Field(
        default=None,
        description="Column that names the sender of a row, such as a tenant. Used to report "
        "unknowns that come mostly from one sender. Its values stay in the source unless "
        "`report.columns` lists it.",
        examples=["tenant"],
    )

    def conflicts(self) -> Iterator[values.Conflict]:
        yield from super().conflicts()
        if self.label is not None and self.label in (self.timestamp, self.key, self.origin):
            yield values.Conflict(
                ("label", "timestamp", "key", "origin"),
                f"the column {self.label} cannot be the label and also the timestamp, key or "
                "origin",
            )


class ReferenceSettings(TableSettings):
    """The training data. Needed only if the champion's run has no logged training dataset."""

    label: values.Name = Field(description="Column with the label.", examples=["class"])
    digest: values.Name | None = Field(
        default=None,
        description="Expected digest of the training data. Any other digest stops the run.",
        examples=["3f8a1c90"],
    )


class LabelSettings(TableSettings):
    """True labels that arrive later, for `rtscv-mlops score`."""

    key: values.Name = Field(
        description="Column that identifies a row, matched with `source.key`.",
        examples=["request_id"],
    )
    label: values.Name = Field(description="Column with the true label.", examples=["true_class"])

    def conflicts(self) -> Iterator[values.Conflict]:
        yield from super().conflicts()
        if self.key == self.label:
            yield values.Conflict(
                ("label", "key"), f"the column {self.label} cannot be both key and label"
            )


def resolve_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Replace each option `<name>_env` by `<name>`, with the value of that environment variable."""
    resolved: dict[str, Option] = {}
    for name, value in options.items():
        if not name.endswith("_env"):
            resolved[name] = value
        elif str(value) in os.environ:
            resolved[name.removesuffix("_env")] = os.environ[str(value)]
        else:
            raise ConfigError(
                f"The option {name} names the environment variable {value}, which is not set. "
                "Set it where the monitor runs."
            )
    return resolved
