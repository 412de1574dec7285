"""What Airflow finds of an installed package, and what the file in `plugins` adds to it."""

import runpy
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from airflow.plugins_manager import _get_plugins
from airflow.providers_manager import ProvidersManager

import rtscv_mlops
from rtscv_mlops.airflow.plugin import RtscvPlugin

PLUGIN = Path(__file__).parents[1] / "plugins" / "rtscv_plugin.py"


def test_airflow_lists_the_provider():
    """Airflow accepts the description, and knows the version."""
    provider = ProvidersManager().providers["rtscv-mlops"]

    assert provider.version == rtscv_mlops.__version__
    assert provider.data["name"] == "RTSCV"


def test_modules_of_the_provider_are_there():
    """A module that the description names can be loaded."""
    data = ProvidersManager().providers["rtscv-mlops"].data

    named = [name for part in ("operators", "triggers") for name in data[part][0]["python-modules"]]
    assert [__import__(name, fromlist=["_"]).__name__ for name in named] == named


def test_airflow_finds_the_plugin_of_an_installed_package():
    """Nothing needs to be copied for the page Unknowns."""
    (found,) = entry_points(group="airflow.plugins", name="rtscv")

    assert found.load() is RtscvPlugin


def test_the_file_adds_no_second_plugin(monkeypatch):
    """Airflow takes a second plugin of one name for a mistake; with both there is none."""
    monkeypatch.setattr("airflow.settings.PLUGINS_FOLDER", str(PLUGIN.parent))
    _get_plugins.cache_clear()

    plugins, errors = _get_plugins()

    assert [one.name for one in plugins].count("rtscv") == 1
    assert not [error for error in errors if "rtscv" in error]


@pytest.mark.parametrize(("installed", "offered"), [(True, False), (False, True)])
def test_the_file_is_for_a_package_on_the_path(monkeypatch, installed, offered):
    """It offers the plugin where Airflow would not find it otherwise."""
    names = {"rtscv"} if installed else set()
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda **_: type("Found", (), {"names": names})
    )

    assert ("RtscvPlugin" in runpy.run_path(str(PLUGIN))) is offered
