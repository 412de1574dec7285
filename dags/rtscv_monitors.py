"""Airflow DAGs: one for each monitor in the folder that RTSCV_MONITORS_DIR names.

Without that variable, the folder is `monitors` in Airflow's DAGs folder.
"""

from rtscv_mlops.airflow import build_dags

globals().update(build_dags())
