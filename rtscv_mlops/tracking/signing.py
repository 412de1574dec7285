"""Signatures under claims, by a key that only the deciding processes hold.

Everyone who may write to MLflow may write a claim. With a key, a claim counts only if a holder of
that key signed it for this ledger and this name, so none can be forged, copied or renamed.
"""

import hashlib
import hmac
import os
import re
from dataclasses import dataclass

from rtscv_mlops.errors import ConfigError

KEY_VARIABLE = "RTSCV_SIGNING_KEY"
"""Environment variable with the key. Several, divided by commas: the first signs, all verify."""
SHORTEST_KEY = 16
SIGNED = re.compile(r"(?s)(.*) signed:([0-9a-f]{8}:[0-9a-f]{64})")
SIGNATURE_LENGTH = len(" signed:") + 8 + 1 + 64


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and verifies texts; without a key it does neither, and takes every text."""

    keys: tuple[bytes, ...] = ()

    @classmethod
    def from_environment(cls) -> "Signer":
        """Return a signer with the keys of the environment, if any."""
        given = (key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(","))
        keys = tuple(key.encode() for key in given if key)
        if any(len(key) < SHORTEST_KEY for key in keys):
            raise ConfigError(
                f"The environment variable {KEY_VARIABLE} has a key of fewer than {SHORTEST_KEY} "
                "characters, which can be guessed. Set a random one, such as that of "
                "`python -c 'import secrets; print(secrets.token_hex(32))'`."
            )
        return cls(keys)

    def sign(self, subject: str, text: str) -> str:
        """Return a text with its signature; `subject` is where the text belongs."""
        if not self.keys:
            return text
        return f"{text} signed:{_signature(self.keys[0], subject, text)}"

    def verify(self, subject: str, stored: str) -> str | None:
        """Return a stored text without its signature; None if no key of ours made it."""
        signed = SIGNED.fullmatch(stored)
        text, signature = signed.groups() if signed else (stored, "")
        if not self.keys:
            return text
        made = (_signature(key, subject, text) for key in self.keys)
        return text if any(hmac.compare_digest(signature, each) for each in made) else None


def is_signed(stored: str) -> bool:
    """Return whether a stored text has a signature, of any key."""
    return SIGNED.fullmatch(stored) is not None


def _signature(key: bytes, subject: str, text: str) -> str:
    key_id = hashlib.sha256(key).hexdigest()[:8]
    # Lengths keep subject and text apart: no other pair gives the same message.
    message = f"{len(subject)}:{subject}{text}".encode("utf-8", "replace")
    return f"{key_id}:{hmac.new(key, message, hashlib.sha256).hexdigest()}"
