"""The kinds of value that settings take, and what all settings have in common."""

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

ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
WEB = r"^https?://[^\s/]"
ALIAS = r"^[A-Za-z0-9_-]+$"
DURATION = r"^[0-9]{1,6}[smhdw]$"
TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
)
SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
SECRET_WORDS = {
    *("auth", "credential", "credentials", "key", "pass", "passphrase", "passwd", "password"),
    *("pwd", "sas", "secret", "sig", "signature", "token"),
    *("accesskey", "accountkey", "apikey", "connectionstring", "secretkey"),
}
# Anyone who knows such a URL can post to it.
SECRET_ADDRESSES = ("hooks.slack.com/", "discord.com/api/webhooks/", "webhook.office.com/")
# In these URLs, `container@account` is a storage location, not a user.
CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")


class Conflict(NamedTuple):
    """Settings that are valid on their own but cannot be used together."""

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
        """Return all combinations of settings that cannot be used together."""
        return ()

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        conflicts = tuple(self.conflicts())
        if conflicts:
            sentences = "; ".join(conflict.sentence for conflict in conflicts)
            raise PydanticCustomError(
                "conflicts", "{sentences}", {"sentences": sentences, "conflicts": conflicts}
            )
        return self


def refuse(sentence: str) -> NoReturn:
    """Refuse a value; the user sees the sentence unchanged, after the name of the setting."""
    raise PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def names_a_secret(name: str) -> bool:
    """Return whether a word of the name, such as `token` in `session_token`, means a secret."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    pairs = {first + second for first, second in pairwise(words)}
    return bool(SECRET_WORDS & {*words, *pairs})


def secret_in(address: str) -> str | None:
    """Return which kind of secret an address contains, or None."""
    try:
        parts = urlsplit(address)
        user = parts.netloc.rpartition("@")[0]
        parameters = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return "a malformed part that may be a secret"
    if user and (":" in user or parts.scheme not in CONTAINER_SCHEMES):
        return "a user or password"
    for name in filter(names_a_secret, parameters):
        return f"the parameter {name}"
    if re.search(r"\b(password|passwd|pwd|secret|token|sig)=", address, flags=re.IGNORECASE):
        return "a password or token"
    if any(secret in address for secret in SECRET_ADDRESSES):
        return "a webhook token"
    return None


def _check_address(address: str) -> str:
    secret = secret_in(address)
    if secret:
        refuse(
            f"contains {secret}. Keep secrets out of the file: store the value in an environment "
            "variable and name that variable in the matching setting that ends in _env"
        )
    return address


def _check_option_name(name: str) -> str:
    if names_a_secret(name) and not name.endswith("_env"):
        refuse(
            "looks like a secret. Keep secrets out of the file: "
            f"set {name}_env to the name of an environment variable that holds the value"
        )
    return name


def _check_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in options.items():
        option = name.removesuffix("_env")
        if name == option:
            continue
        if not isinstance(value, str) or not re.match(ENV_NAME, value):
            refuse(f"{name} must be the name of an environment variable")
        if option in options:
            refuse(f"set either {option} or {name}, not both")
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


def _check_positive(duration: timedelta) -> timedelta:
    if not duration:
        refuse("must be greater than zero")
    return duration


def _read_time(value: object) -> object:
    if isinstance(value, str) and not re.match(TIME, value):
        refuse("must be a time such as 2026-01-05 or 2026-01-05T13:00:00+01:00")
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(time, datetime):
            return value
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError as error:
        refuse(f"is not a valid time: {error}")
    except OverflowError:
        refuse("is not a valid time: out of range")


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # malformed, a folder's name, unknown
        near = get_close_matches(name, available_timezones(), n=1) or ["Europe/Zurich"]
        refuse(f"{name[:60]!r} is not a valid time zone; use one such as UTC or {near[0]}")
    return name


def _check_alias(alias: str) -> str:
    if re.match(r"(latest|v[0-9]+)$", alias, flags=re.IGNORECASE):
        refuse(f"{alias} is reserved by MLflow; choose another alias")
    if alias in RESERVED_ALIASES:
        refuse(f"{alias} is reserved for {RESERVED_ALIASES[alias]}; choose another alias")
    return alias


def _check_encoding(encoding: str) -> str:
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        refuse("is not an encoding that Python supports; use one such as utf-8 or latin-1")
    return encoding


def _check_unique(names: tuple[str, ...]) -> tuple[str, ...]:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        refuse(f"lists {', '.join(repeated)} more than once")
    return names


Name = Annotated[str, Field(min_length=1, max_length=1_000)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Share = Annotated[float, Field(ge=0, le=1)]
Zone = Annotated[str, AfterValidator(_check_zone)]
Address = Annotated[str, Field(min_length=1), AfterValidator(_check_address)]
WebAddress = Annotated[str, Field(pattern=WEB), AfterValidator(_check_address)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Names = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(_check_unique)]
Alias = Annotated[str, Field(pattern=ALIAS, max_length=256), AfterValidator(_check_alias)]
Encoding = Annotated[str, AfterValidator(_check_encoding)]
Options = Annotated[
    dict[
        Annotated[str, AfterValidator(_check_option_name)],
        Annotated[str, AfterValidator(_check_address)] | int | float | bool,
    ],
    AfterValidator(_check_options),
]
Duration = Annotated[
    timedelta,
    Field(ge=timedelta(0)),
    BeforeValidator(_read_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_check_positive)]
Time = Annotated[
    datetime,
    BeforeValidator(_read_time),
    WithJsonSchema({"type": "string", "pattern": TIME}),
]
