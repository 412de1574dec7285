"""Rows of any container: take some, put two sets together, turn them into numbers.

Knows arrays, sparse matrices and DataFrames; knows nothing of classes or estimators.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import _safe_indexing

MAX_CATEGORIES = 40
"""Rarer values of a column share one indicator: a free-text column must not become the table."""

SPARSE_DIMENSIONS = 100
"""Sparse rows are compared in this many directions; distances in 100 000 columns say nothing."""


def take(rows: Any, indices: NDArray) -> Any:
    """Return the rows at these positions, in the container they came in."""
    return _safe_indexing(rows, indices)


def stack(first: Any, second: Any) -> Any:
    """Put rows below rows; a DataFrame stays one, so that columns keep their names and types."""
    if isinstance(first, pd.DataFrame):
        return pd.concat([first, second], ignore_index=True)
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    return np.concatenate([np.asarray(first), np.asarray(second)])


def count(rows: Any) -> int:
    """Return the number of rows."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


class Numbers:
    """Turns rows into a dense float matrix: text becomes indicators, gaps become medians.

    It learns from all rows alike, never from labels, so it cannot tell training from window rows.
    """

    def fit(self, rows: Any) -> "Numbers":
        """Learn what the columns hold."""
        self._encoder = self._make_encoder(rows)
        if self._encoder is not None:
            self._encoder.fit(rows)
        return self

    def transform(self, rows: Any) -> NDArray:
        """Return the rows as numbers."""
        if self._encoder is not None:
            rows = self._encoder.transform(rows)
        return np.asarray(rows, dtype=np.float32).reshape(count(rows), -1)

    def _make_encoder(self, rows: Any) -> Any:
        if sparse.issparse(rows):
            dimensions = min(SPARSE_DIMENSIONS, rows.shape[1] - 1, rows.shape[0] - 1)
            return TruncatedSVD(dimensions, random_state=0) if dimensions > 1 else _Densify()
        if isinstance(rows, pd.DataFrame):
            return _table_encoder(rows)
        numbers = np.asarray(rows)
        if numbers.dtype.kind not in "fiub":
            return _Densify() if _is_numeric(numbers) else _table_encoder(pd.DataFrame(numbers))
        return SimpleImputer(strategy="median") if np.isnan(numbers).any() else None


class _Densify:
    """Rows that are numbers already, in a container that hides it."""

    def fit(self, rows: Any) -> "_Densify":
        return self

    def transform(self, rows: Any) -> NDArray:
        if sparse.issparse(rows):
            rows = rows.toarray()
        return np.asarray(rows, dtype=np.float32)


def _is_numeric(rows: NDArray) -> bool:
    try:
        np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _table_encoder(table: pd.DataFrame) -> Any:
    """Return an encoder for a table of mixed columns."""
    indicators = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MAX_CATEGORIES, sparse_output=False
    )
    numbers = make_pipeline(SimpleImputer(strategy="median"))
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include=["number", "bool"])),
        (indicators, make_column_selector(dtype_exclude=["number", "bool"])),
        sparse_threshold=0,
    )
