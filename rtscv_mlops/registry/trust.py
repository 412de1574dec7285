"""Which serialized models may be loaded or saved: skops with a reviewed list, pickle by consent.

Loading a model runs code of its file's choice. A skops file is safe if every type in it is known
to be harmless; the list stored beside the file cannot say so, since whoever wrote the file wrote
the list. So the list is here. Knows files and types; knows nothing of registries.
"""

import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rtscv_mlops.config import ModelSettings
from rtscv_mlops.errors import ModelError

DISTANCES = ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")

TRUSTED_TYPES = frozenset(
    {
        # Holders of fitted numbers: restored by filling fields, nothing in them is called.
        "scipy.sparse._csr.csr_array",
        "scipy.sparse._csr.csr_matrix",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.calibration._TemperatureScaling",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in DISTANCES),
        # Settings of searches, selections and encoders.
        "collections.OrderedDict",
        "numpy.dtype",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        # Pure functions. A partial binds arguments to a function, which must be trusted itself.
        "functools.partial",
        "sklearn.feature_selection._univariate_selection.chi2",
        "sklearn.feature_selection._univariate_selection.f_classif",
        "sklearn.utils.validation.check_array",
        # Boosters hold a model in their library's own format, read by its own parser.
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
    }
)
"""Types beyond those that skops trusts itself, each needed by a common model, each reviewed."""

ADAPTERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))
"""Parts of scikit-learn that hold no estimator, and load seconds of library each."""

PICKLE_RISK = (
    "Loading a pickle runs whatever code its writer put into it, with this process's rights; set "
    "model.allow_pickle: true only if you trust everybody who can write to the model's files."
)


def check_loadable(file: Path, serialization: str, settings: ModelSettings, model: str) -> None:
    """Refuse a model file that could run code nobody agreed to, without loading it."""
    if serialization != "skops":
        if settings.allow_pickle:
            return
        raise ModelError(
            f"{model} is stored by {serialization}, which is not allowed. {PICKLE_RISK} "
            "Or log the model again by rtscv_mlops.log_champion, which stores it by skops.",
            code="pickle_not_allowed",
        )
    strangers = _types_of_file(file, model) - known_types(settings.trusted_types)
    if strangers:
        raise ModelError(
            f"{model} needs type(s) outside the reviewed list: {', '.join(sorted(strangers))}. "
            "Nothing was loaded. If you know that restoring them runs no harmful code, add them to "
            "model.trusted_types.",
            code="untrusted_types",
        )


def known_types(extra: Collection[str]) -> frozenset[str]:
    """Return the reviewed list and what the settings add."""
    return TRUSTED_TYPES | frozenset(extra)


def _skops() -> Any:
    """Return skops' module, which is loaded by those who need it only.

    It loads all of scikit-learn, and looks for each of its types in every module there is; some,
    such as Airflow's, answer each look with a warning.
    """
    with warnings.catch_warnings(), _hidden(ADAPTERS):
        warnings.simplefilter("ignore")
        return import_module("skops.io")


@contextmanager
def _hidden(names: Collection[str]) -> Iterator[None]:
    """Let modules that are not loaded yet look as if they could not be."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def load_skops(file: Path, extra: Collection[str]) -> Any:
    """Load a skops file by our list, whatever list lies beside it."""
    return _skops().load(file, trusted=sorted(known_types(extra)))


def _types_of_file(file: Path, model: str) -> set[str]:
    try:
        return set(_skops().get_untrusted_types(file=file))
    except Exception as error:  # a hostile file can fail anywhere in skops' parser
        raise ModelError(
            f"{model} has a file {file.name} that is no skops file: {error}. Log the model again.",
            code="unreadable_model",
        ) from error


def choose_serialization(
    estimator: Any, trusted_types: Collection[str], allow_pickle: bool
) -> tuple[str, list[str]]:
    """Return how to store an estimator, and the types that its reader must trust."""
    name = type(estimator).__name__
    try:
        needed = set(_skops().get_untrusted_types(data=_skops().dumps(estimator)))
        strangers, why = needed - known_types(trusted_types), "it needs type(s) outside the list"
    except Exception as error:  # skops fails in many ways on objects it does not know
        needed, strangers, why = set(), {name}, f"it cannot be stored by skops ({error})"
    if not strangers:
        return "skops", sorted(needed)
    if allow_pickle:
        return "cloudpickle", []
    raise ModelError(
        f"{name} cannot be stored safely, since {why}: {', '.join(sorted(strangers))}. Add types "
        "that you have reviewed to trusted_types, or set allow_pickle: true. " + PICKLE_RISK,
        code="untrusted_types",
    )
