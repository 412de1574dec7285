"""The layers of the package, kept by a test rather than by a drawing."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rtscv_mlops"

LAYERS = [  # a module may import the rows above its own, itself, and nothing else of ours
    {"__init__", "__version__"},  # the package itself, whose public names load when used
    {"errors", "process"},
    {"metrics", "outcomes", "window"},
    {"facts"},
    {"text"},
    {"config", "estimator"},  # pure
    {"rectify", "runtime"},  # the estimator's former home; where work is done
    {"report", "sources", "tracking"},  # one outside world each: Evidently, rows, MLflow
    {"models"},
    {"judging"},
    {"alerts", "review"},
    {"pipeline"},
    {"bench", "demo", "operations"},
    {"airflow", "cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(file: Path, package: Path) -> Iterator[list[str]]:
    """Each import in a file, as the parts of an absolute dotted path."""
    here = [package.name, *file.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) + 1 - node.level] if node.level else []
            module = node.module.split(".") if node.module else []
            yield from ([*base, *module, alias.name] for alias in node.names)


def imported_layers(file: Path, package: Path) -> list[str]:
    """The layers of ours that a file imports."""
    ours = [path for path in imports(file, package) if path[0] == package.name]
    return [path[1] if len(path) > 1 else "__init__" for path in ours]


def violations(package: Path) -> list[str]:
    """One sentence for each module or import that the layers do not allow."""
    found = []
    for file in sorted(package.rglob("*.py")):
        # A folder is one layer, whatever it holds.
        layer = file.relative_to(package).with_suffix("").parts[0]
        if layer not in LEVEL:
            found.append(f"{layer} is in no layer")
            continue
        for target in imported_layers(file, package):
            if target not in LEVEL:
                found.append(f"{layer} imports {target}, which is in no layer")
            elif target != layer and LEVEL[target] >= LEVEL[layer]:
                found.append(f"{layer} imports {target}")
    return found


def test_modules_import_only_the_layers_above():
    """Every module has a layer, and imports of ours only what the layers above it hold."""
    assert violations(PACKAGE) == []


@pytest.fixture
def package(tmp_path):
    """An empty package of our name, to be filled with imports."""
    folder = tmp_path / PACKAGE.name
    (folder / "estimator").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("errors.py", "from rtscv_mlops.config import Settings", "errors imports config"),
        ("window.py", "import rtscv_mlops.config", "window imports config"),
        ("sources.py", "from .judging import judge", "sources imports judging"),
        ("estimator/search.py", "from .. import tracking", "estimator imports tracking"),
        ("estimator/search.py", "from ..report import page", "estimator imports report"),
        ("config.py", "def f():\n    from rtscv_mlops import cli", "config imports cli"),
        ("__init__.py", "from rtscv_mlops.estimator import fit", "__init__ imports estimator"),
        ("helpers.py", "", "helpers is in no layer"),
        ("helpers/texts.py", "", "helpers is in no layer"),
        (
            "report.py",
            "from rtscv_mlops import RTSCVClassifier",
            "report imports RTSCVClassifier, which is in no layer",
        ),
    ],
)
def test_a_wrong_import_is_seen(package, file, line, complaint):
    """Absolute, relative and local imports against the layers are found, and so are strangers."""
    (package / file).parent.mkdir(exist_ok=True)
    (package / file).write_text(line)

    assert violations(package) == [complaint]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("estimator/search.py", "from rtscv_mlops.metrics import recall"),
        ("estimator/search.py", "from .folds import split"),
        ("estimator/__init__.py", "from rtscv_mlops.estimator.search import fit"),
        ("tracking.py", "from rtscv_mlops import __version__, errors, estimator"),
        ("tracking.py", "import mlflow\nfrom sklearn.base import clone"),
    ],
)
def test_a_right_import_is_let_be(package, file, line):
    """A layer may import those above, itself, the version, and any vendor."""
    (package / file).write_text(line)

    assert violations(package) == []


def imports_of_tests(folder: Path) -> list[str]:
    """The files in a folder that import a test."""
    return [
        file.relative_to(folder).as_posix()
        for file in sorted(folder.rglob("*.py"))
        if any(path[0] == "tests" for path in imports(file, folder))
    ]


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "tools"])
def test_benchmarks_and_examples_import_no_test(folder):
    """What tests share with benchmarks and examples is not in a test module."""
    assert imports_of_tests(ROOT / folder) == []


@pytest.mark.parametrize(
    "line", ["import tests.deployments", "def f():\n    from tests.registries import client_of"]
)
def test_an_import_of_a_test_is_seen(tmp_path, line):
    """An import of a test is found, also inside a function."""
    (tmp_path / "script.py").write_text(line)
    (tmp_path / "other.py").write_text("import benchmarks.deployments")

    assert imports_of_tests(tmp_path) == ["script.py"]


def test_a_file_name_occurs_once():
    """A name leads to one file: no two modules of the package share theirs."""
    names = Counter(
        file.stem for file in PACKAGE.rglob("*.py") if file.stem not in ("__init__", "__main__")
    )

    assert [name for name, files in names.items() if files > 1] == []


def unchecked_copies(package: Path) -> list[str]:
    """The modules that call `model_copy(update=...)`, which validates nothing."""
    return [
        file.relative_to(package).as_posix()
        for file in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "model_copy"
        and any(keyword.arg == "update" for keyword in node.keywords)
    ]


def test_facts_are_changed_by_their_constructor():
    """No module outside the configuration copies a model with changes that nothing checks."""
    assert [file for file in unchecked_copies(PACKAGE) if not file.startswith("config/")] == []


def test_an_unchecked_copy_is_seen(package):
    """The rule finds a call that is written over several lines."""
    (package / "facts.py").write_text("facts = facts.model_copy(\n    update={'rows': 1}\n)")

    assert unchecked_copies(package) == ["facts.py"]
