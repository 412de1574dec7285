"""What is published about the settings: a JSON schema for editors, and a reference page.

Both are made from the settings themselves. Knows how settings are shown; knows none by name.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

import yaml
from pydantic.json_schema import GenerateJsonSchema

from rtscv_mlops.config.document import MAYBE_TRUTH, NOTHING, TRUTH
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.values import (
    DURATION,
    ENV_NAME,
    MOMENT,
    Settings,
    secret_in,
    write_duration,
)

SCHEMA_FILE = "monitor.schema.json"
REFERENCE_FILE = "monitor.md"
PLAIN = re.compile(r"[A-Za-z_][\w./-]*|[0-9]+[smhdw]", flags=re.ASCII)
WORDS = {
    "string": "text",
    "integer": "whole number",
    "boolean": "`true` or `false`",
    "object": "`name: value` pairs",
    DURATION: "duration",
    MOMENT: "moment",
    ENV_NAME: "name of a variable",
}

Schema = dict[str, Any]

INTRODUCTION = """\
# Monitor settings

<!-- Made by `python -m rtscv_mlops.config docs`; a test fails if it is stale. -->

A monitor is one YAML file for one registered model. Five lines are enough:

```yaml
model:
  name: digits
source:
  path: windows/
  timestamp: served_at
```

Editors complete and check the file if its first line is
`# yaml-language-server: $schema=monitor.schema.json` and that schema lies beside it;
`rtscv-mlops init` writes both.

- **Mistakes** are listed all at once, as `file:line: place: what is wrong`. Unknown settings,
  repeated keys and wrong types are refused; nothing is guessed.
- **Text or number?** What versions of YAML read differently (`no`, `012`, `12:30`, `1_000`) is
  refused until it is quoted or written plainly. A label or column called `5` is written `"5"`.
- **Paths.** A relative `path` and a relative SQLite address (`sqlite:///requests.db`) start at
  the folder of the file, wherever the command runs. A path with a scheme (`s3://`) is kept.
- **Secrets** are refused: no user or password in an address, no token in its parameters, no
  webhook address that is itself a permission. Name an environment variable instead, in the
  setting that ends in `_env`. In `storage_options`, the option `<name>_env` takes its value from
  the environment variable that it names: `secret_env: STORE_SECRET` sets `secret`.
- **Durations** are a whole number and a unit: `90s`, `30m` (minutes), `12h`, `1d`, `2w`.
- **Moments** are `2026-01-05` or `2026-01-05T13:00:00+01:00`; without a zone they are in UTC.
- **Limits.** A file has at most 256 kB, 12 levels and 25 000 values; no tags, one document.
- **Several monitors** in one folder must differ in name, and in model or source.
"""


class _WrittenDefaults(GenerateJsonSchema):
    """Shows defaults as a file would write them."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Settings):
            return dft.model_dump(mode="json")
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def monitor_schema() -> Schema:
    """Return the JSON schema that lets an editor complete and check a monitor."""
    schema = Monitor.model_json_schema(schema_generator=_WrittenDefaults)
    dialect = {"$schema": GenerateJsonSchema.schema_dialect}
    return {**dialect, **schema, "title": "Monitor of rtscv-mlops"}


def schema_text() -> str:
    """Return the JSON schema as it is written to a file."""
    return json.dumps(monitor_schema(), indent=2) + "\n"


def section_below(setting: Schema, schema: Schema) -> Schema | None:
    """Return the schema of the settings that a setting holds, if it holds any."""
    for part in (setting, *setting.get("anyOf", ())):
        if "$ref" in part:
            section: Schema = schema["$defs"][part["$ref"].rpartition("/")[2]]
            return section
    return None


