"""Monitor files that work, alone and in a folder, and the settings that come out."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rtscv_mlops.config.loading import load_monitor, read_monitors
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.schema import monitor_schema
from rtscv_mlops.config.values import write_duration
from rtscv_mlops.errors import ConfigError
from tests.monitors import FULL, MINIMAL, with_lines, write_monitor


@pytest.fixture
def write(tmp_path):
    """Writes a monitor file into a folder of its own and returns where it is."""
    return partial(write_monitor, tmp_path)


def test_five_lines_are_enough(write):
    """Every other setting has a default that works, and the name is the file's."""
    monitor = load_monitor(write(MINIMAL))

    assert (monitor.name, monitor.model.name) == ("digits", "digits")
    assert monitor.model.alias == "champion"
    assert monitor.source.timestamp == "served_at"
    assert monitor.rectify == type(monitor.rectify)()
    assert monitor.alert.cooldown == timedelta(days=1)


def test_every_kind_of_value_arrives(write):
    """Numbers, texts, lists, durations, moments, references and quoted traps mean what they say."""
    monitor = load_monitor(write(FULL))

    assert monitor.name == "digits-daily"
    assert monitor.model.columns == ("height", "width", "5", "no")
    assert monitor.source.csv.delimiter == "\t"
    assert monitor.labels.storage_options == monitor.source.storage_options
    assert monitor.reference.digest == "0123"
    assert monitor.baseline.start == datetime(2026, 1, 5, tzinfo=UTC)
    assert monitor.baseline.end == datetime(2026, 1, 12, 5, tzinfo=UTC)
    assert (monitor.rectify.alpha, monitor.rectify.sample_rate) == (0.001, 1.0)
    assert monitor.rectify.unknown_label == 10
    assert (monitor.alert.cooldown, monitor.review.expires) == (
        timedelta(hours=36),
        timedelta(days=3),
    )
    assert monitor.alert.on == ("unknowns",)


@pytest.mark.parametrize("text", [MINIMAL, FULL], ids=["minimal", "full"])
def test_a_monitor_survives_json(write, text):
    """A monitor can be stored as JSON and read back, as lists and texts, without a change."""
    monitor = load_monitor(write(text))

    assert Monitor.model_validate_json(monitor.model_dump_json()) == monitor
    assert Monitor.model_validate(json.loads(monitor.model_dump_json())) == monitor


@pytest.mark.parametrize(
    ("stem", "name"),
    [("a b", "a-b"), ("été", "t"), ("...", "monitor"), ("日本", "monitor"), ("x" * 120, "x" * 100)],
)
def test_the_name_of_a_file_is_made_safe(write, stem, name):
    """A name made from any file name suits tags, file names and identifiers."""
    assert load_monitor(write(MINIMAL, f"{stem}.yaml")).name == name


def test_a_byte_order_mark_and_windows_line_ends_are_read(write):
    """Files written by Windows editors work."""
    file = write(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())

    assert load_monitor(file).model.name == "digits"


def test_relative_places_start_at_the_file(write, tmp_path, monkeypatch):
    """The folder in which a command runs does not matter."""
    monkeypatch.chdir("/")
    text = with_lines(
        model="tracking_uri: sqlite:///mlflow.db",
        reference="table: rows\nurl: sqlite:///data/../train.db?mode=ro\nlabel: class",
    )

    monitor = load_monitor(write(text))

    assert monitor.source.path == str(tmp_path / "windows")
    assert monitor.model.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert monitor.reference.url == f"sqlite:///{tmp_path}/train.db?mode=ro"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("path", "/data/windows/*.csv"),
        ("path", "s3://bucket/windows"),
        ("path", "abfs://container@account.dfs.core.windows.net/windows"),
        ("url", "sqlite:////data/rows.db"),
        ("url", "sqlite:///:memory:"),
        ("url", "sqlite://"),
        ("url", "postgresql://db.example.com:5432/rows"),
    ],
)
def test_absolute_places_are_kept(write, setting, value):
    """A path from the root, and an address of a service, stay as they are written."""
    place = f"path: {value}" if setting == "path" else f"table: rows\n  url: '{value}'"
    text = MINIMAL.replace("path: windows/", place)

    assert getattr(load_monitor(write(text)).source, setting) == value


# Several monitors


def test_a_folder_of_monitors_is_read(write, tmp_path):
    """Each YAML file is a monitor; other files and hidden ones are not."""
    write(MINIMAL)
    write(MINIMAL.replace("digits", "letters"), "letters.yml")
    write("nonsense", "README.md")
    write("nonsense", ".hidden.yaml")

    monitors = read_monitors(tmp_path)

    assert {path.name: monitor.name for path, monitor in monitors.items()} == {
        "digits.yaml": "digits",
        "letters.yml": "letters",
    }


