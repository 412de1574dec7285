"""Airflow plugin: the page Unknowns, where people see what is new and decide on challengers."""

from rtscv_mlops.airflow.plugin import RtscvPlugin

__all__ = ["RtscvPlugin"]
