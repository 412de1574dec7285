"""Names of the tags on runs and on model versions."""

from rtscv_mlops.outcomes import REASON_TAG, REVIEW_TAG, REVIEWER_TAG

KIND = "rtscv.kind"
MODEL = "rtscv.model"
LEDGER = "rtscv.ledger"
DUPLICATE_OF = "rtscv.duplicate_of"

KEY = "rtscv.key"
MONITOR = "rtscv.monitor"
WINDOW = "rtscv.window"
WINDOW_START = "rtscv.window_start"
WINDOW_END = "rtscv.window_end"
CHAMPION_VERSION = "rtscv.champion_version"
VERSION = "rtscv.version"
VERDICT = "rtscv.verdict"
STATE = "rtscv.state"
# Which try at a window writes to its run; an older try must stop, however late it wakes up.
ATTEMPT = "rtscv.attempt"
ERROR = "rtscv.error"
# Why the challenger of a window that was judged cannot be used.
UNUSABLE = "rtscv.unusable"
# When an alert was delivered, why it was due, and of which verdict.
ALERT = "rtscv.alert"
ALERT_DUE = "rtscv.alert_due"
ALERTED = "rtscv.alerted"
OF_ALERTS = (ALERT, ALERT_DUE, ALERTED)
BASELINE = "rtscv.baseline"
RERUN_OF = "rtscv.rerun_of"
# Counts the tries at a window over all of its runs: clocks of workers differ.
TRY = "rtscv.try"
REPORT_SHA256 = "rtscv.report_sha256"
MODEL_SHA256 = "rtscv.model_sha256"
MODEL_ID = "rtscv.model_id"
OF_JUDGEMENT = (REPORT_SHA256, MODEL_SHA256, MODEL_ID)

REVIEW = REVIEW_TAG
BLOCKED = "rtscv.blocked"
# How a review ended that no person answered. The tag of an answer belongs to people.
CLOSED = "rtscv.closed"
SUPERSEDED_BY = "rtscv.superseded_by"
REVIEWER = REVIEWER_TAG
REASON = REASON_TAG
DECIDED_AT = "rtscv.decided_at"

COMPLETE = "complete"
FAILED = "failed"
