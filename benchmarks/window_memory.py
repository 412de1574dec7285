"""What a large window costs: peak memory and time of reading 50 thousand and 5 million rows.

    python -m benchmarks.window_memory

Each window is one day of 20 columns (16 numbers, 4 texts) in Parquet pieces of 250 thousand rows
with the default row groups. Each is read in a fresh process by `read_window` with the default cap
of 20 000 rows. Peak memory is the largest resident set of that process, all imports included.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from rtscv_mlops.config import SourceSettings
from rtscv_mlops.sources import read_window
from rtscv_mlops.window import Column, Interval

DAY = "2026-01-05"
PIECE = 250_000
NUMBERS = [f"number_{index}" for index in range(16)]
TEXTS = [f"text_{index}" for index in range(4)]
SIZES = {"50 thousand rows": 50_000, "5 million rows": 5_000_000}
MAX_ROWS = 20_000


def write_window(folder: Path, rows: int) -> None:
    """Write one day in pieces, so that the writer needs little memory too."""
    folder.mkdir()
    random = np.random.default_rng(0)
    start = pd.Timestamp(DAY, tz="UTC")
    for piece, first in enumerate(range(0, rows, PIECE)):
        size = min(PIECE, rows - first)
        seconds = 86_400 * (first + np.arange(size)) / rows
        frame = pd.DataFrame(random.normal(size=(size, len(NUMBERS))), columns=NUMBERS)
        for name in TEXTS:
            frame[name] = np.char.add("value ", random.integers(0, 1_000, size).astype(str))
        frame["served_at"] = start + pd.to_timedelta(seconds, unit="s")
        frame.to_parquet(folder / f"piece-{piece:03d}.parquet", index=False)


def read(folder: str) -> None:
    """Read a window and print rows, seconds and peak memory; runs in a process of its own."""
    columns = [Column(name, "float") for name in NUMBERS] + [Column(name, "text") for name in TEXTS]
    source = SourceSettings(path=folder, timestamp="served_at")
    started = time.perf_counter()
    window = read_window(source, Interval.day(DAY), columns, max_rows=MAX_ROWS, seed=0)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{window.rows} {len(window.sample)} {seconds:.1f} {peak:.0f}")


def main() -> None:
    """Write both windows, read each in a fresh process, and print what it took."""
    print(__doc__)
    peaks = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, rows in SIZES.items():
            folder = Path(temporary) / str(rows)
            write_window(folder, rows)
            command = [sys.executable, "-m", "benchmarks.window_memory", str(folder)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            read_rows, sampled, seconds, peak = done.stdout.split()
            peaks.append(float(peak))
            print(
                f"{name:>17}: {int(read_rows):>9,} read, {int(sampled):>6,} sampled, "
                f"{seconds:>6} s, peak {peak:>5} MB"
            )
    print(f"       difference: {peaks[1] - peaks[0]:.0f} MB for 100 times the rows")


if __name__ == "__main__":
    read(sys.argv[1]) if len(sys.argv) > 1 else main()
