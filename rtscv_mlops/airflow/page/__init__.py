"""The pages that Airflow shows: all monitors, one window, and the decision on its challenger.

Every page is a GET; a decision goes to Airflow's own interface, as the user who is logged in.
"""
