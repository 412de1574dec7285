"""The estimator's former home: earlier pickles and skops files name these paths.

New code imports `rtscv_mlops.RTSCVClassifier`.
"""

import sys
from importlib import import_module

from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.statistics import Assessment
from rtscv_mlops.outcomes import Verdict

__all__ = ["Assessment", "RTSCVClassifier", "Verdict"]

_MOVED = {
    "base": "learner",
    "checks": "checks",
    "classifier": "classifier",
    "clusters": "clusters",
    "copies": "rows",
    "evidence": "statistics",
    "factory": "learner",
    "gates": "gates",
    "kernel": "kernel",
    "labels": "checks",
    "monitor": "search",
    "network": "network",
    "paper": "search",
    "rows": "rows",
    "shift": "statistics",
}

for _old, _new in _MOVED.items():
    sys.modules[f"{__name__}.{_old}"] = import_module(f"rtscv_mlops.estimator.{_new}")
