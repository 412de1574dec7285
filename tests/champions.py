"""A registry in a folder, and small labelled tables, for tests of models that are stored."""

import mlflow
import numpy as np
import pandas as pd
from mlflow.tracking import MlflowClient
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rtscv_mlops import log_champion
from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.models.load import load_champion

EXPERIMENT = "champions"


def open_registry(folder):
    """An MLflow on SQLite that keeps its files in the folder, too."""
    uri = f"sqlite:///{folder}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    client = MlflowClient(uri, uri)
    client.create_experiment(EXPERIMENT, artifact_location=f"{folder}/artifacts")
    return client


def log(client, model, X, y, name, **given):
    """Fit and log a model."""
    return log_champion(
        model.fit(X, y),
        X,
        y,
        name=name,
        experiment=EXPERIMENT,
        tracking_uri=client.tracking_uri,
        **given,
    )


def champion_of(client, model, X, y, name, *, settings=(), **given):
    """Fit and log a model, and load it as a monitor would."""
    log(client, model, X, y, name, **given)
    return load_champion(client, ModelSettings(name=name, **dict(settings)))


def table(n_rows=90):
    """Numbers, text and categories, and three classes that the numbers tell apart."""
    rng = np.random.default_rng(0)
    codes = np.arange(n_rows) % 3
    frame = pd.DataFrame(
        {
            "height": rng.normal(codes, 0.2),
            "width": rng.normal(-codes, 0.2),
            "colour": rng.choice(["red", "green"], n_rows),
            "shape": pd.Categorical(rng.choice(["round", "flat"], n_rows)),
        }
    )
    return frame, codes


def mixed_pipeline():
    """A pipeline that takes columns by name: gaps filled, text and categories encoded."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["height", "width"]),
        (OneHotEncoder(handle_unknown="ignore"), ["colour", "shape"]),
    )
    return make_pipeline(columns, LogisticRegression())


def fit_forest(X, y):
    """A `fit` factory that works."""
    return RandomForestClassifier(5, random_state=0).fit(X, y)


class MajorityVote:
    """A model of somebody's own: no parameters, no classes, only an answer."""

    def __init__(self, answer):
        self.answer = answer

    def predict(self, X):
        return np.full(len(X), self.answer)


def fit_majority(X, y):
    """A `fit` factory whose model follows no convention."""
    labels, counts = np.unique(y, return_counts=True)
    return MajorityVote(labels[counts.argmax()])


def fit_nothing(X, y):
    """A `fit` factory that forgets to return its model."""


not_a_function = 3
