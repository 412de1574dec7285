"""Whether a window is worth an alert, and what the alert says: subject, plain text and JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from rtscv_mlops import text
from rtscv_mlops.config.monitor import AlertSettings
from rtscv_mlops.errors import Code
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import Label, inert_line

# The schedule asked too early, or for an empty interval: there is nothing to repair. All other
# reasons, above all a source without rows, leave the model unmonitored.
HARMLESS = (Code.EMPTY_INTERVAL, Code.WINDOW_OPEN)
SCHEMA_VERSION = 1
MAX_CLUSTERS = 5


@dataclass(frozen=True, slots=True)
class PastWindow:
    """What the rule needs to remember of a window that was processed before."""

    window_start: datetime
    window_end: datetime
    verdict: str
    unknown_rate: float | None
    p_value: float | None
    alerted_at: datetime | None = None

    @property
    def bounds(self) -> tuple[datetime, datetime]:
        return self.window_end, self.window_start


@dataclass(frozen=True, slots=True)
class AlertDecision:
    """Whether an alert is due; `why` is a sentence either way."""

    due: bool
    why: str


def decide_alert(
    facts: WindowFacts,
    history: Sequence[PastWindow],
    rule: AlertSettings,
    now: datetime,
    open_review_alerted: bool,
) -> AlertDecision:
    """Decide on one window, given what was processed before it, oldest record first.

    If a window was processed more than once, its last record counts. `open_review_alerted` means
    that a challenger waits for review and that an alert announced it.
    """
    this = PastWindow(
        facts.window_start, facts.window_end, facts.verdict, facts.unknown_rate, facts.p_value
    )
    case = _AlertCase(this, history, rule, now)
    if why := next(filter(None, case.objections(open_review_alerted)), ""):
        return AlertDecision(False, why)
    return AlertDecision(True, case.why_due())


@dataclass(frozen=True, slots=True)
class _AlertCase:
    """One window against the rule; an objection is a sentence, or empty if there is none."""

    this: PastWindow
    history: Sequence[PastWindow]
    rule: AlertSettings
    now: datetime

    def objections(self, open_review_alerted: bool) -> Iterator[str]:
        yield self.does_not_count(self.this)
        yield self.alerted_before()
        yield self.superseded()
        counting, span = self.counting(), text.counted(self.rule.of, "window")
        if counting < self.rule.windows:
            yield f"Only {counting} of the last {span} count; {self.rule.windows} must."
        # A source that breaks while a review waits is another matter, and must not stay unseen.
        if open_review_alerted and Verdict.of(self.this.verdict).is_assessed:
            yield "A challenger waits for review, and an alert has announced it."
        yield self.cooling_down()

    def does_not_count(self, window: PastWindow) -> str:
        verdict = Verdict.of(window.verdict)
        if verdict not in self.rule.on:
            return f"The rule does not include the verdict {text.verdict_text(window.verdict)}."
        if Verdict.reason(window.verdict) in HARMLESS:
            return f"{text.verdict_text(window.verdict)} only concerns the schedule."
        return self.too_weak(window) if verdict.is_assessed else ""

    def too_weak(self, window: PastWindow) -> str:
        # A missing number never counts.
        limit = f"the limit of {self.rule.max_p_value:g} (alert.max_p_value)."
        if window.p_value is None or not isfinite(window.p_value):
            return f"There is no p-value to compare with {limit}"
        if window.p_value > self.rule.max_p_value:
            return f"{text.probability(window.p_value)} is above {limit}"
        if not Verdict.of(window.verdict).claims_unknowns:
            return ""
        share = 0.0 if window.unknown_rate is None else window.unknown_rate
        if share >= self.rule.min_rate:
            return ""
        least = f"the minimum of {text.percent(self.rule.min_rate)} (alert.min_rate)."
        if window.unknown_rate is None or not isfinite(share):
            return f"The unknown rate could not be estimated, so it does not reach {least}"
        return f"An unknown rate of {text.estimate(share)} is below {least}"

    def alerted_before(self) -> str:
        same = (past for past in self.history if past.bounds == self.this.bounds)
        times = [past.alerted_at for past in same if past.alerted_at]
        return f"This window was alerted at {max(times):%Y-%m-%d %H:%M}." if times else ""

    def superseded(self) -> str:
        """Object to a backfill: an alert is about the present, which newer windows have shown.

        Windows that only finished out of order still alert, up to the cooldown or the rule's own
        span of windows, whichever is longer.
        """
        this, rule = self.this, self.rule
        assessed = [past for past in self.history if Verdict.of(past.verdict).is_assessed]
        newest = max((past.window_end for past in assessed), default=this.window_end)
        span = max(rule.cooldown, rule.of * (this.window_end - this.window_start), timedelta())
        if newest - this.window_end <= span:
            return ""
        return (
            f"Windows up to {newest:%Y-%m-%d %H:%M} were processed already. An old window that is "
            "filled in later is recorded, but not alerted."
        )

    def counting(self) -> int:
        """Return how many of the last windows up to this one count."""
        this = self.this
        by_time = {past.bounds: past for past in self.history if past.bounds < this.bounds}
        before = sorted(by_time.values(), key=lambda past: past.bounds)
        last = [*before, this][-self.rule.of :]
        return sum(not self.does_not_count(window) for window in last)

    def cooling_down(self) -> str:
        """Object if a recent alert covers this window.

        An alert about drift must not hold back the news of an unknown class, nor a source that
        broke one way the news that it broke another way.
        """
        new, times = Verdict.of(self.this.verdict), []
        for past in self.history:
            sent = Verdict.of(past.verdict)
            if sent.is_assessed and new.is_assessed:
                covers = sent.traits.severity >= new.traits.severity
            else:
                covers = past.verdict == self.this.verdict
            if past.alerted_at and covers:
                times.append(past.alerted_at)
        last = max(times, default=None)
        if last is None or self.now - last >= self.rule.cooldown:
            return ""
        cooldown = self.rule.cooldown
        return f"The last alert was sent at {last:%Y-%m-%d %H:%M}, less than {cooldown} ago."

    def why_due(self) -> str:
        counting, of = self.counting(), self.rule.of
        windows = (
            f"{counting} of the last {text.counted(of, 'window')}" if of > 1 else "This window"
        )
        verb = "counts" if of == 1 or counting == 1 else "count"
        return f"{windows} {verb}; the verdict is {text.verdict_text(self.this.verdict)}."


@dataclass(frozen=True, slots=True)
class Alert:
    """One message about one window, for all channels; text from data is inert in mail and chat."""

    facts: WindowFacts
    why: str
    links: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """The challenger made from the window; empty if there is none."""

    @property
    def key(self) -> str:
        """The same for every try to send this alert, so that a receiver can drop copies."""
        return self.facts.key

    @property
    def severity(self) -> str:
        return "error" if self.facts.detected else "warning"

    @property
    def rate(self) -> str:
        return text.unknown_share(self.facts)

    @property
    def subject(self) -> str:
        facts = self.facts
        unknowns = f": {self.rate}" if facts.detected else ""
        verdict = f"{inert_line(text.verdict_text(facts.verdict))}{unknowns}"
        return f"[rtscv] {inert_line(facts.model, 60)} {text.window_name(facts)}: {verdict}"

    @property
    def text(self) -> str:
        facts = self.facts
        # A window may fail before its champion is known.
        champion = inert_line(facts.champion_version, 20)
        version = f", version {champion}" if champion else ""
        lines = [
            inert_line(facts.headline, 400),
            "",
            f"{Label.MONITOR}: {inert_line(facts.monitor)}",
            f"{Label.MODEL}: {inert_line(facts.model)}{version}",
            f"{Label.WINDOW}: {text.window_name(facts)}",
            f"{Label.ROWS}: {facts.rows:,}",
            f"{Label.VERDICT}: {inert_line(text.verdict_text(facts.verdict))}",
        ]
        if facts.assessed:
            lines.append(f"{Label.P_VALUE}: {text.probability(facts.p_value)}")
        if facts.detected:
            lines += [f"{Label.UNKNOWNS}: {facts.unknowns:,}", f"{Label.UNKNOWN_RATE}: {self.rate}"]
        for card in facts.clusters[:MAX_CLUSTERS]:
            labels = ", ".join(text.called(card, inert_line, 2))
            by_champion = f", called {labels} by the champion" if labels else ""
            lines.append(f"- group {card.number}: {text.counted(card.size, 'row')}{by_champion}")
        if facts.blocked:
            lines.append(f"The challenger is blocked: {inert_line(facts.blocked, 300)}")
        if facts.unusable:
            lines.append(inert_line(facts.unusable, 300))
        if self.version:
            lines.append(f"Challenger: version {inert_line(self.version, 20)}")
        if self.next_step:
            lines.append(f"Next: {self.next_step}")
        lines.append(f"Why this alert: {inert_line(self.why, 300)}")
        lines += [f"{name}: {target}" for name, target in self.links.items()]
        return "\n".join(lines)

    @property
    def next_step(self) -> str:
        """The command to go on with; empty if there is nothing to do but to look."""
        file = f"{text.shell_word(self.facts.monitor, 'monitor')}.yaml"
        if Verdict.reason(self.facts.verdict) == Code.STALE:
            return text.judge_again(self.facts, file)
        if not self.facts.assessed:
            return f"rtscv-mlops check {file}"
        if not self.version:
            return ""
        return f"rtscv-mlops review show {file} --version {text.shell_word(self.version, 'N')}"

    def payload(self) -> dict[str, Any]:
        """Return the alert as JSON; `text` is what chat services show."""
        facts = self.facts
        return {
            "schema_version": SCHEMA_VERSION,
            "idempotency_key": self.key,
            "severity": self.severity,
            "monitor": inert_line(facts.monitor),
            "model": inert_line(facts.model),
            "champion_version": inert_line(facts.champion_version, 20),
            "challenger_version": inert_line(self.version, 20),
            "window_start": facts.window_start.isoformat(),
            "window_end": facts.window_end.isoformat(),
            "verdict": inert_line(facts.verdict),
            "headline": inert_line(facts.headline, 400),
            "rows": facts.rows,
            "sampled": facts.sampled,
            "unknowns": facts.unknowns if facts.assessed else None,
            "unknown_rate": _finite(facts.told_rate),
            "unknown_rate_interval": facts.told_interval
            and tuple(map(_finite, facts.told_interval)),
            "p_value": _finite(facts.p_value),
            "clusters": len(facts.clusters),
            "blocked": inert_line(facts.blocked, 300),
            "why": inert_line(self.why, 300),
            "next": self.next_step,
            "links": dict(self.links),
            "text": f"{self.subject}\n{self.text}",
        }


def make_alert(
    facts: WindowFacts, decision: AlertDecision, links: Mapping[str, str], version: str = ""
) -> Alert:
    """Return the alert for a window; links are web addresses or, as text, paths and commands."""
    targets = {}
    for name, target in links.items():
        line = str(text.inert(text.plain(text.safe_path(target) or target, 300)))
        line = line.replace("@", f"@{text.ZERO_WIDTH_SPACE}")
        targets[inert_line(name, 40)] = text.safe_link(target) or line
    return Alert(facts, decision.why, targets, version)


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can hold."""
    return value if value is not None and isfinite(value) else None
