"""What the larger stories share: windows on disk, a champion in MLflow, verdicts beside the truth.

Uses the pipeline as its users do.
"""

import logging
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rtscv_mlops import (
    Interval,
    Monitor,
    Outcome,
    RtscvError,
    WindowFacts,
    load_monitor,
    log_champion,
    run_window,
    save_report,
    score_window,
)

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
"""The days of the windows are invented, one for each window from this one on."""

WIDTH = 110
RIGHT = ("rows", "accuracy", "truth", "precision", "recall")
COLUMNS = (
    "window",
    "rows",
    "accuracy",
    "verdict",
    "right",
    "unknowns",
    "truth",
    "precision",
    "recall",
)
CAPTION = (
    "accuracy: of the champion, on rows of classes that it was taught. right: whether the verdict "
    "is the true one. unknowns: estimate and 95 % interval. truth: share of rows of a class never "
    "taught. precision, recall: of the rows that were flagged."
)

MONITOR = """\
# Watches {name}; see docs/monitor.md for all that may be set here.
model:
  name: {name}
  tracking_uri: {tracking_uri}
{of_model}source:
  path: {name}/windows/
  timestamp: arrived_at
  key: row
labels:  # arrive later: rtscv-mlops score {name}.yaml --window {day}
  path: {name}/labels.parquet
  key: row
  label: truth
"""
ALLOW_PICKLE = "  allow_pickle: true  # skops does not know the model's classes\n"


@dataclass(frozen=True, slots=True)
class Champion:
    """A fitted classifier, what it was taught, and what its monitor needs beyond the defaults."""

    name: str
    model: Any
    X: Any
    y: NDArray[Any]
    holdout: tuple[Any, NDArray[Any]] | None = None
    allow_pickle: bool = False
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that arrive on one day, with the labels that arrive later."""

    story: str
    expected: str
    """The verdict that is true."""
    interval: Interval
    rows: pd.DataFrame
    labels: NDArray[Any]
    is_new: NDArray[Any]
    accuracy: float

    @property
    def true_share(self) -> float:
        return float(self.is_new.mean())


@dataclass(frozen=True, slots=True)
class Judged:
    """A window, what the pipeline said of it, and how right that was once labels had arrived."""

    window: Window
    outcome: Outcome
    figures: dict[str, float]

    @property
    def facts(self) -> WindowFacts:
        return self.outcome.facts

    @property
    def is_right(self) -> bool:
        return self.facts.verdict == self.window.expected

    @property
    def precision(self) -> float | None:
        if not self.facts.unknowns:
            return None
        return self.figures.get("extracted_precision", 0.0)

    @property
    def recall(self) -> float | None:
        return self.figures.get("extracted_recall")


def make_window(
    number: int,
    story: str,
    expected: str,
    features: pd.DataFrame,
    labels: NDArray[Any],
    is_new: NDArray[Any],
    answers: NDArray[Any],
) -> Window:
    """Give rows a day, a key and a time each, in an order that tells nothing.

    `answers` are those of the champion, for the accuracy on rows that are not new.
    """
    rng = np.random.default_rng(number)
    order = rng.permutation(len(features))
    start = MONDAY + timedelta(days=number)
    seconds = np.sort(rng.uniform(0, 86_400, len(features))).round(3)
    served = pd.DataFrame(
        {
            "row": [f"{start:%Y%m%d}-{place:05}" for place in range(len(features))],
            "arrived_at": start + pd.to_timedelta(seconds, unit="s"),
        }
    )
    rows = pd.concat([served, features.iloc[order].reset_index(drop=True)], axis=1)
    return Window(
        story=story,
        expected=expected,
        interval=Interval(start, start + timedelta(days=1)),
        rows=rows,
        labels=labels[order].astype(str),
        is_new=is_new[order],
        accuracy=float(np.mean((answers.astype(str) == labels.astype(str))[~is_new])),
    )


def prepare(folder: Path, champion: Champion, windows: Sequence[Window]) -> Monitor:
    """Write windows, labels and monitor; register the champion unless that was done before."""
    place = folder / champion.name
    for window in windows:
        partition = place / "windows" / f"day={window.interval.start:%Y-%m-%d}"
        partition.mkdir(parents=True, exist_ok=True)
        window.rows.to_parquet(partition / "rows.parquet", index=False)
    labels = [pd.DataFrame({"row": one.rows["row"], "truth": one.labels}) for one in windows]
    pd.concat(labels).to_parquet(place / "labels.parquet", index=False)
    file = folder / f"{champion.name}.yaml"
    text = MONITOR.format(
        name=champion.name,
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        of_model=ALLOW_PICKLE if champion.allow_pickle else "",
        day=windows[-1].interval,
    )
    file.write_text(text + champion.settings)
    monitor = load_monitor(file)
    log_once(monitor, folder, partial(_log, champion))
    return monitor


def _log(champion: Champion, monitor: Monitor) -> None:
    log_champion(
        champion.model,
        champion.X,
        champion.y,
        name=champion.name,
        holdout=champion.holdout,
        tracking_uri=monitor.model.tracking_uri,
        allow_pickle=champion.allow_pickle,
    )


def log_once(monitor: Monitor, folder: Path, log: Callable[[Monitor], object]) -> None:
    """Log the champion of a story unless an earlier run has left one; artifacts go to the folder.

    MLflow would keep them in the working directory otherwise.
    """
    if has_champion(monitor):
        return
    model, uri = monitor.model.name, monitor.model.tracking_uri
    client = MlflowClient(uri)
    for experiment in (model, f"rtscv/{model}"):
        if client.get_experiment_by_name(experiment) is None:
            client.create_experiment(experiment, (folder / "artifacts").as_uri())
    log(monitor)


def has_champion(monitor: Monitor) -> bool:
    """Return whether an earlier run left a champion."""
    model = monitor.model
    client = MlflowClient(model.tracking_uri, registry_uri=model.tracking_uri)
    registered = client.search_registered_models(f"name = '{model.name}'")
    return any(model.alias in each.aliases for each in registered)


def judge(monitor: Monitor, windows: Sequence[Window], console: Console) -> list[Judged]:
    """Run each window through the pipeline, then let its labels arrive."""
    judged = []
    for window in track(windows, f"Judging the windows of {monitor.name}", console=console):
        outcome = run_window(monitor, window.interval)
        assessed = outcome.facts.assessed
        figures = score_window(monitor, window.interval).figures if assessed else {}
        judged.append(Judged(window, outcome, figures))
    return judged


def tabulate(title: str, judged: Sequence[Judged]) -> Table:
    """Return a row per window: what was found, and what is true."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=True)
    for one in judged:
        table.add_row(
            one.window.story,
            str(one.facts.rows),
            percent(one.window.accuracy),
            one.facts.verdict,
            "yes" if one.is_right else "NO",
            estimate(one.facts),
            percent(one.window.true_share),
            _share(one.precision),
            _share(one.recall),
        )
    return table


