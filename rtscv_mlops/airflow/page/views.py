"""From summaries and facts to what the templates show; text from outside is made plain here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Self

from rtscv_mlops import text
from rtscv_mlops.airflow.page.timeline import (
    LONG,
    Badge,
    Timeline,
    badge,
    draw,
    moment_label,
    window_label,
)
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import NOT_CARRIED_OUT, ReviewStatus, Tone, Verdict
from rtscv_mlops.text import ClassRow, Label, plain

if TYPE_CHECKING:
    from rtscv_mlops.airflow.page.data import OpenQuestion
    from rtscv_mlops.operations.overview import MonitorSummary, WindowPage
    from rtscv_mlops.tracking.promotion import History

MOST_RECORDS = 20
FIRST_CLASSES = 10
URGENCY = tuple(Tone)
PROBLEM_RANK, QUIET_RANK = 1, 2

NO_CHALLENGER = "There is nothing to decide: this window has no challenger."
NOT_OFFERED = "The window is still being processed, so version {} is not offered yet."
CHANGED = (
    "What Airflow asks now is not about this version as it is shown here: the question has "
    "changed. Reload the page."
)
NOT_ASKED = (
    "Airflow does not ask about this version: its run has not reached the review yet, or has "
    "ended. A reviewer can still answer with the command below."
)
READ_ONLY = "You can see this, but not decide. Ask a user who may answer for this DAG."


@dataclass(frozen=True, slots=True)
class Card:
    """One monitor on the first page; `problem` is why it cannot be shown."""

    name: str
    dag_id: str
    problem: str = ""
    model: str = ""
    champion: str = ""
    last: Badge | None = None
    last_window: str = ""
    timeline: Timeline | None = None
    pending_run: str = ""
    pending_version: str = ""
    findings: tuple[str, ...] = ()

    @property
    def badge(self) -> Badge:
        if self.problem:
            return Badge(Tone.BLANK, "Cannot be shown")
        return self.last or Badge(Tone.RUNNING, "No window judged yet")

    @property
    def rank(self) -> tuple[int, int, str]:
        """The order of cards: what waits for a reviewer, what is broken, then by urgency."""
        if self.pending_run:
            return 0, 0, self.name
        if self.problem:
            return PROBLEM_RANK, 0, self.name
        return QUIET_RANK, URGENCY.index(self.last.tone) if self.last else len(URGENCY), self.name


def problem_card(name: str, dag_id: str, error: RtscvError, model: str = "") -> Card:
    """Return the card of a monitor that cannot be shown."""
    problem = "\n".join(plain(line, LONG) for line in str(error).splitlines()[:20])
    return Card(name, dag_id, problem=problem, model=model)


def monitor_card(
    monitor: Monitor, dag_id: str, summary: "MonitorSummary | RtscvError", zone: str
) -> Card:
    """Return the card of a monitor."""
    if isinstance(summary, RtscvError):
        return problem_card(monitor.name, dag_id, summary, monitor.model.name)
    last, waits, champion = summary.last, summary.pending, summary.champion_version
    return Card(
        name=summary.name,
        dag_id=dag_id,
        model=summary.model,
        champion=f"version {champion}" if champion else "not set",
        last=badge(last.verdict) if last else None,
        last_window=window_label(last.start, last.end, zone) if last else "",
        timeline=draw(summary.windows, zone) if summary.windows else None,
        pending_run=waits.run_id if waits else "",
        pending_version=waits.version if waits else "",
        findings=tuple(plain(problem, LONG) for problem in summary.problems),
    )


def legend() -> list[tuple[Tone, str]]:
    """Return the tones of a timeline's marks with their labels."""
    tones: dict[Tone, str] = {}
    for verdict in Verdict:
        tones.setdefault(verdict.traits.tone, verdict.traits.label)
    return sorted(tones.items(), key=lambda item: URGENCY.index(item[0]))


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must carry, so that it counts for exactly what was shown."""

    dag_run_id: str
    question: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a review stands for one user: a form, or the sentence why there is none."""

    state: str
    sentence: str
    reason: str = ""
    form: Form | None = None
    command: bool = False
    is_settling: bool = False
    """An answer was given and is being recorded."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user may do; `named_in` are the questions whose reviewers include the user."""

    may_review: bool
    named_in: frozenset[str]


def decide(
    page: "WindowPage", questions: "Sequence[OpenQuestion]", rights: Rights, zone: str
) -> Decision:
    """Return what a user may do about a window's challenger."""
    version, answer = page.version, page.answer
    if version is None:
        return Decision("none", NO_CHALLENGER)
    if not version.review:
        return Decision("not offered", NOT_OFFERED.format(version.version))
    status = ReviewStatus(version.review)
    if status.is_final:
        when = moment_label(version.decided_at, zone)
        summary = status.traits.summary.format(who=plain(version.reviewer), at=when)
        reason = ReviewStatus.explain(status, plain(version.reason, LONG))
        return Decision(status, f"Version {version.version} {summary}", reason)
    if answer is not None:
        if not ReviewStatus(answer.status).is_answer:
            sentence = "This can no longer be decided."
            return Decision(answer.status, sentence, plain(answer.reason, LONG))
        sentence = (
            f"{plain(answer.who)} answered in the MLflow registry: {answer.status}. "
            "It counts when Airflow has seen and recorded it."
        )
        return Decision(answer.status, sentence, plain(answer.reason, LONG), is_settling=True)
    return _asked(status, page, questions, rights, zone)