def write_value(value: Any) -> str:
    """Write a value on one line so that every version of YAML reads the same."""
    if isinstance(value, list):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{write_value(name)}: {write_value(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return _write_text(value) if isinstance(value, str) else json.dumps(value)


def _write_text(text: str) -> str:
    trap = text in NOTHING or text in TRUTH or MAYBE_TRUTH.fullmatch(text)
    if PLAIN.fullmatch(text) and not trap:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9)
    return quoted.strip()


def monitor_reference() -> str:
    """Return the page that explains every setting."""
    schema = monitor_schema()
    return "\n".join([INTRODUCTION, *_section_page("", schema, schema)])


def _section_page(place: str, section: Schema, schema: Schema) -> Iterator[str]:
    required = section.get("required", ())
    leaves = {
        name: setting
        for name, setting in section["properties"].items()
        if not section_below(setting, schema)
    }
    yield f"## `{place}`\n" if place else "## Top level\n"
    yield f"{section['description']}\n"
    yield "| Setting | Default | Value | Meaning |\n|---|---|---|---|"
    for name, setting in leaves.items():
        yield _row(name, setting, name in required)
    yield ""
    for name, setting in section["properties"].items():
        inner = section_below(setting, schema)
        if inner:
            yield from _section_page(f"{place}.{name}".removeprefix("."), inner, schema)


def _row(name: str, setting: Schema, is_required: bool) -> str:
    default = setting.get("default", {})
    shown = "*required*" if is_required else "" if default in (None, "") else _code(default)
    cells = (f"`{name}`", shown, _kind(setting), setting["description"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(value: Any) -> str:
    return f"`{write_value(value)}`"


def _kind(setting: Schema) -> str:
    """Say in words which values a setting takes."""
    if "anyOf" in setting:
        kinds = (_kind(part) for part in setting["anyOf"] if part.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "const" in setting or "enum" in setting:
        return ", ".join(map(_code, setting.get("enum", [setting.get("const")])))
    if setting["type"] == "array":
        return f"list of {_kind(setting['items'])}"
    kind = str(setting["type"])
    return WORDS.get(setting.get("pattern", ""), WORDS.get(kind, kind)) + _limits(setting)


def _limits(setting: Schema) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    limits = [f"{sign} {setting[name]}" for name, sign in signs.items() if name in setting]
    return f", {', '.join(limits)}" if limits else ""


WIDTH = 98
SHOWN_COLUMNS = 100  # a file that lists more is tedious to read
SHOWN_CHARACTERS = 60
Place = tuple[str, ...]

HEAD = f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
# (The schema lies beside this file, where `rtscv-mlops init` wrote it; take it along.)
# A monitor of rtscv-mlops. Lines such as "#alias: champion" show a setting with its default, or
# with an example where it is not set; remove the # to change it. Relative paths start at the
# folder of this file. No secrets: settings that end in _env name an environment variable.
"""


class NamedColumn(Protocol):
    """What is said about a column that the model needs."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


def monitor_template(
    model: str,
    columns: Sequence[NamedColumn] = (),
    *,
    label: str | None = None,
    tracking_uri: str | None = None,
) -> str:
    """Return a commented monitor for a registered model; `columns` and `label` become hints.

    A relative `tracking_uri` will start at the folder of the file; one with a secret is left out.
    """
    given: dict[Place, Any] = {
        ("model", "name"): model,
        ("source", "path"): "windows/",
        ("source", "timestamp"): "served_at",
    }
    if tracking_uri and not secret_in(tracking_uri):
        given["model", "tracking_uri"] = tracking_uri
    hints: dict[Place, Any] = {}
    if label:
        hints = {(section, "label"): label for section in ("source", "reference", "labels")}
    lines = _Lines(monitor_schema(), given, hints)
    return "\n".join([HEAD, *_needed(columns), *lines.all()]) + "\n"


def _needed(columns: Sequence[NamedColumn]) -> Iterator[str]:
    if columns:
        names = [f"{_visible(column.name)} ({column.kind})" for column in columns[:SHOWN_COLUMNS]]
        more = len(columns) - len(names)
        rest = f" and {more} more" if more else ""
        yield from _prose(f"The model needs these columns: {', '.join(names)}{rest}.", "# ")
        yield ""


def _visible(name: str) -> str:
    return (name if name.isprintable() else ascii(name))[:SHOWN_CHARACTERS]


def _prose(text: str, margin: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)


class _Lines:
    """The lines of a template: one walk over the schema."""

    def __init__(
        self, schema: Schema, given: Mapping[Place, Any], hints: Mapping[Place, Any]
    ) -> None:
        self.schema, self.given, self.hints = schema, given, hints

    def all(self) -> Iterator[str]:
        yield from self.settings(self.schema, ())

    def settings(self, section: Schema, place: Place) -> Iterator[str]:
        for name, setting in section["properties"].items():
            here = (*place, name)
            inner = section_below(setting, self.schema)
            if inner:
                yield from self.section(inner, here)
            else:
                yield from self.leaf(setting, here, name in section.get("required", ()))

    def section(self, section: Schema, here: Place) -> Iterator[str]:
        if len(here) == 1:
            yield ""
        yield from _prose(section["description"], self.margin(here, "# "))
        yield f"{self.margin(here)}{here[-1]}:"
        yield from self.settings(section, here)

    def leaf(self, setting: Schema, here: Place, is_required: bool) -> Iterator[str]:
        default = setting.get("default", {})
        is_unset = default in (None, "", {})
        note = " (Required.)" if is_required else " (Not set.)" if is_unset else ""
        about = setting["description"] + ("" if here in self.given else note)
        example = setting["examples"][0] if is_unset else default
        value = self.given.get(here, self.hints.get(here, example))
        yield from _prose(about, self.margin(here, "# "))
        yield f"{self.margin(here)}{here[-1]}: {write_value(value)}"

    def margin(self, here: Place, comment: str = "") -> str:
        """Return what a line begins with; a section that is not given is commented as a block."""
        active = max(depth for depth in range(len(here) + 1) if self.is_active(here[:depth]))
        outer, inner = min(active, len(here) - 1), len(here) - 1 - active
        if inner < 0 or (comment and inner == 0):
            return "  " * outer + comment
        return "  " * outer + "#" + "  " * inner + comment

    def is_active(self, place: Place) -> bool:
        return any(given[: len(place)] == place for given in self.given)
