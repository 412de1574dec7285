"""What is wrong with a monitor, in plain words and with the place to mend it.

Knows pydantic's errors and the names of the settings; knows nothing of files.
"""

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
from rtscv_mlops.config import values
from rtscv_mlops.config.document import (
    MAX_MISTAKES,
    Document,
    Mistake,
    NotReadable,
    Place,
    read_document,
)
from rtscv_mlops.config.inputs import TableSettings
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.values import Settings
from rtscv_mlops.errors import ConfigError

PATTERNS = {
    values.ENV_NAME: "the name of an environment variable, such as TEAM_TOKEN",
    settings.MONITOR_NAME: "made of letters, digits, dots, dashes and underscores",
    settings.MODEL_NAME: "a name without / and :",
    values.ALIAS: "made of letters, digits, dashes and underscores",
    settings.FIT: "written like package.module:function",
    settings.MAIL: "an e-mail address",
    settings.SCHEDULER: "an address that begins with tcp://, tls://, ws:// or wss://",
    values.WEB: "an address that begins with https:// or http://",
}
NEEDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list such as [a, b]",
    "dict_type": "settings of its own, one `name: value` a line",
    "model_type": "settings of its own, one `name: value` a line",
    "time_delta_type": "a duration such as 12h",
    "datetime_type": "a moment such as 2026-01-05",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} character long",
    "too_short": "a list of at least {min_length}",
    "string_too_long": "at most {max_length} characters long",
}


def explain(error: ValidationError, document: Document) -> Iterator[Mistake]:
    """Yield one mistake for each place that pydantic complains about, and for each conflict."""

    def place(details: ErrorDetails) -> Place:
        return _place(details, document)

    for where, group in groupby(error.errors(include_url=False), key=place):
        details = list(group)
        if details[0]["type"] == "conflicts":
            yield from _conflicts(details[0], where, document)
        else:
            what, concerns = _what(details, where)
            yield Mistake(document.line_of(where), where, what, frozenset({where, *concerns}))


def _place(details: ErrorDetails, document: Document) -> Place:
    """Return where an error is, without the names that pydantic gives to parts of a union."""
    place: Place = ()
    for part in details["loc"]:
        if (*place, part) in document.lines:
            place = (*place, part)
    return (*place, details["loc"][-1]) if details["type"] == "missing" else place


def _conflicts(details: ErrorDetails, where: Place, document: Document) -> Iterator[Mistake]:
    for conflict in details["ctx"]["conflicts"]:
        places = [(*where, name) for name in conflict.fields]
        written = [place for place in places if place in document.lines]
        line = document.line_of(written[0] if written else where)
        yield Mistake(line, where, conflict.sentence, frozenset(places), is_conflict=True)


def _what(details: list[ErrorDetails], where: Place) -> tuple[str, list[Place]]:
    kind = details[0]["type"]
    if kind == "missing":
        return f"is missing. {_description(where)}".strip(), []
    if kind == "extra_forbidden":
        return _unknown(where)
    if kind == "refused":
        return details[0]["ctx"]["sentence"], []
    return _must_be(details), []


def _unknown(where: Place) -> tuple[str, list[Place]]:
    name, known = str(where[-1]), sorted(_settings_at(where[:-1]))
    near = get_close_matches(name, known, n=1)
    if values.names_a_secret(name):
        return "is no setting. Secrets do not belong in a file: use a setting ending in _env", []
    if near:
        return f"is no setting; did you mean {near[0]}?", [(*where[:-1], near[0])]
    return f"is no setting; those here are {', '.join(known)}", []


def _must_be(details: list[ErrorDetails]) -> str:
    needs = list(dict.fromkeys(map(_need, details)))
    found = details[0]["input"]
    kinds_of_error = {error["type"] for error in details}
    if found is None:
        return (
            f"must be {' or '.join(needs)}, and nothing is given; remove the line for the default"
        )
    hint = ""
    if "literal_error" in kinds_of_error:
        hint = _nearest_choice(found, needs)
    elif "string_type" in kinds_of_error and isinstance(found, (bool, int, float)):
        hint = "; put it in quotes if it is text"
    seen = "" if "string_pattern_mismatch" in kinds_of_error else f", not {_show(found)}"
    return f"must be {' or '.join(needs)}{seen}{hint}"


