"""Stories, each of which is run by a test too; what takes minutes is run there on fewer rows."""

import os

# Vendors read these when they are loaded: no usage reports from an example.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
