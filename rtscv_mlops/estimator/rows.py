"""Rows in any container: select and stack them, find copies, turn them into numbers."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import _safe_indexing, gen_batches

FEW_COPIES = 0.02
"""A smaller share of copies than this is ignored."""

NATURAL_COPIES = 0.2
"""Rows repeat naturally, as in columns with few values, if the share of rows that also occur in
the other set exceeds this part of the share of copies. Such rows are not treated as copies."""

MAX_CATEGORIES = 40
"""Rarer values of a column share one indicator, which limits the width of free-text columns."""

SPARSE_DIMENSIONS = 100
"""Sparse rows are reduced to this many dimensions; distances in 100,000 columns mean little."""

LARGEST = 1e15
"""Numbers beyond this, or below its inverse, are rescaled: their squares must fit in a float32."""

COARSE = 1e3
"""A column this many times farther from 0 than it is wide is centred before float32 rounds it."""

ENCODED_ROWS = 5_000
"""Rows encoded at once. Indicators of text columns are wide, and are float64."""

MEDIAN_ROWS = 2_000
"""Rows used for the medians that fill gaps."""


def count(rows: Any) -> int:
    """Return the number of rows."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def take(rows: Any, indices: NDArray | slice) -> Any:
    """Return the rows at these positions, in the same kind of container."""
    return _safe_indexing(rows, indices)


def stack(first: Any, second: Any) -> Any:
    """Return both sets of rows, one below the other, in the container of the first."""
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    if not isinstance(first, pd.DataFrame):
        return np.concatenate([np.asarray(first), np.asarray(second)])
    # pandas keeps a categorical column only if both tables have the same categories.
    shared = {}
    for name, dtype in first.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) and second[name].dtype != dtype:
            others = pd.Index(second[name].dropna().unique()).difference(dtype.categories)
            shared[name] = pd.CategoricalDtype(dtype.categories.append(others), dtype.ordered)
    if shared:
        first, second = first.astype(shared), second.astype(shared)
    return pd.concat([first, second], ignore_index=True)


def fingerprints(rows: Any) -> NDArray:
    """Return a number for each row; equal rows have equal numbers."""
    if isinstance(rows, pd.DataFrame):
        try:
            return pd.util.hash_pandas_object(rows, index=False).to_numpy()
        except TypeError:  # cells that cannot be hashed, such as lists
            return pd.util.hash_pandas_object(rows.map(str), index=False).to_numpy()
    if sparse.issparse(rows):
        columns, values = (np.split(part, rows.indptr[1:-1]) for part in (rows.indices, rows.data))
        pairs = zip(columns, values, strict=True)
        return np.array([hash((column.tobytes(), value.tobytes())) for column, value in pairs])
    if rows.dtype.kind == "O":
        return np.array([hash(str(row.tolist() if rows.ndim > 1 else row)) for row in rows])
    return np.array([hash(row.tobytes()) for row in rows])


def find_distinct(prints: NDArray, others: NDArray) -> NDArray:
    """Return the positions of the rows to judge: all, or one of each if there are copies.

    A copy in another fold shows a model the very row that it has to judge, and copies are not
    independent evidence: a window of copies would look like a class of its own. `prints` are the
    fingerprints of the rows, `others` those of the rows that they are compared with.
    """
    _, first = np.unique(prints, return_index=True)
    copied = 1 - len(first) / len(prints)
    # A larger set meets more of its own rows again than of a smaller one.
    met = np.mean(np.isin(prints[first], others)) * max(1, len(prints) / len(others))
    if copied < FEW_COPIES or met > NATURAL_COPIES * copied:
        return np.arange(len(prints))
    return np.sort(first)


