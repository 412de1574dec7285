"""What is wrong with a monitor, in plain words and with the place to mend it.

Knows pydantic's errors and the names of the settings; knows nothing of files.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import groupby
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rtscv_mlops.config import kinds, settings
from rtscv_mlops.config.base import Settings
from rtscv_mlops.config.document import Document, Mistake, Place

PATTERNS = {
    kinds.ENV_NAME: "the name of an environment variable, such as TEAM_TOKEN",
    settings.MONITOR_NAME: "made of letters, digits, dots, dashes and underscores",
    settings.MODEL_NAME: "a name without / and :",
    kinds.ALIAS: "made of letters, digits, dashes and underscores",
    settings.FIT: "written like package.module:function",
    settings.MAIL: "an e-mail address",
    settings.SCHEDULER: "an address that begins with tcp://, tls://, ws:// or wss://",
    kinds.WEB: "an address that begins with https:// or http://",
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
    if kinds.names_a_secret(name):
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