def _asked(
    pending: ReviewStatus,
    page: "WindowPage",
    questions: "Sequence[OpenQuestion]",
    rights: Rights,
    zone: str,
) -> Decision:
    """Return what a user may do about a version that waits for an answer."""
    asked = next((one for one in questions if one.question == page.question), None)
    if asked is None:
        return Decision(pending, CHANGED if questions else NOT_ASKED, command=not questions)
    # An answer without its reason closed Airflow's question, and this page still takes another.
    is_refused = any(
        record.kind == NOT_CARRIED_OUT and page.version and record.version == page.version.version
        for record in page.history.records
    )
    if asked.chosen and not is_refused:
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


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that a decision depends on."""

    name: str
    value: str
    note: str = ""
    tone: str = ""

    @classmethod
    def all_of(cls, facts: WindowFacts) -> Iterator[Self]:
        """Yield the numbers of a window that was assessed."""
        limits = facts.told_interval
        tone = Verdict.of(facts.verdict).traits.tone
        likely = f"likely {text.interval(limits)}" if limits else text.unknown_share(facts)
        yield cls(Label.UNKNOWN_RATE, text.estimate(facts.told_rate, text.DASH), likely, tone)
        sampled = f"of {text.counted(facts.sampled, 'row')} sampled"
        yield cls(Label.UNKNOWNS, f"{facts.unknowns:,}", sampled)
        yield cls(Label.P_VALUE, text.probability(facts.p_value))
        if facts.drift is not None:
            comparable = sum(not column.problem for column in facts.drift.columns)
            compared = f"of {text.counted(comparable, 'column')} compared"
            moved = Tone.WARNING if Verdict.of(facts.verdict).claims_drift else ""
            yield cls(Label.DRIFT, str(facts.drift.drifted), compared, moved)
        if facts.comparison is not None:
            accuracy = facts.comparison.challenger_accuracy
            change, note = accuracy - facts.comparison.champion_accuracy, ""
            if abs(change) < text.LEAST_CHANGE:
                note = "same as the champion"
            elif isfinite(change):
                note = f"{abs(100 * change):.1f} points {'better' if change > 0 else 'worse'}"
            yield cls(Label.ACCURACY, text.percent(accuracy), note)
        if facts.told_false_rate is not None:
            yield cls(Label.FALSE_RATE, text.percent(facts.told_false_rate), "false alarms")


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One entry of the record of decisions."""

    what: str
    version: str
    who: str
    when: str
    why: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class WindowView:
    """All that the page of one window shows."""

    monitor: str
    model: str
    dag_id: str
    run_id: str
    window: str
    badge: Badge
    headline: str
    facts: WindowFacts | None
    tiles: tuple[Tile, ...]
    classes: list[ClassRow]
    more_classes: list[ClassRow]
    version: str
    champion: str
    decision: Decision
    records: tuple[RecordRow, ...]
    problems: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    has_report: bool
    newer_run: str
    start: datetime | None
    end: datetime | None

    @property
    def interval(self) -> str:
        """The window as the DAG's param takes it."""
        return f"{self.start.isoformat()}/{self.end.isoformat()}" if self.start and self.end else ""

    @property
    def is_unassessed(self) -> bool:
        return self.badge.tone is Tone.BLANK


def window_view(
    monitor: Monitor, dag_id: str, page: "WindowPage", decision: Decision
) -> WindowView:
    """Return one window as its page shows it."""
    zone, run, facts = monitor.airflow.timezone, page.run, page.facts
    version = page.version.version if page.version else ""
    classes = text.class_rows(facts.comparison) if facts and facts.comparison else []
    links = [
        (plain(name, 40), text.safe_link(address))
        for name, address in page.links.labelled().items()
    ]
    return WindowView(
        monitor=monitor.name,
        model=monitor.model.name,
        dag_id=dag_id,
        run_id=run.run_id,
        window=window_label(run.window_start, run.window_end, zone),
        badge=badge(facts.verdict if facts else run.verdict),
        headline=plain(facts.headline, LONG) if facts else "This window is still being judged.",
        facts=facts,
        tiles=tuple(Tile.all_of(facts)) if facts and facts.assessed else (),
        classes=classes[:FIRST_CLASSES],
        more_classes=classes[FIRST_CLASSES:],
        version=version,
        champion=run.champion_version,
        decision=decision,
        records=record_rows(page.history, version, zone),
        problems=tuple(plain(problem, LONG) for problem in page.history.problems),
        links=tuple((name, address) for name, address in links if address),
        has_report=page.has_report,
        newer_run=page.newer_run,
        start=run.window_start,
        end=run.window_end,
    )


def record_rows(history: "History", version: str, zone: str) -> tuple[RecordRow, ...]:
    """Return what was decided about the model, the latest first."""
    from rtscv_mlops.tracking.runs import moment

    return tuple(
        RecordRow(
            what=plain(record.what),
            version=plain(record.version, 20),
            who=plain(record.who),
            when=moment_label(moment(record.at), zone),
            why=ReviewStatus.explain(record.kind, plain(record.reason, LONG)),
            is_ours=record.version == version,
        )
        for record in list(reversed(history.records))[:MOST_RECORDS]
    )
