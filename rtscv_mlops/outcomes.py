"""How a window and a review can end.

A verdict and a review status own everything that depends on which one it is: label, colours,
severity, exit code, sentences. Other modules ask them instead of comparing names.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

PRODUCT = "rtscv-mlops"
"""Who closes a review that no person answered."""

NOT_CARRIED_OUT = "not_carried_out"
"""Kind of the record of an answer that came to nothing."""

REVIEW_TAG = "rtscv.review"
REVIEWER_TAG = "rtscv.reviewer"
REASON_TAG = "rtscv.reason"


class Tone(StrEnum):
    """How a page shows a window, most urgent first; each is a class of the style sheet."""

    ALARM = "alarm"
    BLANK = "blank"
    WARNING = "warning"
    RUNNING = "running"
    CALM = "calm"

    @property
    def sign(self) -> str:
        return dict(zip(Tone, "!?≈…✓", strict=True))[self]

    @property
    def has_number(self) -> bool:
        """Whether there is an unknown rate to show."""
        return self not in (Tone.BLANK, Tone.RUNNING)


@dataclass(frozen=True, slots=True)
class VerdictTraits:
    """What depends on the verdict.

    An alert holds back later alerts of the same or a lower `severity`. `exit_code` is that of
    `rtscv-mlops run`; `style` is how the console prints the verdict, `colours` are edge, paper and
    ink of the report's headline.
    """

    label: str
    tone: Tone
    severity: int
    exit_code: int
    style: str
    colours: tuple[str, str, str]


class Verdict(StrEnum):
    """What a window showed, compared with the training data.

    A recorded verdict is text: one of these values, or `not_assessed:` with the reason.
    """

    NO_CHANGE = "no_change"
    DRIFT = "drift"
    UNKNOWNS = "unknowns"
    UNKNOWNS_AND_DRIFT = "unknowns_and_drift"
    NOT_ASSESSED = "not_assessed"

    @classmethod
    def of(cls, recorded: str) -> "Verdict":
        """Return the verdict of a record; text that is not a verdict was not assessed."""
        try:
            return cls(recorded.partition(":")[0])
        except ValueError:
            return cls.NOT_ASSESSED

    @classmethod
    def reason(cls, recorded: str) -> str:
        """Return why a window was not assessed, as a code; empty if it was."""
        return "" if cls.of(recorded).is_assessed else recorded.removeprefix(cls.NOT_ASSESSED)[1:]

    @classmethod
    def unassessed(cls, code: str) -> str:
        """Return what to record of a window that was not assessed, and why."""
        return f"{cls.NOT_ASSESSED}:{code}"

    @property
    def traits(self) -> VerdictTraits:
        return _VERDICT_TRAITS[self]

    @property
    def is_assessed(self) -> bool:
        return self is not Verdict.NOT_ASSESSED

    @property
    def is_quiet(self) -> bool:
        return self is Verdict.NO_CHANGE

    @property
    def claims_unknowns(self) -> bool:
        return self in (Verdict.UNKNOWNS, Verdict.UNKNOWNS_AND_DRIFT)

    @property
    def tells_share(self) -> bool:
        """Whether the share of unknown rows can be told; drift alone may hide any share."""
        return self is not Verdict.DRIFT

    @property
    def claims_drift(self) -> bool:
        return self in (Verdict.DRIFT, Verdict.UNKNOWNS_AND_DRIFT)


_VERDICT_TRAITS = {
    Verdict.NO_CHANGE: VerdictTraits(
        *("Nothing new", Tone.CALM, 0, 0, "green", ("#2e7d32", "#e6f4e7", "#14401a"))
    ),
    Verdict.DRIFT: VerdictTraits(
        *("Drift", Tone.WARNING, 1, 10, "yellow", ("#ef9a00", "#fff3dc", "#5c3a00"))
    ),
    Verdict.UNKNOWNS: VerdictTraits(
        *("Unknowns", Tone.ALARM, 2, 11, "bold red", ("#c2185b", "#fce4ec", "#560027"))
    ),
    Verdict.UNKNOWNS_AND_DRIFT: VerdictTraits(
        *("Unknowns and drift", Tone.ALARM, 2, 11),
        *("bold red", ("#8e24aa", "#f5e6fa", "#3c0a4c")),
    ),
    Verdict.NOT_ASSESSED: VerdictTraits(
        *("Not assessed", Tone.BLANK, 3, 20),
        *("bold magenta", ("#616b78", "#e9ecf0", "#2a3039")),
    ),
}

AlertVerdict = Literal["unknowns", "unknowns_and_drift", "drift", "not_assessed"]
"""The verdicts that can raise an alert: all but the quiet one."""


@dataclass(frozen=True, slots=True)
class ReviewTraits:
    """What depends on the status of a review, each after "Version N".

    `summary` says how the review ended and takes `who` and `at`. `refusal` says why a second
    decision is refused and takes `status`, `who`, `at` and `reason`. `effect` is what a person's
    answer led to; it is empty if no person answered.
    """

    summary: str
    refusal: str = "was {status} by {who} at {at}, and a decision stands. {reason}"
    effect: str = ""


class ReviewStatus(StrEnum):
    """Where the review of a challenger stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    BLOCKED = "blocked"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    STALE = "stale"

    @property
    def traits(self) -> ReviewTraits:
        return _REVIEW_TRAITS[self]

    @property
    def is_answer(self) -> bool:
        """Whether a person answered."""
        return bool(self.traits.effect)

    @property
    def is_final(self) -> bool:
        return self is not ReviewStatus.PENDING

    @property
    def is_undecided(self) -> bool:
        """Whether the same review goes on: it is open, or passed to a newer challenger."""
        return self in (ReviewStatus.PENDING, ReviewStatus.SUPERSEDED)

    @property
    def is_asked(self) -> bool:
        """Whether a reviewer is asked at all."""
        return self is not ReviewStatus.BLOCKED

    @property
    def may_promote(self) -> bool:
        return self is ReviewStatus.APPROVED

    @property
    def asks_again(self) -> bool:
        """Whether the question became void, so that the window is judged and asked again."""
        return self is ReviewStatus.STALE

    @classmethod
    def decided(cls, approve: bool) -> "ReviewStatus":
        """Return the status after a person's decision."""
        return cls.APPROVED if approve else cls.REJECTED

    @classmethod
    def answers(cls) -> "list[ReviewStatus]":
        """Return what a person can answer."""
        return [status for status in cls if status.is_answer]

    @classmethod
    def explain(cls, kind: str, reason: str) -> str:
        """Return the reason of a record of this kind as people read it."""
        return f"By version {reason}." if kind == cls.SUPERSEDED else reason

    @classmethod
    def explain_late(cls, kind: str, reason: str) -> str:
        """Return why an answer to a review that ended so before is not carried out."""
        if kind == cls.SUPERSEDED:
            return f"too late: version {reason} had superseded it"
        return f"too late: the review was {kind}"


