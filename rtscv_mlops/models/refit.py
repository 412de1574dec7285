"""The champion as an unfitted classifier that can learn one more class."""

from typing import Any

import numpy as np

from rtscv_mlops.errors import Code, ModelError
from rtscv_mlops.models.load import Champion, is_pipeline

GROW = (
    "Let the network grow with its labels: give its module an argument n_outputs, and add a "
    "callback whose on_train_begin(net, X, y, **kwargs) calls "
    "net.set_params(module__n_outputs=len(numpy.unique(y))). Or name a function in model.fit."
)


def as_estimator(champion: Champion, fit: str | None = None) -> Any:
    """Return an unfitted classifier with the champion's settings, or one that `fit` fits.

    The rectified model has one class more than the champion, so a skorch network must not have a
    fixed number of outputs. A callback can set it:

        class GrowOutput(skorch.callbacks.Callback):
            def on_train_begin(self, net, X=None, y=None, **kwargs):
                net.set_params(module__n_outputs=len(np.unique(y)))
    """
    from sklearn.base import clone

    from rtscv_mlops.estimator.learner import FactoryClassifier, find_factory, last_step
    from rtscv_mlops.estimator.network import is_network

    if fit is not None:
        find_factory(fit)
        return FactoryClassifier(fit)
    try:
        estimator = clone(champion.estimator)
    except (TypeError, RuntimeError) as error:
        raise ModelError(
            f"{champion} is a {type(champion.estimator).__name__}, which cannot be cloned. "
            "Use an estimator with get_params, or name a `fit` factory in model.fit.",
            code=Code.CANNOT_CLONE,
        ) from error
    if is_network(last_step(estimator)):
        _check_growth(champion, estimator)
    return estimator


def _check_growth(champion: Champion, network: Any) -> None:
    """Raise if a network cannot learn one class more than it has."""
    import pandas as pd
    import torch
    from sklearn.base import clone

    # Two rows of zeros for each class of the network, and for one more.
    labels = np.repeat(np.arange(len(champion.estimator.classes_) + 1), 2)
    zeros = np.zeros((len(labels), len(champion.columns)), dtype=np.float32)
    rows = champion.rows(pd.DataFrame(zeros, columns=champion.column_names))
    step = f"{network.steps[-1][0]}__" if is_pipeline(network) else ""
    one_epoch = {f"{step}max_epochs": 1, f"{step}train_split": None, f"{step}verbose": 0}
    trial = clone(network).set_params(**one_epoch)
    with torch.random.fork_rng():
        try:
            outputs = np.asarray(trial.fit(rows, labels).predict_proba(rows)).shape[1]
        except (IndexError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"{champion} is a network that could not be fitted with one more class: {error}. "
                f"{GROW}",
                code=Code.FIXED_OUTPUTS,
            ) from error
    if outputs < len(np.unique(labels)):
        raise ModelError(
            f"{champion} is a network that always has {outputs} outputs, however many classes "
            f"there are. {GROW}",
            code=Code.FIXED_OUTPUTS,
        )
