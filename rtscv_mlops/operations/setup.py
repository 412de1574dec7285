"""Sets a monitor up: its file, and a champion with its training data."""

from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.config.schema import SCHEMA_FILE, monitor_template, schema_text
from rtscv_mlops.errors import ConfigError, TrainingDataError
from rtscv_mlops.estimator.learner import find_factory
from rtscv_mlops.models.load import read_columns
from rtscv_mlops.models.register import log_champion
from rtscv_mlops.sources.read import read_training_file
from rtscv_mlops.tracking.client import connect

SQLITE = "sqlite:///"


def write_monitor(model: str, path: Path, tracking_uri: str | None = None) -> Path:
    """Write a commented monitor file for a registered model; an existing file is left alone."""
    if path.exists():
        raise ConfigError(f"{path} exists already. Choose another file, or remove it.")
    settings = _settings(name=model, tracking_uri=tracking_uri)
    columns = read_columns(connect(settings), settings)
    template = monitor_template(model, columns, tracking_uri=settings.tracking_uri)
    path.write_text(template)
    (path.parent / SCHEMA_FILE).write_text(schema_text())
    return path


def _settings(**given: Any) -> ModelSettings:
    """Return settings from a command line; the path of an SQLite file becomes absolute."""
    uri = given.get("tracking_uri")
    if uri and uri.startswith(SQLITE) and not uri.startswith(f"{SQLITE}/"):
        given["tracking_uri"] = f"{SQLITE}{Path(uri.removeprefix(SQLITE)).resolve()}"
    try:
        return ModelSettings(**given)
    except ValidationError as error:
        problems = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"The options cannot be used: {problems}.") from error


def register_champion(
    model: str,
    training: Path,
    label: str,
    estimator: str,
    *,
    holdout: Path | None = None,
    tracking_uri: str | None = None,
    replace: bool = False,
    allow_pickle: bool = False,
) -> str:
    """Log a model with its training data as champion; return its version."""
    settings = _settings(name=model, tracking_uri=tracking_uri, allow_pickle=allow_pickle)
    client = connect(settings, create=True)
    features, labels = _read_labelled(training, label)
    champion = find_factory(estimator)()
    try:
        check_is_fitted(champion)
    except NotFittedError:
        champion.fit(features, labels)
    return log_champion(
        champion,
        features,
        labels,
        name=model,
        holdout=None if holdout is None else _read_labelled(holdout, label),
        tracking_uri=client.tracking_uri,
        replace=replace,
        allow_pickle=allow_pickle,
    )


def _read_labelled(path: Path, label: str) -> tuple[pd.DataFrame, pd.Series]:
    table = read_training_file(path)
    if label not in table.columns:
        raise TrainingDataError(
            f"{path} has no column {label!r} to take labels from. It has: "
            f"{', '.join(map(str, table.columns[:20]))}."
        )
    return table.drop(columns=label), table[label]
