"""From summaries to what the templates show; all text of others is made plain on the way.

Knows what a reader needs first; knows nothing of requests, and renders nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rtscv_mlops.airflow.page.decision import Decision
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
from rtscv_mlops.facts import ClassComparison, Comparison, WindowFacts
from rtscv_mlops.outcomes import Kind, ReviewStatus, Verdict
from rtscv_mlops.text import (
    counted,
    estimate,
    interval,
    number,
    percent,
    plain,
    probability,
    safe_link,
)

if TYPE_CHECKING:
    from rtscv_mlops.operations.overview import MonitorSummary, WindowPage
    from rtscv_mlops.tracking.promotion import History

MOST_RECORDS = 20
FIRST_CLASSES = 10
URGENCY = tuple(Kind)
PROBLEM_RANK, QUIET_RANK = 1, 2


@dataclass(frozen=True, slots=True)
class Card:
    """One monitor on the first page; `problem` says why it cannot be shown."""

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
    def rank(self) -> tuple[int, int, str]:
        """What to sort by: what waits for a person, what is broken, then the most urgent."""
        if self.pending_run:
            return 0, 0, self.name
        if self.problem:
            return PROBLEM_RANK, 0, self.name
        return QUIET_RANK, URGENCY.index(self.last.kind) if self.last else len(URGENCY), self.name


def problem_card(path: Path, dag_id: str, error: RtscvError) -> Card:
    """Return the card of a monitor that cannot be shown."""
    return Card(path.stem, dag_id, problem=_sentences(error))


def monitor_card(
    monitor: Monitor, dag_id: str, found: "MonitorSummary | RtscvError", zone: str
) -> Card:
    """Return the card of a monitor."""
    if isinstance(found, RtscvError):
        return Card(monitor.name, dag_id, problem=_sentences(found), model=monitor.model.name)
    last, waits = found.last, found.pending
    return Card(
        name=found.name,
        dag_id=dag_id,
        model=found.model,
        champion=f"version {found.champion_version}" if found.champion_version else "not set",
        last=badge(last.verdict) if last else None,
        last_window=window_label(last.start, last.end, zone) if last else "",
        timeline=draw(found.windows, zone) if found.windows else None,
        pending_run=waits.run_id if waits else "",
        pending_version=waits.version if waits else "",
        findings=tuple(plain(problem, LONG) for problem in found.problems),
    )


def _sentences(error: RtscvError) -> str:
    return "\n".join(plain(line, LONG) for line in str(error).splitlines()[:20])


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that a decision hangs on."""

    name: str
    value: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A known class under both models; the bars are in percent of their width."""

    label: str
    rows: str
    champion: str
    challenger: str
    change: str
    unknown: str
    champion_bar: float
    challenger_bar: float
    is_worse: bool


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A decision or a move of the champion."""

    what: str
    version: str
    who: str
    when: str
    why: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class WindowView:
    """One window as its page shows it."""

    monitor: str
    model: str
    dag_id: str
    run_id: str
    window: str
    badge: Badge
    headline: str
    facts: WindowFacts | None
    tiles: tuple[Tile, ...]
    classes: tuple[ClassRow, ...]
    more_classes: tuple[ClassRow, ...]
    version: str
    champion: str
    decision: Decision
    records: tuple[RecordRow, ...]
    problems: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    has_report: bool
    newer_run: str


def window_view(
    monitor: Monitor, dag_id: str, page: "WindowPage", decision: Decision
) -> WindowView:
    """Return one window as its page shows it."""
    zone, run, facts = monitor.airflow.timezone, page.run, page.facts
    version = page.version.version if page.version else ""
    classes = _classes(facts.comparison) if facts and facts.comparison else ()
    return WindowView(
        monitor=monitor.name,
        model=monitor.model.name,
        dag_id=dag_id,
        run_id=run.run_id,
        window=window_label(run.window_start, run.window_end, zone),
        badge=badge(facts.verdict if facts else run.verdict),
        headline=plain(facts.headline, LONG) if facts else "This window is still being judged.",
        facts=facts,
        tiles=tuple(_tiles(facts)) if facts and facts.assessed else (),
        classes=classes[:FIRST_CLASSES],
        more_classes=classes[FIRST_CLASSES:],
        version=version,
        champion=run.champion_version,
        decision=decision,
        records=_records(page.history, version, zone),
        problems=tuple(plain(problem, LONG) for problem in page.history.problems),
        links=_links(page.links.labelled()),
        has_report=page.has_report,
        newer_run=page.newer_run,
    )


