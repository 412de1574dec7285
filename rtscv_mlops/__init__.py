"""RTSCV: random test sampling and cross-validation, as a plugin for Airflow and MLflow.

A deployed model meets classes it was never taught, and answers with confidence all the same.
A window of deployment data is sampled and cross-validated against the training data, which
shows those unknowns; a challenger that knows them serves only after a human approved it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded on first use: Airflow imports this package each time it parses a DAG file.
_MODULE_OF = {
    "RTSCVClassifier": "rtscv_mlops.estimator.classifier",
    "log_champion": "rtscv_mlops.models.register",
}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
