"""A YAML file as plain values with the line of each, read strictly.

YAML 1.1 and 1.2 disagree about values such as `no` or `012`. Those are refused rather than
guessed. So are repeated keys, tags, references that multiply, and deep nesting.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, Self

import yaml
from yaml.composer import Composer
from yaml.resolver import Resolver

MAX_DEPTH = 12
MAX_VALUES = 25_000
MAX_MISTAKES = 100

NULLS = {"", "~", "null", "Null", "NULL"}
BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
AMBIGUOUS_BOOLEAN = re.compile(r"yes|no|on|off", flags=re.IGNORECASE)
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
AMBIGUOUS_NUMBER = re.compile(
    r"[-+]?(0[0-9]+|0[xob][0-9a-f_]+|[0-9][0-9_]*_[0-9_.]*|[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|\.inf|\.nan)",
    flags=re.IGNORECASE,
)
MAX_DIGITS = 18  # more do not fit 64 bits
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

Location = tuple[str | int, ...]
"""Keys and indices that lead to a value, such as ("alert", "email", "to", 0)."""


@dataclass(frozen=True)
class Mistake:
    """One problem in a file. A change at any location in `concerns` may fix it.

    In a conflict, each value is valid on its own but not together with the others.
    """

    line: int
    location: Location
    problem: str
    concerns: frozenset[Location] = frozenset()
    is_conflict: bool = False

    def __str__(self) -> str:
        if not self.location:
            return self.problem
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.location)
        # A key may hold control characters, which would reach a terminal.
        shown = "".join(keys).removeprefix(".").encode("unicode_escape").decode("ascii")
        return f"{shown[:200]}: {self.problem}"


@dataclass
class Document:
    """The values of a file, the line of each, and the mistakes in its YAML."""

    data: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    mistakes: dict[Location, Mistake] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read one YAML document. Mistakes that leave it readable are collected."""
        root = _compose(text)
        document = cls()
        if root is not None:
            document.data = _NodeReader(document).value(root, ())
        return document

    def line_of(self, location: Location) -> int:
        """Return the line of a value, or of the closest section around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def add_mistake(self, location: Location, problem: str) -> None:
        if len(self.mistakes) < MAX_MISTAKES:
            mistake = Mistake(self.line_of(location), location, problem)
            self.mistakes.setdefault(location, mistake)


class UnreadableText(Exception):
    """The text cannot be parsed, so nothing else can be checked."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _compose(text: str) -> yaml.Node | None:
    try:
        return _FastLoader(text).get_single_node()
    except (yaml.YAMLError, ValueError, OverflowError):
        pass  # PyYAML reads the text again: it explains errors better than libyaml does.
    try:
        return _PlainLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, error.problem or ""
        if "'\\t'" in problem:
            problem = "is indented with a tab; YAML allows only spaces"
        elif "another document" in problem:
            problem = "starts a second document; a monitor is one document, so remove the line ---"
        else:
            problem = f"is not valid YAML: {', '.join(filter(None, (error.context, problem)))}"
        raise UnreadableText(mark.line + 1 if mark else 1, problem) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableText(line, "contains a character that YAML does not allow") from error
    except (ValueError, OverflowError) as error:  # from PyYAML, for numbers in escapes
        raise UnreadableText(1, f"is not valid YAML: {error}") from error


class _LimitedComposer(Composer):
    """Composes nodes, but refuses tags, deep nesting and too many values."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[attr-defined]
        line = event.start_mark.line + 1
        if getattr(event, "tag", None):
            raise UnreadableText(line, "has a YAML tag (!); tags are not allowed")
        if self.depth > MAX_DEPTH:
            raise UnreadableText(line, f"is nested more than {MAX_DEPTH} levels deep")
        if self.nodes > 2 * MAX_VALUES:
            raise UnreadableText(line, f"has more than {MAX_VALUES} values")
        self.depth += 1
        self.nodes += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _PlainLoader(_LimitedComposer, yaml.SafeLoader):
    """PyYAML's parser in Python, with good error messages."""


if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _FastLoader(_LimitedComposer, Resolver, CParser):
        """libyaml's parser: Airflow reads every monitor each time it parses its DAGs."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            Resolver.__init__(self)

else:
    _FastLoader = _PlainLoader  # type: ignore[misc, assignment]


class _NodeReader:
    """Turns nodes into values. It counts them, since references can multiply values."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = 0

    def value(self, node: yaml.Node, location: Location) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or len(location) > MAX_DEPTH:
            raise UnreadableText(
                node.start_mark.line + 1,
                f"expands to more than {MAX_VALUES} values, or has a reference (*) to itself",
            )
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return self.sequence(node, location)
        assert isinstance(node, yaml.ScalarNode)
        return self.scalar(node, location)

    def sequence(self, node: yaml.SequenceNode, location: Location) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            here = (*location, index)
            self.document.lines[here] = item.start_mark.line + 1
            items.append(self.value(item, here))
        return items

    def mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.document.add_mistake(location, f"has a key on line {line} that is not text")
                continue
            here = (*location, key.value)
            if key.value in settings:
                first = self.document.lines[here]
                self.document.add_mistake(here, f"is given twice, on lines {first} and {line}")
                continue
            self.document.lines[here] = line
            settings[key.value] = self.value(item, here)
        return settings

    def scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        text = str(node.value)
        is_quoted = bool(node.style)  # a block of text counts as quoted
        if not is_quoted:
            if text in NULLS:
                return None
            if text in BOOLEANS:
                return BOOLEANS[text]
            if INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS:
                return int(text)
            if AMBIGUOUS_BOOLEAN.fullmatch(text):
                return self.ambiguous(text, location, "boolean", "true or false")
            if AMBIGUOUS_NUMBER.fullmatch(text):
                return self.ambiguous(text, location, "number", "a plain decimal number")
            if NUMBER.fullmatch(text):
                return self.number(text, location)
        if UNPRINTABLE.search(text):
            self.document.add_mistake(location, "contains a control character")
        return text

    def ambiguous(self, text: str, location: Location, kind: str, instead: str) -> str:
        problem = (
            f"{text[:40]} is text in one version of YAML and a {kind} in another; "
            f"put it in quotes if it is text, otherwise write {instead}"
        )
        self.document.add_mistake(location, problem)
        return text

    def number(self, text: str, location: Location) -> float | str:
        number = float(text)
        if math.isfinite(number) and not INTEGER.fullmatch(text):
            return number
        self.document.add_mistake(
            location, "is too large for a number; put it in quotes if it is text"
        )
        return text
