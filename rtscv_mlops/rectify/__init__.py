"""Former paths of the estimator's classes, which earlier pickles and skops files contain.

New code imports `rtscv_mlops.RTSCVClassifier`.
"""

import sys
from importlib import import_module

from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.statistics import Assessment
from rtscv_mlops.outcomes import Verdict

__all__ = ["Assessment", "RTSCVClassifier", "Verdict"]

MOVED = {
    "rtscv_mlops.rectify.base": "rtscv_mlops.estimator.learner",
    "rtscv_mlops.rectify.checks": "rtscv_mlops.estimator.checks",
    "rtscv_mlops.rectify.classifier": "rtscv_mlops.estimator.classifier",
    "rtscv_mlops.rectify.clusters": "rtscv_mlops.estimator.clusters",
    "rtscv_mlops.rectify.copies": "rtscv_mlops.estimator.rows",
    "rtscv_mlops.rectify.evidence": "rtscv_mlops.estimator.statistics",
    "rtscv_mlops.rectify.factory": "rtscv_mlops.estimator.learner",
    "rtscv_mlops.rectify.gates": "rtscv_mlops.estimator.gates",
    "rtscv_mlops.rectify.kernel": "rtscv_mlops.estimator.kernel",
    "rtscv_mlops.rectify.labels": "rtscv_mlops.estimator.checks",
    "rtscv_mlops.rectify.monitor": "rtscv_mlops.estimator.search",
    "rtscv_mlops.rectify.network": "rtscv_mlops.estimator.network",
    "rtscv_mlops.rectify.paper": "rtscv_mlops.estimator.search",
    "rtscv_mlops.rectify.rows": "rtscv_mlops.estimator.rows",
    "rtscv_mlops.rectify.shift": "rtscv_mlops.estimator.statistics",
    "rtscv_mlops.rectify.work": "rtscv_mlops.estimator.parallel",
    # The diagnostics of a model that found unknowns hold its `ClassSlack`.
    "rtscv_mlops.metrics.separation": "rtscv_mlops.metrics",
}

for _former, _current in MOVED.items():
    sys.modules[_former] = import_module(_current)
