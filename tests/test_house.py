"""The tools that a large move of code is judged by: what they count, and what they compare."""

import json
import sys
from importlib import import_module
from textwrap import dedent

import pytest

from tools import bodies, house, mentions, trace


@pytest.fixture
def write(tmp_path):
    """Return a function that writes files of a tree, and returns the tree's folder."""

    def write_files(files, root=tmp_path):
        for name, text in files.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text).lstrip("\n"))
        return root

    return write_files


@pytest.fixture
def modules(write):
    """Return a function that writes modules of a package called toy, and reads them."""

    def read(files):
        root = write({f"toy/{name}": text for name, text in files.items()})
        return house.read_modules(root, "toy")

    return read


@pytest.fixture
def load(write, monkeypatch):
    """Return a function that writes a package called toy, and imports a module of it."""

    def load_module(files, name="toy"):
        monkeypatch.syspath_prepend(write(files))
        return import_module(name)

    yield load_module
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toy", "vendor")]:
        del sys.modules[name]


SHAPE = '''
    """A module.

    With a long docstring.
    """

    import os  # a comment behind code
    from typing import (
        Any,
    )

    LIMIT = 3
    """An attribute's docstring."""

    # A comment.
    def run(rows: Any) -> str:
        """Return something."""
        import json

        text = """two

        lines"""
        return json.dumps(text)
'''


def test_code_lines(modules):
    """Docstrings, comments and blanks are not code; a blank line of a text is."""
    (module,) = modules({"shape.py": SHAPE})

    assert len(house.code_lines(module)) == 12
    assert len(house.code_lines(module, attribute_docstrings=False)) == 11


def test_import_lines(modules):
    """Imports count by line, inside functions too."""
    (module,) = modules({"shape.py": SHAPE})

    assert len(house.import_lines(module)) == 5


def test_comments(modules):
    """A comment counts on its own line and behind code; a hash in a text does not."""
    (module,) = modules({"shape.py": SHAPE + "\n    color = '#fff'"})

    assert house.count_comments(module) == 2


def test_function_lengths(modules):
    """A function is as long as its body without the docstring; methods count too."""
    (module,) = modules(
        {
            "shape.py": '''
            class Shape:
                def area(self):
                    """Return the area."""
                    side = 2
                    return side * side

            def empty(): ...
            ''',
        }
    )

    assert sorted(house.function_lengths(module)) == [1, 2]


def test_private_functions(modules):
    """Functions at the top of a module count, methods and inner functions do not."""
    (module,) = modules(
        {
            "shape.py": """
            def _top():
                def _inner(): ...

            async def _wait(): ...

            def public(): ...

            class Shape:
                def _area(self): ...
            """
        }
    )

    assert [function.name for function in house.private_functions(module)] == ["_top", "_wait"]


def test_called_once(modules):
    """Only one reference is once: a call, or a mention as a value; an import elsewhere is one."""
    found = house.called_once(
        modules(
            {
                "a.py": """
                def _never(): ...
                def _once(): ...
                def _given(): ...
                def _twice(): ...
                def _shared(): ...
                def _exported(): ...

                def run(rows):
                    _once()
                    _twice() + _twice()
                    _shared()
                    return map(_given, rows)
                """,
                "b.py": "from toy.a import _exported, _shared\n",
                "c.py": "def _once(): ...\n",
            }
        )
    )

    assert [place.split()[1] for place in found] == ["_once", "_given", "_exported"]


def test_repeated_stems(modules):
    """A file name may occur once in the package; those that Python asks for may repeat."""
    found = house.repeated_stems(
        modules(
            {
                name: ""
                for name in (
                    "__init__.py",
                    "a/__init__.py",
                    "a/__main__.py",
                    "__main__.py",
                    "a/rows.py",
                    "b/rows.py",
                    "rows.py",
                    "once.py",
                )
            }
        )
    )

    assert found == {"rows": 3}


def test_private_imports(modules):
    """A private name of ours is seen when imported, and when reached for through its module."""
    found = house.private_imports(
        modules(
            {
                "a.py": "from toy.b import _hidden, shown\nfrom toy import __version__\n",
                "c/d.py": "from ..b import _hidden\nfrom json import _default_decoder\n",
                "e.py": "from toy import b\n\nb._hidden()\nself = 1\nself._mine()\nb.shown()\n",
            }
        ),
        "toy",
    )

    assert found == [
        "toy/a.py:1 toy.b._hidden",
        "toy/c/d.py:1 toy.b._hidden",
        "toy/e.py:3 b._hidden",
    ]


