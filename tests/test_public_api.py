"""What `import rtscv_mlops` gives, and what it costs."""

import subprocess
import sys

import pytest

import rtscv_mlops

HEAVY = {"airflow", "evidently", "mlflow", "numpy", "sklearn"}


@pytest.mark.parametrize("name", rtscv_mlops.__all__)
def test_every_public_name_is_there(name):
    """A lazy name that points nowhere fails here, not at the user's."""
    assert getattr(rtscv_mlops, name) is not None


def test_an_unknown_name_is_refused_as_usual():
    """The lazy names do not change what Python says about a name that does not exist."""
    with pytest.raises(AttributeError, match=r"'rtscv_mlops' has no attribute 'RTSVC'"):
        rtscv_mlops.RTSVC  # noqa: B018  # the access is the test


def test_import_is_cheap():
    """Airflow imports us at each parse of a DAG file, so no vendor is loaded by it."""
    program = "import sys, rtscv_mlops; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stdout.split())
