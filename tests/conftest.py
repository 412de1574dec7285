"""What every test shares: no vendor reports usage from a test run, however pytest was started."""

import os

# At import, not in a fixture: the vendors read these when they are imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
