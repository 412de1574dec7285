"""What is asked of the estimator that is rectified: its seed, its weights, its taste in input.

Knows scikit-learn's conventions and where they are silent; knows nothing of windows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, has_fit_parameter

from rtscv_mlops.errors import InputError

TREE_MODULES = ("sklearn.ensemble", "sklearn.tree", "xgboost", "lightgbm", "catboost")
"""Where models made of trees live."""


def last_step(estimator: Any) -> Any:
    """Return the learner itself, without what prepares its input."""
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def is_of_trees(estimator: Any) -> bool:
    """Say whether the learner is made of trees, as far as its module tells."""
    return type(last_step(estimator)).__module__.startswith(TREE_MODULES)


def seeded(estimator: Any, seed: int) -> Any:
    """Return an unfitted copy whose random choices are all seeded; seeds it has are kept."""
    copy = clone(estimator)
    open_seeds = {
        name: seed
        for name, value in copy.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**open_seeds) if open_seeds else copy


def refuses_nan(estimator: Any) -> bool:
    """Say whether missing values are certainly refused; a composition may know what to do."""
    first = estimator[0] if isinstance(estimator, Pipeline) else estimator
    is_plain = not any(hasattr(first, name) for name in ("estimator", "estimators", "transformers"))
    if not is_plain or not type(first).__module__.startswith("sklearn."):
        return False
    tags = get_tags(first)
    return not tags.input_tags.allow_nan and not tags.no_validation


def check_weight(estimator: Any, sample_weight: Any, n_rows: int) -> NDArray | None:
    """Check one weight per row, and that the estimator weighs rows at all."""
    if sample_weight is None:
        return None
    learner = last_step(estimator)
    if not has_fit_parameter(learner, "sample_weight"):
        raise InputError(
            f"sample_weight was given, but {type(learner).__name__} takes none. "
            "Leave it out, or use an estimator that weighs its rows."
        )
    return _check_sample_weight(sample_weight, np.empty((n_rows, 1)))


def weight_params(estimator: Any, weight: NDArray | None, n_added: int) -> dict[str, NDArray]:
    """Return the parameters of `fit`: added rows weigh as much as the average row."""
    if weight is None:
        return {}
    step = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    return {f"{step}sample_weight": np.append(weight, np.full(n_added, weight.mean()))}