def percent(share: float) -> str:
    """Return a share, with a decimal where one matters."""
    digits = 1 if share < 0.1 or share > 0.9 else 0
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def estimate(facts: WindowFacts) -> str:
    """Return the share of unknowns; if none were detected, how many there may be all the same."""
    if facts.unknown_rate_interval is None:
        return "-"
    low, high = (f"{100 * limit:.0f}" for limit in facts.unknown_rate_interval)
    return (
        f"{100 * facts.unknown_rate:.0f} % ({low}-{high} %)"
        if facts.detected
        else f"none (0-{high} %)"
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def count_right(judged: Sequence[Judged]) -> str:
    """Say how many verdicts are right, by what is true of the window."""
    every = Counter(one.window.expected for one in judged)
    right = Counter(one.window.expected for one in judged if one.is_right)
    parts = [f"{expected} {right[expected]} of {number}" for expected, number in every.items()]
    return f"Right verdicts: {right.total()} of {every.total()} ({', '.join(parts)})."


def tell_what_next(
    folder: Path, monitor: Monitor, judged: Sequence[Judged], console: Console
) -> None:
    """Say where the last finding is, and what a person may do about it."""
    found = [one for one in judged if one.outcome.version]
    shown = (found or judged)[-1]
    page = save_report(monitor, shown.outcome.run_id, folder / monitor.name)
    lines = [f"Report of {monitor.name}, {shown.window.story}: {page}"]
    file, version = folder / f"{monitor.name}.yaml", shown.outcome.version
    if shown.facts.blocked:
        lines.append(f"  version {version} is blocked: {shown.facts.blocked}")
    elif found:
        lines += [
            f"  version {version} waits for a person: rtscv-mlops review show {file}",
            f"  yes: rtscv-mlops review approve {file} --version {version} --reason …",
            f"  no:  rtscv-mlops review reject {file} --version {version} --reason …",
        ]
    say(console, *lines)


def say(console: Console, *lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def run_from_command_line(
    run: Callable[[Path, Console], Any], folder: Path, description: str
) -> None:
    """Run a story in the folder that the command line names; an error of ours is one sentence."""
    for name in ("mlflow", "alembic", "rtscv_mlops"):
        logging.getLogger(name).setLevel(logging.ERROR)
    parser = ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=folder, help=f"default: {folder}")
    arguments = parser.parse_args()
    try:
        run(arguments.folder.resolve(), Console(width=WIDTH))
    except RtscvError as error:
        sys.exit(str(error))
