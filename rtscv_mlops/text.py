"""Numbers, labels and untrusted text, as people read them.

Report, description, page, alert and console write numbers with these functions and take the names
of facts from `Label`, so one fact has one name and the same digits wherever it appears. Labels of
classes, column names and addresses come from outside: a function here makes them safe for the place
where they are shown.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from rtscv_mlops.errors import RtscvError
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.window import Interval

if TYPE_CHECKING:  # facts load pydantic, which `--help` need not wait for
    from rtscv_mlops import facts

LONGEST = 60
MOST = 5

NOT_KNOWN = "not known"
DASH = "\u2014"
"""A missing number in the cell of a table."""

UNTOLD = "cannot be told from these rows"
UNTOLD_BEHIND_DRIFT = "cannot be told behind this drift"
NO_TEXT = "(no text)"
SMALLEST = 0.0001
"""P-values and distances below this are not written out: their size says nothing more."""

# Entities, since MLflow's renderer takes a backslash before few characters only, and decodes
# entities after it has looked for markup. The underscore stays readable: column names are full
# of it, and every renderer takes its backslash.
ENTITIES = {character: f"&#{ord(character)};" for character in "&<>|\\`*{}[]~@:"}
ESCAPES = ENTITIES | {"_": r"\_"}
# Other renderers look for bare addresses in the decoded text; a zero-width space breaks those.
ADDRESS = re.compile(r"(?<=/)(?=/)|(?<=www)(?=\.)|(?=@)", re.IGNORECASE)
ZERO_WIDTH_SPACE = "\u200b"
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
LOOKALIKES = str.maketrans({"<": "\u2039", ">": "\u203a"})

# A path, also of Windows, or an address in a store of artifacts.
PATH = re.compile(r"/|[A-Za-z]:[\\/]|(?!https?:)[a-z][a-z0-9+.-]*://")
# User, password or token before the host (a password may hold an @), or a parameter.
LOGIN = re.compile(r"(?<=://)[^/\s]*@|(?<=password=)[^\s&]+", re.IGNORECASE)


def percent(share: float | None, missing: str = NOT_KNOWN) -> str:
    """Return a measured share, such as `7.5 %` or `42 %`.

    One decimal below 10 % and above 90 %, where it matters. A share that is not quite 0 or 1 is
    never written as 0 % or 100 %.
    """
    if share is None or not isfinite(share):
        return missing
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    digits = 1 if share < 0.1 or share > 0.9 else 0
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def estimate(share: float | None, missing: str = NOT_KNOWN) -> str:
    """Return an estimated share in whole percent, such as `7 %`: its interval is wider anyway."""
    if share is None or not isfinite(share):
        return missing
    if 0 < share < 0.001 or 0.999 < share < 1:
        return percent(share)
    return f"{_whole_percent(share)} %"


def interval(limits: tuple[float, float]) -> str:
    """Return the interval of an estimated share, such as `4-10 %`."""
    low, high = limits
    return f"{_whole_percent(low)}-{_whole_percent(high)} %"


def _whole_percent(share: float) -> str:
    fine = 0 < share < 0.0095 or 0.9905 < share < 1
    return f"{100 * share:.1f}" if fine else f"{100 * share:.0f}"


def rate(share: float | None, limits: tuple[float, float] | None = None) -> str:
    """Return an estimated share with its interval, such as `about 7 % (4-10 %)`."""
    if share is None or not isfinite(share):
        return NOT_KNOWN
    return f"about {estimate(share)}" + (f" ({interval(limits)})" if limits else "")


def unknown_share(facts: "facts.WindowFacts") -> str:
    """Return the share of unknown rows with its interval, or why it cannot be told."""
    if facts.told_rate is None and facts.unknown_rate is not None:
        return UNTOLD_BEHIND_DRIFT if Verdict.of(facts.verdict).claims_drift else UNTOLD
    return rate(facts.told_rate, facts.told_interval)


def probability(p_value: float | None) -> str:
    """Return a p-value, such as `p = 0.03` or `p < 0.0001`."""
    if p_value is None or not isfinite(p_value):
        return f"p {NOT_KNOWN}"
    return f"p < {SMALLEST}" if p_value < SMALLEST else f"p = {p_value:.2g}"


def number(value: float | None, missing: str = NOT_KNOWN) -> str:
    """Return a number with three digits."""
    if value is None or not isfinite(value):
        return missing
    return f"< {SMALLEST}" if 0 < value < SMALLEST else f"{value:.3g}"


def quantity(value: Any) -> str:
    """Return the cell of a table: whole numbers with separators, others with three digits."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return DASH
    if isinstance(value, bool) or not isinstance(value, int | float):
        return caption(value, 40)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}"


