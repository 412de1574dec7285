"""Golden files: what the commands print and write, frozen so that a rebuild can be compared.

Uses what users have: the command line, MLflow, Airflow and the files that a run leaves. Knows no
inner module of the package, so that all of them may change.
"""
