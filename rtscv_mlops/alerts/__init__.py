"""Alerts: whether one is due, what it says, and the ways out of the house."""

from rtscv_mlops.alerts.channels import Channel, Delivery, send_alert, told_by, was_delivered
from rtscv_mlops.alerts.message import Alert, make_alert
from rtscv_mlops.alerts.rule import AlertDecision, PastWindow, decide_alert

__all__ = [
    "Alert",
    "AlertDecision",
    "Channel",
    "Delivery",
    "PastWindow",
    "decide_alert",
    "make_alert",
    "send_alert",
    "told_by",
    "was_delivered",
]
