"""What is built from the tree: it installs into an empty environment, and works outside of it."""

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import rtscv_mlops

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution, built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=ROOT)
    return folder


def run(*words, cwd, **environment):
    """Run a program that must end well; return what it printed."""
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(built):
    """Tests, tools and data stay at home; what is read at run time comes along."""
    (wheel,) = built.glob("*.whl")

    names = ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {
        "rtscv_mlops",
        f"rtscv_mlops-{rtscv_mlops.__version__}.dist-info",
    }
    assert {"rtscv_mlops/py.typed", "rtscv_mlops/report/page.css"} <= set(names)


def test_the_source_distribution_can_be_built_again(built):
    """It holds what a build needs, and no data set."""
    (source,) = built.glob("*.tar.gz")

    names = [name.partition("/")[2] for name in tarfile.open(source).getnames()]

    assert {"pyproject.toml", "README.md", "LICENSE", "rtscv_mlops/__init__.py"} <= set(names)
    assert not [name for name in names if name.endswith((".parquet", ".npz"))]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(built, tmp_path):
    """With the provider installed: the demo runs outside the tree, and Airflow finds the page."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    away = tmp_path / "away"
    away.mkdir()
    locked = str(ROOT / "requirements.lock")
    pip = (str(programs / "python"), "-m", "pip", "install", "--quiet", "--constraint", locked)
    run(*pip, f"{wheel}[airflow]", cwd=away)

    told = run(str(programs / "rtscv-mlops"), "demo", "--folder", "demo", cwd=away, PYTHONPATH="")
    home = {"AIRFLOW_HOME": str(away / "airflow"), "PYTHONPATH": ""}
    plugins = run(str(programs / "airflow"), "plugins", cwd=away, **home)
    providers = run(str(programs / "airflow"), "providers", "list", cwd=away, **home)

    assert "waits for a person" in told
    assert "rtscv" in plugins
    assert "rtscv-mlops" in providers