class Numbers:
    """Turns rows into a dense float32 matrix: text becomes indicators, gaps become medians.

    It learns from training and window rows alike and never sees a label, so it cannot tell them
    apart. Columns that float32 cannot represent well (times, large identifiers, huge or tiny
    values) are shifted or rescaled; all others keep their values.
    """

    # Fitted models are pickled: these attribute names are part of their format.

    def fit(self, rows: Any) -> "Numbers":
        """Learn the columns' kinds, ranges and medians."""
        if sparse.issparse(rows):
            dimensions = min(SPARSE_DIMENSIONS, rows.shape[1] - 1, rows.shape[0] - 1)
            encoder = TruncatedSVD(dimensions, random_state=0) if dimensions > 1 else _Dense()
        else:
            is_table = isinstance(rows, pd.DataFrame) or np.asarray(rows).dtype.kind not in "fiub"
            encoder = _Columns() if is_table else _Dense()
        self._encoder: Any = encoder.fit(rows)
        values = self._encode(rows)
        if not np.isfinite(values).all():
            values = np.where(np.isinf(values), np.nan, values)
        low, high = (np.nan_to_num(edge.reduce(values, axis=0)) for edge in (np.fmin, np.fmax))
        middle, width = low / 2 + high / 2, high / 2 - low / 2
        with np.errstate(over="ignore"):  # a width near the largest float
            self._offset = np.where(np.abs(middle) > COARSE * width, middle, 0.0)
        reach = np.maximum(np.abs(low - self._offset), np.abs(high - self._offset))
        extreme = (reach > LARGEST) | ((reach > 0) & (reach < 1 / LARGEST))
        self._unit = np.where(extreme, reach, 1.0)
        self._as_is = not (self._offset.any() or extreme.any())
        sample = values[:: max(1, len(values) // MEDIAN_ROWS)].astype(np.float64)
        sample[:, np.isnan(sample).all(axis=0)] = 0.0
        self._filling = np.clip(np.nanmedian(sample, axis=0), low, high)
        return self

    def transform(self, rows: Any) -> NDArray:
        """Return the rows as numbers. Works in batches: encoded rows need far more memory."""
        numbers = np.empty((count(rows), len(self._offset)), np.float32)
        for batch in gen_batches(len(numbers), ENCODED_ROWS):
            values = self._encode(take(rows, batch))
            gaps = np.isnan(values)
            if gaps.any():
                values = np.where(gaps, self._filling, values)
            if not self._as_is:
                values = (values - self._offset) / self._unit
            with np.errstate(over="ignore"):
                numbers[batch] = values.astype(np.float32)
        return np.clip(numbers, -LARGEST, LARGEST, out=numbers)

    def _encode(self, rows: Any) -> NDArray:
        values = np.asarray(self._encoder.transform(rows))
        is_small = values.dtype.kind in "biuf" and np.can_cast(values.dtype, np.float32)
        dtype = np.float32 if is_small else np.float64
        return values.astype(dtype, copy=False).reshape(len(values), -1)


class _Dense:
    """Encodes rows that are numbers already."""

    def fit(self, rows: Any) -> "_Dense":
        return self

    def transform(self, rows: Any) -> NDArray:
        return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


class _Columns:
    """Encodes a table of mixed columns: numbers and times stay, others become indicators."""

    def fit(self, rows: Any) -> "_Columns":
        table = self._as_table(rows)
        self._is_number = [
            is_numeric_dtype(dtype) or is_bool_dtype(dtype) or _is_time(dtype)
            for dtype in table.dtypes
        ]
        self._indicators = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MAX_CATEGORIES, sparse_output=False
        )
        if not all(self._is_number):
            self._indicators.fit(self._as_text(table))
        return self

    def transform(self, rows: Any) -> NDArray:
        table = self._as_table(rows)
        numbers = [_as_floats(column) for column in self._select(table, numeric=True)]
        parts = [np.column_stack(numbers)] if numbers else []
        if not all(self._is_number):
            parts.append(self._indicators.transform(self._as_text(table)))
        return np.hstack(parts)

    def _as_table(self, rows: Any) -> pd.DataFrame:
        if isinstance(rows, pd.DataFrame):
            return rows
        rows = np.asarray(rows)
        return pd.DataFrame(rows.reshape(len(rows), -1)).infer_objects()

    def _as_text(self, table: pd.DataFrame) -> NDArray:
        """Return the other columns as text, gaps included: a column may hold mixed types."""
        columns = self._select(table, numeric=False)
        texts = [column.astype(object).map(str).to_numpy(dtype=object) for column in columns]
        return np.column_stack(texts)

    def _select(self, table: pd.DataFrame, *, numeric: bool) -> list[pd.Series]:
        kinds = enumerate(self._is_number)
        return [table.iloc[:, index] for index, is_number in kinds if is_number == numeric]


def _is_time(dtype: Any) -> bool:
    return is_datetime64_any_dtype(dtype) or getattr(dtype, "kind", "") == "m"


def _as_floats(column: pd.Series) -> NDArray:
    """Return a column of numbers or times as floats; values that are neither become gaps."""
    if _is_time(column.dtype):
        column = column.astype("int64").where(column.notna())
    elif not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)):
        column = pd.to_numeric(column, errors="coerce")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)