def test_two_monitors_of_one_name_are_refused(write, tmp_path):
    """Names identify monitors, so they differ."""
    write(MINIMAL)
    write("name: digits\n" + MINIMAL.replace("windows/", "other/"), "other.yaml")

    found = read_monitors(tmp_path)

    assert isinstance(found[tmp_path / "digits.yaml"], Monitor)
    refused = str(found[tmp_path / "other.yaml"])
    assert re.search(r"digits\.yaml and .*other\.yaml have the same name,", refused)


def test_two_monitors_of_one_model_and_source_are_refused(write, tmp_path):
    """The same windows would be judged twice; it does not matter how the path is written."""
    write(MINIMAL)
    write(MINIMAL.replace("windows/", f"{tmp_path}/x/../windows"), "other.yaml")

    refused = str(read_monitors(tmp_path)[tmp_path / "other.yaml"])

    assert "other.yaml have the same model and source" in refused


def test_one_model_may_have_two_sources(write, tmp_path):
    """Two places of one model are two monitors."""
    write(MINIMAL)
    write(MINIMAL.replace("windows/", "other/"), "other.yaml")

    assert all(isinstance(one, Monitor) for one in read_monitors(tmp_path).values())


def test_a_file_with_mistakes_does_not_affect_others(write, tmp_path):
    """Each file has its own error, so one round of fixes is enough for a whole folder."""
    write(MINIMAL)
    write(MINIMAL + "a: 1\n", "first.yaml")
    write("", "second.yaml")

    right, first, second = read_monitors(tmp_path).values()

    assert isinstance(right, Monitor)
    assert "first.yaml:6: a: " in str(first)
    assert "second.yaml is empty" in str(second)


def test_a_missing_folder_is_reported(tmp_path):
    """A wrong folder is not an empty one."""
    with pytest.raises(ConfigError, match="absent is not a folder"):
        read_monitors(tmp_path / "absent")


# Settings made by hand


def test_settings_are_frozen_and_strict():
    """What holds for a file holds for code."""
    monitor = Monitor(model={"name": "a"}, source={"path": "b", "timestamp": "c"})

    with pytest.raises(ValidationError, match="frozen"):
        monitor.name = "other"
    with pytest.raises(ValidationError, match="valid string"):
        Monitor(model={"name": 5}, source={"path": "b", "timestamp": "c"})
    with pytest.raises(ValidationError, match="path and table are set"):
        Monitor(model={"name": "a"}, source={"path": "b", "table": "b", "timestamp": "c"})


def test_the_byte_cap_does_not_decide_a_result(write):
    """Settings that only guard, inform or say who does the work make no window new."""
    plain = load_monitor(write(MINIMAL)).result_settings()

    other_engine = "engine: dask\naddress: tcp://scheduler:8786\njobs: 4\nfallback: true"
    same = load_monitor(
        write(
            with_lines(source="max_bytes: 5000000", review="expires: 1d", compute=other_engine),
        )
    )
    other = load_monitor(write(with_lines(rectify="seed: 1")))

    assert same.result_settings() == plain
    assert other.result_settings() != plain
    assert json.loads(json.dumps(plain)) == plain


@given(st.integers(0, 999_999), st.sampled_from("smhdw"))
def test_durations_read_as_they_are_written(number, unit):
    """A duration survives being written in its largest unit."""
    settings = {"model": {"name": "a"}, "source": {"path": "b", "timestamp": "c"}}
    cooldown = Monitor(**settings, alert={"cooldown": f"{number}{unit}"}).alert.cooldown

    again = Monitor(**settings, alert={"cooldown": write_duration(cooldown)}).alert.cooldown

    assert again == cooldown


@pytest.mark.slow
def test_evidently_knows_the_methods():
    """Each drift method that a monitor may name exists for that kind of column."""
    import evidently.legacy.calculations.stattests  # noqa: F401  registers them
    from evidently.legacy.calculations.stattests.registry import _registered_stat_tests
    from evidently.legacy.core import ColumnType

    drift = monitor_schema()["$defs"]["DriftSettings"]["properties"]

    for setting, kind in (
        ("num_method", ColumnType.Numerical),
        ("cat_method", ColumnType.Categorical),
    ):
        assert all(kind in _registered_stat_tests[name] for name in drift[setting]["enum"])


# Cost


def test_settings_are_cheap_to_import():
    """Airflow reads monitors each time it parses a DAG file: no data library is loaded."""
    heavy = "numpy pandas pyarrow sklearn scipy mlflow evidently sqlalchemy fsspec requests airflow"
    code = (
        "import sys, rtscv_mlops.config.loading\n"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )

    assert done.stdout.strip() == "[]"