def test_imports_of_tests(modules):
    """Each statement that imports tests counts once, however it is written."""
    found = house.imports_of_tests(
        modules(
            {
                "a.py": """
                from tests.rows import one, two
                import tests.rows
                from tests import rows
                """,
                "b.py": "from testing import rows\nimport unittest\n",
            }
        )
    )

    assert found == ["toy/a.py:1 tests.rows", "toy/a.py:2 tests.rows", "toy/a.py:3 tests"]


def test_unpublished_imports(write):
    """An example may import the package and its public names, nothing else of it."""
    root = write(
        {
            "examples/a.py": """
            import json
            import toy
            import toy.inner
            from toy import Public, inner
            from toy.inner import Public, hidden
            """
        }
    )

    found = house.unpublished_imports(house.read_modules(root, "examples"), "toy", ["Public"])

    assert found == [
        "examples/a.py:3 toy.inner",
        "examples/a.py:4 toy.inner",
        "examples/a.py:5 toy.inner.hidden",
    ]


PUBLIC = '''
    from enum import Enum

    __version__ = "1"
    __all__ = ["Color", "Error", "Late", "Model", "__version__", "fit", "half", "stop", "wordless"]

    class Color(Enum):
        """A color."""
        RED = "red"

    class Error(Exception):
        """An error."""

    class Model:
        """A model.

        Parameters
        ----------
        rows, columns : int
            How many; a `seed : int` in here is not a head.
        *names
            What they are called.

        Attributes
        ----------
        seed : int
        """
        def __init__(self, rows, columns=2, *names): ...

    class Late:
        """A model that is documented where it is made."""
        def __init__(self, rows):
            """Make it.

            Parameters
            ----------
            rows : int
            """

    def fit(rows, *, seed=0):
        """Fit.

        Parameters
        ----------
        rows : int
        seed : int, optional

        Returns
        -------
        None
        """

    def half(rows, seed):
        """Fit.

        Parameters
        ----------
        rows : int

        Returns
        -------
        seed : int
        """

    def stop():
        """Stop."""

    def wordless(): ...
'''


def test_undocumented_names(load):
    """A public name needs a docstring that names each of its parameters as a parameter."""
    package = load({"toy/__init__.py": PUBLIC})

    assert house.undocumented_names(package) == ["half: seed", "wordless: no docstring"]
    assert house.measure_documentation(package).shown == "6 of 8"


def test_the_table(load, write, capsys):
    """The whole table of a tree is printed with its goals, and with places where asked."""
    root = write({"README.md": "three short words\n", "toy/a.py": "def _once(): ...\n_once()\n"})
    load({"toy/__init__.py": '"""Toy."""\n\n__all__ = []\n'})

    measures = house.measure(root, "toy")
    house.print_table(measures, verbose=True)

    assert len({each.name for each in measures}) == len(measures)
    lines = capsys.readouterr().out.splitlines()
    assert "| modules | 2 | about 90 |" in lines
    assert "| code lines | 3 | <= 15,500 |" in lines
    assert "| of them per 1,000 code lines | 333.3 | <= 22 |" in lines
    assert "| of the private ones, % | 100.0 | <= 45 |" in lines
    assert "| README words | 3 | <= 700 |" in lines
    assert "  toy/a.py:1 _once" in lines


def test_a_package_of_another_tree_is_refused(load, tmp_path):
    """What is counted is the tree that was asked for, not what happens to be installed."""
    load({"toy/__init__.py": ""})

    with pytest.raises(SystemExit, match="Set PYTHONPATH to the tree that is counted"):
        house.import_package(tmp_path / "elsewhere", "toy")


ENUM = """
    class Verdict(StrEnum):
        QUIET = "quiet"
        DRIFT = "drift"
        NEW = "new"
"""


@pytest.mark.parametrize(
    "text",
    [
        "x is Verdict.DRIFT",
        "facts.Verdict.DRIFT",
        "if x == 'drift': ...",
        "if x in ('drift', 'other'): ...",
        "match x:\n    case 'drift': ...",
        "colors = {'drift': 1, 'new': 2}",
        "on: Literal['drift', 'new']",
        "DRIFT = 'drift'",
        "Facts(verdict='not_assessed:late')",
    ],
)
def test_a_file_that_knows_a_verdict(write, text):
    """A member counts as enumeration member, in a decision, in a table, and as a constant."""
    root = write({"toy/enum.py": ENUM, "toy/a.py": text})

    found = mentions.files_that_mention(root, "toy", mentions.VERDICT)

    assert [place.partition(":")[0] for place in found] == ["toy/a.py", "toy/enum.py"]


@pytest.mark.parametrize(
    "text",
    [
        '"""The verdict is drift or new."""',
        "# Verdict.DRIFT",
        "payload = {'drift': facts.drift, 'rows': 3}",
        "section('drift')",
        "STORY = 'drift'",
        "Verdict.parse(text)",
        "verdict.color",
    ],
)
def test_a_file_that_knows_no_verdict(write, text):
    """Prose, a single word elsewhere, and what a verdict knows itself do not count."""
    root = write({"toy/enum.py": ENUM, "toy/a.py": text})

    assert mentions.files_that_mention(root, "toy", mentions.VERDICT) == ["toy/enum.py:1"]


