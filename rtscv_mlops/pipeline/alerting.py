"""Alerts: what the rule needs to know of earlier windows, and one message per window."""

import logging
import uuid
from dataclasses import asdict
from datetime import UTC, datetime

from rtscv_mlops import registry
from rtscv_mlops.alerts import (
    AlertDecision,
    PastWindow,
    decide_alert,
    make_alert,
    send_alert,
    was_delivered,
)
from rtscv_mlops.config import Monitor
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.registry import MlflowClient, RunSummary, WindowRun

ALERT = "rtscv.alert"

log = logging.getLogger(__name__)


def raise_alert(
    monitor: Monitor, client: MlflowClient, run: WindowRun, facts: WindowFacts
) -> AlertDecision:
    """Tell somebody where the rule says so, once for a window."""
    model, now = monitor.model.name, datetime.now(UTC)
    runs = registry.find_runs(client, model, monitor=monitor.name)
    history = [_past(one) for one in runs if one.run_id != run.run_id or one.alert]
    told = _review_was_told(client, model, runs)
    decision = decide_alert(
        facts,
        [past for past in history if past is not None],
        monitor.alert,
        now,
        open_review_alerted=told,
    )
    if decision.due:
        decision = _send(monitor, client, run, facts, decision)
    log.info("raise_alert: %s", decision.why)
    return decision


def _past(run: RunSummary) -> PastWindow | None:
    if run.window_start is None or run.window_end is None:
        return None
    alerted = datetime.fromisoformat(run.alert) if run.alert else None
    return PastWindow(
        run.window_start, run.window_end, run.verdict, run.unknown_rate, run.p_value, alerted
    )


def _review_was_told(client: MlflowClient, model: str, runs: list[RunSummary]) -> bool:
    """Tell whether a challenger waits, and somebody knows."""
    if not any(run.alert for run in runs):
        return False
    return registry.challenger(client, model) is not None


def _send(
    monitor: Monitor,
    client: MlflowClient,
    run: WindowRun,
    facts: WindowFacts,
    decision: AlertDecision,
) -> AlertDecision:
    """Send unless a rival does: the claim is per window and attempt, and an attempt may fail."""
    model, ourselves = monitor.model.name, uuid.uuid4().hex
    attempt = len(run.read_json("alert.json") or [])
    if registry.claim(client, model, f"alert.{facts.key}.{attempt}", ourselves) != ourselves:
        return AlertDecision(False, "Another process is sending this alert.")
    version = run.tags().get("rtscv.version")
    alert = make_alert(facts, decision, registry.links(client, run.run_id, model, version))
    sent = send_alert(alert, monitor.alert)
    tried = [*(run.read_json("alert.json") or []), [asdict(delivery) for delivery in sent]]
    run.write_json("alert.json", tried)
    if not was_delivered(sent):
        return AlertDecision(True, f"{decision.why} It could not be delivered; see alert.json.")
    run.set_tags({ALERT: datetime.now(UTC).isoformat()})
    return decision
