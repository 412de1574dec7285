"""Real data sets, from a folder or from OpenML; none of them is part of this repository.

`RTSCV_DATA_DIR` names the folder; docs/estimator.md says what its files hold. Where one is missing,
OpenML is asked, and where that does not have the set either, the error says so.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import LabelEncoder

from rtscv_mlops.errors import InputError

OPENML = {"letter": ("letter", 1), "pendigits": ("pendigits", 1), "mnist": ("mnist_784", 1)}
TRAINING_ROWS = {"letter": 16_000, "pendigits": 7_494, "mnist": 60_000}
"""Rows of the published training part, which comes first."""
ORIGINS = {
    "nsl_kdd": "NSL-KDD comes from the Canadian Institute for Cybersecurity (columns: the 41 "
    "features, label, category, difficulty, split)",
    "gas_drift_8of10": "Gas Sensor Array Drift comes from the UCI repository (columns: f0 to f127, "
    "label, concentration_ppm, batch)",
}
"""Where tables come from, and what they hold."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Features, labels 0, 1, … and, where one was published, which rows are for training."""

    name: str
    X: NDArray
    y: NDArray
    is_training: NDArray | None


@cache
def load(name: str) -> Dataset:
    """Return a data set; `mnist50` and `coil20` are the principal components of images."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return Dataset(name, X, y, None)
    if name == "mnist50":
        full = load("mnist")
        some = np.random.default_rng(0).permutation(len(full.X))[:10_000]
        pca = PCA(50, svd_solver="randomized", random_state=0).fit(full.X[some])
        return Dataset(name, pca.transform(full.X), full.y, full.is_training)
    X, y = _read(name)
    if name == "coil20":
        return Dataset(name, PCA(55, random_state=0).fit_transform(X), y, None)
    return Dataset(name, X, y, np.arange(len(y)) < TRAINING_ROWS[name])


def load_table(name: str) -> pd.DataFrame:
    """Return a table as it is stored: `nsl_kdd` or `gas_drift_8of10`."""
    path = _folder() / f"{name}.parquet"
    if path.exists():
        return pd.read_parquet(path)
    raise InputError(
        f"{path} does not exist. {ORIGINS[name]}: store it as Parquet under that name, and name "
        "the folder in RTSCV_DATA_DIR."
    )


def _folder() -> Path:
    return Path(os.environ.get("RTSCV_DATA_DIR", "data"))


def _read(name: str) -> tuple[NDArray, NDArray]:
    table, arrays = _folder() / f"{name}.parquet", _folder() / f"{name}.npz"
    if table.exists():
        frame = pd.read_parquet(table)
        features = frame.drop(columns=["label", "split"])
        return features.to_numpy(np.float64), LabelEncoder().fit_transform(frame["label"])
    if arrays.exists():
        return _read_images(arrays)
    if name in OPENML:
        data_id, version = OPENML[name]
        try:
            X, y = fetch_openml(data_id, version=version, return_X_y=True, as_frame=False)
        except OSError as error:
            raise InputError(
                f"Neither {table} nor {arrays} exists, and OpenML did not answer ({error}). "
                "Name the folder that holds the file in RTSCV_DATA_DIR."
            ) from error
        scale = 255 if name == "mnist" else 1
        return X.astype(np.float32) / scale, LabelEncoder().fit_transform(y)
    raise InputError(
        f"Neither {table} nor {arrays} exists, and OpenML does not have {name!r}. COIL-20 comes "
        "from Columbia University's image library (CUCS-005-96): store its 32 x 32 version as "
        "arrays x (1440, 32, 32) and y in coil20.npz, and name the folder in RTSCV_DATA_DIR."
    )


def _read_images(path: Path) -> tuple[NDArray, NDArray]:
    with np.load(path, allow_pickle=False) as arrays:
        parts = ("x_train", "x_test") if "x_train" in arrays else ("x",)
        X = np.concatenate([arrays[part] for part in parts])
        y = np.concatenate([arrays[part.replace("x", "y", 1)] for part in parts])
    flat = X.reshape(len(X), -1).astype(np.float32)
    return flat / flat.max(), LabelEncoder().fit_transform(y)
