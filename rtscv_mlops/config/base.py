"""What all settings share: immutable, strict, and able to say which of them do not go together.

Knows how settings behave; knows no setting.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


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
