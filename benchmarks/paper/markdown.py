"""Pieces of a Markdown page: a table, a mean with its spread."""

from collections.abc import Iterable
from typing import Any

import pandas as pd


def spread(values: pd.Series) -> str:
    """Return mean ± standard deviation."""
    values = values.dropna()
    return f"{values.mean():.1f}" + (f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else "")


def table(header: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    """Return a Markdown table."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