def test_markup_that_knows_verdicts(write):
    """Style sheets, templates and scripts count with two members, not with one."""
    root = write(
        {
            "toy/enum.py": ENUM,
            "toy/a.css": ".drift { color: var(--new); }",
            "toy/b.html": '<i class="key drift"></i><i class="key new"></i>',
            "toy/c.js": "if (a === 'drift' || a === 'new') {}",
            "toy/d.css": ".drift { margin: 0 } .drift-bar, .news { margin: 0 }",
            "toy/e.html": '<p class="drift">new drift</p>',
        }
    )

    found = mentions.files_that_mention(root, "toy", mentions.VERDICT)

    assert found == ["toy/enum.py:1", "toy/a.css", "toy/b.html", "toy/c.js"]


def test_constants_of_a_state(write):
    """A constant made of a state is followed to who imports it, where that is asked for."""
    root = write(
        {
            "toy/gate.py": "class ReviewStatus(StrEnum):\n    PENDING = 'pending'\n",
            "toy/journal.py": "PENDING = ReviewStatus.PENDING.value\nOTHER = 1\n",
            "toy/user.py": "from toy.journal import PENDING\n",
            "toy/stranger.py": "from toy.journal import OTHER\n",
        }
    )

    direct = mentions.files_that_mention(root, "toy", mentions.REVIEW)
    all_files = mentions.files_that_mention(root, "toy", mentions.REVIEW, constants=True)

    assert direct == ["toy/gate.py:1", "toy/journal.py:1"]
    assert all_files == [*direct, "toy/user.py:1"]


def test_visits(load, tmp_path):
    """Calls count, through a vendor too; imports, inner calls and what is left out do not."""
    start = load(
        {
            "vendor.py": "def call(function):\n    return function()\n",
            "toy/__init__.py": "",
            "toy/cli/__init__.py": """
            from toy import a

            def start():
                a.run()
            """,
            "toy/a.py": """
            import vendor

            def run():
                helper()
                from toy import late
                vendor.call(late.work)

            def helper(): ...
            """,
            "toy/late.py": """
            from toy import never

            never.at_import()

            def work():
                return list(numbers())

            def numbers():
                yield 1
            """,
            "toy/never.py": "def at_import(): ...\n",
        },
        "toy.cli",
    )

    with trace.Visits(tmp_path / "toy", leave_out="cli") as visits:
        start.start()

    assert visits.modules == {"a", "late"}
    assert visits.edges == {("a", "late")}
    assert sys.getprofile() is None


OLD = {
    "old/toy/registry/__init__.py": "def connect(): ...\n",
    "old/toy/work.py": """
    from toy import registry

    LIMIT = 3

    def run(rows):
        from toy.rows import take

        return take(registry.connect(), rows)

    def _table(rows): return _cell(rows)

    class Shape:
        side = 2

        def area(self): return self.side
    """,
    "old/toy/pages.py": "def _table(page): return page\n",
}


@pytest.fixture
def compare(write, tmp_path):
    """Return a function that compares the old tree with another, by the names that differ."""

    def names(files, **options):
        write({**OLD, **{f"new/toy/{name}": text for name, text in files.items()}})
        pair = bodies.compare(tmp_path / "old", tmp_path / "new", bodies.Options(**options), "toy")
        return tuple([piece.name for piece in pieces] for pieces in pair)

    return names


SHAPE_CLASS = "class Shape:\n    side = 2\n    def area(self): return self.side\n"
MOVED = f"""
# In another file, another order, and other clothes.
{SHAPE_CLASS}
from toy import registry
def connect(): ...
def _table(page):
    return page
def run(
    rows,
):
    from toy.rows import take
    return take(registry.connect(), rows)
"""
TABLE = "def _table(rows): return _cell(rows)\n"


def test_a_pure_move_is_equal(compare):
    """Files, order, comments and format may change."""
    assert compare({"one.py": MOVED, "two.py": TABLE}) == ([], [])


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("return page", "return page + 1", ["_table"]),
        ("_table(page)", "_table(page=None)", ["_table"]),
        ("side = 2", "side = 3", ["Shape"]),
        ("class Shape:", "class Shape(Base):", ["Shape"]),
        ("return self.side", "return 4", ["Shape.area"]),
        ("def connect", "@cache\ndef connect", ["connect"]),
    ],
)
def test_a_change_is_seen(compare, before, after, names):
    """A changed body, signature, decorator, base or attribute is named in both trees."""
    assert compare({"one.py": MOVED.replace(before, after), "two.py": TABLE}) == (names, names)


