"""`FactoryClassifier`: any model that a named function can fit, as a scikit-learn classifier.

Knows how to call the function and what it must return; knows nothing of what it fits.
"""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from rtscv_mlops.errors import ModelError


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
