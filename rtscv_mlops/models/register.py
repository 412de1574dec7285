"""`log_champion`: a model, its training data and signature, in the form that a monitor needs."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from rtscv_mlops.config.values import CHAMPION, RESERVED_ALIASES
from rtscv_mlops.errors import Code, ModelError, TrainingDataError
from rtscv_mlops.models import training
from rtscv_mlops.models.load import check_classifier
from rtscv_mlops.models.save import SavedModel, signature_of, store_model
from rtscv_mlops.models.signature import METADATA
from rtscv_mlops.models.trust import file_digest
from rtscv_mlops.tracking.client import Check, asking, get_or_none, unchecked
from rtscv_mlops.tracking.ledger import create_once
from rtscv_mlops.tracking.runs import DIGEST_LIMIT
from rtscv_mlops.window import LabelledRows

EXAMPLE_ROWS = 5


def log_champion(
    model: Any,
    X: Any,
    y: Any,
    *,
    name: str,
    alias: str | None = CHAMPION,
    replace: bool = False,
    holdout: tuple[Any, Any] | None = None,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    trusted_types: Collection[str] = (),
    allow_pickle: bool = False,
    params: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Log a fitted classifier with the data it was fitted on, register it, and return its version.

    The data is kept as a Parquet file on the model's run, so that a later refit starts from the
    same rows.

    Parameters
    ----------
    model : fitted classifier
        A scikit-learn compatible estimator or pipeline.
    X : DataFrame or array-like
        The rows that the model was fitted on. Columns of an array are called f0, f1, and so on.
    y : array-like
        One label for each row.
    name : str
        The registered model in MLflow. It is created if it does not exist.
    alias : str or None, default "champion"
        The alias of the version that serves. If another version has it, `replace` must be true.
        None sets no alias. `challenger` and `previous_champion` are reserved.
    replace : bool, default False
        Move the alias from the version that has it.
    holdout : tuple of (X, y), optional
        Rows and labels that the model was not fitted on.
    tracking_uri : str, optional
        MLflow's address; by default the one that MLflow is configured with.
    experiment : str, optional
        The experiment of the model's run; by default it has the name of the model.
    trusted_types : collection of str
        Types that skops may load, in addition to those that it trusts itself.
    allow_pickle : bool, default False
        Store a model that skops cannot store as a pickle, which runs code when it is loaded.
    params, metrics, tags : mapping, optional
        Logged on the model's run.

    Returns
    -------
    str
        The registered version.

    Raises
    ------
    ModelError
        If the alias is reserved or another version has it, or if the model is not a classifier
        that can be stored.
    TrainingDataError
        If there is not one label for each row.

    Examples
    --------
    >>> model = LogisticRegression().fit(X, y)  # doctest: +SKIP
    >>> rtscv_mlops.log_champion(model, X, y, name="fraud")  # doctest: +SKIP
    '1'
    """
    check_classifier(model, f"The model for {name!r}")
    if alias in RESERVED_ALIASES:
        raise ModelError(
            f"The alias {alias!r} is reserved for {RESERVED_ALIASES[alias]}. Nothing was logged. "
            "Choose another alias, or pass alias=None to set none.",
            code=Code.ALIAS_TAKEN,
        )
    rows, data = _label_rows(X, y)
    held_out = None if holdout is None else _label_rows(*holdout)[1]
    uri = tracking_uri or mlflow.get_tracking_uri()
    # Set for all of MLflow: its database registry asks the global server for a model's files.
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    client = MlflowClient(uri, uri)
    with asking(f"look for the model {name!r}"):
        registered = get_or_none(client.get_registered_model, name)
    if registered is not None and alias in registered.aliases and not replace:
        raise ModelError(
            f"Version {registered.aliases[alias]} of {name!r} has the alias {alias!r} already, and "
            "may be in production. Nothing was logged. Pass replace=True to move the alias, or "
            "alias=None to leave it.",
            code=Code.ALIAS_TAKEN,
        )
    with asking(f"log the model {name!r}"):
        title = experiment or name
        existing = client.get_experiment_by_name(title)
        experiment_id = existing.experiment_id if existing else client.create_experiment(title)
        run = client.create_run(experiment_id, tags=dict(tags or {}), run_name=f"{name} champion")
        run_id = str(run.info.run_id)
        try:
            _log_rows(client, run_id, data, training.TRAINING)
            if held_out is not None:
                _log_rows(client, run_id, held_out, training.EVALUATION)
            example = rows[:EXAMPLE_ROWS]
            saved = store_model(
                client,
                run_id,
                model,
                signature_of(rows, model.predict(example)),
                example,
                trusted_types=trusted_types,
                allow_pickle=allow_pickle,
                metadata={
                    METADATA: {
                        "columns": list(map(str, data.features.columns)),
                        "categories": list(data.features.select_dtypes("category").columns),
                    }
                },
            )
            for key, value in (params or {}).items():
                client.log_param(run_id, key, value)
            for key, number in (metrics or {}).items():
                client.log_metric(run_id, key, number)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id)
        version = _create_version(client, name, run_id, saved)
        if alias is not None:
            client.set_registered_model_alias(name, alias, version)
    return version


