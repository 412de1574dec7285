"""Labels: what users call the classes, what the estimator is taught, and a name for unknowns.

Knows names; knows nothing of rows.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.learner import last_step, refuses_nan
from rtscv_mlops.estimator.rows import count, take


def check_labels(y: Any, n_rows: int) -> NDArray:
    """Check that there is one class label per row."""
    if y is None:
        raise InputError(
            "RTSCVClassifier requires y to be passed, but the target y is None. "
            "Give one label per row."
        )
    y = column_or_1d(np.asarray(y), warn=True)
    if len(y) != n_rows:
        raise InputError(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows "
            f"and {len(y)} labels. Give one label per row."
        )
    if pd.isna(y).any():
        raise InputError(
            f"{pd.isna(y).sum()} of {len(y)} labels are missing (NaN). "
            "Drop these rows from the training data, or label them."
        )
    check_classification_targets(y)
    return y


@dataclass(frozen=True, slots=True)
class Labels:
    """The known classes, sorted, as users call them (`known`) and as the estimator does (`taught`).

    Once unknowns have a name, both have one label more: `unknown`, and the last of `taught`.
    """

    known: NDArray
    taught: NDArray
    unknown: Any = None

    @classmethod
    def of(cls, y: NDArray) -> "Labels":
        """Learn the known classes."""
        known = np.unique(y)
        # No third bool exists to call unknowns by: the estimator sees 0, 1 and 2 instead.
        return cls(known, known.astype(int) if known.dtype == bool else known)

    def name_unknown(self, name: Any) -> "Labels":
        """Return these labels with a name for unknowns: the given one, or a free one for None."""
        if len(self.known) < 2:
            raise InputError(
                f"The training data has one class only ({self.known.tolist()[0]!r}). "
                "A dummy class can be told from known classes only if there are at least two."
            )
        if name in self.known.tolist():
            raise InputError(
                f"unknown_label={name!r} is a known class already, so an unknown "
                "row could not be told from it. Choose a label that no training row has."
            )
        code = name if _is_like(name, self.taught) else _free_label(self.taught)
        free = "unknown" if self.known.dtype == bool else code
        return replace(
            self,
            taught=np.append(self.taught, [code]),
            unknown=free if name is None else name,
        )

    def codes(self, y: NDArray) -> NDArray:
        """Return the place of each label among the known ones."""
        return np.searchsorted(self.known, y)

    def public(self, taught: NDArray) -> NDArray:
        """Return what users call these classes of the estimator."""
        names = [*self.known.tolist(), self.unknown]
        public = [names[self.taught.tolist().index(label)] for label in taught.tolist()]
        classes = np.asarray(public)
        # An array may turn -1 into "-1", and then no longer equals the label that was asked for.
        keeps = classes.dtype.kind == self.known.dtype.kind and classes.tolist() == public
        return classes if keeps else np.asarray(public, dtype=object)


def _is_like(name: Any, known: NDArray) -> bool:
    """Tell whether an estimator taught these labels can be taught this name beside them."""
    if isinstance(name, bool):
        return False
    return isinstance(name, Integral if known.dtype.kind in "iu" else type(known.tolist()[0]))


def _free_label(known: NDArray) -> Any:
    """Return a label of the same type that no known class has."""
    if known.dtype.kind in "iuf":
        return known.max().item() + 1
    name = "unknown"
    while name in known.tolist():
        name += "_"
    return name


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