_REVIEW_TRAITS = {
    ReviewStatus.PENDING: ReviewTraits("waits for review."),
    ReviewStatus.APPROVED: ReviewTraits(
        "was approved by {who} on {at}.", effect="is the champion now."
    ),
    ReviewStatus.REJECTED: ReviewTraits(
        "was rejected by {who} on {at}.", effect="is rejected; the champion stays."
    ),
    ReviewStatus.BLOCKED: ReviewTraits(
        "is blocked and cannot be approved.", "is blocked: {reason}"
    ),
    ReviewStatus.SUPERSEDED: ReviewTraits(
        "was superseded by a newer challenger.",
        "was superseded by version {reason} at {at}. Review that one.",
    ),
    ReviewStatus.EXPIRED: ReviewTraits(
        "was not reviewed in time, so it was not promoted.",
        "was not reviewed in time: {reason} Wait for the next window's challenger.",
    ),
    ReviewStatus.STALE: ReviewTraits(
        "is stale: the champion has moved since it was compared.",
        "is stale: {reason} Nothing was changed. Review a newer challenger.",
    ),
}


class ReviewChannel(StrEnum):
    """How a decision reached us."""

    AIRFLOW_PAGE = "airflow_page"
    REQUIRED_ACTIONS = "required_actions"
    MLFLOW_TAG = "mlflow_tag"
    COMMAND_LINE = "command_line"
    PYTHON = "python"

    @property
    def proves_identity(self) -> bool:
        """Whether a service that people log in to vouches for who decided."""
        return self in (ReviewChannel.AIRFLOW_PAGE, ReviewChannel.REQUIRED_ACTIONS)

    @property
    def label(self) -> str:
        """How sentences name the channel."""
        return _CHANNEL_LABELS[self]

    def identity(self) -> dict[str, str]:
        """Return what a record says of how it came and who vouches for the name in it."""
        vouched = "Airflow" if self.proves_identity else NOT_PROVEN
        return dict(zip(IDENTITY, (self.value, vouched), strict=True))


ChannelName = Literal["airflow_page", "required_actions", "mlflow_tag", "command_line", "python"]
"""The channels as a monitor's file names them."""

_CHANNEL_LABELS = {
    ReviewChannel.AIRFLOW_PAGE: "the page in Airflow",
    ReviewChannel.REQUIRED_ACTIONS: "Airflow's Required Actions",
    ReviewChannel.MLFLOW_TAG: "a tag in MLflow",
    ReviewChannel.COMMAND_LINE: "the command line",
    ReviewChannel.PYTHON: "a Python program",
}

IDENTITY = ("channel", "identity")
"""Details of a record: how the decision came, and who vouches for the name in it."""
NOT_PROVEN = "claimed"
"""The identity of a person who was not asked to log in: anyone could have given the name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a review no longer waits: a decision, in the record or as a tag, or what ended it."""

    status: str
    who: str = ""
    reason: str = ""
    recorded: bool = True

    @classmethod
    def stale(cls, reason: str) -> Self:
        """Return the end of a review whose question no longer fits."""
        return cls(ReviewStatus.STALE, PRODUCT, reason, recorded=False)

    @classmethod
    def expired(cls, reason: str) -> Self:
        """Return the end of a review that was not answered in time."""
        return cls(ReviewStatus.EXPIRED, PRODUCT, reason, recorded=False)
