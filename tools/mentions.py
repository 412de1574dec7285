"""Find the files that know the members of an enumeration, and so change when it gets a new one.

A Python file counts where a member stands for a decision or a table:

- the enumeration's class, or `Verdict.DRIFT`;
- a member's text in a comparison, or as a pattern of `match`;
- a dict, tuple, list, set or `Literal` with at least two members' texts;
- a member's text assigned to a constant of its name, or given as an argument such as `verdict=`.

With `constants`, a file counts too where it imports a constant that another module made so: the
number without them falls when a literal is only given a name elsewhere.

A single text elsewhere does not count: "drift" is a section of the report, too. Style sheets,
templates and scripts count with at least two members as classes, custom properties or quoted words.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARKUP = (".css", ".html", ".js")
WORDS_IN_QUOTES = re.compile(r"""(["'])([\w\s-]*)\1""")
NAMES_IN_STYLES = re.compile(r"(?:\.|--)([a-z_]+)\b(?!-)")


@dataclass(frozen=True, slots=True)
class Choice:
    """An enumeration: its class, texts that count as members beside its own, and its arguments."""

    enum: str
    more: frozenset[str]
    arguments: frozenset[str]


VERDICT = Choice("Verdict", frozenset({"not_assessed"}), frozenset({"verdict"}))
REVIEW = Choice("ReviewStatus", frozenset(), frozenset({"review", "status"}))


def files_that_mention(
    root: Path, package: str, choice: Choice, *, constants: bool = False
) -> list[str]:
    """Return the package's files that know a member, each with its first line that does."""
    sources = sorted((root / package).rglob("*.py"))
    trees = {file: ast.parse(file.read_text()) for file in sources}
    members = {*choice.more, *(text for tree in trees.values() for text in _members(tree, choice))}
    named = {
        (_module_name(file.relative_to(root)), name)
        for file, tree in trees.items()
        for name in _constants(tree, choice, members)
        if constants
    }
    places = []
    for file, tree in trees.items():
        lines = [*mentions(tree, choice, members), *_uses(tree, named)]
        if lines:
            places.append(f"{file.relative_to(root)}:{min(lines)}")
    for file in sorted(root.joinpath(package).rglob("*")):
        if file.suffix in MARKUP and len(members & _markup_names(file)) > 1:
            places.append(str(file.relative_to(root)))
    return places


def mentions(tree: ast.AST, choice: Choice, members: set[str]) -> Iterator[int]:
    """Yield the lines where a member stands for a decision or a table."""
    for node in ast.walk(tree):
        if _is_member(node, choice) or any(
            text in members
            for part in _decisive_parts(node, choice, members)
            for text in _texts(part)
        ):
            yield getattr(node, "lineno", 1)


def _is_member(node: ast.AST, choice: Choice) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name == choice.enum
    if not (isinstance(node, ast.Attribute) and node.attr.isupper()):
        return False
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id == choice.enum) or (
        isinstance(owner, ast.Attribute) and owner.attr == choice.enum
    )


def _decisive_parts(node: ast.AST, choice: Choice, members: set[str]) -> list[ast.expr]:
    """Return the expressions under a node where a member's text means the member."""
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.MatchValue():
            return [node.value]
        case ast.Dict() | ast.Tuple() | ast.List() | ast.Set():
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = {text for part in parts if part is not None for text in _own_text(part)}
            return [part for part in parts if part] if len(texts & members) > 1 else []
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [value] if name.lower() in _own_text(value) else []
        case ast.keyword(arg=name, value=value):
            return [value] if name in choice.arguments else []
    return []


def _texts(node: ast.expr) -> list[str]:
    """Return the text that an expression is, or the texts that it lists."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [text for part in node.elts for text in _own_text(part)]
    return _own_text(node)


def _own_text(node: ast.expr) -> list[str]:
    # What follows a colon is the reason of a verdict, not part of its name.
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return [str(node.value).partition(":")[0]] if is_text else []  # type: ignore[attr-defined]


def _members(tree: ast.AST, choice: Choice) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == choice.enum:
            for statement in node.body:
                if isinstance(statement, ast.Assign):
                    yield from _first_text(statement.value)


def _first_text(value: ast.expr) -> list[str]:
    """Return a member's text, also where it is the first of the arguments of a member."""
    if isinstance(value, ast.Call) and value.args:
        return _own_text(value.args[0])
    return _texts(value)[:1]


def _constants(tree: ast.Module, choice: Choice, members: set[str]) -> Iterator[str]:
    """Yield the constants of a module that hold members."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(mentions(node, choice, members)):
            for target in node.targets:
                yield from (
                    each.id
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name) and each.id.isupper()
                )


def _uses(tree: ast.AST, constants: set[tuple[str, str]]) -> Iterator[int]:
    """Yield the lines where a constant is imported from the module that made it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            (node.module, alias.name) in constants for alias in node.names
        ):
            yield node.lineno


def _module_name(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def _markup_names(file: Path) -> set[str]:
    text = file.read_text()
    if file.suffix == ".css":
        return {*NAMES_IN_STYLES.findall(text)}
    return {word for _, words in WORDS_IN_QUOTES.findall(text) for word in words.split()}
