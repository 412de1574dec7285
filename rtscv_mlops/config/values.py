"""What all settings share: immutable, strict, and able to say which of them do not go together.

Knows how settings behave; knows no setting.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, NoReturn, Self
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError


CHAMPION = "champion"
CHALLENGER = "challenger"
PREVIOUS_CHAMPION = "previous_champion"
RESERVED_ALIASES = {
    CHALLENGER: "the version under review",
    PREVIOUS_CHAMPION: "the version that served before the last promotion",
}
"""Aliases that a review or a promotion moves, with their meaning. `model.alias` takes none."""


class Conflict(NamedTuple):
    """Settings that are fine alone and cannot be used together."""

    fields: tuple[str, ...]
    sentence: str


class Settings(BaseModel):
    """Immutable, and strict about names and types: a typo is an error, not a silent default."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # it may be a secret
    )

    def conflicts(self) -> Iterable[Conflict]:
        """Return which settings do not go together, all of them at once."""
        return ()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        found = tuple(self.conflicts())
        if found:
            sentences = "; ".join(conflict.sentence for conflict in found)
            raise PydanticCustomError(
                "conflicts", "{sentences}", {"sentences": sentences, "conflicts": found}
            )
        return self


ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
WEB = r"^https?://[^\s/]"
ALIAS = r"^[A-Za-z0-9_-]+$"
DURATION = r"^[0-9]{1,6}[smhdw]$"
MOMENT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
)
SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
SECRET_WORDS = {
    *("auth", "credential", "credentials", "key", "pass", "passphrase", "passwd", "password"),
    *("pwd", "sas", "secret", "sig", "signature", "token"),
    *("accesskey", "accountkey", "apikey", "connectionstring", "secretkey"),
}
# An address of these services is itself the permission to write there.
SECRET_ADDRESSES = ("hooks.slack.com/", "discord.com/api/webhooks/", "webhook.office.com/")
# Here `container@account` names a place, not a user.
CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")


def refuse(sentence: str) -> NoReturn:
    """Refuse a value with a sentence that is shown as it stands."""
    raise PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def names_a_secret(name: str) -> bool:
    """Tell whether a word of the name, such as `token` in `session_token`, promises a secret."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    pairs = {first + second for first, second in pairwise(words)}
    return bool(SECRET_WORDS & {*words, *pairs})


def secret_in(address: str) -> str | None:
    """Say what in an address is secret, or return None."""
    try:
        parts = urlsplit(address)
        user = parts.netloc.rpartition("@")[0]
        named = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return "a part that is no address"
    if user and (":" in user or parts.scheme not in CONTAINER_SCHEMES):
        return "a user or password"
    for name in filter(names_a_secret, named):
        return f"the parameter {name}"
    if re.search(r"\b(password|passwd|pwd|secret|token|sig)=", address, flags=re.IGNORECASE):
        return "a password or token"
    if any(place in address for place in SECRET_ADDRESSES):
        return "the permission to post there"
    return None


def _without_secret(address: str) -> str:
    secret = secret_in(address)
    if secret:
        refuse(
            f"holds {secret}, and secrets do not belong in a file. Put the value in an "
            "environment variable, and name that variable in the setting that ends in _env"
        )
    return address


def _no_secret_option(name: str) -> str:
    if names_a_secret(name) and not name.endswith("_env"):
        refuse(
            "is a secret by its name, and secrets do not belong in a file. Write "
            f"{name}_env with the name of an environment variable that holds the value"
        )
    return name


def _usable_variables(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in options.items():
        option = name.removesuffix("_env")
        if name == option:
            continue
        if not isinstance(value, str) or not re.match(ENV_NAME, value):
            refuse(f"{name} must be the name of an environment variable")
        if option in options:
            refuse(f"give {option} or {name}, not both")
    return options


def _read_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not re.match(DURATION, value):
        refuse("must be a duration such as 90s, 30m, 12h, 1d or 2w")
    return timedelta(seconds=int(value[:-1]) * SECONDS[value[-1]])


def write_duration(duration: timedelta) -> str:
    """Write a duration in the largest unit that divides it."""
    seconds = round(duration.total_seconds())
    unit = next(unit for unit, length in SECONDS.items() if seconds % length == 0)
    return f"{seconds // SECONDS[unit]}{unit}" if seconds else "0s"


def _read_moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not re.match(MOMENT, value):
        refuse("must be a moment such as 2026-01-05 or 2026-01-05T13:00:00+01:00")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        refuse(f"is no moment: {error}")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        refuse("is no moment: out of range")


def _existing_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # what a wrong, an odd and an unknown name raise
        near = get_close_matches(name, available_timezones(), n=1) or ["Europe/Zurich"]
        refuse(f"{name[:60]!r} is no time zone; write one such as UTC or {near[0]}")
    return name


def _free_alias(alias: str) -> str:
    if re.match(r"(latest|v[0-9]+)$", alias, flags=re.IGNORECASE):
        refuse(f"{alias} is reserved by MLflow; choose another alias")
    if alias in RESERVED_ALIASES:
        refuse(f"{alias} is reserved for {RESERVED_ALIASES[alias]}; choose another alias")
    return alias


def _known_encoding(encoding: str) -> str:
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        refuse("is no encoding that Python knows; write one such as utf-8 or latin-1")
    return encoding


def _some_time(duration: timedelta) -> timedelta:
    if not duration:
        refuse("must be longer than nothing")
    return duration


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        refuse(f"names {', '.join(repeated)} more than once")
    return names


Name = Annotated[str, Field(min_length=1, max_length=1_000)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Share = Annotated[float, Field(ge=0, le=1)]
Zone = Annotated[str, AfterValidator(_existing_zone)]
Address = Annotated[str, Field(min_length=1), AfterValidator(_without_secret)]
WebAddress = Annotated[str, Field(pattern=WEB), AfterValidator(_without_secret)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Names = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(_each_once)]
Alias = Annotated[str, Field(pattern=ALIAS, max_length=256), AfterValidator(_free_alias)]
Encoding = Annotated[str, AfterValidator(_known_encoding)]
Options = Annotated[
    dict[
        Annotated[str, AfterValidator(_no_secret_option)],
        Annotated[str, AfterValidator(_without_secret)] | int | float | bool,
    ],
    AfterValidator(_usable_variables),
]
Duration = Annotated[
    timedelta,
    Field(ge=timedelta(0)),
    BeforeValidator(_read_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
Patience = Annotated[Duration, AfterValidator(_some_time)]
Moment = Annotated[
    datetime,
    BeforeValidator(_read_moment),
    AfterValidator(_in_utc),
    WithJsonSchema({"type": "string", "pattern": MOMENT}),
]
