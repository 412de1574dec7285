"""From a file to a monitor: all mistakes at once, each with its line.

Knows files and how places in them are written; knows nothing of what a setting is for.
"""

import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rtscv_mlops.config.document import (
    MAX_MISTAKES,
    Document,
    Mistake,
    NotReadable,
    Place,
    read_document,
)
from rtscv_mlops.config.mistakes import explain, stand_in
from rtscv_mlops.config.settings import Monitor
from rtscv_mlops.config.tables import TableSettings
from rtscv_mlops.errors import ConfigError

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
