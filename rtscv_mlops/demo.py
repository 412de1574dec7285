"""The demo: two weeks of handwritten digits, from the first quiet day to a pending review."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import ModelError, NotAssessed
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.models.load import find_champion
from rtscv_mlops.models.register import log_champion
from rtscv_mlops.pipeline.run import Outcome, run_window
from rtscv_mlops.text import percent, unknown_share
from rtscv_mlops.tracking.client import connect, make_experiment
from rtscv_mlops.tracking.ledger import experiment_name
from rtscv_mlops.tracking.registry import save_report
from rtscv_mlops.window import Interval

if TYPE_CHECKING:
    from rich.console import Console

MODEL = "digits"
HIDDEN = (0, 6)
"""Digits that the champion is never taught."""

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
QUIET, DRIFT, UNKNOWNS = "nothing new", "dimmer lamp", "hidden digits"
TRAINING_ROWS = 700
DAY_ROWS = 500
LAMP = 0.7
"""Brightness of the scanner's lamp on drift days."""

SHARES = (0.0,) * 9 + (0.08, 0.12, 0.15, 0.18, 0.2)
"""Share of hidden digits, day by day."""
DRIFT_DAYS = range(5, 9)

MONITOR = """\
# Monitors the demo's model; see docs/monitor.md for all settings.
model:
  name: {model}
  tracking_uri: {tracking_uri}
source:
  path: windows/
  timestamp: scanned_at
  key: scan
labels:  # arrive later: rtscv-mlops score {file} --window 2026-01-18
  path: labels.parquet
  key: scan
  label: digit
"""


@dataclass(frozen=True, slots=True)
class Day:
    """One day of traffic: its rows, their true digits, and what is special about it."""

    interval: Interval
    rows: pd.DataFrame
    digits: NDArray[Any]
    story: str

    @property
    def true_share(self) -> float:
        return float(np.isin(self.digits, HIDDEN).mean())


def run_demo(folder: Path, console: "Console") -> list[WindowFacts]:
    """Train a champion, write two weeks of windows, judge each, and print the results."""
    from rich.box import SIMPLE_HEAD
    from rich.progress import track
    from rich.table import Table

    folder = folder.resolve()
    days = list(make_days())
    monitor = prepare(folder, days)
    console.print(
        f"A model of the digits {', '.join(str(d) for d in range(10) if d not in HIDDEN)} serves; "
        f"it was never taught {' and '.join(map(str, HIDDEN))}. Two weeks of scans follow.",
        highlight=False,
    )
    outcomes = [
        run_window(monitor, day.interval)
        for day in track(days, "Judging each day", console=console)
    ]
    table = Table(
        title="The fortnight", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for name in ("day", "what was done", "verdict", "unknowns", "truth", "version"):
        table.add_column(name, justify="right" if name == "truth" else "left")
    for day, outcome in zip(days, outcomes, strict=True):
        facts, unknowns = outcome.facts, "none"
        if facts.detected:
            unknowns = unknown_share(facts)
        table.add_row(
            f"{day.interval}",
            day.story,
            facts.verdict,
            unknowns.removeprefix("about "),
            percent(day.true_share),
            outcome.version or "",
        )
    console.print(table)
    for line in next_steps(folder, monitor, outcomes):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return [outcome.facts for outcome in outcomes]


def next_steps(folder: Path, monitor: Monitor, outcomes: list[Outcome]) -> list[str]:
    """Save the last report; return what to look at and what to type next."""
    shown = next((one for one in reversed(outcomes) if one.version), outcomes[-1])
    page = save_report(monitor, shown.run_id, folder)
    file = folder / "digits.yaml"
    return [
        f"Version {shown.version} waits for a person: rtscv-mlops review show {file}",
        f"  yes: rtscv-mlops review approve {file} --version {shown.version} --reason …",
        f"  no:  rtscv-mlops review reject {file} --version {shown.version} --reason …",
        f"Report of the last window: {page}",
        f"MLflow: mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db",
        f"Labels arrive later: rtscv-mlops score {file} --window 2026-01-18",
    ]


def make_days(first: datetime = MONDAY) -> Iterator[Day]:
    """Make two weeks of traffic from digits that the champion was not fitted on."""
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    _, known, hidden = _deal(digits)
    for number, share in enumerate(SHARES):
        n_hidden = round(share * DAY_ROWS)
        rows = np.concatenate(
            [
                rng.choice(known, DAY_ROWS - n_hidden, replace=False),
                rng.choice(hidden, n_hidden, replace=False),
            ]
        )
        rng.shuffle(rows)
        start = first + timedelta(days=number)
        is_dim = number in DRIFT_DAYS
        frame = as_frame(images[rows] * (LAMP if is_dim else 1.0))
        frame.insert(0, "scan", [f"{start:%Y%m%d}-{index:04}" for index in range(DAY_ROWS)])
        seconds = np.sort(rng.uniform(0, 86_400, DAY_ROWS)).round(3)
        frame.insert(1, "scanned_at", start + pd.to_timedelta(seconds, unit="s"))
        story = DRIFT if is_dim else UNKNOWNS if share else QUIET
        yield Day(Interval(start, start + timedelta(days=1)), frame, digits[rows], story)


def _deal(digits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the indices of training rows, of other known digits, and of hidden digits."""
    order = np.random.default_rng(7).permutation(len(digits))
    is_hidden = np.isin(digits[order], HIDDEN)
    known = order[~is_hidden]
    return known[:TRAINING_ROWS], known[TRAINING_ROWS:], order[is_hidden]


def training_rows() -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return the rows that the champion is trained on."""
    images, digits = load_digits(return_X_y=True)
    taught, _, _ = _deal(digits)
    return as_frame(images[taught]), digits[taught]


def as_frame(images: NDArray[Any]) -> pd.DataFrame:
    """Return images as a table of named pixels."""
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return pd.DataFrame(images, columns=names)


def prepare(
    folder: Path, days: list[Day], tracking_uri: str | None = None, more: str = ""
) -> Monitor:
    """Write windows, labels and monitor, and register the champion unless that was done before.

    `more` is added to the monitor's settings.
    """
    (folder / "windows").mkdir(parents=True, exist_ok=True)
    for day in days:
        partition = folder / "windows" / f"day={day.interval.start:%Y-%m-%d}"
        partition.mkdir(exist_ok=True)
        day.rows.to_parquet(partition / "scans.parquet", index=False)
    labels = [pd.DataFrame({"scan": day.rows["scan"], "digit": day.digits}) for day in days]
    pd.concat(labels).to_parquet(folder / "labels.parquet", index=False)
    tracking_uri = tracking_uri or f"sqlite:///{folder}/mlflow.db"
    file = folder / "digits.yaml"
    file.write_text(MONITOR.format(model=MODEL, tracking_uri=tracking_uri, file=file.name) + more)
    monitor = load_monitor(file)
    client = connect(monitor.model, create=True)
    try:
        find_champion(client, monitor.model)
    except (ModelError, NotAssessed):
        if client.tracking_uri.startswith("sqlite:"):  # A server decides where artifacts go.
            for experiment in (MODEL, experiment_name(MODEL)):
                make_experiment(client, experiment, (folder / "artifacts").as_uri())
        rows, digits = training_rows()
        champion = SVC().fit(rows, digits)
        log_champion(champion, rows, digits, name=MODEL, tracking_uri=monitor.model.tracking_uri)
    return monitor
