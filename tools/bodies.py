"""Prove that a move of code only moved it: compare the functions and classes of two trees.

Run with `python -m tools.bodies OLD_TREE NEW_TREE`. Compared are, wherever they are in the package:

- each function and method as written, with its name, decorators and annotations; what is defined
  inside a function is part of it;
- each class: its name, bases, decorators, and the statements in it that are not methods;
- with `--statements`, what a module does at its top, imports and docstring left out.

Formatting and comments are not compared. What differs is printed, and the exit code is 1. What a
move must change is allowed by options, which treat both trees alike (the renames only the old one):

--renames FILE
    JSON, from old name to new one. A key such as "registry/columns.py:noted" holds in that file of
    the old package only; one without a file holds everywhere. Where a renamed function is used
    from other files, each of them needs a key. Names inside strings are left alone.
--ignore-imports
    Imports inside functions and classes are left out.
--attributes
    `registry.connect` becomes `connect` where `registry` is a module of ours by an import. A name
    that the function itself binds otherwise is left alone.
"""

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "rtscv_mlops"
Imports = ast.Import | ast.ImportFrom
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Options:
    """What a move may change."""

    renames: Mapping[str, str] = field(default_factory=dict)
    ignore_imports: bool = False
    attributes: bool = False
    statements: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A function, class or statement: where it is, what it is called, and what it does."""

    place: str
    name: str
    dump: str

    def __str__(self) -> str:
        return f"{self.place} {self.name}"


def compare(
    old_root: Path, new_root: Path, options: Options, package: str = PACKAGE
) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces that only the old tree has, and those that only the new one has."""
    old = collect(old_root, package, options, options.renames)
    new = collect(new_root, package, options, {})
    return _without(old, new), _without(new, old)


def collect(root: Path, package: str, options: Options, renames: Mapping[str, str]) -> list[Piece]:
    """Return the pieces of a tree's package, made comparable."""
    files = sorted((root / package).rglob("*.py"))
    if not files:
        raise SystemExit(f"{root} has no package {package}. Name the folder that holds it.")
    pieces = []
    for file in files:
        inner = file.relative_to(root / package).as_posix()
        tree = ast.parse(file.read_text())
        comparable = _Comparable(
            _renames_of(inner, renames),
            _module_aliases(tree.body, root, package) if options.attributes else {},
            options,
            root,
            package,
        )
        for owner, node in _pieces(tree.body, options):
            name = f"{owner}{getattr(node, 'name', '')}" or ast.unparse(node).split("\n")[0]
            place = f"{package}/{inner}:{node.lineno}"
            pieces.append(Piece(place, name, comparable.dump(node, owner)))
    return pieces


def _without(pieces: list[Piece], others: list[Piece]) -> list[Piece]:
    """Return the pieces that others lack, as often as others lack them."""
    left: dict[str, int] = {}
    for other in others:
        left[other.dump] = left.get(other.dump, 0) + 1
    only = []
    for piece in pieces:
        if left.get(piece.dump, 0):
            left[piece.dump] -= 1
        else:
            only.append(piece)
    return sorted(only, key=lambda piece: (piece.name, piece.place))


def _pieces(
    body: list[ast.stmt], options: Options, owner: str = ""
) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each function, method and class shell of a module, with the class that owns it."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, Definition)]
            yield from _pieces([*methods], options, f"{owner}{node.name}.")
            yield owner, _shell(node)
        elif isinstance(node, Definition):
            yield owner, node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _pieces(_blocks(node), options, owner)
        elif options.statements and not isinstance(node, Imports) and not _is_docstring(node, body):
            yield owner, node


def _shell(node: ast.ClassDef) -> ast.ClassDef:
    rest = [each for each in node.body if not isinstance(each, Definition)]
    shell = ast.ClassDef(node.name, node.bases, node.keywords, rest, node.decorator_list)
    return ast.copy_location(shell, node)


def _blocks(node: ast.If | ast.Try | ast.With) -> list[ast.stmt]:
    """Return the statements in all branches of a compound statement."""
    handlers = [each for handler in getattr(node, "handlers", []) for each in handler.body]
    return [
        *node.body,
        *handlers,
        *getattr(node, "orelse", []),
        *getattr(node, "finalbody", []),
    ]


