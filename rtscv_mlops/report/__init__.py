"""The report of one window, and the drift figures in it, made with Evidently.

Knows facts, evidence and Evidently; knows nothing of models, registries or schedules.
"""

from rtscv_mlops.report.drift import compare_columns
from rtscv_mlops.report.page import write_report
from rtscv_mlops.report.plots import draw_plots

__all__ = ["compare_columns", "draw_plots", "write_report"]