def _create_version(client: MlflowClient, name: str, run_id: str, saved: SavedModel) -> str:
    """Register a stored model, under a new name if need be; return its version."""
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    created: ModelVersion = create_once(
        lambda: next(iter(client.search_model_versions(f"run_id = '{run_id}'")), None),
        lambda: client.create_model_version(name, saved.uri, run_id, model_id=saved.model_id),
    )
    return str(created.version)


def log_fitted_on(
    client: MlflowClient,
    run_id: str,
    features: pd.DataFrame,
    labels: Any,
    check: Check = unchecked,
) -> None:
    """Keep what a rectified model was fitted on with its run, so that it can become champion."""
    _, data = _label_rows(features, labels)
    with asking(f"write the training data of run {run_id}"):
        _log_rows(client, run_id, data, training.TRAINING, check)


def _label_rows(X: Any, y: Any) -> tuple[Any, LabelledRows]:
    """Return rows as the model takes them, and as a table with labels."""
    from scipy import sparse

    if sparse.issparse(X):
        raise TrainingDataError(
            "X is a sparse matrix, whose columns have no names that a window could have. Give the "
            "table that it was made from, and make the matrix in a Pipeline."
        )
    is_table = isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns)
    rows: Any = X if is_table else np.asarray(X)
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(rows):
        raise TrainingDataError(
            f"X has {len(rows)} rows, and y has the shape {labels.shape}. Give one label per row."
        )
    if is_table:
        table = rows.reset_index(drop=True)
    else:
        flat = rows.reshape(len(rows), -1)
        table = pd.DataFrame(flat, columns=[f"f{index}" for index in range(flat.shape[1])])
    label = getattr(y, "name", None)
    label = label if isinstance(label, str) and label else "label"
    while label in table.columns:
        label += "_"
    return rows, LabelledRows(table, labels, label)


def _log_rows(
    client: MlflowClient, run_id: str, data: LabelledRows, context: str, check: Check = unchecked
) -> None:
    """Keep labelled rows as a file named by its digest, and log it as a dataset of the run."""
    table = data.features.assign(**{data.label: data.labels})
    with TemporaryDirectory(prefix="rtscv-") as folder:
        written = Path(folder) / "data.parquet"
        table.to_parquet(written, index=False)
        digest = file_digest(written)
        file = written.rename(Path(folder) / f"{digest}.parquet")
        check()
        client.log_artifact(run_id, str(file), context)
    description = training.describe_table(table)
    dataset = Dataset(
        name=context,
        digest=digest[:DIGEST_LIMIT],
        # The only kind of source with which MLflow follows an address on a run.
        source_type="local",
        source=json.dumps({"uri": f"runs:/{run_id}/{training.data_path(context, digest)}"}),
        schema=description["schema"],
        profile=description["profile"],
    )
    tags = {MLFLOW_DATASET_CONTEXT: context, training.SHA256: digest, training.LABEL: data.label}
    check()
    client.log_inputs(
        run_id, [DatasetInput(dataset, [InputTag(key, value) for key, value in tags.items()])]
    )
