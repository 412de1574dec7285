"""Many small monitors: a model each, and a few days of handwritten digits in an object store.

Each model is taught eight of the ten digits. Most days hold what it was taught; on one day in five
a fifth of the rows is one of the digits that it was not.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import s3fs
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from rtscv_mlops import log_champion
from rtscv_mlops.demo import as_frame
from rtscv_mlops.window import Interval
from tools.stack import Stack

BUCKET = "served"
TRAINING_ROWS, WINDOW_ROWS, SHARE = 600, 300, 0.2
NEW_EVERY = 5
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAILY = "0 0 * * *"
LEAP_DAYS = "0 0 29 2 *"
"""So seldom that no run of Airflow's own comes between those that are asked for."""

MONITOR = """\
model:
  name: {name}
  tracking_uri: {mlflow}
source:
  path: s3://{bucket}/{name}/
  timestamp: scanned_at
  storage_options: {{endpoint_url_env: STORE_URL, key_env: STORE_KEY, secret_env: STORE_SECRET}}
airflow:
  schedule: {schedule}
  start: {start:%Y-%m-%d}
  catchup: {catchup}
  retries: 1
  retry_delay: 2s
  max_active_runs: 100
"""


@dataclass(frozen=True)
class Watched:
    """One monitored model; `number` decides what it is taught and what its days hold."""

    number: int
    windows: int

    @property
    def name(self) -> str:
        return f"digits-{self.number:03d}"

    @property
    def dag_id(self) -> str:
        return f"rtscv__{self.name}"

    @property
    def hidden(self) -> tuple[int, int]:
        """Digits that the model is not taught."""
        return self.number % 10, (self.number + 3) % 10

    @property
    def days(self) -> list[Interval]:
        first = TODAY - timedelta(days=self.windows)
        starts = [first + timedelta(days=day) for day in range(self.windows)]
        return [Interval(start, start + timedelta(days=1)) for start in starts]

    def is_new(self, day: int) -> bool:
        """Return whether a day holds a digit that the model was not taught."""
        return (self.number + day) % NEW_EVERY == NEW_EVERY - 1


def make_fleet(monitors: int, windows: int) -> list[Watched]:
    """Return that many monitors, with that many days each."""
    return [Watched(number, windows) for number in range(monitors)]


def prepare(stack: Stack, fleet: list[Watched], *, catchup: bool = True) -> None:
    """Register every model, write its days to the object store, and write its monitor."""
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    store = s3fs.S3FileSystem(
        endpoint_url=stack.more["STORE_URL"],
        key=stack.more["STORE_KEY"],
        secret=stack.more["STORE_SECRET"],
        skip_instance_cache=True,
    )
    store.mkdir(BUCKET)
    for watched in fleet:
        rows, digits = _training(watched)
        log_champion(
            SVC().fit(rows, digits), rows, digits, name=watched.name, tracking_uri=stack.mlflow
        )
        for interval, frame in _windows(watched):
            with store.open(
                f"{BUCKET}/{watched.name}/{interval.start:%Y-%m-%d}.parquet", "wb"
            ) as f:
                frame.to_parquet(f, index=False)
        text = MONITOR.format(
            name=watched.name,
            mlflow=stack.mlflow,
            bucket=BUCKET,
            schedule=DAILY if catchup else LEAP_DAYS,
            start=watched.days[0].start,
            catchup=str(catchup).lower(),
        )
        Path(stack.monitors, f"{watched.name}.yaml").write_text(text)


def _training(watched: Watched) -> tuple[pd.DataFrame, np.ndarray]:
    images, digits = load_digits(return_X_y=True)
    taught, _, _ = _split(watched, digits)
    return as_frame(images[taught]), digits[taught]


def _windows(watched: Watched) -> Iterator[tuple[Interval, pd.DataFrame]]:
    images, digits = load_digits(return_X_y=True)
    _, unseen, new = _split(watched, digits)
    random = np.random.default_rng(watched.number)
    for day, interval in enumerate(watched.days):
        strange = round(SHARE * WINDOW_ROWS) if watched.is_new(day) else 0
        rows = np.concatenate(
            [
                random.choice(unseen, WINDOW_ROWS - strange, replace=False),
                random.choice(new, strange, replace=False),
            ]
        )
        frame = as_frame(images[rows])
        seconds = np.sort(random.uniform(0, 86_400, WINDOW_ROWS)).round(3)
        frame.insert(0, "scanned_at", interval.start + pd.to_timedelta(seconds, unit="s"))
        yield interval, frame


def _split(watched: Watched, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the places of rows that are taught, of others of the same digits, of a new digit."""
    order = np.random.default_rng(watched.number).permutation(len(digits))
    known = order[~np.isin(digits[order], watched.hidden)]
    new = order[digits[order] == watched.hidden[0]]
    return known[:TRAINING_ROWS], known[TRAINING_ROWS:], new
