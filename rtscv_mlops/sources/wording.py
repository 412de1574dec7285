"""How names and values of strangers' data are shown in messages: short, quoted, few.

Knows text; knows nothing of tables.
"""

import difflib
from collections.abc import Iterable, Sequence

LONGEST = 60
MOST = 5


def shown(value: object) -> str:
    """Quote a name or value so that neither its length nor its characters can do harm."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def listed(values: Iterable[object], most: int = MOST) -> str:
    """Quote the first few values, and say how many more there are."""
    every = list(values)
    head = ", ".join(shown(value) for value in every[:most])
    return f"{head} and {len(every) - most} more" if len(every) > most else head


def count(number: int, noun: str) -> str:
    """Say `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Find the name that was most likely meant: other case, blanks, or a few letters off."""
    folded = {other.strip().casefold(): other for other in names}
    if name.strip().casefold() in folded:
        return folded[name.strip().casefold()]
    close = difflib.get_close_matches(name, names, n=1)
    return close[0] if close else None


def suggestions(missing: Iterable[str], names: Sequence[str]) -> str:
    """Say which present names look like the missing ones, or nothing."""
    pairs = [(name, nearest(name, names)) for name in missing]
    likely = [f"{shown(near)} looks like {shown(name)}" for name, near in pairs if near]
    return f" {'; '.join(likely[:MOST])}." if likely else ""
