"""Alerts: whether one is due, what it says, and the channels it goes through."""
