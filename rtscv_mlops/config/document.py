"""A YAML file as plain values with the line of each, read strictly.

Knows YAML and its traps; knows no setting. What one version of YAML reads as text and another as
a number or a truth value is refused rather than guessed, and so are repeated keys, tags,
references that multiply, and deep nesting.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.resolver import Resolver

MAX_DEPTH = 12
MAX_VALUES = 25_000
MAX_MISTAKES = 100

NOTHING = {"", "~", "null", "Null", "NULL"}
TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
MAYBE_TRUTH = re.compile(r"yes|no|on|off", flags=re.IGNORECASE)
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MAYBE_NUMBER = re.compile(
    r"[-+]?(0[0-9]+|0[xob][0-9a-f_]+|[0-9][0-9_]*_[0-9_.]*|[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|\.inf|\.nan)",
    flags=re.IGNORECASE,
)
MAX_DIGITS = 18  # more do not fit 64 bits
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Mistake:
    """One thing to mend; `concerns` are the places that could be changed to mend it.

    In a conflict each value is right alone, and they do not go together.
    """

    line: int
    place: Place
    what: str
    concerns: frozenset[Place] = frozenset()
    is_conflict: bool = False

    def __str__(self) -> str:
        return f"{write_place(self.place)}: {self.what}" if self.place else self.what


@dataclass
class Document:
    """The values of a file, the line of each place, and what was wrong already as YAML."""

    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: dict[Place, Mistake] = field(default_factory=dict)

    def line_of(self, place: Place) -> int:
        """Return the line of a place, or of what is nearest around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def complain(self, place: Place, what: str) -> None:
        if len(self.mistakes) < MAX_MISTAKES:
            self.mistakes.setdefault(place, Mistake(self.line_of(place), place, what))


class NotReadable(Exception):
    """The text is no YAML that we read; nothing further can be said about it."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def write_place(place: Place) -> str:
    """Write a place as people do: `alert.email.to[0]`, with odd characters made visible."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".").encode("unicode_escape").decode("ascii")[:200]


def read_document(text: str) -> Document:
    """Read one YAML document; mistakes that leave it readable are collected."""
    root = _compose(text)
    document = Document()
    if root is not None:
        document.data = _Reading(document).value(root, ())
    return document


def _compose(text: str) -> yaml.Node | None:
    try:
        return _FastLoader(text).get_single_node()
    except (yaml.YAMLError, ValueError, OverflowError):
        # What is wrong is said in PyYAML's own words, which are better than those of libyaml.
        return _compose_slowly(text)


def _compose_slowly(text: str) -> yaml.Node | None:
    try:
        return _ShallowLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotReadable(mark.line + 1 if mark else 1, _in_plain_words(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotReadable(line, "holds a character that YAML does not allow") from error
    except (ValueError, OverflowError) as error:  # from PyYAML, at numbers in escapes
        raise NotReadable(1, f"is not YAML: {error}") from error


def _in_plain_words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "is indented with a tab; YAML allows only spaces"
    if "another document" in problem:
        return "begins a second document; a monitor is one document, so remove the line ---"
    return f"is not YAML: {', '.join(filter(None, (error.context, problem)))}"


class _Shallow(Composer):
    """Composes nodes without tags, neither deeper nor more than a monitor can be."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[attr-defined]
        problem = self._problem(event)
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self.depth += 1
        self.nodes += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _problem(self, event: Any) -> str | None:
        if getattr(event, "tag", None):
            return "tags, which begin with !, are not allowed"
        if self.depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        return f"more than {MAX_VALUES} values" if self.nodes > 2 * MAX_VALUES else None


class _ShallowLoader(_Shallow, yaml.SafeLoader):
    """Written in Python: explains well what is wrong."""


if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _FastLoader(_Shallow, Resolver, CParser):
        """Reads events by libyaml: Airflow reads every monitor each time it parses its DAGs."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            Resolver.__init__(self)

else:
    _FastLoader = _ShallowLoader  # type: ignore[misc, assignment]


class _Reading:
    """One walk over the nodes; counts values, since references can multiply them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or len(place) > MAX_DEPTH:
            raise NotReadable(
                node.start_mark.line + 1,
                f"makes more than {MAX_VALUES} values, or a reference (*) that never ends",
            )
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return list(self.items(node, place))
        assert isinstance(node, yaml.ScalarNode)
        return self.scalar(node, place)

    def items(self, node: yaml.SequenceNode, place: Place) -> Iterator[Any]:
        for number, item in enumerate(node.value):
            here = (*place, number)
            self.document.lines[here] = item.start_mark.line + 1
            yield self.value(item, here)

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.document.complain(place, f"has a key on line {line} that is no text")
                continue
            here = (*place, key.value)
            if key.value in found:
                first = self.document.lines[here]
                self.document.complain(here, f"is given twice, on lines {first} and {line}")
                continue
            self.document.lines[here] = line
            found[key.value] = self.value(item, here)
        return found

    def scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text = str(node.value)
        if node.style:  # quoted, or a block of text
            return self.text(text, place)
        if text in NOTHING:
            return None
        if text in TRUTH:
            return TRUTH[text]
        if WHOLE.fullmatch(text) and len(text) <= MAX_DIGITS:
            return int(text)
        if MAYBE_TRUTH.fullmatch(text) or MAYBE_NUMBER.fullmatch(text):
            self.document.complain(place, _quote_it(text))
            return text
        if NUMBER.fullmatch(text):
            return self.number(text, place)
        return self.text(text, place)

    def number(self, text: str, place: Place) -> Any:
        number = float(text)
        if WHOLE.fullmatch(text) or not math.isfinite(number):
            self.document.complain(place, "is too large a number; put it in quotes if it is text")
            return text
        return number

    def text(self, text: str, place: Place) -> str:
        if UNPRINTABLE.search(text):
            self.document.complain(place, "holds a control character")
        return text


def _quote_it(text: str) -> str:
    kind = "truth value" if MAYBE_TRUTH.fullmatch(text) else "number"
    plain = "true or false" if kind == "truth value" else "a plain decimal number"
    return (
        f"{text[:40]} is text in one version of YAML and a {kind} in another; "
        f"put it in quotes if it is text, else write {plain}"
    )
