"""Count how the package is built: its size, its shape, and what a change of it costs.

Run with `python -m tools.house [--json] [--trace] [--verbose]` in the tree that is counted. The
numbers that a large move of code is judged by:

code lines
    Lines that hold code. Blank lines, comments and the docstrings of modules, classes and functions
    are not code. The docstring of an attribute (a string under an assignment) counts as code in
    the first number and in all rates, as it did when the goals were set; the second number is
    without it.
imports
    Code lines of import statements, at any depth.
private module functions
    Functions at the top of a module whose name starts with an underscore, Python's hooks such as
    `__getattr__` included.
called once
    A private module function whose name occurs, as a word, once in its module beside its
    definition, and is imported by no other module.
length of a function
    Lines of its body without its docstring; methods and inner functions count too.
deep imports
    Imports of a private name from another module of ours (or its use as `module._name`), imports of
    tests by benchmarks and examples, and names of ours that an example imports although
    `__all__` of the package lacks them.
files of a verdict, or of a review's state
    Files of the package that a new one may touch, see `tools.mentions`.
one window
    Modules and calls between them, see `tools.trace`.
"""

import argparse
import ast
import inspect
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from tools.mentions import REVIEW, VERDICT, Choice, files_that_mention
from tools.trace import Visits, trace_window

PACKAGE = "rtscv_mlops"
OUTER_FOLDERS = ("benchmarks", "dags", "examples", "plugins", "tools")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file; `file` is relative to the tree."""

    file: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        parts = self.file.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The package that relative imports of the module start from."""
        return ".".join(self.file.parent.parts)


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table; `places` are what was counted, for those who want to see it."""

    name: str
    value: float
    goal: str = ""
    shown: str = ""
    places: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"| {self.name} | {self.shown or f'{self.value:,}'} | {self.goal} |"


def read_modules(root: Path, folder: str) -> list[Module]:
    """Return the modules of a folder of the tree; none if it has no such folder."""
    files = sorted((root / folder).rglob("*.py"))
    texts = [file.read_text() for file in files]
    return [
        Module(file.relative_to(root), text, ast.parse(text))
        for file, text in zip(files, texts, strict=True)
    ]


def code_lines(module: Module, *, attribute_docstrings: bool = True) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    docstrings = [node.body[0] for node in _documented(module.tree)]
    if not attribute_docstrings:
        docstrings += [node for node in ast.walk(module.tree) if _is_text(node)]
    return lines.difference(*map(_span, docstrings))


def import_lines(module: Module) -> set[int]:
    """Return the numbers of the lines of import statements."""
    imports = (
        node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return set().union(*map(_span, imports))


def count_comments(module: Module) -> int:
    """Return how many comments a module has, those behind code included."""
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def function_lengths(module: Module) -> list[int]:
    """Return the lines of each function's body, without its docstring."""
    lengths = []
    for node in ast.walk(module.tree):
        if isinstance(node, FUNCTIONS):
            docstring = len(_span(node.body[0])) if ast.get_docstring(node) is not None else 0
            lengths.append(_end(node) - node.body[0].lineno + 1 - docstring)
    return lengths


def private_functions(module: Module) -> list[Function]:
    """Return the functions at the top of a module that are named as private."""
    return [
        node
        for node in module.tree.body
        if isinstance(node, FUNCTIONS) and node.name.startswith("_")
    ]


def called_once(modules: list[Module]) -> list[str]:
    """Return the private module functions that only one place refers to."""
    imported = Counter(
        (path, name)
        for module in modules
        for _, path, name in imported_names(module)
        if name.startswith("_")
    )
    places = []
    for module in modules:
        words = Counter(re.findall(r"\w+", module.text))
        for function in private_functions(module):
            others = words[function.name] - 1 + imported[module.name, function.name]
            if others == 1:
                places.append(f"{module.file}:{function.lineno} {function.name}")
    return places


def repeated_stems(modules: list[Module]) -> dict[str, int]:
    """Return the file names that occur more than once, and how often."""
    stems = Counter(module.file.stem for module in modules)
    return {
        stem: count
        for stem, count in sorted(stems.items())
        if count > 1 and stem not in ("__init__", "__main__")
    }


