"""What a large window costs: peak memory and time for 50 thousand and for 5 million rows.

    python -m benchmarks.window_memory

Each window is one day of 20 columns (16 numbers, 4 texts of 20 values each) in Parquet pieces of
250 thousand rows with the default row groups. Each is taken twice, in fresh processes: only read,
by `read_window`, and from end to end, by `run_window`: a logistic regression on 5 000 training rows
as champion, MLflow on SQLite, the report drawn. The cap is the default of 20 000 sampled rows. Peak
memory is the largest resident set of that process (Linux), all imports included.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from rtscv_mlops.config import SourceSettings, load_monitor
from rtscv_mlops.sources import read_window
from rtscv_mlops.window import Column, Interval

RESULTS = Path(__file__).parent / "results" / "window_memory.json"
DAY = "2026-01-05"
PIECE = 250_000
NUMBERS = [f"number_{index}" for index in range(16)]
TEXTS = [f"text_{index}" for index in range(4)]
SIZES = {"50 thousand rows": 50_000, "5 million rows": 5_000_000}
MAX_ROWS = 20_000
TRAINING_ROWS = 5_000
MONITOR = """\
model:
  name: large
  tracking_uri: sqlite:///mlflow.db
source:
  path: {rows}/
  timestamp: served_at
"""


def make_rows(rows: int, random: np.random.Generator) -> pd.DataFrame:
    """Return rows of two classes that differ in the first two numbers."""
    frame = pd.DataFrame(random.normal(size=(rows, len(NUMBERS))), columns=NUMBERS)
    frame[NUMBERS[0]] += 4 * random.integers(0, 2, rows)
    for name in TEXTS:
        frame[name] = np.char.add("value ", random.integers(0, 20, rows).astype(str))
    return frame


def write_window(folder: Path, rows: int) -> None:
    """Write one day in pieces, so that the writer needs little memory too."""
    folder.mkdir()
    random = np.random.default_rng(0)
    start = pd.Timestamp(DAY, tz="UTC")
    for piece, first in enumerate(range(0, rows, PIECE)):
        size = min(PIECE, rows - first)
        seconds = 86_400 * (first + np.arange(size)) / rows
        frame = make_rows(size, random)
        frame["served_at"] = start + pd.to_timedelta(seconds, unit="s")
        frame.to_parquet(folder / f"piece-{piece:03d}.parquet", index=False)


def log_model(folder: Path) -> None:
    """Register the champion that the windows are compared with."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from rtscv_mlops import log_champion

    rows = make_rows(TRAINING_ROWS, np.random.default_rng(1))
    labels = np.where(rows[NUMBERS[0]] > 2, "right", "left")
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), TEXTS), remainder="passthrough"
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(rows, labels)
    log_champion(model, rows, labels, name="large", tracking_uri=f"sqlite:///{folder}/mlflow.db")


def read(folder: Path) -> str:
    """Read a window; return what came of it."""
    columns = [Column(name, "float") for name in NUMBERS] + [Column(name, "text") for name in TEXTS]
    source = SourceSettings(path=str(folder), timestamp="served_at")
    window = read_window(source, Interval.day(DAY), columns, max_rows=MAX_ROWS, seed=0)
    return f"{window.rows:,} rows, {len(window.sample):,} sampled"


def run(folder: Path) -> str:
    """Take a window through all stages; return what came of it."""
    from rtscv_mlops.pipeline import run_window

    file = folder.parent / f"{folder.name}.yaml"
    file.write_text(MONITOR.format(rows=folder.name))
    facts = run_window(load_monitor(file), Interval.day(DAY)).facts
    return f"{facts.rows:,} rows, {facts.sampled:,} sampled, {facts.verdict}"


def measure(task: str, folder: str) -> None:
    """Do a task and print what it took; runs in a process of its own."""
    started = time.perf_counter()
    outcome = {"read": read, "run": run}[task](Path(folder))
    seconds = time.perf_counter() - started
    taken = {"outcome": outcome, "seconds": round(seconds, 1), "peak_mb": peak_memory()}
    print(json.dumps(taken))


def peak_memory() -> int:
    """Return the largest resident set of this process in MB.

    `getrusage` would count that of the process which started this one.
    """
    status = Path("/proc/self/status").read_text()
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB", status, flags=re.MULTILINE)
    return round(int(peak) / 1024)


def main() -> None:
    """Write both windows, take each in fresh processes, and print what it took."""
    print(__doc__)
    results: dict[str, dict[str, dict[str, float]]] = {"read": {}, "run": {}}
    with tempfile.TemporaryDirectory() as temporary:
        log_model(Path(temporary))
        for name, rows in SIZES.items():
            folder = Path(temporary) / str(rows)
            write_window(folder, rows)
            for task in results:
                command = [sys.executable, "-m", "benchmarks.window_memory", task, str(folder)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                taken = json.loads(done.stdout.splitlines()[-1])
                results[task][name] = taken
                print(
                    f"{task:>5} {name:>17}: {taken['outcome']}, {taken['seconds']} s, "
                    f"peak {taken['peak_mb']} MB"
                )
    for task, taken in results.items():
        small, large = (taken[name]["peak_mb"] for name in SIZES)
        print(f"{task:>5}        difference: {large - small} MB for 100 times the rows")
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
