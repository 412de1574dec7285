"""Load monitor files, and explain every mistake in them with its line."""

import copy
import os
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import groupby, islice
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rtscv_mlops.config import monitor as settings
from rtscv_mlops.config import scheduling, values
from rtscv_mlops.config.document import MAX_MISTAKES, Document, Location, Mistake, UnreadableText
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import ConfigError

MAX_BYTES = 256_000
SQLITE_FILE = re.compile(
    r"(?P<scheme>sqlite(\+\w+)?:///)(?!/|:memory:|file:|[A-Za-z]:)(?P<file>[^?]+)(?P<rest>\?.*)?"
)
PATTERNS = {
    values.ENV_NAME: "the name of an environment variable, such as TEAM_TOKEN",
    values.ALIAS: "made of letters, digits, dashes and underscores",
    values.WEB: "an address that begins with https:// or http://",
    settings.MONITOR_NAME: "made of letters, digits, dots, dashes and underscores",
    settings.MODEL_NAME: "a name without / and :",
    settings.FIT: "written like package.module:function",
    settings.MAIL: "an e-mail address",
    settings.SCHEDULER: "an address that begins with tcp://, tls://, ws:// or wss://",
    scheduling.CRON: "a cron expression of five fields, such as 0 2 * * *",
    scheduling.NOTIFIER: "the import path of a class, such as package.module.Notifier",
    scheduling.MEMORY: "an amount such as 512Mi or 2Gi",
}
REQUIREMENTS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list such as [a, b]",
    "dict_type": "a section with one `name: value` per line",
    "model_type": "a section with one `name: value` per line",
    "time_delta_type": "a duration such as 12h",
    "datetime_type": "a time such as 2026-01-05",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} character long",
    "too_short": "a list with at least {min_length} item",
    "string_too_long": "at most {max_length} character(s) long",
}


def load_monitor(path: Path) -> Monitor:
    """Read a monitor. Relative paths and SQLite URLs in it start at the file's folder.

    Parameters
    ----------
    path : Path
        The YAML file.

    Returns
    -------
    Monitor
        The settings, validated and frozen.

    Raises
    ------
    ConfigError
        The file cannot be used; the message lists every mistake with its line.
    """
    document = _read(path)
    try:
        monitor = Monitor.model_validate(document.data)
    except ValidationError as error:
        # Not chained: the cause would add pydantic's wording to a traceback.
        raise _refusal(path, _MistakeCollector(document).collect(error)) from None
    if document.mistakes:
        raise _refusal(path, document.mistakes.values())
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:100] or "monitor"
    monitor = _resolve_paths(monitor, Path(os.path.abspath(path)).parent)
    return monitor.model_copy(update={"name": monitor.name or name})