def _need(error: ErrorDetails) -> str:
    kind = error["type"]
    context = {name: _tidy(value) for name, value in error.get("ctx", {}).items()}
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], f"written as {context['pattern']}")
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    return NEEDS[kind].format(**context) if kind in NEEDS else f"valid ({error['msg']})"


def _tidy(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _nearest_choice(found: object, needs: list[str]) -> str:
    choices = [choice for need in needs for choice in need.replace(" or ", ", ").split(", ")]
    near = get_close_matches(str(found), choices, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _show(found: object) -> str:
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, dict):
        return "settings"
    if isinstance(found, list | tuple):
        return "a list"
    return repr(found)[:60]


def _settings_at(place: Place) -> dict[str, FieldInfo]:
    """Return the settings below a place, by name."""
    section: type[Settings] | None = settings.Monitor
    for part in place:
        field = section.model_fields.get(str(part)) if section else None
        section = section_of(field.annotation) if field else None
    return dict(section.model_fields) if section else {}


def section_of(annotation: Any) -> type[Settings] | None:
    """Return the settings class that an annotation holds, if any."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def _description(place: Place) -> str:
    field = _settings_at(place[:-1]).get(str(place[-1]))
    section = section_of(field.annotation) if field else None
    return (section.__doc__ if section else field and field.description) or ""


def stand_in(place: Place) -> Any:
    """Return a value that is right for a place, or None: an example of its setting."""
    field = _settings_at(place[:-1]).get(str(place[-1]))
    return field.examples[0] if field and field.examples else None


MAX_BYTES = 256_000
SQLITE_FILE = re.compile(
    r"(?P<scheme>sqlite(\+\w+)?:///)(?!/|:memory:|file:|[A-Za-z]:)(?P<file>[^?]+)(?P<rest>\?.*)?"
)


def load_monitor(path: Path) -> Monitor:
    """Read a monitor; relative paths and SQLite addresses in it start at the file's folder."""
    monitor = _validate(path, _read(path))
    folder = Path(os.path.abspath(path)).parent
    return _anchored(monitor, folder).model_copy(update={"name": monitor.name or _safe(path.stem)})


def read_monitors(folder: Path) -> dict[Path, Monitor | ConfigError]:
    """Read every `.yaml` and `.yml` file of a folder; one that cannot be used stops no other.

    No two may do the same: the second of them cannot be used.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder, so no monitor can be read from it.")
    found: dict[Path, Monitor | ConfigError] = {}
    for path in monitor_files(folder):
        try:
            found[path] = load_monitor(path)
        except ConfigError as error:
            found[path] = error
    monitors = {path: one for path, one in found.items() if isinstance(one, Monitor)}
    return found | _twins(monitors)


def monitor_files(folder: Path) -> list[Path]:
    """Return the files of a folder that monitors are read from."""
    return sorted([*folder.glob("[!.]*.yaml"), *folder.glob("[!.]*.yml")])


def _read(path: Path) -> Document:
    text = _text(path)
    try:
        document = read_document(text)
    except NotReadable as error:
        raise _refusal(path, [Mistake(error.line, (), str(error))]) from error
    if not isinstance(document.data, dict):
        found = "is empty" if document.data is None else "holds no settings (`name: value`)"
        raise ConfigError(
            f"{path} {found}. A monitor needs at least model.name, source.path and "
            "source.timestamp; `rtscv-mlops init` writes one."
        )
    return document


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}. Check the path.") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes, so it is no monitor.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8. Save the file as UTF-8.") from error


def _validate(path: Path, document: Document) -> Monitor:
    found = dict(document.mistakes)
    try:
        monitor = Monitor.model_validate(document.data)
    except ValidationError as error:
        raise _refusal(path, [*found.values(), *_all_mistakes(error, document)]) from None
    if found:
        raise _refusal(path, found.values())
    return monitor


def _all_mistakes(error: ValidationError, document: Document) -> list[Mistake]:
    """Return also the conflicts that pydantic looks for only where each value is right alone."""
    found = [
        mistake
        for mistake in islice(explain(error, document), MAX_MISTAKES)
        if mistake.place not in document.mistakes
    ]
    bad = {*document.mistakes}.union(*(m.concerns for m in found if not m.is_conflict))
    mended = _without(document.data, bad)
    for place in bad:
        _put_stand_in(mended, place)
    try:
        Monitor.model_validate(mended)
    except ValidationError as again:
        conflicts = [m for m in explain(again, document) if m.is_conflict and m not in found]
        found += [m for m in conflicts if not _touches(m, bad)]
    return found


def _put_stand_in(data: Any, place: Place) -> None:
    """Give a place that must have a value some right one, so that others can be judged."""
    if not place:
        return
    for part in place[:-1]:
        data = data.get(part) if isinstance(data, dict) else None
    example = stand_in(place)
    if isinstance(data, dict) and example is not None:
        data.setdefault(place[-1], example)


def _without(data: Any, bad: Iterable[Place], place: Place = ()) -> Any:
    """Return a copy that lacks the bad values; a list with a bad item is left out whole."""
    if not isinstance(data, dict):
        return data
    kept = {}
    for name, value in data.items():
        here = (*place, name)
        inner = [other for other in bad if other[: len(here)] == here]
        is_bad = here in inner or (inner and not isinstance(value, dict))
        if not is_bad:
            kept[name] = _without(value, inner, here)
    return kept


def _touches(mistake: Mistake, bad: Iterable[Place]) -> bool:
    return any(place[: len(one)] == one for one in mistake.concerns for place in bad)


def _refusal(path: Path, mistakes: Iterable[Mistake]) -> ConfigError:
    lines = sorted({(m.line, str(m)) for m in mistakes})
    listing = [f"  {path}:{line}: {what}" for line, what in lines[:MAX_MISTAKES]]
    if len(lines) >= MAX_MISTAKES:
        listing.append("  There may be more mistakes; mend these first.")
    return ConfigError("\n".join([f"{path} cannot be used:", *listing]))


def _twins(monitors: dict[Path, Monitor]) -> dict[Path, ConfigError]:
    """Say which monitors have the name of an earlier one, or watch its model at its place."""
    errors: dict[Path, ConfigError] = {}
    first: dict[Any, Path] = {}
    for path, monitor in monitors.items():
        for what, key in (("name", monitor.name), ("model and source", _watched(monitor))):
            other = first.setdefault((what, key), path)
            if other != path:
                errors.setdefault(
                    path,
                    ConfigError(
                        f"{other} and {path} have the same {what}, so their results would mix. "
                        "Change or remove one of them."
                    ),
                )
    return errors


def _watched(monitor: Monitor) -> tuple[str | None, ...]:
    model, source = monitor.model, monitor.source
    server = (model.tracking_uri, model.tracking_uri_env)
    place = (source.path, source.table, source.query, source.url, source.url_env)
    return (*server, model.name, *place)


def _anchored(monitor: Monitor, folder: Path) -> Monitor:
    tables = {name: getattr(monitor, name) for name in ("source", "reference", "labels")}
    update: dict[str, Any] = {
        name: _anchored_table(table, folder) for name, table in tables.items() if table
    }
    uri = monitor.model.tracking_uri and _anchored_url(monitor.model.tracking_uri, folder)
    update["model"] = monitor.model.model_copy(update={"tracking_uri": uri})
    return monitor.model_copy(update=update)


def _anchored_table(table: TableSettings, folder: Path) -> TableSettings:
    path, url = table.path, table.url
    if path is not None and "://" not in path:
        path = os.path.normpath(folder / path)
    return table.model_copy(update={"path": path, "url": url and _anchored_url(url, folder)})


def _anchored_url(url: str, folder: Path) -> str:
    match = SQLITE_FILE.fullmatch(url)
    if not match:
        return url
    return f"{match['scheme']}{os.path.normpath(folder / match['file'])}{match['rest'] or ''}"


def _safe(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-")[:100] or "monitor"
