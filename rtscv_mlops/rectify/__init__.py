"""Random test sampling and cross-validation (RTSCV), as a scikit-learn estimator.

Knows arrays, tables and estimators; knows nothing of files, registries or schedules.
"""

from rtscv_mlops.rectify.classifier import RTSCVClassifier
from rtscv_mlops.rectify.evidence import Assessment, Verdict

__all__ = ["Assessment", "RTSCVClassifier", "Verdict"]
