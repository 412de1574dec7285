"""`log_champion`: a model, its training data and signature, in the form that a monitor needs."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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

from rtscv_mlops.config.values import CHAMPION
from rtscv_mlops.errors import Code, ModelError, TrainingDataError
from rtscv_mlops.models import training
from rtscv_mlops.models.load import check_classifier
from rtscv_mlops.models.save import SavedModel, signature_of, store_model
from rtscv_mlops.models.signature import METADATA
from rtscv_mlops.models.trust import file_digest
from rtscv_mlops.tracking.client import Check, asking, get_or_none, unchecked
from rtscv_mlops.tracking.ledger import create_once
from rtscv_mlops.tracking.runs import DIGEST_LIMIT

EXAMPLE_ROWS = 5


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Rows as the model takes them (`given`), and as a table with its labels (`table`)."""

    given: Any
    table: pd.DataFrame
    label: str

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in self.table.columns if name != self.label]

    @property
    def categories(self) -> list[str]:
        return [str(name) for name in self.table.select_dtypes("category").columns]


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
        The registered model in MLflow; it is created if there is none.
    alias : str or None, default "champion"
        The alias of the version that serves. It is set only if no version has it, or with
        `replace`; None sets none.
    replace : bool, default False
        Move the alias from the version that has it.
    holdout : tuple of (X, y), optional
        Rows and labels that the model was not fitted on.
    tracking_uri : str, optional
        MLflow's address; by default the one that MLflow is configured with.
    experiment : str, optional
        The experiment of the model's run; by default it is called like the model.
    trusted_types : collection of str
        Types that skops may load, beyond those that it trusts itself.
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
        If another version has the alias, or the model is not a classifier that can be stored.
    TrainingDataError
        If rows and labels do not fit together.

    Examples
    --------
    >>> model = LogisticRegression().fit(X, y)  # doctest: +SKIP
    >>> rtscv_mlops.log_champion(model, X, y, name="fraud")  # doctest: +SKIP
    '1'
    """
    check_classifier(model, f"The model for {name!r}")
    data = _label_rows(X, y)
    held_out = _label_rows(*holdout) if holdout is not None else None
    client = _connect(tracking_uri or mlflow.get_tracking_uri())
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
        run_id = _start_run(client, name, experiment, tags)
        try:
            saved = _fill_run(client, run_id, model, data, held_out, trusted_types, allow_pickle)
            for key, value in (params or {}).items():
                client.log_param(run_id, key, value)
            for key, number in (metrics or {}).items():
                client.log_metric(run_id, key, number)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id)
        return _register(client, name, alias, run_id, saved)


def _connect(uri: str) -> MlflowClient:
    # Set for all of MLflow: its database registry asks the global server for a model's files.
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    return MlflowClient(uri, uri)


def _start_run(
    client: MlflowClient, name: str, experiment: str | None, tags: Mapping[str, str] | None
) -> str:
    title = experiment or name
    found = client.get_experiment_by_name(title)
    experiment_id = found.experiment_id if found else client.create_experiment(title)
    run = client.create_run(experiment_id, tags=dict(tags or {}), run_name=f"{name} champion")
    return str(run.info.run_id)


def _fill_run(
    client: MlflowClient,
    run_id: str,
    model: Any,
    data: _Labelled,
    held_out: _Labelled | None,
    trusted_types: Collection[str],
    allow_pickle: bool,
) -> SavedModel:
    _log_data(client, run_id, data, training.TRAINING)
    if held_out is not None:
        _log_data(client, run_id, held_out, training.EVALUATION)
    example = data.given[:EXAMPLE_ROWS]
    return store_model(
        client,
        run_id,
        model,
        signature_of(data.given, model.predict(example)),
        example,
        trusted_types=trusted_types,
        allow_pickle=allow_pickle,
        metadata={METADATA: {"columns": data.columns, "categories": data.categories}},
    )


def _register(
    client: MlflowClient, name: str, alias: str | None, run_id: str, saved: SavedModel
) -> str:
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    created: ModelVersion = create_once(
        lambda: next(iter(client.search_model_versions(f"run_id = '{run_id}'")), None),
        lambda: client.create_model_version(name, saved.uri, run_id, model_id=saved.model_id),
    )
    version = str(created.version)
    if alias is not None:
        client.set_registered_model_alias(name, alias, version)
    return version


# -- data


def _label_rows(X: Any, y: Any) -> _Labelled:
    from scipy import sparse

    if sparse.issparse(X):
        raise TrainingDataError(
            "X is a sparse matrix, which has no columns that a window's table could have. Give the "
            "table it was made from, and make the matrix in a Pipeline."
        )
    is_table = isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns)
    rows: Any = X if is_table else np.asarray(X)
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(rows):
        raise TrainingDataError(
            f"X has {len(rows)} rows and y the shape {labels.shape}. Give one label per row."
        )
    table = rows.reset_index(drop=True) if is_table else _as_table(rows)
    label = _free_name(getattr(y, "name", None), table)
    return _Labelled(rows, table.assign(**{label: labels}), label)


def _as_table(rows: Any) -> pd.DataFrame:
    flat = rows.reshape(len(rows), -1)
    return pd.DataFrame(flat, columns=[f"f{place}" for place in range(flat.shape[1])])


def _free_name(name: Any, table: pd.DataFrame) -> str:
    label = name if isinstance(name, str) and name else "label"
    while label in table.columns:
        label += "_"
    return label


def log_fitted_on(
    client: MlflowClient,
    run_id: str,
    features: pd.DataFrame,
    labels: Any,
    check: Check = unchecked,
) -> None:
    """Keep what a rectified model was fitted on with its run, so that it can be champion too."""
    with asking(f"write the training data of run {run_id}"):
        _log_data(client, run_id, _label_rows(features, labels), training.TRAINING, check)


def _log_data(
    client: MlflowClient, run_id: str, data: _Labelled, context: str, check: Check = unchecked
) -> None:
    """Keep a table as a file that is named by its digest, and log it as an input of the run."""
    with TemporaryDirectory(prefix="rtscv-") as folder:
        written = Path(folder) / "data.parquet"
        data.table.to_parquet(written, index=False)
        digest = file_digest(written)
        file = written.rename(Path(folder) / f"{digest}.parquet")
        check()
        client.log_artifact(run_id, str(file), context)
    described = training.described(data.table)
    dataset = Dataset(
        name=context,
        digest=digest[:DIGEST_LIMIT],
        # Of all kinds of source, MLflow follows an address on a run by this one only.
        source_type="local",
        source=json.dumps({"uri": f"runs:/{run_id}/{training.data_path(context, digest)}"}),
        schema=described["schema"],
        profile=described["profile"],
    )
    named = {MLFLOW_DATASET_CONTEXT: context, training.SHA256: digest, training.LABEL: data.label}
    tags = [InputTag(key, value) for key, value in named.items()]
    check()
    client.log_inputs(run_id, [DatasetInput(dataset, tags)])
