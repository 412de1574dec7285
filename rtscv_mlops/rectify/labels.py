"""Labels: what users call the classes, what the estimator is taught, and a name for unknowns.

Knows names; knows nothing of rows.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from rtscv_mlops.errors import InputError


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
