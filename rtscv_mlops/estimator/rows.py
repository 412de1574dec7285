"""Copies: rows that were written down more than once, such as an event that was logged twice.

A copy in another fold tells a model what the row that it is to judge looks like, and two copies
are not two witnesses; a window of copies would look like a class of its own. Knows rows only.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import _safe_indexing, gen_batches

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


MAX_CATEGORIES = 40
"""Rarer values of a column share one indicator: a free-text column must not become the table."""

SPARSE_DIMENSIONS = 100
"""Sparse rows are compared in this many directions; distances in 100 000 columns say nothing."""

LARGEST = 1e15
"""Numbers beyond this (or below its inverse) are rescaled: their squares must fit in a float32."""

COARSE = 1e3
"""A column this many times farther from 0 than it is wide is centred, lest a float32 round it."""

ENCODED_ROWS = 5_000
"""Rows that are turned into numbers at once: indicators of text columns are wide, and doubles."""

MEDIAN_ROWS = 2_000
"""Rows that the medians which fill gaps are taken from."""


def take(rows: Any, indices: NDArray | slice) -> Any:
    """Return the rows at these positions, in the container they came in."""
    return _safe_indexing(rows, indices)


def stack(first: Any, second: Any) -> Any:
    """Put rows below rows; a DataFrame stays one, so that columns keep their names and types."""
    if isinstance(first, pd.DataFrame):
        return pd.concat(_share_categories(first, second), ignore_index=True)
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    return np.concatenate([np.asarray(first), np.asarray(second)])


def _share_categories(first: pd.DataFrame, second: pd.DataFrame) -> list[pd.DataFrame]:
    """Give both tables the same categories, the first's in front; pandas would drop the type."""
    shared = {}
    for name, dtype in first.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) and second[name].dtype != dtype:
            others = pd.Index(second[name].dropna().unique()).difference(dtype.categories)
            shared[name] = pd.CategoricalDtype(dtype.categories.append(others), dtype.ordered)
    return [first.astype(shared), second.astype(shared)] if shared else [first, second]


def count(rows: Any) -> int:
    """Return the number of rows."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


class Numbers:
    """Turns rows into a dense float matrix: text becomes indicators, gaps become medians.

    It learns from all rows alike, never from labels, so it cannot tell training from window rows.
    Columns that single precision would spoil (times, large identifiers, huge or tiny values) are
    moved or rescaled; all others are left as they are.
    """

    def fit(self, rows: Any) -> "Numbers":
        """Learn what the columns hold."""
        self._encoder = _make_encoder(rows).fit(rows)
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
        self._filling = np.clip(_medians(values), low, high)
        return self

    def transform(self, rows: Any) -> NDArray:
        """Return the rows as numbers, a piece at a time: encoded ones take far more memory."""
        numbers = np.empty((count(rows), len(self._offset)), np.float32)
        for piece in gen_batches(len(numbers), ENCODED_ROWS):
            numbers[piece] = self._transform(take(rows, piece))
        return numbers

    def _transform(self, rows: Any) -> NDArray:
        values = self._encode(rows)
        gaps = np.isnan(values)
        if gaps.any():
            values = np.where(gaps, self._filling, values)
        if not self._as_is:
            values = (values - self._offset) / self._unit
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float32)
        return np.clip(numbers, -LARGEST, LARGEST, out=numbers)

    def _encode(self, rows: Any) -> NDArray:
        values = np.asarray(self._encoder.transform(rows))
        is_small = values.dtype.kind in "biuf" and np.can_cast(values.dtype, np.float32)
        dtype = np.float32 if is_small else np.float64
        return values.astype(dtype, copy=False).reshape(len(values), -1)


def _medians(values: NDArray) -> NDArray:
    some = values[:: max(1, len(values) // MEDIAN_ROWS)].astype(np.float64)
    some[:, np.isnan(some).all(axis=0)] = 0.0
    return np.nanmedian(some, axis=0)


def _make_encoder(rows: Any) -> Any:
    if sparse.issparse(rows):
        dimensions = min(SPARSE_DIMENSIONS, rows.shape[1] - 1, rows.shape[0] - 1)
        return TruncatedSVD(dimensions, random_state=0) if dimensions > 1 else _Dense()
    is_table = isinstance(rows, pd.DataFrame) or np.asarray(rows).dtype.kind not in "fiub"
    return _Columns() if is_table else _Dense()


class _Dense:
    """Rows that are numbers already."""

    def fit(self, rows: Any) -> "_Dense":
        return self

    def transform(self, rows: Any) -> NDArray:
        return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


class _Columns:
    """A table of mixed columns: numbers and times stay, all else becomes indicators."""

    def fit(self, rows: Any) -> "_Columns":
        table = _as_table(rows)
        self._is_number = [_is_number(dtype) for dtype in table.dtypes]
        self._indicators = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MAX_CATEGORIES, sparse_output=False
        )
        if not all(self._is_number):
            self._indicators.fit(self._words(table))
        return self

    def transform(self, rows: Any) -> NDArray:
        table = _as_table(rows)
        numbers = [_as_floats(column) for column in self._columns(table, numeric=True)]
        parts = [np.column_stack(numbers)] if numbers else []
        if not all(self._is_number):
            parts.append(self._indicators.transform(self._words(table)))
        return np.hstack(parts)

    def _words(self, table: pd.DataFrame) -> NDArray:
        """Return the other columns as text, gaps included: a column may mix what it holds."""
        words = [column.astype(object).map(str) for column in self._columns(table, numeric=False)]
        return np.column_stack([column.to_numpy(dtype=object) for column in words])

    def _columns(self, table: pd.DataFrame, *, numeric: bool) -> list[pd.Series]:
        kinds = enumerate(self._is_number)
        return [table.iloc[:, place] for place, is_number in kinds if is_number == numeric]


def _as_table(rows: Any) -> pd.DataFrame:
    if isinstance(rows, pd.DataFrame):
        return rows
    rows = np.asarray(rows)
    return pd.DataFrame(rows.reshape(len(rows), -1)).infer_objects()


def _is_number(dtype: Any) -> bool:
    return is_numeric_dtype(dtype) or is_bool_dtype(dtype) or _is_time(dtype)


def _is_time(dtype: Any) -> bool:
    return is_datetime64_any_dtype(dtype) or getattr(dtype, "kind", "") == "m"


def _as_floats(column: pd.Series) -> NDArray:
    """Return a column of numbers or times as floats; what is no number there is a gap."""
    if _is_time(column.dtype):
        column = column.astype("int64").where(column.notna())
    elif not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)):
        column = pd.to_numeric(column, errors="coerce")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)
