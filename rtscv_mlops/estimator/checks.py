"""Checks of rows and labels that users pass in, and the names of the classes."""

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

REMEDY = "Select the model's columns in the window's source."
TEXT_KINDS = "OUST"


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
    """The known classes, sorted, in the user's names (`known`) and the estimator's (`taught`).

    Once the unknown class has a name, `unknown` holds it, and `taught` has one more label, the
    last, which stands for it. The two differ if the estimator cannot be taught the user's name.
    """

    known: NDArray
    taught: NDArray
    unknown: Any = None

    @classmethod
    def of(cls, y: NDArray) -> "Labels":
        """Return the known classes of some labels."""
        known = np.unique(y)
        # There is no third boolean for unknowns, so the estimator is taught 0, 1 and 2 instead.
        return cls(known, known.astype(int) if known.dtype == bool else known)

    def name_unknown(self, name: Any) -> "Labels":
        """Return these labels with a name for unknowns: this one, or for None a free one."""
        if len(self.known) < 2:
            raise InputError(
                f"The training data has only one class ({self.known.tolist()[0]!r}). "
                "RTSCV needs at least two known classes to compare the window with."
            )
        if name in self.known.tolist():
            raise InputError(
                f"unknown_label={name!r} is already a known class, so unknown rows could not be "
                "told apart from it. Choose a label that no training row has."
            )
        label_type = Integral if self.taught.dtype.kind in "iu" else type(self.taught.tolist()[0])
        can_be_taught = isinstance(name, label_type) and not isinstance(name, bool)
        code = name if can_be_taught else self._free_label()
        free = "unknown" if self.known.dtype == bool else code
        return replace(
            self,
            taught=np.append(self.taught, [code]),
            unknown=free if name is None else name,
        )

    def codes(self, y: NDArray) -> NDArray:
        """Return the index of each label among the known classes."""
        return np.searchsorted(self.known, y)

    def public(self, taught: NDArray) -> NDArray:
        """Return the user's names of these classes of the estimator."""
        names = [*self.known.tolist(), self.unknown]
        public = [names[self.taught.tolist().index(label)] for label in taught.tolist()]
        classes = np.asarray(public)
        # An array of text turns -1 into "-1", which no longer equals the label the user gave.
        keeps = classes.dtype.kind == self.known.dtype.kind and classes.tolist() == public
        return classes if keeps else np.asarray(public, dtype=object)

    def _free_label(self) -> Any:
        """Return a label of the same type that no known class has."""
        if self.taught.dtype.kind in "iuf":
            return self.taught.max().item() + 1
        name = "unknown"
        while name in self.taught.tolist():
            name += "_"
        return name


def check_rows(model: Any, X: Any, what: str, *, reset: bool = False) -> Any:
    """Check rows; keep the container that the estimator was given."""
    if isinstance(X, pd.DataFrame):
        return _check_table(model, X, what, reset=reset)
    rows = X if sparse.issparse(X) else _as_array(X, what)
    is_text = rows.dtype.kind in TEXT_KINDS
    if rows.ndim > 2 or (rows.ndim == 1 and is_text):  # images, texts: the estimator checks them
        for name in ("n_features_in_", "feature_names_in_"):
            if reset and hasattr(model, name):
                delattr(model, name)
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
    """Check that a window has the training data's columns, and at least one row per fold.

    The window is returned in the container of the known rows.
    """
    if not hasattr(window, "shape"):
        window = _as_array(window, what)
    if count(window) < n_folds:
        raise InputError(
            f"The {what} has {count(window)} row(s), fewer than the {n_folds} folds. "
            "Use a longer window, or lower cv."
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
    """Check that the fitted estimator accepts the missing values of the window it will serve."""
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
            "a SimpleImputer in a Pipeline, or use an estimator that accepts them."
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
    # Text in place of numbers, or the reverse, is refused. An empty column has no type.
    now, before = (
        [is_numeric_dtype(dtype) or is_bool_dtype(dtype) for dtype in table.dtypes]
        for table in (window, known)
    )
    changed = [
        f"{name} ({known.dtypes.iloc[index]} in training, {window.dtypes.iloc[index]} now)"
        for index, name in enumerate(known.columns)
        if now[index] != before[index]
        and window.iloc[:, index].notna().any()
        and not isinstance(known.dtypes.iloc[index], pd.CategoricalDtype)
    ]
    if changed:
        raise InputError(
            f"Columns of the {what} have another type than in the training data: "
            f"{', '.join(changed)}. Convert them in the window's source."
        )
    return window


def _array_like(window: Any, known: Any, what: str) -> Any:
    """Return the window as dense or sparse rows, whichever the known rows are."""
    if not sparse.issparse(window):
        window = np.asarray(window)
    _compare_shapes(window, known, what)
    if sparse.issparse(known):
        is_array = isinstance(known, sparse.sparray)
        return sparse.csr_array(window) if is_array else sparse.csr_matrix(window)
    if sparse.issparse(window):
        window = window.toarray()
    if known.dtype.kind not in TEXT_KINDS and window.dtype.kind in TEXT_KINDS:
        try:
            window = window.astype(float)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The {what} contains text where the training data has numbers: {error}. "
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
            f"{known.shape[1:]}. Prepare both in the same way."
        )
