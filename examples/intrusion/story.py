"""The fortnight through the pipeline: champion, monitor, fourteen verdicts, and labels afterwards.

Uses nothing that users do not have themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from examples.intrusion.champion import make_champion
from examples.intrusion.traffic import KEY, LABEL, TIME, Day, Traffic, features_of
from examples.stories import has_champion, log_once
from rtscv_mlops import (
    Monitor,
    WindowFacts,
    load_monitor,
    log_champion,
    read_answers,
    run_window,
    score_window,
)

MODEL = "intrusion"
BASELINE_DAYS = 3
"""Days whose labels have arrived when the team gives the monitor its baseline."""

MONITOR = """\
# Watches the traffic; see docs/monitor.md for all that may be set here. All else is the default.
model:
  name: {model}
  tracking_uri: {tracking_uri}
source:
  path: windows/
  timestamp: {time}
  key: {key}
labels:  # arrive later: rtscv-mlops score intrusion.yaml --window 2026-01-18
  path: labels.parquet
  key: {key}
  label: {label}
"""
BASELINE = """\
# Since {end:%A}: traffic that analysts have looked at, and that holds no attack of a new type.
baseline:
  start: {start:%Y-%m-%d}
  end: {end:%Y-%m-%d}
"""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Judged:
    """A day with its verdict, and with what the labels say of it afterwards."""

    day: Day
    facts: WindowFacts
    run_id: str
    version: str | None
    figures: dict[str, float]
    rows: pd.DataFrame
    """The truth of each row, and what `read_answers` says of it."""


@dataclass(frozen=True, slots=True)
class Story:
    """The fortnight as it went, and the monitor as it stands at its end."""

    monitor: Monitor
    file: Path
    judged: list[Judged]

    @property
    def rows(self) -> pd.DataFrame:
        """All rows that were judged, with the number of their day."""
        return pd.concat(
            [one.rows.assign(day=one.day.number) for one in self.judged], ignore_index=True
        )


def tell_story(
    folder: Path, traffic: Traffic, days: list[Day], *, with_baseline: bool, tell: Tell
) -> Story:
    """Judge every day; after the first ones, have the monitor compare with those."""
    folder = folder.resolve()
    write_days(folder, days)
    monitor = write_monitor(folder)
    tell("the champion is fitted")
    log_once(monitor, folder, partial(_log_champion, traffic))
    early = [_judge(monitor, day, traffic, tell) for day in days[:BASELINE_DAYS]]
    if with_baseline and all(_is_clean(one) for one in early):
        first, last = early[0].day.interval, early[-1].day.interval
        monitor = write_monitor(folder, BASELINE.format(start=first.start, end=last.end))
    late = [_judge(monitor, day, traffic, tell) for day in days[BASELINE_DAYS:]]
    return Story(monitor, folder / "intrusion.yaml", [*early, *late])


def is_begun(folder: Path) -> bool:
    """Return whether an earlier run left its champion in the folder, which then serves again."""
    file = folder / "intrusion.yaml"
    return file.exists() and has_champion(load_monitor(file))


def write_days(folder: Path, days: list[Day]) -> None:
    """Write what the source holds, one partition a day, and the labels apart from it."""
    for day in days:
        partition = folder / "windows" / f"day={day.interval.start:%Y-%m-%d}"
        partition.mkdir(parents=True, exist_ok=True)
        day.rows.to_parquet(partition / "connections.parquet", index=False)
    labels = pd.concat([day.truth for day in days])
    labels[[KEY, LABEL]].to_parquet(folder / "labels.parquet", index=False)


def write_monitor(folder: Path, more: str = "") -> Monitor:
    """Write the monitor's file, with further settings if there are any, and read it."""
    file = folder / "intrusion.yaml"
    address = f"sqlite:///{folder}/mlflow.db"
    text = MONITOR.format(model=MODEL, tracking_uri=address, time=TIME, key=KEY, label=LABEL)
    file.write_text(text + more)
    return load_monitor(file)


def _log_champion(traffic: Traffic, monitor: Monitor) -> None:
    (rows, labels), holdout = (
        (features_of(part), part[LABEL].to_numpy(dtype=str))
        for part in (traffic.training, traffic.holdout)
    )
    log_champion(
        make_champion().fit(rows, labels),
        rows,
        labels,
        name=MODEL,
        holdout=holdout,
        tracking_uri=monitor.model.tracking_uri,
    )


def _is_clean(judged: Judged) -> bool:
    return judged.figures["unknown_rate"] == 0


def _judge(monitor: Monitor, day: Day, traffic: Traffic, tell: Tell) -> Judged:
    tell(f"{day.interval} is judged")
    outcome = run_window(monitor, day.interval)
    score = score_window(monitor, day.interval)
    answers = read_answers(monitor, day.interval)
    rows = day.truth.merge(answers, left_on=KEY, right_index=True, validate="one_to_one")
    rows["is_new"] = rows[LABEL].isin(traffic.new_types)
    return Judged(day, outcome.facts, outcome.run_id, outcome.version, score.figures, rows)