def test_a_lost_or_doubled_function_is_seen(compare):
    """Functions are counted: two equal ones are not one."""
    assert compare({"one.py": MOVED}) == (["_table"], [])
    assert compare({"one.py": MOVED, "two.py": TABLE + TABLE}) == ([], ["_table"])


def test_a_method_of_another_class_is_seen(compare):
    """A method that went to another class is not the same method."""
    moved = MOVED.replace(SHAPE_CLASS, "class Shape:\n    side = 2\n") + (
        "class Other:\n    def area(self): return self.side\n"
    )

    assert compare({"one.py": moved, "two.py": TABLE}) == (["Shape.area"], ["Other", "Other.area"])


def test_renames(compare):
    """A name may change everywhere, or in one file of the old tree only."""
    files = {"one.py": MOVED.replace("_table", "_page_table").replace("Shape", "Form")}
    files["two.py"] = TABLE

    renamed = {"pages.py:_table": "_page_table", "Shape": "Form"}

    assert compare(files, renames=renamed) == ([], [])
    assert compare(files, renames={"_table": "_page_table", "Shape": "Form"}) == (
        ["_table"],
        ["_table"],
    )


def test_imports_may_be_ignored(compare):
    """An import inside a function may change its path, or go to the top, where that is asked."""
    files = {"one.py": MOVED.replace("    from toy.rows", "    from toy.sources.rows")}
    files["two.py"] = TABLE

    assert compare(files) == (["run"], ["run"])
    assert compare(files, ignore_imports=True) == ([], [])


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("from toy.tracking import connect", "connect()"),
        ("from toy import tracking", "tracking.connect()"),
        ("from toy import tracking as store", "store.connect()"),
        ("import toy.tracking", "toy.tracking.connect()"),
    ],
)
def test_attributes_of_modules_may_change(compare, line, call):
    """A name of ours may be reached for through its module, or directly, where that is asked."""
    files = {
        "one.py": MOVED.replace("from toy import registry\ndef connect(): ...", line).replace(
            "registry.connect()", call
        ),
        "two.py": TABLE,
        "tracking.py": "def connect(): ...\n",
    }

    assert compare(files) == (["run"], ["run"])
    assert compare(files, attributes=True) == ([], [])


@pytest.mark.parametrize("line", ["import registry", "registry = Store()"])
def test_attributes_of_others_stay(compare, line):
    """What is not a module of ours keeps its attributes, though it is called alike."""
    files = {"one.py": MOVED.replace("from toy import registry", line), "two.py": TABLE}

    assert compare(files, attributes=True) == (["run"], ["run"])


def test_a_local_name_is_not_a_module(write, tmp_path):
    """A parameter that is called like an imported module keeps its attributes."""
    through = "from toy import registry\ndef f(registry): return registry.connect()\n"
    write(
        {
            "old/toy/registry.py": "",
            "old/toy/a.py": through,
            "new/toy/registry.py": "",
            "new/toy/a.py": through.replace("registry.connect", "connect"),
        }
    )

    options = bodies.Options(attributes=True)
    old, new = bodies.compare(tmp_path / "old", tmp_path / "new", options, "toy")

    assert [piece.name for piece in old] == [piece.name for piece in new] == ["f"]


def test_statements_of_modules(compare):
    """What a module does at its top is compared where that is asked."""
    files = {"one.py": MOVED, "two.py": TABLE}

    assert compare(files, statements=True) == (["LIMIT = 3"], [])
    assert compare({**files, "two.py": f"LIMIT = 3\n{TABLE}"}, statements=True) == ([], [])


def test_the_command(write, tmp_path, monkeypatch, capsys):
    """The command names place and name of what differs, and ends with 1; equal trees end well."""
    write(
        {
            "old/rtscv_mlops/a.py": "\ndef _one(): ...\n",
            "new/rtscv_mlops/b.py": "def _two(): ...\n",
            "renames.json": json.dumps({"a.py:_one": "_two"}),
        }
    )
    words = ["bodies", str(tmp_path / "old"), str(tmp_path / "new")]

    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        bodies.main()
    different = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "argv", [*words, "--renames", str(tmp_path / "renames.json")])
    bodies.main()

    assert end.value.code == 1
    assert different == [
        "only in the old tree: rtscv_mlops/a.py:1 _one",
        "only in the new tree: rtscv_mlops/b.py:1 _two",
    ]
    assert "the same functions" in capsys.readouterr().out


def test_an_empty_tree_is_refused(tmp_path):
    """Two folders without the package are not equal trees."""
    with pytest.raises(SystemExit, match="has no package rtscv_mlops"):
        bodies.compare(tmp_path, tmp_path, bodies.Options())
