"""Whether a window is worth waking somebody, and why not if it is not.

Knows verdicts and times, and reads no clock; knows nothing of messages or channels.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite

from rtscv_mlops.config.monitor import AlertSettings
from rtscv_mlops.errors import Code
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import counted, estimate, percent, probability, verdict_text

# The schedule asked too early or for nothing; the window is asked for again, or never existed.
# All other reasons, a source that went silent above all, leave the model unwatched.
HARMLESS = (Code.EMPTY_INTERVAL, Code.WINDOW_OPEN)


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

    Where a window was processed more than once, its last record counts. `open_review_alerted`
    says that a challenger waits for review and that somebody was told.
    """
    this = PastWindow(
        facts.window_start, facts.window_end, facts.verdict, facts.unknown_rate, facts.p_value
    )
    reasons = _reasons_against(this, history, rule, now, open_review_alerted)
    if why := next(filter(None, reasons), ""):
        return AlertDecision(False, why)
    return AlertDecision(True, _why_due(this, _counting(this, history, rule), rule))


def _reasons_against(
    this: PastWindow,
    history: Sequence[PastWindow],
    rule: AlertSettings,
    now: datetime,
    open_review_alerted: bool,
) -> Iterator[str]:
    yield _does_not_count(this, rule)
    yield _alerted_before(this, history)
    yield _long_superseded(this, history, rule)
    yield _too_few_windows(_counting(this, history, rule), rule)
    if open_review_alerted:
        yield _left_to_the_review(this)
    yield _cooling_down(this, history, rule, now)


def _does_not_count(window: PastWindow, rule: AlertSettings) -> str:
    verdict = Verdict.of(window.verdict)
    if verdict not in rule.on:
        return f"The rule does not look at the verdict {verdict_text(window.verdict)}."
    if Verdict.reason(window.verdict) in HARMLESS:
        return f"{verdict_text(window.verdict)} is a matter of the schedule only."
    return _too_weak(window, rule) if verdict.is_assessed else ""


def _too_weak(window: PastWindow, rule: AlertSettings) -> str:
    # A missing number never counts.
    limit = f"the limit of {rule.max_p_value:g} (alert.max_p_value)."
    if window.p_value is None or not isfinite(window.p_value):
        return f"There is no p-value to compare with {limit}"
    if window.p_value > rule.max_p_value:
        return f"{probability(window.p_value)} is above {limit}"
    if not Verdict.of(window.verdict).claims_unknowns:
        return ""
    share = 0.0 if window.unknown_rate is None else window.unknown_rate
    if share >= rule.min_rate:
        return ""
    least = f"the minimum of {percent(rule.min_rate)} (alert.min_rate)."
    if window.unknown_rate is None or not isfinite(share):
        return f"The unknown rate could not be estimated, so it does not reach {least}"
    return f"An unknown rate of {estimate(share)} is below {least}"


def _alerted_before(this: PastWindow, history: Iterable[PastWindow]) -> str:
    times = [past.alerted_at for past in history if past.bounds == this.bounds and past.alerted_at]
    return f"This window was alerted at {max(times):%Y-%m-%d %H:%M}." if times else ""


def _long_superseded(this: PastWindow, history: Iterable[PastWindow], rule: AlertSettings) -> str:
    """Refuse a backfill: an alert speaks of the present, which newer windows have shown.

    Windows that were merely finished out of order still alert, up to the cooldown or the rule's
    own span of windows, whichever is longer.
    """
    shown = [past for past in history if Verdict.of(past.verdict).is_assessed]
    newest = max((past.window_end for past in shown), default=this.window_end)
    span = max(rule.cooldown, rule.of * (this.window_end - this.window_start), timedelta())
    if newest - this.window_end <= span:
        return ""
    return (
        f"Windows up to {newest:%Y-%m-%d %H:%M} were processed already; an old window that is "
        "filled in later is recorded, but wakes nobody."
    )


def _counting(this: PastWindow, history: Iterable[PastWindow], rule: AlertSettings) -> int:
    """Count the windows that count among the last ones up to this."""
    by_time = {past.bounds: past for past in history if past.bounds < this.bounds}
    before = sorted(by_time.values(), key=lambda past: past.bounds)
    last = [*before, this][-rule.of :]
    return sum(not _does_not_count(window, rule) for window in last)


def _too_few_windows(counting: int, rule: AlertSettings) -> str:
    if counting >= rule.windows:
        return ""
    return f"Only {counting} of the last {counted(rule.of, 'window')} count; {rule.windows} must."


def _left_to_the_review(this: PastWindow) -> str:
    # A source that breaks while a review waits is another matter, and must not stay unseen.
    if not Verdict.of(this.verdict).is_assessed:
        return ""
    return "A challenger waits for review, and somebody was told."


def _cooling_down(
    this: PastWindow, history: Iterable[PastWindow], rule: AlertSettings, now: datetime
) -> str:
    told = [past.alerted_at for past in history if past.alerted_at and _covers(past, this)]
    last = max(told, default=None)
    if last is None or now - last >= rule.cooldown:
        return ""
    return f"The last alert was sent at {last:%Y-%m-%d %H:%M}, less than {rule.cooldown} ago."


def _covers(told: PastWindow, this: PastWindow) -> bool:
    """Tell whether who knows of one window need not yet hear of the other.

    An alert of drift must not hold back the news of a class that the model was never taught, nor
    a source that broke one way the news that it broke another way.
    """
    sent, new = Verdict.of(told.verdict), Verdict.of(this.verdict)
    if not (sent.is_assessed and new.is_assessed):
        return told.verdict == this.verdict
    return sent.traits.severity >= new.traits.severity


def _why_due(this: PastWindow, counting: int, rule: AlertSettings) -> str:
    windows = (
        f"{counting} of the last {counted(rule.of, 'window')}" if rule.of > 1 else "This window"
    )
    verb = "counts" if rule.of == 1 or counting == 1 else "count"
    return f"{windows} {verb}; the verdict is {verdict_text(this.verdict)}."
