"""What is asked of the estimator that is rectified: its seed, its weights, its taste in input.

Knows scikit-learn's conventions and where they are silent; knows nothing of windows.
"""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter

from rtscv_mlops.errors import InputError, ModelError

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


def _names_its_probabilities(self: "FactoryClassifier") -> bool:
    """Tell whether the columns of the model's probabilities can be told apart."""
    model = getattr(self, "model_", None)
    return hasattr(model, "predict_proba") and hasattr(model, "classes_")


class FactoryClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose fit is a function of yours.

    `factory` is `package.module:function`. The function takes `(X, y)`, as many classes as `y` has,
    and returns a fitted object whose `predict` answers with labels of `y`. It is named, not held,
    so that this estimator can be cloned, pickled and sent to other processes.
    """

    def __init__(self, factory: str) -> None:
        self.factory = factory

    def fit(self, X: Any, y: Any) -> "FactoryClassifier":
        """Have the function fit a model."""
        self.model_ = find_factory(self.factory)(X, y)
        if not hasattr(self.model_, "predict"):
            raise ModelError(
                f"model.fit {self.factory!r} returned {type(self.model_).__name__}, which has no "
                "predict. Return the fitted model."
            )
        self.classes_ = np.asarray(getattr(self.model_, "classes_", np.unique(y)))
        return self

    def predict(self, X: Any) -> NDArray:
        """Return the model's answers."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.predict(X)).ravel()

    @available_if(_names_its_probabilities)
    def predict_proba(self, X: Any) -> NDArray:
        """Return the model's probabilities, in the order of `classes_`."""
        return np.asarray(self.model_.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # Whether gaps are taken is the function's business.
        return tags


def find_factory(name: str) -> Any:
    """Import the function that `package.module:function` names."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            f"model.fit names {name!r}, which cannot be imported here: {error}. Write it as "
            "package.module:function, and install the package where the monitor runs."
        ) from error
    if not callable(found):
        raise ModelError(f"model.fit names {name!r}, which is no function.")
    return found
