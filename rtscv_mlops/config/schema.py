"""What `rtscv-mlops init` writes: a commented monitor file, and the JSON schema for editors.

Both are generated from the settings.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema

from rtscv_mlops.config.document import AMBIGUOUS_BOOLEAN, BOOLEANS, NULLS
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.values import Settings, secret_in, write_duration
from rtscv_mlops.window import Column

SCHEMA_FILE = "monitor.schema.json"
UNQUOTED = re.compile(r"[A-Za-z_][\w./-]*|[0-9]+[smhdw]", flags=re.ASCII)
WIDTH = 98
MAX_COLUMNS = 100  # a longer list is tedious to read
MAX_NAME = 60

HEAD = f"""\
# yaml-language-server: $schema={SCHEMA_FILE}
# (`rtscv-mlops init` wrote the schema next to this file. Keep the two together.)
#
# A monitor of rtscv-mlops. A line such as "#alias: champion" shows the default of a setting, or an
# example if it has none. Remove the # to change it. Relative paths start at the folder of this
# file. Keep secrets out of it: a setting that ends in _env names an environment variable.
"""

Schema = dict[str, Any]
KeyPath = tuple[str, ...]


class _SchemaGenerator(GenerateJsonSchema):
    """Writes defaults as a monitor file does."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Settings):
            return dft.model_dump(mode="json")
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def monitor_schema() -> Schema:
    """Return the JSON schema with which an editor completes and checks a monitor file."""
    schema = Monitor.model_json_schema(schema_generator=_SchemaGenerator)
    dialect = {"$schema": GenerateJsonSchema.schema_dialect}
    summary = schema["description"].partition("\n")[0]  # the rest is for users of the class
    return {**dialect, **schema, "title": "Monitor of rtscv-mlops", "description": summary}


def schema_text() -> str:
    """Return the content of the schema file."""
    return json.dumps(monitor_schema(), indent=2) + "\n"


def section_below(setting: Schema, schema: Schema) -> Schema | None:
    """Return the schema of the section that a setting contains, if any."""
    for part in (setting, *setting.get("anyOf", ())):
        if "$ref" in part:
            section: Schema = schema["$defs"][part["$ref"].rpartition("/")[2]]
            return section
    return None


def write_value(value: Any) -> str:
    """Write a value on one line, so that all versions of YAML read it alike."""
    if isinstance(value, list):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{write_value(name)}: {write_value(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    is_ambiguous = value in NULLS or value in BOOLEANS or AMBIGUOUS_BOOLEAN.fullmatch(value)
    if UNQUOTED.fullmatch(value) and not is_ambiguous:
        return value
    quoted: str = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9)
    return quoted.strip()


def monitor_template(
    model: str,
    columns: Sequence[Column] = (),
    *,
    label: str | None = None,
    tracking_uri: str | None = None,
) -> str:
    """Return a commented monitor file for a registered model.

    It lists the `columns` that the model needs, and shows `label` as an example. A `tracking_uri`
    that contains a secret is left out.
    """
    active: dict[KeyPath, Any] = {
        ("model", "name"): model,
        ("source", "path"): "windows/",
        ("source", "timestamp"): "served_at",
    }
    if tracking_uri and not secret_in(tracking_uri):
        active["model", "tracking_uri"] = tracking_uri
    examples: dict[KeyPath, Any] = {}
    if label:
        examples = {(section, "label"): label for section in ("source", "reference", "labels")}
    lines = [HEAD]
    if columns:
        names = []
        for column in columns[:MAX_COLUMNS]:
            # A line break in a name would end the comment.
            name = column.name if column.name.isprintable() else ascii(column.name)
            names.append(f"{name[:MAX_NAME]} ({column.kind})")
        more = len(columns) - len(names)
        rest = f" and {more} more" if more else ""
        lines += [*_comment(f"The model needs these columns: {', '.join(names)}{rest}.", "# "), ""]
    writer = _TemplateWriter(active, examples)
    return "\n".join([*lines, *writer.settings(writer.schema)]) + "\n"


def _comment(text: str, margin: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)


class _TemplateWriter:
    """Writes each setting as a comment, except those that are active."""

    def __init__(self, active: Mapping[KeyPath, Any], examples: Mapping[KeyPath, Any]) -> None:
        self.schema = monitor_schema()
        self.active, self.examples = active, examples

    def settings(self, section: Schema, path: KeyPath = ()) -> Iterator[str]:
        for name, setting in section["properties"].items():
            here = (*path, name)
            inner = section_below(setting, self.schema)
            if inner:
                if not path:
                    yield ""
                yield from _comment(inner["description"], self.margin(here, "# "))
                yield f"{self.margin(here)}{name}:"
                yield from self.settings(inner, here)
            else:
                yield from self.setting(setting, here, name in section.get("required", ()))

    def setting(self, setting: Schema, here: KeyPath, is_required: bool) -> Iterator[str]:
        default = setting.get("default", {})
        is_unset = default in (None, "", {})
        description = setting["description"]
        if here not in self.active:
            description += " (Required.)" if is_required else " (Example.)" if is_unset else ""
        example = setting["examples"][0] if is_unset else default
        value = self.active.get(here, self.examples.get(here, example))
        yield from _comment(description, self.margin(here, "# "))
        yield f"{self.margin(here)}{here[-1]}: {write_value(value)}"

    def margin(self, here: KeyPath, comment: str = "") -> str:
        """Return the start of a line. A section that is not active is one block of comments."""
        active = max(
            depth
            for depth in range(len(here) + 1)
            if any(path[:depth] == here[:depth] for path in self.active)
        )
        outer, inner = min(active, len(here) - 1), len(here) - 1 - active
        if inner < 0 or (comment and inner == 0):
            return "  " * outer + comment
        return "  " * outer + "#" + "  " * inner + comment
