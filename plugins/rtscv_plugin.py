"""Airflow plugin: the page Unknowns, where people see what is new and decide on challengers.

Airflow finds the plugin of an installed package by itself, and takes a second one of the same name
for a mistake. This file is for a package that is only on the path, and does nothing elsewhere.
"""

from importlib.metadata import entry_points

if "rtscv" not in entry_points(group="airflow.plugins").names:
    from rtscv_mlops.airflow.plugin import RtscvPlugin

    __all__ = ["RtscvPlugin"]