def imported_names(module: Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, module and name of each import; the name is empty for `import module`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            path = node.module or ""
            if node.level:
                parts = module.package.split(".")
                base = parts[: len(parts) + 1 - node.level]
                path = ".".join([*base, *([path] if path else [])])
            yield from ((node.lineno, path, alias.name) for alias in node.names)


def private_imports(modules: list[Module], package: str) -> list[str]:
    """Return where a module imports, or reaches for, a private name of another module of ours."""
    places = []
    for module in modules:
        aliases = set()
        for line, path, name in imported_names(module):
            if _is_of(path, package):
                aliases.add(name or path.partition(".")[0])
                if _is_private(name):
                    places.append(f"{module.file}:{line} {path}.{name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr):
                owner = ast.unparse(node.value)
                if owner.partition(".")[0] in aliases and owner.islower():
                    places.append(f"{module.file}:{node.lineno} {owner}.{node.attr}")
    return places


def imports_of_tests(modules: list[Module]) -> list[str]:
    """Return where a module imports tests, each statement once."""
    places = [
        f"{module.file}:{line} {path}"
        for module in modules
        for line, path, name in imported_names(module)
        if _is_of(f"{path}.{name}", "tests")
    ]
    return list(dict.fromkeys(places))


def unpublished_imports(modules: list[Module], package: str, public: Iterable[str]) -> list[str]:
    """Return where a module imports a name of the package that is not public."""
    allowed = {*public}
    places = []
    for module in modules:
        for line, path, name in imported_names(module):
            if _is_of(path, package) and (name or path) not in {*allowed, package}:
                places.append(f"{module.file}:{line} {path}{name and f'.{name}'}")
    return places


def undocumented_names(package: ModuleType) -> list[str]:
    """Return the public classes and functions that lack words on themselves or on a parameter."""
    complaints = []
    for name in public_names(package):
        member = getattr(package, name)
        docstring = inspect.getdoc(member) or ""
        constructor = vars(member).get("__init__") if inspect.isclass(member) else None
        documented = documented_parameters(docstring)
        documented |= documented_parameters(inspect.getdoc(constructor) or "")
        missing = [each for each in _parameters(member) if each not in documented]
        if missing or not docstring:
            complaints.append(f"{name}: {', '.join(missing) or 'no docstring'}")
    return complaints


def public_names(package: ModuleType) -> list[str]:
    """Return the names of `__all__` that are classes or functions."""
    return [
        name
        for name in package.__all__
        if inspect.isclass(getattr(package, name)) or inspect.isroutine(getattr(package, name))
    ]


def documented_parameters(docstring: str) -> set[str]:
    """Return the parameters that a numpydoc docstring names; a result lists them as attributes."""
    sections = re.finditer(
        r"^(Parameters|Attributes)\n-{3,}\n(?P<lines>.*?)(?=^\S[^\n]*\n-{3,}$|\Z)",
        docstring,
        re.M | re.S,
    )
    heads = [
        head for section in sections for head in re.findall(r"^\S[^:\n]*", section["lines"], re.M)
    ]
    return {name.strip(" *") for head in heads for name in head.split(",")}


def measure(root: Path, package: str) -> list[Measure]:
    """Count everything that needs no run of the package, in a tree."""
    modules = read_modules(root, package)
    outer = [module for folder in OUTER_FOLDERS for module in read_modules(root, folder)]
    examples = read_modules(root, "examples")
    imported = import_package(root, package)
    return [
        *measure_size(modules),
        *measure_functions(modules),
        _count("file stems that occur twice", _repeats(modules), "0"),
        _count(
            "imports of private names across modules",
            private_imports([*modules, *outer], package),
            "0",
        ),
        _count(
            "imports of tests by benchmarks and examples",
            imports_of_tests([*read_modules(root, "benchmarks"), *examples]),
            "0",
        ),
        _count(
            "imports by examples of names that are not public",
            unpublished_imports(examples, package, imported.__all__),
            "0",
        ),
        *measure_mentions(root, package, "verdict", VERDICT),
        *measure_mentions(root, package, "review state", REVIEW),
        measure_documentation(imported),
        Measure("README words", len((root / "README.md").read_text().split()), "<= 700"),
    ]


def measure_size(modules: list[Module]) -> list[Measure]:
    """Count modules, code lines, comments and imports."""
    code = _count_lines(modules)
    bare = sum(len(code_lines(module, attribute_docstrings=False)) for module in modules)
    imports = sum(len(import_lines(module)) for module in modules)
    comments = sum(map(count_comments, modules))
    return [
        Measure("modules", len(modules), "about 90"),
        Measure("code lines", code, "<= 15,500"),
        Measure("code lines without attribute docstrings", bare),
        Measure("import lines", imports),
        _rate("imports, % of code lines", 100 * imports / code, "<= 8"),
        _rate("comments per 100 code lines", 100 * comments / code),
    ]


def measure_functions(modules: list[Module]) -> list[Measure]:
    """Count functions, their length, and the private ones."""
    lengths = sorted(length for module in modules for length in function_lengths(module))
    private = [function for module in modules for function in private_functions(module)]
    once = called_once(modules)
    return [
        Measure("functions", len(lengths)),
        Measure("median length of a function", median(lengths)),
        Measure("90th percentile of it", lengths[int(0.9 * len(lengths))]),
        Measure("private module functions", len(private)),
        _rate("of them per 1,000 code lines", 1000 * len(private) / _count_lines(modules), "<= 22"),
        _count("called exactly once", once),
        _rate("of the private ones, %", 100 * len(once) / max(len(private), 1), "<= 45"),
    ]


def measure_mentions(root: Path, package: str, thing: str, choice: Choice) -> list[Measure]:
    """Count the files that a new member of an enumeration may touch."""
    direct = files_that_mention(root, package, choice)
    indirect = files_that_mention(root, package, choice, constants=True)
    return [
        _count(f"files that a new {thing} may touch", direct, "<= 3"),
        _count(f"files that know a {thing}, also by an imported constant", indirect),
    ]


def measure_documentation(package: ModuleType) -> Measure:
    """Count the public names whose parameters are all documented."""
    names, missing = public_names(package), undocumented_names(package)
    documented = len(names) - len(missing)
    return Measure(
        "public names with documented parameters",
        documented,
        "all",
        f"{documented} of {len(names)}",
        missing,
    )


def measure_window(visits: Visits) -> list[Measure]:
    """Count what one window visited."""
    edges = sorted(f"{caller} -> {callee}" for caller, callee in visits.edges)
    return [
        _count("modules that one window visits", sorted(visits.modules), "<= 50"),
        _count("calls between modules, each pair once", edges, "<= 100"),
    ]


def import_package(root: Path, package: str) -> ModuleType:
    """Import the package of a tree; another tree's is refused."""
    module = import_module(package)
    if not Path(module.__file__ or "").resolve().is_relative_to(root.resolve()):
        raise SystemExit(
            f"Python finds {package} in {module.__file__}, outside {root}. Set PYTHONPATH to the "
            "tree that is counted."
        )
    return module


def _count_lines(modules: list[Module]) -> int:
    return sum(len(code_lines(module)) for module in modules)


def _repeats(modules: list[Module]) -> list[str]:
    return [f"{stem} x{count}" for stem, count in repeated_stems(modules).items()]


def _count(name: str, places: list[str], goal: str = "") -> Measure:
    return Measure(name, len(places), goal, places=places)


def _rate(name: str, value: float, goal: str = "") -> Measure:
    return Measure(name, round(value, 1), goal)


def _documented(tree: ast.Module) -> Iterator[Any]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            yield node


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _span(node: Any) -> range:
    return range(node.lineno, _end(node) + 1)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_of(path: str, package: str) -> bool:
    return path == package or path.startswith(f"{package}.")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _parameters(member: Any) -> list[str]:
    """Return the parameters that a caller may name; a built-in constructor has none of ours."""
    if inspect.isclass(member) and (
        issubclass(member, Enum) or not inspect.isfunction(member.__init__)
    ):
        return []
    return [
        parameter.name
        for parameter in inspect.signature(member).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def print_table(measures: list[Measure], *, verbose: bool) -> None:
    """Print the measures as a table of Markdown, and under it what was counted."""
    print("| measure | value | goal |\n|---|---:|---|")
    for each in measures:
        print(each)
    if verbose:
        for each in measures:
            if each.places:
                print(f"\n{each.name}:", *each.places, sep="\n  ")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.house", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--trace", action="store_true", help="run one window of the demo, too")
    parser.add_argument("--verbose", action="store_true", help="list what was counted")
    asked = parser.parse_args()
    root = Path.cwd()
    measures = measure(root, PACKAGE)
    if asked.trace:
        measures += measure_window(trace_window(root / PACKAGE))
    if asked.json:
        rows = {
            each.name: {"value": each.value, "goal": each.goal, "places": each.places}
            for each in measures
        }
        print(json.dumps(rows, indent=2))
    else:
        print_table(measures, verbose=asked.verbose)


if __name__ == "__main__":
    main()
