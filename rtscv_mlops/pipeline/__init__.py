"""The stages of one window, in order.

take_window -> rectify_window -> write_report -> register_challenger -> raise_alert, then
review_challenger -> promote. The Airflow tasks and the commands are thin skins over this.
"""
