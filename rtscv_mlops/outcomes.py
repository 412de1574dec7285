"""How a window and a review can end: the verdicts and the states of a review."""

from enum import StrEnum


class Verdict(StrEnum):
    """What became of the classes between training and window."""

    NO_CHANGE = "no_change"
    DRIFT = "drift"
    UNKNOWNS = "unknowns"
    UNKNOWNS_AND_DRIFT = "unknowns_and_drift"


REVIEW_TAG = "rtscv.review"
REVIEWER_TAG = "rtscv.reviewer"
REASON_TAG = "rtscv.reason"


class ReviewStatus(StrEnum):
    """Where the review of a challenger stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    BLOCKED = "blocked"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    STALE = "stale"
