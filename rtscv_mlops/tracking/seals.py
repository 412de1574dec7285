"""The seal of a window: what was judged, as one claim that names the digest of each part.

Tags and files of a run can be changed by everyone who may write to MLflow. The seal is claimed in
the model's ledger when the window has been judged, and a claim cannot be changed. Verdict, report
and model are compared with it whenever they are shown, offered, approved or promoted.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

from rtscv_mlops.tracking.ledger import Ledger, safe_name


@dataclass(frozen=True, slots=True)
class Seal:
    """What was judged of a window; a digest is empty if there is no such part."""

    run_id: str
    key: str
    monitor: str
    window: str
    window_start: str
    window_end: str
    champion_version: str
    verdict: str
    facts_sha256: str
    report_sha256: str = ""
    model_id: str = ""
    model_sha256: str = ""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @property
    def digest(self) -> str:
        """Identifies everything that a reviewer decides on."""
        return sha256(self.text.encode()).hexdigest()


def is_valid_seal(name: str, text: str) -> bool:
    """Return whether a claim is a valid seal, if its name says that it is one."""
    return not name.startswith(PREFIX) or find_seal({name: text}, name[len(PREFIX) :]) is not None


PREFIX = "seal."


def find_seal(claims: Mapping[str, str], run_id: str) -> Seal | None:
    """Return the seal of a run among the claims of a ledger; None if there is none."""
    try:
        seal = Seal(**json.loads(claims[safe_name(f"{PREFIX}{run_id}")]))
    except (KeyError, ValueError, TypeError):
        return None
    is_text = all(isinstance(part, str) for part in asdict(seal).values())
    return seal if is_text and seal.run_id == run_id else None


def claim_seal(ledger: Ledger, seal: Seal) -> Seal:
    """Claim a seal, unless the run has one; return the one that holds."""
    name = f"{PREFIX}{seal.run_id}"
    held = ledger.claim(name, seal.text, is_valid_seal)
    return find_seal({safe_name(name): held}, seal.run_id) or seal
