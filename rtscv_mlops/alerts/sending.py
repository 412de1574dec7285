"""Alerts: what the rule needs to know of earlier windows, and one message per window."""

import logging
import time
import uuid
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from rtscv_mlops.alerts.channels import Channel, send_alert, told_by, was_delivered
from rtscv_mlops.alerts.message import make_alert
from rtscv_mlops.alerts.rule import AlertDecision, PastWindow, decide_alert
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.outcomes import ReviewStatus, Verdict
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.record import find_links
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import RunSummary
from rtscv_mlops.tracking.window_run import WindowRun

TRIES = "alert.json"
"""Artifact with what became of each attempt to tell somebody."""

OPEN = ("", ReviewStatus.PENDING, ReviewStatus.SUPERSEDED)
"""States of a version whose review was not decided; the first is that of one not offered yet."""

PATIENCE = timedelta(minutes=2)
"""Time after which one who began to send an alert, and said no more of it, counts as dead.

Longer than all channels may take together, since an alert that comes twice is the lesser evil.
"""

log = logging.getLogger(__name__)


def raise_alert(
    monitor: Monitor,
    run: WindowRun,
    facts: WindowFacts,
    channels: tuple[Channel, ...] = (),
) -> AlertDecision:
    """Tell somebody where the rule says so, once for a window."""
    registry, now = ModelRegistry.of(run.client, monitor.model), datetime.now(UTC)
    alerted = run.tags().get(tags.ALERTED)
    if facts.assessed and alerted and not Verdict.of(alerted).is_assessed:
        run.drop_tags(tags.OF_ALERTS)  # The window failed late, and what it holds is news.
    runs = registry.runs.find(monitor=monitor.name)
    history = [_past(one) for one in runs if one.run_id != run.run_id or one.alert]
    told = _review_was_told(registry, [one for one in runs if one.run_id != run.run_id])
    decision = decide_alert(
        facts,
        [past for past in history if past is not None],
        monitor.alert,
        now,
        open_review_alerted=told,
    )
    if decision.due:
        decision = _send(monitor, registry, run, facts, decision, channels)
    log.info("raise_alert: %s", decision.why)
    return decision


def _past(run: RunSummary) -> PastWindow | None:
    if run.window_start is None or run.window_end is None:
        return None
    alerted = datetime.fromisoformat(run.alert) if run.alert else None
    return PastWindow(
        run.window_start, run.window_end, run.verdict, run.unknown_rate, run.p_value, alerted
    )


def _review_was_told(registry: ModelRegistry, others: list[RunSummary]) -> bool:
    """Tell whether an alert of another window announced the review that is open now.

    A review stays the same one while newer challengers supersede older ones, until it is decided.
    """
    announced = {run.version for run in others if run.alert and run.version}
    if not announced:
        return False
    versions = reversed(registry.versions.all())
    undecided = takewhile(lambda one: one.review in OPEN, versions)
    return any(one.version in announced for one in undecided)


def alert_is_owed(run: WindowRun) -> bool:
    """Tell whether an alert was due that nobody got."""
    known = run.tags()
    return tags.ALERT_DUE in known and tags.ALERT not in known


def _send(
    monitor: Monitor,
    registry: ModelRegistry,
    run: WindowRun,
    facts: WindowFacts,
    decision: AlertDecision,
    channels: tuple[Channel, ...],
) -> AlertDecision:
    """Send unless a rival does: the claim is per window and try, and a try may fail."""
    run.set_tags({tags.ALERT_DUE: decision.why})
    tried = run.read_json(TRIES) or []
    if not _is_ours_to_send(registry, run, facts.key, len(tried)):
        return AlertDecision(False, "Another process has sent this alert.")
    version = run.tags().get(tags.VERSION, "")
    links = find_links(run, registry.model, version)
    if not facts.assessed:
        links = replace(links, report="")  # Where nothing was judged there is none.
    alert = make_alert(facts, decision, links.labelled(), version)
    sent = send_alert(alert, monitor.alert, channels)
    if was_delivered(sent):
        told = {tags.ALERT: datetime.now(UTC).isoformat(), tags.ALERTED: facts.verdict}
        run.set_tags(told)
    # Last, since it opens the next attempt: who makes that one must see that this was delivered.
    run.write_json(TRIES, [*tried, [asdict(delivery) for delivery in sent]])
    return AlertDecision(True, f"{decision.why} {told_by(sent)}")


def _is_ours_to_send(registry: ModelRegistry, run: WindowRun, key: str, tried: int) -> bool:
    """Claim a try, or wait for who holds it; one who is silent for too long is passed over.

    Who holds it may be a rival at work, or have been killed: an alert must not be lost with it.
    """
    while alert_is_owed(run):
        mine = f"{datetime.now(UTC).isoformat()} {uuid.uuid4().hex}"
        # A key that came to nothing is given on to another run, whose alert is another one.
        held = registry.claim(f"alert.{key}.{run.run_id}.{tried}", mine)
        if held == mine:
            return alert_is_owed(run)
        _wait_for_rival(run, datetime.fromisoformat(held.split()[0]) + PATIENCE)
        tried += 1
    return False


def _wait_for_rival(run: WindowRun, until: datetime) -> None:
    while datetime.now(UTC) < until and alert_is_owed(run):
        time.sleep(1)
