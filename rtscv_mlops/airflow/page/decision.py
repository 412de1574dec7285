"""What a user may do about a challenger: a form, or the sentence that says why there is none.

Knows where a review stands; knows nothing of how a user's rights are looked up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rtscv_mlops.airflow.page.timeline import LONG, moment_label
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.text import plain

if TYPE_CHECKING:
    from rtscv_mlops.airflow.page.data import Question
    from rtscv_mlops.operations.overview import WindowPage
    from rtscv_mlops.tracking.versions import VersionSummary

MADE_NONE = "There is nothing to decide: this window made no challenger."
NOT_OFFERED = "Its window is still being worked on, so version {} is not offered yet."
CHANGED = (
    "What Airflow asks at the moment is not about this version as it is shown here: the question "
    "has changed. Reload the page."
)
NOT_ASKED = (
    "Airflow does not ask about this version: its run has not come to the review yet, or has "
    "ended. A person can still answer by the command below."
)
READ_ONLY = "You may look at this, and not decide. Ask somebody who may answer for this DAG."


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must carry, so that it counts for exactly what was shown."""

    dag_run_id: str
    question: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a review stands for one user."""

    state: str
    sentence: str
    reason: str = ""
    form: Form | None = None
    command: bool = False
    is_settling: bool = False
    """An answer is on its way from Airflow to the record."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user may do; `named_in` are the questions whose reviewers include the user."""

    may_review: bool
    named_in: frozenset[str]


def decide(
    page: "WindowPage", questions: "Sequence[Question]", rights: Rights, zone: str
) -> Decision:
    """Return what a user may do about a window's challenger."""
    version = page.version
    if version is None:
        return Decision("none", MADE_NONE)
    if not version.review:
        return Decision("not offered", NOT_OFFERED.format(version.version))
    if version.review != ReviewStatus.PENDING:
        return _ended(version, zone)
    if page.answer is not None:
        return _answered_elsewhere(page)
    return _asked(page, questions, rights, zone)


def _ended(version: "VersionSummary", zone: str) -> Decision:
    status, when = ReviewStatus(version.review), moment_label(version.decided_at, zone)
    summary = status.traits.summary.format(who=plain(version.reviewer), at=when)
    sentence = f"Version {version.version} {summary}"
    if status is ReviewStatus.SUPERSEDED:
        reason = f"Version {plain(version.reason)} is the newer one."
    else:
        reason = plain(version.reason, LONG)
    return Decision(version.review, sentence, reason)


def _answered_elsewhere(page: "WindowPage") -> Decision:
    answer = page.answer
    assert answer is not None  # asked by the caller
    if ReviewStatus(answer.status).is_answer:
        sentence = (
            f"{plain(answer.who)} answered in the MLflow registry: {answer.status}. "
            "It counts when Airflow has seen and recorded it."
        )
        return Decision(answer.status, sentence, plain(answer.reason, LONG), is_settling=True)
    return Decision(answer.status, "This can no longer be decided.", plain(answer.reason, LONG))


def _asked(
    page: "WindowPage", questions: "Sequence[Question]", rights: Rights, zone: str
) -> Decision:
    pending = str(ReviewStatus.PENDING)
    asked = next((one for one in questions if one.question == page.question), None)
    if asked is None:
        return Decision(pending, CHANGED if questions else NOT_ASKED, command=not questions)
    if asked.chosen:
        when = moment_label(asked.at, zone)
        sentence = (
            f"Answered: {plain(asked.by)} chose {plain(asked.chosen)} on {when}. "
            "Airflow is recording it."
        )
        return Decision(pending, sentence, is_settling=True)
    if not rights.may_review:
        return Decision(pending, READ_ONLY)
    if asked.question not in rights.named_in:
        names = ", ".join(plain(name, 40) for name in asked.reviewers[:10])
        return Decision(pending, f"Only the named reviewers may decide on this: {names}.")
    return Decision(pending, "", form=Form(asked.dag_run_id, asked.question))
