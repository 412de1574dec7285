"""MLflow: the champion and its training data, one run per window, challengers, decisions."""