def multiple(factor: float) -> str:
    """Return a multiple, such as `2.5x`."""
    return f"{factor:.1f}x" if factor < 100 else "over 100x"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, such as `1 row` or `1,200 rows`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def judge_again(window: "facts.WindowFacts", file: str) -> str:
    """Return the command that judges a window again."""
    start, end = window.window_start.isoformat(), window.window_end.isoformat()
    return f"rtscv-mlops run {file} --start {start} --end {end}"


def window_name(window: "facts.WindowFacts") -> str:
    """Return when the window was, also if its interval is not valid."""
    try:
        return str(Interval(window.window_start, window.window_end))
    except RtscvError:
        return f"{window.window_start:%Y-%m-%d %H:%M} to {window.window_end:%Y-%m-%d %H:%M}"


def verdict_text(verdict: str) -> str:
    """Return a recorded verdict; a window that was not assessed cannot be taken for a quiet one."""
    if Verdict.of(verdict).is_assessed:
        return plain(verdict)
    return f"NOT ASSESSED ({plain(Verdict.reason(verdict)) or NOT_KNOWN})"


def shown(value: object) -> str:
    """Return a name or value in quotes, shortened, with special characters escaped."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def listed(values: Iterable[object], most: int = MOST) -> str:
    """Return the first few values in quotes, and how many more there are."""
    every = list(values)
    head = ", ".join(shown(value) for value in every[:most])
    return f"{head} and {len(every) - most} more" if len(every) > most else head


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that was most likely meant: other case, blanks, or a few letters off."""
    folded = {other.strip().casefold(): other for other in names}
    if name.strip().casefold() in folded:
        return folded[name.strip().casefold()]
    close = difflib.get_close_matches(name, names, n=1)
    return close[0] if close else None


def suggestions(missing: Iterable[str], names: Sequence[str]) -> str:
    """Return a sentence on which present names look like the missing ones, or nothing."""
    pairs = [(name, nearest(name, names)) for name in missing]
    likely = [f"{shown(near)} looks like {shown(name)}" for name, near in pairs if near]
    return f" {'; '.join(likely[:MOST])}." if likely else ""


