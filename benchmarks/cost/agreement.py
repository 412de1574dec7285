"""How often few rows that stand for all give a column the verdict that all rows give it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.report.drift import compare_columns
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.window import Column

COLUMNS, ROWS, KNOWN_ROWS = 400, 100_000, 30_000
METHODS = ("wasserstein", "jensenshannon", "psi")


@dataclass(frozen=True, slots=True)
class Agreement:
    """Columns in which both verdicts are the same, and the largest difference of scores."""

    columns: int
    same: int
    furthest: float

    @property
    def share(self) -> float:
        return self.same / self.columns

    def __str__(self) -> str:
        return (
            f"{self.same} of {self.columns} columns, scores differ by {self.furthest:.4f} at most"
        )


def agreement(columns: int = COLUMNS, seed: int = 11) -> dict[str, Agreement]:
    """Compare random columns both ways, by several measures."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[tuple[bool, float]]] = {method: [] for method in METHODS}
    for _ in range(columns):
        known, window = random_column(rng)
        profile = Profile.on(known, [Column("x", "float")])
        profile.add(pa.record_batch({"feature:x": window["x"].to_numpy()}))
        few = DriftSettings().max_rows
        served, taught = profile.condense(window.head(few), few), profile.condense_rows(known, few)
        for method in METHODS:
            (exact,), (ours,) = (
                compare_columns(*sides, DriftSettings(num_method=method, max_rows=rows)).columns
                for sides, rows in (((window, known), ROWS), ((served, taught), few))
            )
            gap = abs((exact.score or 0.0) - (ours.score or 0.0))
            found[method].append((exact.drifted == ours.drifted, gap))
    return {
        method: Agreement(len(pairs), sum(same for same, _ in pairs), max(gap for _, gap in pairs))
        for method, pairs in found.items()
    }


def random_column(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return known and served values of a random law; half of the time, the law has moved."""
    law, shape = rng.integers(0, 6), rng.uniform(0.3, 1.5)
    move = rng.uniform(0, 0.4) * (rng.random() < 0.5)
    widen = 1 + rng.uniform(0, 0.3) * (rng.random() < 0.3)
    sides = []
    for rows, moved in ((KNOWN_ROWS, 0.0), (ROWS, move)):
        values = draw(int(law), shape, rows, rng)
        if moved:
            values = values * widen + moved * values.std()
        sides.append(pd.DataFrame({"x": values}))
    return sides[0], sides[1]


def draw(law: int, shape: float, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw from one of six laws: bell, skewed, flat, two hills, counts, mostly nothing."""
    if law == 0:
        return rng.normal(5, shape, rows)
    if law == 1:
        return rng.lognormal(0, shape, rows)
    if law == 2:
        return rng.uniform(-shape, shape, rows)
    if law == 3:
        return np.where(rng.random(rows) < 0.4, -3.0, 3.0) + rng.normal(0, shape, rows)
    if law == 4:
        return rng.poisson(8 * shape, rows).astype(float)
    return np.where(rng.random(rows) < 0.8, 0.0, rng.exponential(shape, rows))