def read_monitors(folder: Path) -> dict[Path, Monitor | ConfigError]:
    """Read every monitor file of a folder; a file that cannot be used maps to its error.

    Two monitors must not share a name, or a model and source: the second one is refused.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder, so it has no monitors. Check the path.")
    results: dict[Path, Monitor | ConfigError] = {}
    first_files: dict[tuple[str, Any], Path] = {}
    for path in monitor_files(folder):
        try:
            monitor = results[path] = load_monitor(path)
        except ConfigError as error:
            results[path] = error
            continue
        model, source = monitor.model, monitor.source
        watched = (
            *(model.tracking_uri, model.tracking_uri_env, model.name),
            *(source.path, source.table, source.query, source.url, source.url_env),
        )
        for what, identity in (("name", monitor.name), ("model and source", watched)):
            first = first_files.setdefault((what, identity), path)
            if first != path and results[path] is monitor:
                results[path] = ConfigError(
                    f"{first} and {path} have the same {what}, so their results would mix. "
                    "Change or remove one of them."
                )
    return results


def monitor_files(folder: Path) -> list[Path]:
    """Return the `.yaml` and `.yml` files of a folder, without hidden ones."""
    return sorted([*folder.glob("[!.]*.yaml"), *folder.glob("[!.]*.yml")])


def _read(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}. Check the path.") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{path} is larger than {MAX_BYTES} bytes, the limit for a monitor. Check the path."
        )
    try:
        document = Document.read(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8. Save the file as UTF-8.") from error
    except UnreadableText as error:
        raise _refusal(path, [Mistake(error.line, (), str(error))]) from error
    if not isinstance(document.data, dict):
        problem = "is empty" if document.data is None else "has no settings (`name: value`)"
        raise ConfigError(
            f"{path} {problem}. A monitor needs at least model.name, source.path and "
            "source.timestamp; `rtscv-mlops init` writes one."
        )
    return document


def _refusal(path: Path, mistakes: Iterable[Mistake]) -> ConfigError:
    lines = sorted({(mistake.line, str(mistake)) for mistake in mistakes})
    listing = [f"  {path}:{line}: {text}" for line, text in lines[:MAX_MISTAKES]]
    if len(lines) >= MAX_MISTAKES:
        listing.append("  There may be more mistakes. Fix these first.")
    return ConfigError("\n".join([f"{path} cannot be used:", *listing]))


def _resolve_paths(monitor: Monitor, folder: Path) -> Monitor:
    """Make relative paths and SQLite URLs absolute."""

    def resolve_url(url: str | None) -> str | None:
        match = SQLITE_FILE.fullmatch(url or "")
        if not match:
            return url
        return f"{match['scheme']}{os.path.normpath(folder / match['file'])}{match['rest'] or ''}"

    uri = resolve_url(monitor.model.tracking_uri)
    sections: dict[str, values.Settings] = {
        "model": monitor.model.model_copy(update={"tracking_uri": uri})
    }
    for name in ("source", "reference", "labels"):
        table = getattr(monitor, name)
        if table is not None:
            path = table.path
            if path is not None and "://" not in path:
                path = os.path.normpath(folder / path)
            update = {"path": path, "url": resolve_url(table.url)}
            sections[name] = table.model_copy(update=update)
    return monitor.model_copy(update=sections)


class _MistakeCollector:
    """Collects all mistakes of a document, from its YAML and from pydantic's errors."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def collect(self, error: ValidationError) -> list[Mistake]:
        """Return all mistakes, including conflicts that pydantic did not reach.

        Pydantic looks for the conflicts of a section only if each of its values is valid. So the
        bad values are replaced by valid examples, and the document is validated again.
        """
        in_yaml = self.document.mistakes
        mistakes = [
            mistake
            for mistake in islice(self.explain(error), MAX_MISTAKES)
            if mistake.location not in in_yaml
        ]
        bad = {*in_yaml}.union(*(one.concerns for one in mistakes if not one.is_conflict))
        try:
            Monitor.model_validate(self.repair(bad))
        except ValidationError as second:
            mistakes += [
                mistake
                for mistake in self.explain(second)
                if mistake.is_conflict
                and mistake not in mistakes
                # An example must not be blamed: a conflict counts only among the user's values.
                and not any(
                    location[: len(concern)] == concern
                    for concern in mistake.concerns
                    for location in bad
                )
            ]
        return [*in_yaml.values(), *mistakes]

    def explain(self, error: ValidationError) -> Iterator[Mistake]:
        """Yield one mistake for each value that pydantic refuses, and for each conflict."""
        for location, group in groupby(error.errors(include_url=False), key=self.locate):
            details = list(group)
            kind, context = details[0]["type"], details[0].get("ctx", {})
            if kind == "conflicts":
                for conflict in context["conflicts"]:
                    yield self.explain_conflict(conflict, location)
                continue
            concerns = {location}
            if kind == "missing":
                field = _field_at(location)
                section = _section_in(field.annotation) if field else None
                description = section.__doc__ if section else field and field.description
                problem = f"is missing. {description or ''}".strip()
            elif kind == "extra_forbidden":
                problem, meant = _explain_unknown(location)
                concerns |= meant
            elif kind == "refused":
                problem = context["sentence"]
            else:
                problem = _explain_value(details)
            line = self.document.line_of(location)
            yield Mistake(line, location, problem, frozenset(concerns))

    def locate(self, details: ErrorDetails) -> Location:
        """Return where an error is, without the names that pydantic gives to parts of a union."""
        location: Location = ()
        for part in details["loc"]:
            if (*location, part) in self.document.lines:
                location = (*location, part)
        return (*location, details["loc"][-1]) if details["type"] == "missing" else location

    def explain_conflict(self, conflict: values.Conflict, section: Location) -> Mistake:
        locations = [(*section, name) for name in conflict.fields]
        written = [location for location in locations if location in self.document.lines]
        line = self.document.line_of(written[0] if written else section)
        return Mistake(line, section, conflict.sentence, frozenset(locations), is_conflict=True)

    def repair(self, bad: Iterable[Location]) -> Any:
        """Return the data with each bad value replaced by an example, or left out."""
        data = copy.deepcopy(self.document.data)
        for location in bad:
            section = data
            for depth, key in enumerate(location, start=1):
                value = section.get(key)
                if depth < len(location) and isinstance(value, dict):
                    section = value
                    continue
                # A list with a bad item is left out as a whole.
                section.pop(key, None)
                field = _field_at(location)
                if depth == len(location) and field and field.examples:
                    section[key] = field.examples[0]
                break
        return data


