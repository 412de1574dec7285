"""Helpers for inspecting the wrapped estimator: seeding, sample weights, NaN support."""

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
"""Packages whose models are made of trees."""


class Wrapper:
    """A classifier that passes rows on to another one, its `estimator`."""

    estimator: Any


def unwrapped(estimator: Any) -> Any:
    """Return the classifier inside of wrappers."""
    while isinstance(estimator, Wrapper):
        estimator = estimator.estimator
    return estimator


def last_step(estimator: Any) -> Any:
    """Return the classifier itself: the last step of a pipeline, inside of wrappers."""
    inner = unwrapped(estimator)
    return inner[-1] if isinstance(inner, Pipeline) else inner


def is_of_trees(estimator: Any) -> bool:
    """Return whether the classifier is made of trees, judging by its module."""
    return type(last_step(estimator)).__module__.startswith(TREE_MODULES)


def seeded(estimator: Any, seed: int) -> Any:
    """Return an unfitted copy in which every open `random_state` has this seed."""
    copy = clone(estimator)
    open_seeds = {
        name: seed
        for name, value in copy.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return copy.set_params(**open_seeds) if open_seeds else copy


def refuses_nan(estimator: Any) -> bool:
    """Return whether missing values are certainly refused. Compositions may handle them."""
    first = estimator[0] if isinstance(estimator, Pipeline) else estimator
    is_plain = not any(hasattr(first, name) for name in ("estimator", "estimators", "transformers"))
    if not is_plain or not type(first).__module__.startswith("sklearn."):
        return False
    tags = get_tags(first)
    return not tags.input_tags.allow_nan and not tags.no_validation


def check_weight(estimator: Any, sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return one weight per row; raise if the estimator does not support weights."""
    if sample_weight is None:
        return None
    learner = last_step(estimator)
    if not has_fit_parameter(learner, "sample_weight"):
        raise InputError(
            f"sample_weight was given, but {type(learner).__name__} does not support it. "
            "Leave it out, or use an estimator whose fit takes sample_weight."
        )
    return _check_sample_weight(sample_weight, np.empty((n_rows, 1)))


def weight_params(estimator: Any, weight: NDArray | None, n_added: int) -> dict[str, NDArray]:
    """Return the parameters of `fit`. Added rows weigh as much as the average row."""
    if weight is None:
        return {}
    step = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    return {f"{step}sample_weight": np.append(weight, np.full(n_added, weight.mean()))}


def _has_labelled_probabilities(self: "FactoryClassifier") -> bool:
    """Return whether the model has probabilities, and names the class of each column."""
    model = getattr(self, "model_", None)
    return hasattr(model, "predict_proba") and hasattr(model, "classes_")


class FactoryClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that a user's function fits.

    Parameters
    ----------
    factory : str
        `package.module:function`. The function takes `(X, y)` and returns a fitted model whose
        `predict` returns labels of `y`. It is stored by name, so that this estimator can be
        cloned, pickled and sent to other processes.
    """

    def __init__(self, factory: str) -> None:
        self.factory = factory

    def fit(self, X: Any, y: Any) -> "FactoryClassifier":
        """Fit a model with the function."""
        self.model_ = find_factory(self.factory)(X, y)
        if not hasattr(self.model_, "predict"):
            raise ModelError(
                f"model.fit {self.factory!r} returned {type(self.model_).__name__}, which has no "
                "predict. Return the fitted model."
            )
        self.classes_ = np.asarray(getattr(self.model_, "classes_", np.unique(y)))
        return self

    def predict(self, X: Any) -> NDArray:
        """Return the model's predictions."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.predict(X)).ravel()

    @available_if(_has_labelled_probabilities)
    def predict_proba(self, X: Any) -> NDArray:
        """Return the model's probabilities, in the order of `classes_`."""
        return np.asarray(self.model_.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # The function decides whether it accepts gaps.
        return tags


def find_factory(name: str) -> Any:
    """Return the function that `package.module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            f"model.fit names {name!r}, which cannot be imported here: {error}. Write it as "
            "package.module:function, and install the package where the monitor runs."
        ) from error
    if not callable(function):
        raise ModelError(f"model.fit names {name!r}, which is not a function.")
    return function
