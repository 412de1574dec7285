"""What is handed in as rows: checked, and brought into the training data's container.

Knows containers and the sentences for what is wrong with them; knows nothing of unknowns.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy import sparse
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.base import last_step, refuses_nan
from rtscv_mlops.rectify.rows import count, take

REMEDY = "Select the model's columns in the window's source."
TEXT_KINDS = "OUST"


def check_rows(model: Any, X: Any, what: str, *, reset: bool = False) -> Any:
    """Check rows, and keep the container that the estimator can make sense of."""
    if isinstance(X, pd.DataFrame):
        return _check_table(model, X, what, reset=reset)
    rows = X if sparse.issparse(X) else _as_array(X, what)
    is_text = rows.dtype.kind in TEXT_KINDS
    if rows.ndim > 2 or (rows.ndim == 1 and is_text):  # images, texts: the estimator's business
        if reset:
            _forget_columns(model)
        return rows
    return validate_data(
        model,
        rows,
        reset=reset,
        accept_sparse="csr",
        dtype=None if is_text else "numeric",
        ensure_all_finite=not is_text and (refuses_nan(model.estimator) or "allow-nan"),
    )


def check_window(model: Any, window: Any, what: str, known: Any, n_folds: int) -> Any:
    """Check that a window has the training data's columns, and rows enough for the folds.

    The window comes back in the container of the known rows.
    """
    if not hasattr(window, "shape"):
        window = _as_array(window, what)
    if count(window) < n_folds:
        raise InputError(
            f"The {what} has {count(window)} row(s), fewer than the {n_folds} folds. "
            "Take a longer window, or lower cv."
        )
    if isinstance(known, pd.DataFrame):
        window = _table_like(window, known, what)
    else:
        window = _array_like(window, known, what)
    try:
        return check_rows(model, window, what)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"The {what} cannot be used: {error}") from error


def check_gaps(estimator: Any, window: Any, what: str) -> None:
    """Check that a fitted estimator takes the gaps that a window has, since it is to serve it."""
    if isinstance(window, pd.DataFrame):
        has_gap = window.isna().any(axis=1).to_numpy()
    elif sparse.issparse(window) or window.dtype.kind != "f":
        return
    else:
        has_gap = np.isnan(window.reshape(len(window), -1)).any(axis=1)
    if not has_gap.any():
        return
    try:
        estimator.predict(take(window, np.flatnonzero(has_gap)[:1]))
    except ValueError as error:
        raise InputError(
            f"{has_gap.sum()} of {len(window)} rows of the {what} have missing values, "
            f"which the estimator refuses: {error}"
        ) from error


def _as_array(X: Any, what: str) -> NDArray:
    try:
        return np.asarray(X)
    except ValueError as error:
        raise InputError(f"The {what} cannot be read as a table: {error}") from error


def _forget_columns(model: Any) -> None:
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            delattr(model, name)


def _check_table(model: Any, X: pd.DataFrame, what: str, *, reset: bool) -> pd.DataFrame:
    _check_feature_names(model, X, reset=reset)
    _check_n_features(model, X, reset=reset)
    if len(X) == 0:
        raise InputError(f"The {what} has 0 rows. At least one is needed.")
    if not refuses_nan(model.estimator):
        return X
    missing = [str(name) for name, has_gaps in X.isna().any().items() if has_gaps]
    if missing:
        raise InputError(
            f"The {what} contains NaN in column(s) {', '.join(missing)}, which "
            f"{type(last_step(model.estimator)).__name__} refuses. Fill the gaps, for example with "
            "a SimpleImputer in a Pipeline, or use an estimator that takes them."
        )
    infinite = [
        str(name)
        for name, column in X.select_dtypes("number").items()
        if np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any()
    ]
    if infinite:
        raise InputError(
            f"The {what} contains infinity in column(s) {', '.join(infinite)}. "
            "Cap these values, or drop their rows."
        )
    return X


def _table_like(window: Any, known: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return the window as a table with the known rows' columns, in their order."""
    if not isinstance(window, pd.DataFrame):
        rows = window.toarray() if sparse.issparse(window) else np.asarray(window)
        _compare_shapes(rows, known, what)
        window = pd.DataFrame(rows, columns=known.columns).infer_objects()
    missing = [str(name) for name in known.columns if name not in window.columns]
    extra = [str(name) for name in window.columns if name not in known.columns]
    if missing or extra:
        raise InputError(
            f"The {what} has other columns than the training data: "
            f"missing {', '.join(missing) or 'none'}; extra {', '.join(extra) or 'none'}. {REMEDY}"
        )
    window = window if window.columns.equals(known.columns) else window[list(known.columns)]
    _compare_shapes(window, known, what)
    _compare_types(window, known, what)
    return window


def _array_like(window: Any, known: Any, what: str) -> Any:
    """Return the window as dense or sparse rows, whichever the known rows are."""
    if not sparse.issparse(window):
        window = np.asarray(window)
    _compare_shapes(window, known, what)
    if sparse.issparse(known):
        return (
            sparse.csr_array(window)
            if isinstance(known, sparse.sparray)
            else sparse.csr_matrix(window)
        )
    if sparse.issparse(window):
        window = window.toarray()
    if known.dtype.kind not in TEXT_KINDS and window.dtype.kind in TEXT_KINDS:
        try:
            window = window.astype(float)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The {what} holds text where the training data holds numbers: {error}. "
                "Encode it as the training data was encoded."
            ) from error
    return window


def _compare_shapes(window: Any, known: Any, what: str) -> None:
    if window.ndim == known.ndim == 2 and window.shape[1] != known.shape[1]:
        raise InputError(
            f"The {what} has {window.shape[1]} columns, "
            f"the training data {known.shape[1]}. {REMEDY}"
        )
    if window.shape[1:] != known.shape[1:]:
        raise InputError(
            f"A row of the {what} has the shape {window.shape[1:]}, one of the training data "
            f"{known.shape[1:]}. Prepare both alike."
        )


def _compare_types(window: pd.DataFrame, known: pd.DataFrame, what: str) -> None:
    """Refuse text where training had numbers and the reverse; an empty column is neither."""

    def is_number(dtype: Any) -> bool:
        return is_numeric_dtype(dtype) or is_bool_dtype(dtype)

    changed = [
        f"{name} ({known.dtypes.iloc[place]} in training, {window.dtypes.iloc[place]} now)"
        for place, name in enumerate(known.columns)
        if is_number(known.dtypes.iloc[place]) != is_number(window.dtypes.iloc[place])
        and window.iloc[:, place].notna().any()
        and not isinstance(known.dtypes.iloc[place], pd.CategoricalDtype)
    ]
    if changed:
        raise InputError(
            f"The {what} has columns of another type than the training data: {', '.join(changed)}. "
            "Convert them in the window's source."
        )
