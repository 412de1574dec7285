"""The question put to a reviewer: its words, its gate, and the page that asks it.

Knows facts; knows nothing of registries, reports or channels.
"""

from rtscv_mlops.review.description import DESCRIPTION_LIMIT, ask, describe, one_line, with_file
from rtscv_mlops.review.gate import (
    REASON_TAG,
    REVIEW_TAG,
    REVIEWER_TAG,
    ReviewStatus,
    blocked_because,
    too_few_because,
)
from rtscv_mlops.review.words import (
    counted,
    markdown,
    number,
    percent,
    plain,
    probability,
    rate,
    safe_link,
    safe_place,
    shell_word,
    verdict_words,
    window_name,
)

__all__ = [
    "DESCRIPTION_LIMIT",
    "REASON_TAG",
    "REVIEWER_TAG",
    "REVIEW_TAG",
    "ReviewStatus",
    "ask",
    "blocked_because",
    "counted",
    "describe",
    "markdown",
    "number",
    "one_line",
    "percent",
    "plain",
    "probability",
    "rate",
    "safe_link",
    "safe_place",
    "shell_word",
    "too_few_because",
    "verdict_words",
    "window_name",
    "with_file",
]
