"""How names and values of strangers' data are shown in messages: short, quoted, few.

Knows text; knows nothing of tables.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from urllib.parse import quote, urlsplit, urlunsplit

from rtscv_mlops.errors import RtscvError
from rtscv_mlops.facts import NOT_ASSESSED, WindowFacts
from rtscv_mlops.window import Interval

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


NOT_KNOWN = "not known"
NO_TEXT = "(no text)"
SMALLEST_P_VALUE = 0.0001

# Entities, since MLflow's renderer takes a backslash before few characters only, and decodes
# entities after it has looked for markup. The underscore stays readable: column names are full
# of it, and every renderer takes its backslash.
ENTITIES = {character: f"&#{ord(character)};" for character in "&<>|\\`*{}[]~@:"}
ESCAPES = ENTITIES | {"_": r"\_"}
# Other renderers look for bare addresses in the decoded text; a zero-width space breaks those.
ADDRESS = re.compile(r"(?<=/)(?=/)|(?<=www)(?=\.)|(?=@)", re.IGNORECASE)
ZERO_WIDTH_SPACE = "\u200b"
# A path, also of Windows, or an address in a store of artifacts.
PLACE = re.compile(r"/|[A-Za-z]:[\\/]|(?!https?:)[a-z][a-z0-9+.-]*://")
PASSWORD = re.compile(r"(?<=://)[^/@]*:[^/@]*@")


def percent(share: float | None) -> str:
    """Write a share, such as 7 %; tiny and nearly whole ones never become 0 % or 100 %."""
    if share is None or not isfinite(share):
        return NOT_KNOWN
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{_percent_number(share)} %"


def _percent_number(share: float) -> str:
    fine = 0 < share < 0.0095 or 0.9905 < share < 1
    return f"{100 * share:.1f}" if fine else f"{100 * share:.0f}"


def rate(share: float | None, interval: tuple[float, float] | None = None) -> str:
    """Write an estimated share, such as `about 7 % (4-10 %)`."""
    if share is None or not isfinite(share):
        return NOT_KNOWN
    if interval is None:
        return f"about {percent(share)}"
    low, high = (_percent_number(limit) for limit in interval)
    return f"about {percent(share)} ({low}-{high} %)"


def probability(p_value: float | None) -> str:
    """Write a p-value, such as `p = 0.03` or `p < 0.0001`."""
    if p_value is None or not isfinite(p_value):
        return f"p {NOT_KNOWN}"
    return f"p < {SMALLEST_P_VALUE}" if p_value < SMALLEST_P_VALUE else f"p = {p_value:.2g}"


def number(value: float | None) -> str:
    """Write a number in three digits."""
    return NOT_KNOWN if value is None or not isfinite(value) else f"{value:.3g}"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun, such as `1 row` or `1,200 rows`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def window_name(facts: WindowFacts) -> str:
    """Write when the window was; a window of no length has a name too."""
    try:
        return str(Interval(facts.window_start, facts.window_end))
    except RtscvError:
        return f"{facts.window_start:%Y-%m-%d %H:%M} to {facts.window_end:%Y-%m-%d %H:%M}"


def verdict_words(verdict: str) -> str:
    """Write a verdict so that what was not assessed cannot be taken for health."""
    if not verdict.startswith(NOT_ASSESSED):
        return plain(verdict)
    return f"NOT ASSESSED ({plain(verdict.removeprefix(NOT_ASSESSED).lstrip(':')) or NOT_KNOWN})"


def plain(text: str, width: int = 80) -> str:
    """Return text on one line, without control or invisible characters, shortened to `width`.

    The console's own markup is not touched: print the result as plain text there.
    """
    # No more than the start is read: a label may be a whole file.
    shown = "".join(_visible(character) for character in text[: 20 * width])
    line = " ".join(shown.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Zl", "Zp") or character in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85":
        return " "
    return "" if category in ("Cc", "Cf", "Cs") else character


def markdown(text: str, width: int = 80) -> str:
    """Return text as Markdown that shows exactly it: no link, markup, table cell or template.

    `width` bounds what is written, escapes included, so that hostile text cannot push the rest of
    a page over its limit. Do not begin a line with it: signs that mean something only there, such
    as dashes, are left as they are.
    """
    line = ADDRESS.sub(ZERO_WIDTH_SPACE, plain(text, width) or NO_TEXT)
    return "".join(_fitting((ESCAPES.get(sign, sign) for sign in line), width - 1))


def _fitting(pieces: Iterator[str], width: int) -> Iterator[str]:
    for piece in pieces:
        width -= len(piece)
        if width < 0:
            yield "…"
            return
        yield piece


def safe_link(address: str) -> str:
    """Return a web address without user, password, or signs that Markdown reads; else nothing."""
    try:
        parts = urlsplit(plain(address, 2_000))
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return ""
    return quote(urlunsplit(parts), safe="/:?#@&=+,;%~.-_")


def safe_place(address: str) -> str:
    """Return a path, or a store's address without user and password, for code; else nothing."""
    place = PASSWORD.sub("", plain(address, 2_000))
    return place if PLACE.match(place) and "`" not in place else ""


def shell_word(text: str, otherwise: str) -> str:
    """Return text that is safe in a shell, since somebody will paste it there."""
    return re.sub(r"[^A-Za-z0-9._-]", "", text).lstrip("-")[:100] or otherwise