def _explain_unknown(location: Location) -> tuple[str, set[Location]]:
    """Return what is wrong with an unknown setting, and the location that was meant."""
    section, name = location[:-1], str(location[-1])
    known = sorted(_settings_at(section))
    if values.names_a_secret(name):
        return "unknown setting. Keep secrets out of the file: use a setting ending in _env", set()
    near = get_close_matches(name, known, n=1)
    if near:
        return f"unknown setting; did you mean {near[0]}?", {(*section, near[0])}
    return f"unknown setting; available here: {', '.join(known)}", set()


def _explain_value(details: list[ErrorDetails]) -> str:
    """Return what a value must be, from all errors about it: several in a union of types."""
    required = " or ".join(dict.fromkeys(map(_requirement, details)))
    kinds = {error["type"] for error in details}
    value = details[0]["input"]
    if value is None:
        return f"must be {required}, but is empty; remove the line to use the default"
    if isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, dict):
        shown = "settings"
    elif isinstance(value, list | tuple):
        shown = "a list" if value else "an empty list"
    else:
        shown = repr(value)[:60]
    # A value that does not match its pattern may be a secret, so it is not repeated.
    problem = f"must be {required}"
    if "string_pattern_mismatch" not in kinds:
        problem = f"{problem}, not {shown}"
    if "literal_error" in kinds:
        near = get_close_matches(str(value), re.split(", | or ", required), n=1)
        return f"{problem}; did you mean {near[0]}?" if near else problem
    if "string_type" in kinds and isinstance(value, bool | int | float):
        return f"{problem}; put it in quotes if it is text"
    return problem


def _requirement(error: ErrorDetails) -> str:
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return PATTERNS[context["pattern"]]
    if kind == "literal_error":
        return re.sub(r"'(\w+)'", r"\1", str(context["expected"]))
    if kind not in REQUIREMENTS:
        return f"valid ({error['msg']})"
    limits = {  # of a float, pydantic reports the limit 0 as 0.0
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in context.items()
    }
    return REQUIREMENTS[kind].format(**limits)


def _field_at(location: Location) -> FieldInfo | None:
    return _settings_at(location[:-1]).get(str(location[-1]))


def _settings_at(location: Location) -> dict[str, FieldInfo]:
    """Return the settings of a section by name; none if the location is not a section."""
    section: type[values.Settings] | None = Monitor
    for key in location:
        field = section.model_fields.get(str(key)) if section else None
        section = _section_in(field.annotation) if field else None
    return dict(section.model_fields) if section else {}


def _section_in(annotation: Any) -> type[values.Settings] | None:
    """Return the settings class that an annotation contains, if any."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, values.Settings):
            return kind
    return None
