"""A monitor file to start from: what must be given is active, all else is shown as a comment.

Made from the settings' own schema. Knows which settings a new file must give; knows no model.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from rtscv_mlops.config.kinds import secret_in
from rtscv_mlops.config.published import (
    SCHEMA_FILE,
    Schema,
    monitor_schema,
    section_below,
    write_value,
)

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
