"""MLflow: the champion and its training data, one run per window, challengers, decisions."""

from mlflow.tracking import MlflowClient

from rtscv_mlops.registry import tags
from rtscv_mlops.registry.champion import Champion, find_champion, load_champion, read_columns
from rtscv_mlops.registry.connection import (
    connect,
    greet,
    is_open,
    links,
    make_experiment,
    open_client,
    server_version,
)
from rtscv_mlops.registry.files import model_digest
from rtscv_mlops.registry.labels import check_training_data
from rtscv_mlops.registry.ledger import claim, experiment_name, single_attempt
from rtscv_mlops.registry.models import save_rectified, verify_version
from rtscv_mlops.registry.pages import describe_version, noted, read_description
from rtscv_mlops.registry.promotion import (
    History,
    history,
    promote,
    record_decision,
    roll_back,
    rolled_back_version,
    undo_roll_back,
)
from rtscv_mlops.registry.refit import as_estimator
from rtscv_mlops.registry.register import log_champion, log_fitted_on
from rtscv_mlops.registry.runs import RunSummary, WindowRun, find_runs, open_run
from rtscv_mlops.registry.training import (
    TrainingData,
    is_rectified,
    load_training_data,
)
from rtscv_mlops.registry.versions import (
    VersionSummary,
    aliased_versions,
    challenger,
    expire_review,
    find_alias,
    find_version,
    find_versions,
    offer_version,
    outdate_review,
    register_version,
)
from rtscv_mlops.registry.window_run import TAKEN_OVER

__all__ = [
    "TAKEN_OVER",
    "Champion",
    "History",
    "MlflowClient",
    "RunSummary",
    "TrainingData",
    "VersionSummary",
    "WindowRun",
    "aliased_versions",
    "as_estimator",
    "challenger",
    "check_training_data",
    "claim",
    "connect",
    "describe_version",
    "experiment_name",
    "expire_review",
    "find_alias",
    "find_champion",
    "find_runs",
    "find_version",
    "find_versions",
    "greet",
    "history",
    "is_open",
    "is_rectified",
    "links",
    "load_champion",
    "load_training_data",
    "log_champion",
    "log_fitted_on",
    "make_experiment",
    "model_digest",
    "noted",
    "offer_version",
    "open_client",
    "open_run",
    "outdate_review",
    "promote",
    "read_columns",
    "read_description",
    "record_decision",
    "register_version",
    "roll_back",
    "rolled_back_version",
    "save_rectified",
    "server_version",
    "single_attempt",
    "tags",
    "undo_roll_back",
    "verify_version",
]
