"""What every test shares: no vendor reports usage, and no test changes what others log."""

import logging
import os
from collections.abc import Iterator

import pytest

# At import, not in a fixture: the vendors read these when they are imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"


@pytest.fixture(autouse=True)
def _own_log_levels() -> Iterator[None]:
    """Commands choose how much their process logs; a test of one must not choose for the next."""
    before = {name: logging.getLogger(name).level for name in ("rtscv_mlops", "mlflow", "alembic")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
