"""How open a problem is, how well its unknowns were found, how far apart its classes lie.

Knows labels, scores and feature tables, and the paper's definitions of what to compute from
them; knows nothing of estimators, windows, files or registries.

A quantity that the rows at hand do not define (a detection accuracy without unknown rows) is nan,
never a flattering 1 or an alarming 0. A positive row is always an unknown one, and a higher score
always means "more likely unknown".
"""

from rtscv_mlops.metrics.scores import (
    OpenSetScores,
    auroc,
    classification_accuracy,
    collapse_unknown,
    detection_accuracy,
    fpr_at_tpr,
    macro_f,
    open_set_scores,
    openness,
)
from rtscv_mlops.metrics.separation import (
    ClassSlack,
    j1_known,
    j1_unknown,
    separation_slack,
)

__all__ = [
    "ClassSlack",
    "OpenSetScores",
    "auroc",
    "classification_accuracy",
    "collapse_unknown",
    "detection_accuracy",
    "fpr_at_tpr",
    "j1_known",
    "j1_unknown",
    "macro_f",
    "open_set_scores",
    "openness",
    "separation_slack",
]
