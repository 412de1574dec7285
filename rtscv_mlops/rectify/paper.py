"""Algorithm 1 of the paper, word for word, for reproduction.

Knows rows, labels and classifiers. It has no notion of "nothing new here": see `monitor` for that.
"""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv

from rtscv_mlops.errors import InputError
from rtscv_mlops.rectify.rows import take
from rtscv_mlops.rectify.work import do_all


def sample_window(n_window: int, n_known: int, rate: float, of: str, seed: int) -> NDArray:
    """Step 1: draw the sample, a share of the window or of the training set's size."""
    size = round(rate * (n_window if of == "window" else n_known))
    size = min(max(size, 1), n_window)
    return np.sort(np.random.default_rng(seed).permutation(n_window)[:size])


def make_splitter(cv: Any, seed: int) -> Any:
    """Return the splitter that a number of folds or the word "holdout" stands for."""
    if isinstance(cv, str):
        return StratifiedShuffleSplit(1, test_size=1 / 3, random_state=seed)
    if isinstance(cv, Integral):
        return StratifiedKFold(int(cv), shuffle=True, random_state=seed)
    return cv


def cross_validate_sample(
    estimator: Any,
    rows: Any,
    layout: NDArray,
    dummy: Any,
    cv: Any,
    fit_params: dict[str, NDArray],
    n_jobs: int | None,
) -> NDArray:
    """Steps 4 and 5: return which rows of the dummy class are still predicted as that class.

    A row that the splitter never holds out, as in holdout validation, is not kept.
    """
    try:
        splits = list(check_cv(cv, layout, classifier=True).split(np.zeros(len(layout)), layout))
    except ValueError as error:
        raise InputError(f"{cv!r} cannot split the rows: {error} Choose another cv.") from error
    shared = (estimator, rows, layout, dummy, fit_params)
    kept = do_all(_held_out_unknowns, splits, shared=shared, n_jobs=n_jobs)
    unknown = np.zeros(len(layout), dtype=bool)
    unknown[np.concatenate(kept)] = True
    return unknown


def _held_out_unknowns(
    estimator: Any,
    rows: Any,
    layout: NDArray,
    dummy: Any,
    fit_params: dict[str, NDArray],
    train: NDArray,
    test: NDArray,
) -> NDArray:
    """Return the held-out rows of the dummy class that a model without them takes for it."""
    test = test[layout[test] == dummy]
    if len(test) == 0:
        return test
    params = {name: values[train] for name, values in fit_params.items()}
    model = clone(estimator).fit(take(rows, train), layout[train], **params)
    return test[np.asarray(model.predict(take(rows, test))).ravel() == dummy]
