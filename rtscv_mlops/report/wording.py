"""How words and numbers are written for people; whatever comes from data stays text.

Knows strings; knows nothing of widgets or pages.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from rtscv_mlops.text import SMALLEST_P_VALUE

LOOKALIKES = str.maketrans({"<": "\u2039", ">": "\u203a"})
INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}
REORDERING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
NOTHING = "\u2014"
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def inert(value: Any) -> Any:
    """Return plain data with every markup sign in every text, keys included, made a look-alike.

    Evidently writes its data into a script block without escaping the closing tag, and Plotly
    reads tags in labels: a text without these two signs can end or open neither.
    """
    if isinstance(value, str):
        return value.translate(LOOKALIKES)
    if isinstance(value, Mapping):
        return {inert(key): inert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inert(item) for item in value]
    return value


def plain(value: Any, limit: int = 60) -> str:
    """Return one short line without markup, control signs or marks that reorder text."""
    text = str(value)
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    visible = (" " if _is_invisible(sign) else sign for sign in text.translate(LOOKALIKES))
    return " ".join("".join(visible).split()) or "(blank)"


def _is_invisible(sign: str) -> bool:
    return sign in REORDERING or unicodedata.category(sign) in INVISIBLE


def markdown(value: Any, limit: int = 400) -> str:
    """Return a text that Markdown shows as it is."""
    return PUNCTUATION.sub(r"\\\1", plain(value, limit))


def unique(names: list[str]) -> list[str]:
    """Return the names with a number behind those that would repeat one before them."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    left = dict(seen)
    out = []
    for name in names:
        left[name] -= 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name] - left[name]})")
    return out


def percent(share: float | None) -> str:
    """Return a share in percent, with as many digits as a person needs."""
    if share is None or not math.isfinite(share):
        return NOTHING
    if 0 < share < 0.001:
        return "below 0.1 %"
    near_the_ends = 0 < share < 0.1 or 0.9 < share < 1
    return f"{100 * share:.{1 if near_the_ends else 0}f} %"


def percent_range(interval: tuple[float, float] | None) -> str:
    """Return both ends of an interval in percent."""
    if interval is None:
        return NOTHING
    digits = 1 if max(interval) < 0.1 else 0
    low, high = (f"{100 * end:.{digits}f}" for end in interval)
    return f"{low} to {high} %"


def score(value: float | None) -> str:
    """Return a distance or a p-value; where it is tiny its size says nothing more."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"< {SMALLEST_P_VALUE}" if 0 < value < SMALLEST_P_VALUE else f"{value:.3g}"


def quantity(value: Any) -> str:
    """Return a cell: whole numbers with separators, others with three digits, text in short."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value, 40)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}"


def times(factor: float) -> str:
    """Return a multiple."""
    return f"{factor:.1f}x" if factor < 100 else "over 100x"


def rounded(values: Iterable[float]) -> list[float]:
    """Return numbers for a picture: four digits are more than a screen shows."""
    return [float(f"{value:.4g}") for value in values]
