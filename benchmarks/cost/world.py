"""The job that is measured: a day of served rows, 20 numbers and 5 texts, and an SVM that serves.

Knows how to make rows, files and champions; measures nothing.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

DAY = "2026-01-05"
NUMBERS = [f"number_{index}" for index in range(20)]
TEXTS = [f"text_{index}" for index in range(5)]
KNOWN, HIDDEN = 24, 2
TRAINING_ROWS, HELD_OUT_ROWS = 15_000, 3_000
UNKNOWN_RATE = 0.05
PIECE = 250_000
MONITOR = """\
model:
  name: {model}
  tracking_uri: {tracking}
source:
  path: {rows}/
  timestamp: served_at
"""


def make_rows(labels: NDArray[np.intp], random: np.random.Generator) -> pd.DataFrame:
    """Return a row per label: a Gaussian for each class, and words that hint at it."""
    centres = np.random.default_rng(7).normal(scale=1.2, size=(KNOWN + HIDDEN, len(NUMBERS)))
    numbers = centres[labels] + random.standard_normal((len(labels), len(NUMBERS)))
    frame = pd.DataFrame(numbers, columns=NUMBERS)
    for place, name in enumerate(TEXTS):
        codes = (labels * (place + 1) + random.integers(0, 5, len(labels))) % 20
        frame[name] = pd.Categorical.from_codes(codes, [f"value {code}" for code in range(20)])
    return frame


def known_rows(rows: int, seed: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return rows of known classes, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, KNOWN, rows)
    frame = make_rows(labels, random)
    frame[TEXTS] = frame[TEXTS].astype(str)
    return frame, np.array([f"class {label:02d}" for label in labels])


def write_window(folder: Path, rows: int, seed: int = 0) -> None:
    """Write one day, of which a share is of classes that the model was not taught."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    start = pd.Timestamp(DAY, tz="UTC")
    for piece, first in enumerate(range(0, rows, PIECE)):
        size = min(PIECE, rows - first)
        is_new = random.random(size) < UNKNOWN_RATE
        labels = np.where(
            is_new, KNOWN + random.integers(0, HIDDEN, size), random.integers(0, KNOWN, size)
        )
        frame = make_rows(labels, random)
        seconds = 86_400 * (first + np.arange(size)) / rows
        frame["served_at"] = start + pd.to_timedelta(seconds, unit="s")
        frame.to_parquet(folder / f"piece-{piece:03d}.parquet", index=False)


def make_champion(kind: str = "SVM") -> Any:
    """Return a classifier for these rows that is not fitted yet."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC

    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), TEXTS), (StandardScaler(), NUMBERS)
    )
    return make_pipeline(columns, SVC(C=10) if kind == "SVM" else LogisticRegression(max_iter=300))


def log_model(tracking: str, model: str, kind: str = "SVM", rows: int = TRAINING_ROWS) -> None:
    """Register a champion with its training data and rows that were held out."""
    from rtscv_mlops import log_champion

    taught, labels = known_rows(rows, seed=1)
    fitted = make_champion(kind).fit(taught, labels)
    log_champion(
        fitted,
        taught,
        labels,
        name=model,
        tracking_uri=tracking,
        holdout=known_rows(HELD_OUT_ROWS, seed=2),
    )


def write_monitor(file: Path, model: str, tracking: str, rows: str) -> Path:
    """Write the monitor of a champion and a folder of windows."""
    file.write_text(MONITOR.format(model=model, tracking=tracking, rows=rows))
    return file