def plain(text: object, width: int = 80) -> str:
    """Return one line without control or invisible characters, shortened to `width`.

    Markup of the console, of HTML or of Markdown is not touched.
    """
    # No more than the start is read: a label may be a whole file.
    visible = "".join(_visible(character) for character in str(text)[: 20 * width])
    line = " ".join(visible.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Zl", "Zp") or character in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85":
        return " "
    return "" if category in ("Cc", "Cf", "Cs") else character


def printable(text: str) -> str:
    """Return text without the control characters that steer a terminal; lines and tabs stay."""
    return "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) != "Cc")


def inert(value: Any) -> Any:
    """Return plain data in which < and > are look-alikes, in every text, keys included.

    Evidently writes its data into a script block without escaping the closing tag, and Plotly
    reads tags in labels: a text without these two signs can neither end nor open one.
    """
    if isinstance(value, str):
        return value.translate(LOOKALIKES)
    if isinstance(value, Mapping):
        return {inert(key): inert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inert(item) for item in value]
    return value


def caption(value: object, width: int = LONGEST) -> str:
    """Return one short line for a chart, a table or a heading of the report, without tags."""
    return inert(plain(value, width)) or "(blank)"


def inert_line(text: str, width: int = 80) -> str:
    """Return one line in which neither a mail reader nor a chat finds a tag or an address.

    Chats call everyone who reads a channel by @everyone, @channel or a name after the sign.
    """
    line = str(inert(plain(text, width))).replace("://", ": //")
    return line.replace("@", "\uff20")


def markdown(text: str, width: int = 80) -> str:
    """Return Markdown for MLflow and Airflow that shows exactly this text.

    No link, markup, table cell or template comes out of it. `width` bounds what is written,
    escapes included, so that hostile text cannot push the rest of a page over its limit. Do not
    begin a line with it: signs that mean something only there, such as dashes, stay as they are.
    """
    line = ADDRESS.sub(ZERO_WIDTH_SPACE, plain(text, width) or NO_TEXT)
    written = ""
    for sign in line:
        piece = ESCAPES.get(sign, sign)
        if len(written) + len(piece) >= width:
            return f"{written}…"
        written += piece
    return written


def commonmark(value: object, width: int = 400) -> str:
    """Return Markdown for the report, whose renderer takes a backslash before any punctuation."""
    return PUNCTUATION.sub(r"\\\1", caption(value, width))


def redact(text: object, mark: str = "") -> str:
    """Return text without user, password and token of the addresses in it."""
    return LOGIN.sub(mark, str(text))


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


def safe_path(address: str) -> str:
    """Return a path, or a store's address without its login, for code; else nothing."""
    path = redact(plain(address, 2_000))
    return path if PATH.match(path) and "`" not in path else ""


def shell_word(text: str, otherwise: str) -> str:
    """Return text that is safe to paste into a shell."""
    return re.sub(r"[^A-Za-z0-9._-]", "", text).lstrip("-")[:100] or otherwise


LEAST_CHANGE = 0.0005
NOISE = "in parentheses, what chance may add or take."
"""Recalls that differ by less are the same: one decimal would not show it."""


class Label(StrEnum):
    """The name of a fact about a window."""

    VERDICT = "Verdict"
    MONITOR = "Monitor"
    MODEL = "Model"
    WINDOW = "Window"
    ROWS = "Rows in the window"
    SAMPLED = "Rows sampled"
    UNKNOWN_RATE = "Unknown rate"
    UNKNOWNS = "Unknown rows"
    P_VALUE = "Chance if nothing were new"
    FALSE_RATE = "Known rows called unknown"
    DRIFT = "Columns moved"
    ACCURACY = "Accuracy on known rows"
    COMPARED_WITH = "Compared with"

    # Sections
    GROUPS = "What is new"
    COMPARISON = "Champion against challenger"
    FINDINGS = "What to know"

    # Columns of tables
    FEATURE = "What tells them apart"
    HERE = "Here"
    NEAREST = "Nearest known"
    DIFFERENCE = "Difference"
    COLUMN = "Column"
    SCORE = "Score"
    THRESHOLD = "Threshold"
    CLASS = "Class"
    CLASS_ROWS = "Rows"
    CHAMPION = "Champion finds"
    CHALLENGER = "Challenger finds"
    CHANGE = "Change"
    CALLED_UNKNOWN = "Called unknown"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The cells of one known class in the comparison of champion and challenger."""

    known: "facts.ClassComparison"

    @property
    def rows(self) -> str:
        return f"{self.known.rows:,}"

    @property
    def champion(self) -> str:
        return percent(self.known.champion)

    @property
    def challenger(self) -> str:
        return percent(self.known.challenger)

    @property
    def change(self) -> str:
        if not isfinite(self.known.loss):
            return NOT_KNOWN
        change = f"{-100 * self.known.loss:+.1f} points"
        if abs(self.known.loss) < LEAST_CHANGE:
            change = "same"
        if self.known.loss_interval is None:
            return change
        least, most = self.known.loss_interval
        return f"{change} ({-100 * most:+.1f} to {-100 * least:+.1f})"

    @property
    def unknown(self) -> str:
        return percent(self.known.unknown)

    @property
    def is_worse(self) -> bool:
        return isfinite(self.known.loss) and self.known.loss > LEAST_CHANGE


def class_rows(comparison: "facts.Comparison") -> list[ClassRow]:
    """Return the known classes, those that lose most first.

    Classes that lose the same come in the order of what the challenger finds of them, the least
    first. A class without held-out rows has lost nothing that is known, and comes last.
    """

    def order(known: "facts.ClassComparison") -> tuple[float, float, str]:
        loss = -known.loss if isfinite(known.loss) else inf
        return loss, known.challenger if isfinite(known.challenger) else inf, known.label

    return [ClassRow(known) for known in sorted(comparison.classes, key=order)]


def called(card: "facts.ClusterCard", escape: Callable[[str, int], str], most: int) -> list[str]:
    """Return what the champion called the rows of a group, such as `cat (70 %)`."""
    return [f"{escape(label, 40)} ({percent(part)})" for label, part in card.called.items()][:most]


def effect(feature: "facts.TellingFeature") -> str:
    """Return how far a feature lies from the nearest known rows, with its sign."""
    return f"{'+' if feature.effect > 0 else ''}{number(feature.effect)}"


def exemplar_columns(card: "facts.ClusterCard") -> list[str]:
    """Return the columns of the typical rows of a group; those that tell it apart come first."""
    columns = dict.fromkeys(name for row in card.exemplars for name in row)
    telling = [feature.name for feature in card.features if feature.name in columns]
    return list(dict.fromkeys([*telling, *columns]))


def columns_moved(drift: "facts.DriftFacts") -> str:
    """Return how many of the compared columns moved, such as `3 of 61`."""
    return f"{drift.drifted} of {sum(not column.problem for column in drift.columns)}"
