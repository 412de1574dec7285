"""What is published about the settings: schema, reference page, template."""

import re
from functools import partial
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtscv_mlops.config.document import Document
from rtscv_mlops.config.loading import PATTERNS, load_monitor
from rtscv_mlops.config.schema import SCHEMA_FILE, monitor_schema, monitor_template
from rtscv_mlops.config.values import DURATION, TIME
from rtscv_mlops.window import Column
from tests.monitors import FULL, MINIMAL, refusal, with_lines, write_monitor
from tools.docs import write_pages

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def write(tmp_path):
    """Writes a monitor file into a folder of its own and returns where it is."""
    return partial(write_monitor, tmp_path)


@pytest.mark.parametrize("name", [SCHEMA_FILE, "monitor.md"])
def test_the_published_files_are_fresh(tmp_path, name):
    """`python -m tools.docs` was run after the last change of a setting."""
    write_pages(tmp_path)

    assert (DOCS / name).read_text() == (tmp_path / name).read_text()


def all_settings(schema):
    """Each section of the schema with its settings."""
    return [schema, *schema["$defs"].values()]


def test_every_setting_is_explained():
    """Each has a description, and each without a useful default an example."""
    for section in all_settings(monitor_schema()):
        assert section["description"]
        for name, setting in section["properties"].items():
            if "$ref" in str(setting):
                continue
            assert setting["description"], name
            assert setting.get("default") not in (None, "") or setting["examples"], name


def patterns_in(schema):
    """All patterns that a schema holds at any depth, for values and for names."""
    if isinstance(schema, list):
        return set().union(*map(patterns_in, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(schema.get("patternProperties", ()), *map(patterns_in, schema.values()))


def test_every_pattern_is_explained():
    """A value that does not match is refused with a sentence, not with a regular expression."""
    assert patterns_in(monitor_schema()) - {DURATION, TIME} <= set(PATTERNS)


def test_the_schema_accepts_what_loads(write):
    """An editor finds no fault with a file that works."""
    jsonschema.Draft202012Validator.check_schema(monitor_schema())
    checker = jsonschema.Draft202012Validator(monitor_schema())

    for text in (MINIMAL, FULL, monitor_template("digits")):
        assert load_monitor(write(text))
        assert list(checker.iter_errors(Document.read(text).data)) == []


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL + "rectfy: {}\n",
        "model: {name: a}\n",
        with_lines(rectify="alpha: 0"),
        with_lines(rectify="gate: forst"),
        with_lines(alert="cooldown: 1 day"),
        with_lines(alert="webhook_url: ftp://x"),
        with_lines(baseline="start: monday"),
        with_lines(model="columns: a"),
        with_lines(model="tracking_uri_env: a b"),
        with_lines(model="alias: a@b"),
    ],
)
def test_the_schema_refuses_what_does_not_load(write, text):
    """An editor underlines a mistake before the file is run."""
    checker = jsonschema.Draft202012Validator(monitor_schema())

    assert refusal(write(text))
    assert list(checker.iter_errors(Document.read(text).data))


# The template


COLUMNS = [Column("height", "float"), Column("a\nb: <script>", "text")]


def test_the_template_loads(write):
    """What `init` writes is a valid monitor, before any edit."""
    text = monitor_template("digits", COLUMNS, label="digit", tracking_uri="http://localhost:5000")

    monitor = load_monitor(write(text))

    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    assert "height (float)" in text
    assert "#label: digit" in text
    assert monitor.model.tracking_uri == "http://localhost:5000"
    assert monitor.model_copy(
        update={"model": monitor.model.model_copy(update={"tracking_uri": None})}
    ) == load_monitor(write(MINIMAL))


def test_a_secret_does_not_get_into_the_template(write):
    """An address with a password is left for the reader to put into the environment."""
    text = monitor_template("digits", tracking_uri="https://u:hunter2@mlflow.example.com")

    assert "hunter2" not in text
    assert load_monitor(write(text)).model.tracking_uri is None


def test_the_template_shows_the_defaults(write):
    """Removing the # of every setting that has a default changes nothing."""
    text = monitor_template("digits")
    optional = re.compile(r"^#(reference|labels|baseline|canary):\n(#  .*\n)*", flags=re.MULTILINE)
    nested = re.compile(r"^#  (email|resources):\n(#    .*\n)*", flags=re.MULTILINE)
    with_default, description = [], ""
    for line in nested.sub("", optional.sub("", text)).splitlines(keepends=True):
        if re.match(r" *(#( {2})+)?# \S", line):
            description += line.strip("# \n") + " "
            continue
        if "(Example.)" not in description:
            with_default.append(line)
        description = ""
    text = "".join(with_default)

    active = re.sub(r"^( *)#(?=( {2})*\w+:)", r"\1", text, flags=re.MULTILINE)

    assert active.count("\n#") < text.count("\n#")
    assert "\nrectify:\n" in active
    assert "\n  csv:\n" in active
    assert load_monitor(write(active)) == load_monitor(write(MINIMAL))


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        ("reference", "path|label|format|digest"),
        ("labels", "path|key|label"),
        ("baseline", "start|end"),
        ("baseline", "first"),
        ("canary", "hide|rate"),
    ],
)
def test_the_examples_of_the_template_load(write, section, kept):
    """Removing the # of an optional section leaves a valid monitor."""
    text = monitor_template("digits", label="digit")
    lines = re.search(rf"^#{section}:\n(#  .*\n)*", text, flags=re.MULTILINE)[0].splitlines()
    active = [f"{section}:", *(line[1:] for line in lines if re.match(rf"#  ({kept}):", line))]

    monitor = load_monitor(write(text.replace("#key", "key") + "\n".join(active) + "\n"))

    assert getattr(monitor, section) is not None


@given(
    st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable() and text.strip(". ")),
    st.lists(st.text(max_size=80), max_size=5),
    st.text(max_size=20),
)
@settings(max_examples=50, deadline=None)
def test_the_template_loads_for_any_names(tmp_path_factory, model, names, label):
    """A model, column or label may be called anything, also what YAML takes for something else."""
    model = re.sub("[/:]", "", model) or "digits"
    file = tmp_path_factory.mktemp("template") / "a.yaml"
    columns = [Column(name, "float") for name in names]

    file.write_text(monitor_template(model, columns, label=label), encoding="utf-8")

    assert load_monitor(file).model.name == model


def test_the_template_of_a_wide_model_loads(write):
    """Ten thousand columns do not make an unreadable file."""
    columns = [Column(f"column {number} {'x' * 100}", "float") for number in range(10_000)]

    text = monitor_template("digits", columns)

    assert "and 9900 more." in text
    assert load_monitor(write(text))