def _is_docstring(node: ast.stmt, body: list[ast.stmt]) -> bool:
    return node is body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _renames_of(file: str, renames: Mapping[str, str]) -> dict[str, str]:
    """Return the renames that hold in a file; those for this file alone win."""
    everywhere = {old: new for old, new in renames.items() if ":" not in old}
    here = {
        old.removeprefix(f"{file}:"): new
        for old, new in renames.items()
        if old.startswith(f"{file}:")
    }
    return everywhere | here


def _module_aliases(nodes: list[ast.stmt], root: Path, package: str) -> dict[str, str]:
    """Return the names that imports among statements bind to modules of ours, and their paths."""
    aliases: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.If):  # as in `if TYPE_CHECKING:`
            aliases |= _module_aliases(_blocks(node), root, package)
        elif isinstance(node, Imports):
            for name, path in _bindings(node):
                if path.partition(".")[0] == package and _is_module(path, root):
                    aliases[name] = path
    return aliases


def _bindings(node: Imports) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and the dotted path of what it binds."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            top = alias.name.partition(".")[0]
            yield top, top


def _is_module(path: str, root: Path) -> bool:
    place = root.joinpath(*path.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


class _Comparable(ast.NodeTransformer):
    """Changes a piece of one module so that it can be compared with one of another module."""

    def __init__(
        self,
        renames: dict[str, str],
        aliases: dict[str, str],
        options: Options,
        root: Path,
        package: str,
    ) -> None:
        self.renames = renames
        self.module_aliases = aliases
        self.aliases = aliases
        self.options = options
        self.root = root
        self.package = package

    def dump(self, node: ast.stmt, owner: str) -> str:
        """Return a piece as text that does not depend on its place."""
        self.aliases = self._aliases_in(node) if self.options.attributes else {}
        owners = ".".join(self._new(name) for name in owner.split("."))
        return owners + ast.dump(self.visit(node))

    def _aliases_in(self, node: ast.stmt) -> dict[str, str]:
        inner: list[ast.stmt] = [each for each in ast.walk(node) if isinstance(each, Imports)]
        bound = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)} | {
            each.id
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
        }
        aliases = self.module_aliases | _module_aliases(inner, self.root, self.package)
        return {name: path for name, path in aliases.items() if name not in bound}

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self._module(node.value)
        if owner and not _is_module(f"{owner}.{node.attr}", self.root):
            return self.visit(ast.Name(node.attr, node.ctx))
        self.generic_visit(node)
        return ast.Attribute(node.value, self._new(node.attr), node.ctx)

    def _module(self, node: ast.expr) -> str:
        """Return the path of the module of ours that an expression stands for, if it does."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := self._module(node.value)):
            path = f"{owner}.{node.attr}"
            return path if _is_module(path, self.root) else ""
        return ""

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.Name(self._new(node.id), node.ctx)

    def visit_Import(self, node: ast.Import) -> Any:
        return self._visit_import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return self._visit_import(node)

    def _visit_import(self, node: Imports) -> Any:
        return None if self.options.ignore_imports else self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, Definition | ast.alias | ast.ExceptHandler) and node.name:
            node.name = self._new(node.name)
        elif isinstance(node, ast.arg):
            node.arg = self._new(node.arg)
        elif isinstance(node, ast.keyword) and node.arg:
            node.arg = self._new(node.arg)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._new(name) for name in node.names]
        return node

    def _new(self, name: str) -> str:
        return self.renames.get(name, name)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bodies", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("old", type=Path, metavar="OLD_TREE")
    parser.add_argument("new", type=Path, metavar="NEW_TREE")
    parser.add_argument("--renames", type=Path, metavar="FILE", help="JSON: old name to new name")
    parser.add_argument("--ignore-imports", action="store_true", help="leave inner imports out")
    parser.add_argument("--attributes", action="store_true", help="module.name is name")
    parser.add_argument("--statements", action="store_true", help="compare modules' tops too")
    asked = parser.parse_args()
    options = Options(
        json.loads(asked.renames.read_text()) if asked.renames else {},
        asked.ignore_imports,
        asked.attributes,
        asked.statements,
    )
    only_old, only_new = compare(asked.old, asked.new, options)
    for tree, pieces in (("old", only_old), ("new", only_new)):
        for piece in pieces:
            print(f"only in the {tree} tree: {piece}")
    if only_old or only_new:
        sys.exit(1)
    print("Both trees hold the same functions and classes.")


if __name__ == "__main__":
    main()
