"""What `airflow providers` says of this package."""

from typing import Any

import rtscv_mlops

INTEGRATION = "RTSCV"


def get_provider_info() -> dict[str, Any]:
    """Return the description that Airflow asks a provider for, in the names of its schema."""
    return {
        "package-name": "rtscv-mlops",
        "name": INTEGRATION,
        "description": "Finds rows of classes that a deployed model was never taught.",
        "versions": [rtscv_mlops.__version__],
        "integrations": [{"integration-name": INTEGRATION, "tags": ["software"]}],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": ["rtscv_mlops.airflow.review_operator"],
            }
        ],
        "triggers": [
            {"integration-name": INTEGRATION, "python-modules": ["rtscv_mlops.airflow.trigger"]}
        ],
    }
