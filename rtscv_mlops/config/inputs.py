"""Where rows are read: deployment data, training data, late labels.

Knows how a place is named; knows nothing of reading it.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from rtscv_mlops.config.values import (
    Address,
    Conflict,
    Encoding,
    EnvName,
    Name,
    Options,
    Settings,
    Texts,
    Zone,
)
from rtscv_mlops.errors import ConfigError

Option = str | int | float | bool


class CsvSettings(Settings):
    """How CSV files are written."""

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Between fields.")
    decimal: Literal[".", ","] = Field(default=".", description="Decimal sign of numbers.")
    encoding: Encoding = Field(default="utf-8", description="Encoding of the text.")
    null_values: Texts = Field(default=("",), description="Texts that mean missing.")

    def conflicts(self) -> Iterator[Conflict]:
        if self.delimiter == self.decimal:
            yield Conflict(
                ("delimiter", "decimal"),
                f"{self.decimal!r} cannot both part fields and mark decimals",
            )
        if self.delimiter in '"\r\n':
            yield Conflict(("delimiter",), "quotes and line ends cannot part fields")


class TableSettings(Settings):
    """Where rows are read: files, folders and object stores, or a database."""

    path: Address | None = Field(
        default=None,
        description="File, glob, folder or object-store address of Parquet or CSV files.",
        examples=["windows/"],
    )
    format: Literal["auto", "parquet", "csv"] = Field(
        default="auto", description="Format of the files; auto goes by their names."
    )
    csv: CsvSettings = Field(default=CsvSettings(), description="How CSV files are written.")
    storage_options: Options = Field(
        default_factory=dict,
        description="Options of the object store; an option that ends in _env names the "
        "environment variable with its value.",
        examples=[{"endpoint_url": "http://localhost:9000", "secret_env": "STORE_SECRET"}],
    )
    on_bad_file: Literal["fail", "skip"] = Field(
        default="fail", description="What an unusable file with rows in the window does."
    )
    max_bytes: int = Field(
        default=20_000_000_000,
        ge=1_000_000,
        description="More bytes than this, uncompressed, are refused: a guard against bombs.",
    )
    table: Name | None = Field(
        default=None,
        description="Database table, `schema.table` or `table`.",
        examples=["served.requests"],
    )
    query: Name | None = Field(
        default=None,
        description="SELECT statement instead of a table; may use :start and :end.",
        examples=["SELECT * FROM requests WHERE served_at >= :start AND served_at < :end"],
    )
    url: Address | None = Field(
        default=None,
        description="Database address without user or password (e.g. SQLite).",
        examples=["sqlite:///requests.db"],
    )
    url_env: EnvName | None = Field(
        default=None,
        description="Environment variable that holds the database address.",
        examples=["REQUESTS_DATABASE_URL"],
    )

    def conflicts(self) -> Iterator[Conflict]:
        places, addresses = ("path", "table", "query"), ("url", "url_env")
        place = [name for name in places if getattr(self, name) is not None]
        address = [name for name in addresses if getattr(self, name) is not None]
        if len(place) != 1:
            found = f"{' and '.join(place)} are given" if place else "none is given"
            yield Conflict(places, f"name one place to read from: path, table or query; {found}")
        elif place == ["path"] and address:
            yield Conflict(
                (address[0], "path"), f"{address[0]} belongs to a table or query, not to a path"
            )
        elif place != ["path"] and len(address) != 1:
            yield Conflict((*addresses, place[0]), f"a {place[0]} needs either url or url_env")


class SourceSettings(TableSettings):
    """Where deployment data lands, and which column says when."""

    timestamp: Name = Field(
        description="Column that says when a row was served.", examples=["served_at"]
    )
    timezone: Zone | None = Field(
        default=None,
        description="Zone of timestamps that carry none.",
        examples=["Europe/Zurich"],
    )
    key: Name | None = Field(
        default=None,
        description="Column that identifies a row, for `score` and `report.key`.",
        examples=["request_id"],
    )
    label: Name | None = Field(
        default=None,
        description="Column with the true label, if the window has it; never a feature.",
        examples=["true_class"],
    )
    origin: Name | None = Field(
        default=None,
        description="Column that says who sent a row, such as a tenant; its values stay there.",
        examples=["tenant"],
    )

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.label is not None and self.label in (self.timestamp, self.key, self.origin):
            yield Conflict(
                ("label", "timestamp", "key", "origin"),
                f"the column {self.label} cannot be the label and the timestamp, key or origin too",
            )


class ReferenceSettings(TableSettings):
    """Training data, where it is not logged as a dataset on the champion's run."""

    label: Name = Field(description="Column with the label.", examples=["class"])
    digest: Name | None = Field(
        default=None,
        description="Expected digest; another one stops the run.",
        examples=["3f8a1c90"],
    )


class LabelSettings(TableSettings):
    """Where true labels arrive later, for `score`."""

    key: Name = Field(description="Column that identifies a row.", examples=["request_id"])
    label: Name = Field(description="Column with the true label.", examples=["true_class"])

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.key == self.label:
            yield Conflict(("label", "key"), f"the column {self.label} cannot be key and label")


def resolve_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Replace each option `<name>_env` by `<name>`, with the value of that environment variable."""
    return dict(_resolve(name, value) for name, value in options.items())


def _resolve(name: str, value: Option) -> tuple[str, Option]:
    if not name.endswith("_env"):
        return name, value
    found = os.environ.get(str(value))
    if found is None:
        raise ConfigError(
            f"The option {name} names the environment variable {value}, which is not set. "
            "Set it where the monitor runs."
        )
    return name.removesuffix("_env"), found
