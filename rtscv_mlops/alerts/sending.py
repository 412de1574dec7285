"""Sends the alert of a window once, given what became of earlier windows."""

import logging
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from rtscv_mlops.alerts.alert import AlertDecision, PastWindow, decide_alert, make_alert
from rtscv_mlops.alerts.channels import Channel, send_alert, told_by, was_delivered
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.facts import Finding, FindingCode, WindowFacts
from rtscv_mlops.outcomes import ReviewStatus, Verdict
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.registry import ModelRegistry, find_links
from rtscv_mlops.tracking.runs import RunSummary, WindowRun, moment

TRIES = "alert.json"
"""Artifact with the deliveries of each try."""

PATIENCE = timedelta(minutes=2)
"""How long to wait for another process that claimed this alert before assuming that it died.

Longer than all channels may take together. A duplicate alert is better than a lost one.
"""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clock of another machine may be ahead before its times are not believed."""

log = logging.getLogger(__name__)


def alerted_at(run: RunSummary, now: datetime) -> datetime | None:
    """Return when the alert of a run was delivered; None if the tag is missing or not credible."""
    at = moment(run.alert)
    return at if at is not None and at <= now + CLOCK_TOLERANCE else None


def find_bad_times(runs: Iterable[RunSummary], now: datetime) -> list[Finding]:
    """Return a finding about alerts whose time cannot be read or is in the future."""
    bad = [run for run in runs if run.alert and alerted_at(run, now) is None]
    if not bad:
        return []
    times = "; ".join(f"{run.window}: {plain(run.alert, 40)!r}" for run in bad[:3])
    text = (
        f"The tag {tags.ALERT} of earlier windows holds no time, or one in the future ({times}). "
        "Those alerts are ignored when later ones are held back. Check the clocks of the workers, "
        "and who writes tags."
    )
    return [Finding(FindingCode.CLOCK, text)]


def raise_alert(
    monitor: Monitor,
    run: WindowRun,
    facts: WindowFacts,
    channels: tuple[Channel, ...] = (),
) -> AlertDecision:
    """Send an alert if the rule says so, once for a window."""
    registry, now = ModelRegistry.of(run.client, monitor.model), datetime.now(UTC)
    alerted = run.tags().get(tags.ALERTED)
    if facts.assessed and alerted and not Verdict.of(alerted).is_assessed:
        run.drop_tags(tags.OF_ALERTS)  # That alert was about a failure; the verdict is news.
    runs = registry.runs.find(monitor=monitor.name)
    others = [one for one in runs if one.run_id != run.run_id]
    history = [
        PastWindow(
            one.window_start,
            one.window_end,
            one.verdict,
            one.unknown_rate,
            one.p_value,
            alerted_at(one, now),
        )
        for one in runs
        if (one.run_id != run.run_id or one.alert) and one.window_start and one.window_end
    ]
    announced = review_was_announced(registry, others, now)
    decision = decide_alert(facts, history, monitor.alert, now, open_review_alerted=announced)
    if decision.due:
        decision = _Sender(monitor, registry, run, facts).send(decision, channels)
    log.info("raise_alert: %s", decision.why)
    return decision


def review_was_announced(registry: ModelRegistry, others: list[RunSummary], now: datetime) -> bool:
    """Return whether an alert of another window announced the review that is open now.

    A review stays the same one while newer challengers supersede older ones, until it is decided.
    """
    announced = {run.version for run in others if run.version and alerted_at(run, now)}
    if not announced:
        return False
    versions = reversed(registry.versions.all())
    # A version without a status was not offered yet.
    undecided = takewhile(
        lambda one: not one.review or ReviewStatus(one.review).is_undecided, versions
    )
    return any(one.version in announced for one in undecided)


def alert_is_owed(run: WindowRun) -> bool:
    """Return whether an alert was due that was not delivered."""
    recorded = run.tags()
    return tags.ALERT_DUE in recorded and tags.ALERT not in recorded


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends the alert of one window once, whichever process comes first."""

    monitor: Monitor
    registry: ModelRegistry
    run: WindowRun
    facts: WindowFacts

    def send(self, decision: AlertDecision, channels: tuple[Channel, ...]) -> AlertDecision:
        """Send unless another process does; a claim is for one try, since a try may fail."""
        run, facts = self.run, self.facts
        run.set_tags({tags.ALERT_DUE: decision.why})
        tried = run.read_json(TRIES) or []
        if not self._is_ours(len(tried)):
            return AlertDecision(False, "Another process has sent this alert.")
        version = run.tags().get(tags.VERSION, "")
        links = find_links(run, self.registry.model, version)
        if not facts.assessed:
            links = replace(links, report="")  # Without a verdict there is no report.
        alert = make_alert(facts, decision, links.labelled(), version)
        deliveries = send_alert(alert, self.monitor.alert, channels)
        if was_delivered(deliveries):
            run.set_tags({tags.ALERT: datetime.now(UTC).isoformat(), tags.ALERTED: facts.verdict})
        # Last, since it opens the next try, which must see that this one was delivered.
        run.write_json(TRIES, [*tried, [asdict(delivery) for delivery in deliveries]])
        return AlertDecision(True, f"{decision.why} {told_by(deliveries)}")

    def _is_ours(self, tried: int) -> bool:
        """Return whether this process is to send; claims a try, or waits for its holder.

        The holder may still be at work, or have been killed. After `PATIENCE` the next try is
        claimed, so that an alert is not lost with a process.
        """
        run = self.run
        while alert_is_owed(run):
            mine = f"{datetime.now(UTC).isoformat()} {uuid.uuid4().hex}"
            # By run as well: a failed window's key passes to another run, which has its own alert.
            held = self.registry.claim(f"alert.{self.facts.key}.{run.run_id}.{tried}", mine)
            if held == mine:
                return alert_is_owed(run)
            now = datetime.now(UTC)
            # The holder's clock may be ahead, and its claim may be damaged.
            until = min(moment(held.partition(" ")[0]) or now, now) + PATIENCE
            while datetime.now(UTC) < until and alert_is_owed(run):
                time.sleep(1)
            tried += 1
        return False
