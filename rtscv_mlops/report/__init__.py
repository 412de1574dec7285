"""The report of one window, and the drift figures in it, made with Evidently.

Knows facts, evidence and Evidently; knows nothing of models, registries or schedules.
"""

from rtscv_mlops.report.drift import compare_columns
from rtscv_mlops.report.page import write_report

__all__ = ["compare_columns", "write_report"]
