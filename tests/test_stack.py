"""The locked dependencies work together. A resolver's word is not enough: it passes broken sets."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAIN_PINS = [
    "apache-airflow",
    "apache-airflow-providers-standard",
    "evidently",
    "lightgbm",
    "mlflow",
    "numpy",
    "pandas",
    "scikit-learn",
    "scipy",
    "skops",
    "sqlalchemy",
    "xgboost-cpu",
]
TORCH_PINS = ["skorch", "torch"]
IN_VAIN = re.compile(r"pytorch-ood \S+ requires torchvision, which is not installed\.")


def run(*arguments, **environment):
    """Run this Python with these arguments, in a process that shares no module with the test."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def locked(file_name):
    """The pins of a lock file, by name."""
    return dict(line.split("==") for line in (ROOT / file_name).read_text().split())


def test_the_stack_imports_in_one_process(tmp_path):
    """Airflow, Evidently, MLflow and scikit-learn can live in the same task."""
    # Airflow writes its configuration on import; it must not land in the user's home.
    done = run(
        "-c",
        "import evidently, mlflow.sklearn, airflow.sdk, sklearn",
        AIRFLOW_HOME=str(tmp_path),
    )

    assert done.returncode == 0, done.stderr


def test_requirements_agree():
    """No installed package asks for a version that another one rules out.

    One asks in vain for another, on purpose: benchmarks/requirements.txt says why.
    """
    done = run("-m", "pip", "check")
    told = [line for line in done.stdout.splitlines() if not IN_VAIN.fullmatch(line)]

    assert done.stdout, done.stderr
    assert told in ([], ["No broken requirements found."]), told


@pytest.mark.parametrize("name", MAIN_PINS)
def test_what_is_installed_is_what_is_locked(name):
    """The tests speak about the versions a user gets from the lock."""
    assert version(name) == locked("requirements.lock")[name]


@pytest.mark.parametrize("name", TORCH_PINS)
def test_torch_is_what_is_locked(name):
    """Torch too, where it is installed; a local build such as `+cpu` counts as the same version."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed: `make install` was run with TORCH=0")

    assert installed.partition("+")[0] == locked("requirements-torch.lock")[name]
