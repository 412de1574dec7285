"""Copies: rows that were written down more than once, such as an event that was logged twice.

A copy in another fold tells a model what the row that it is to judge looks like, and two copies
are not two witnesses; a window of copies would look like a class of its own. Knows rows only.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

FEW = 0.02
"""A smaller share of copies than this does no harm."""

NATURAL = 0.2
"""Where the share of rows with an equal in the other set exceeds this part of the share of copies,
rows recur by nature: columns of few values make equal rows that are no copies."""


def fingerprints(rows: Any) -> NDArray:
    """Return a number per row that equal rows share."""
    if isinstance(rows, pd.DataFrame):
        try:
            return pd.util.hash_pandas_object(rows, index=False).to_numpy()
        except TypeError:  # cells that cannot be hashed, such as lists
            return pd.util.hash_pandas_object(rows.map(str), index=False).to_numpy()
    if sparse.issparse(rows):
        places, values = (np.split(part, rows.indptr[1:-1]) for part in (rows.indices, rows.data))
        pairs = zip(places, values, strict=True)
        return np.array([hash((place.tobytes(), value.tobytes())) for place, value in pairs])
    if rows.dtype.kind == "O":
        return np.array([hash(str(row.tolist() if rows.ndim > 1 else row)) for row in rows])
    return np.array([hash(row.tobytes()) for row in rows])


def find_distinct(prints: NDArray, others: NDArray) -> NDArray:
    """Return the places of the rows to judge: all of them, or one of each where there are copies.

    `others` are the fingerprints of the set that the rows are compared with.
    """
    _, first = np.unique(prints, return_index=True)
    copied = 1 - len(first) / len(prints)
    # A larger set meets more of its own rows again than of a smaller one.
    met = np.mean(np.isin(prints[first], others)) * max(1, len(prints) / len(others))
    if copied < FEW or met > NATURAL * copied:
        return np.arange(len(prints))
    return np.sort(first)