def _tiles(facts: WindowFacts) -> Iterable[Tile]:
    limits = facts.unknown_rate_interval
    kind = Kind.UNKNOWNS if facts.detected else Kind.QUIET
    likely = f"likely {interval(limits)}" if limits else ""
    yield Tile("Unknown share", estimate(facts.unknown_rate), likely, kind)
    looked_at = f"of {counted(facts.sampled, 'row')} looked at"
    yield Tile("Rows extracted", f"{facts.unknowns:,}", looked_at)
    yield Tile("By chance alone", probability(facts.p_value), "if nothing were new")
    if facts.drift is not None:
        comparable = sum(not column.problem for column in facts.drift.columns)
        compared = f"of {counted(comparable, 'column')} compared"
        moved = Kind.DRIFT if Verdict.of(facts.verdict).claims_drift else ""
        yield Tile("Columns moved", str(facts.drift.drifted), compared, moved)
    if facts.comparison is not None:
        change = facts.comparison.challenger_accuracy - facts.comparison.champion_accuracy
        yield Tile(
            "Known rows right", percent(facts.comparison.challenger_accuracy), _points(change)
        )
    if facts.known_false_rate is not None:
        yield Tile("False alarms", percent(facts.known_false_rate), "of known rows called unknown")


def _points(change: float) -> str:
    if not isfinite(change):
        return ""
    if abs(change) < 0.0005:
        return "as many as the champion"
    return f"{abs(100 * change):.1f} points {'better' if change > 0 else 'worse'}"


def _classes(comparison: Comparison) -> tuple[ClassRow, ...]:
    """Return the classes, the one that loses most first."""
    ordered = sorted(comparison.classes, key=_loss, reverse=True)
    return tuple(_class_row(known) for known in ordered)


def _loss(known: ClassComparison) -> tuple[float, float]:
    """Return what to sort by; a class without held-out rows has lost nothing that is known."""
    loss = known.loss if isfinite(known.loss) else -inf
    return loss, -known.challenger if isfinite(known.challenger) else -inf


def _class_row(known: ClassComparison) -> ClassRow:
    change = -known.loss
    return ClassRow(
        label=plain(known.label, 60) or "(no text)",
        rows=f"{known.rows:,}",
        champion=percent(known.champion),
        challenger=percent(known.challenger),
        change=_change(change),
        unknown=percent(known.unknown),
        champion_bar=_bar(known.champion),
        challenger_bar=_bar(known.challenger),
        is_worse=isfinite(change) and change < -0.0005,
    )


def _change(change: float) -> str:
    if not isfinite(change):
        return "not known"
    return "same" if abs(change) < 0.0005 else f"{100 * change:+.1f} points"


def _bar(share: float) -> float:
    return round(100 * min(max(share, 0.0), 1.0), 1) if isfinite(share) else 0.0


def _records(history: "History", version: str, zone: str) -> tuple[RecordRow, ...]:
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


def _links(links: dict[str, str]) -> tuple[tuple[str, str], ...]:
    safe = ((plain(name, 40), safe_link(address)) for name, address in links.items())
    return tuple((name, address) for name, address in safe if address)


def exemplar_columns(exemplars: Sequence[dict[str, object]]) -> list[str]:
    """Return the columns of a table of typical rows, in the order of the rows."""
    return list(dict.fromkeys(name for row in exemplars for name in row))


def cell(value: object) -> str:
    """Write one value of a typical row."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else plain(str(value), 60)
    return number(float(value)) if isinstance(value, float) else str(value)
