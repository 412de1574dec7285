"""The page *Unknowns* in Airflow."""
