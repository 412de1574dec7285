"""RTSCV: random test sampling and cross-validation, as a plugin for Airflow and MLflow.

A deployed classifier meets classes it was never taught, and still answers with confidence. This
package compares each window of deployment data with the training data, without labels, and finds
the rows that are new. A challenger that knows them serves only after a person has approved it.

The names below are the public API. Every other module is private and may change at any time.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded on first use: Airflow imports this package each time it parses a DAG file.
_MODULE_OF = {
    "Assessment": "rtscv_mlops.estimator.statistics",
    "InputError": "rtscv_mlops.errors",
    "Interval": "rtscv_mlops.window",
    "Monitor": "rtscv_mlops.config.monitor",
    "Outcome": "rtscv_mlops.pipeline.run",
    "RTSCVClassifier": "rtscv_mlops.estimator.classifier",
    "ReviewStatus": "rtscv_mlops.outcomes",
    "RtscvError": "rtscv_mlops.errors",
    "Verdict": "rtscv_mlops.outcomes",
    "WindowFacts": "rtscv_mlops.facts",
    "list_challengers": "rtscv_mlops.review.answers",
    "load_monitor": "rtscv_mlops.config.loading",
    "log_champion": "rtscv_mlops.models.register",
    "open_set_scores": "rtscv_mlops.metrics",
    "promote_challenger": "rtscv_mlops.review.answers",
    "read_answers": "rtscv_mlops.operations.score",
    "review_challenger": "rtscv_mlops.review.answers",
    "roll_back": "rtscv_mlops.review.answers",
    "run_window": "rtscv_mlops.pipeline.run",
    "save_report": "rtscv_mlops.tracking.registry",
    "score_window": "rtscv_mlops.operations.score",
}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
