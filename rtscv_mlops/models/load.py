"""The champion: loaded without trusting its files, and cloned to learn one class more."""

import difflib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.config.values import RESERVED_ALIASES
from rtscv_mlops.errors import Code, ModelError, NotAssessed
from rtscv_mlops.models.signature import as_tensor, check_same, metadata_of, model_columns
from rtscv_mlops.models.trust import (
    PICKLE_RISK,
    check_loadable,
    check_uncached,
    fetched,
    list_files,
    load_skops,
)
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, is_absent, public_address
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.seals import find_seal, is_valid_seal
from rtscv_mlops.tracking.versions import logged_model_id
from rtscv_mlops.window import Column

SUPPORTED = ("sklearn", "xgboost", "lightgbm")
"""Flavors whose models can be refitted; MLflow stores a skorch network as the first."""

REFITTABLE = {
    "xgboost": "xgboost.sklearn.XGBClassifier",
    "lightgbm": "lightgbm.sklearn.LGBMClassifier",
}
"""The one class of each flavor that has scikit-learn's interface for classifiers."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The model in production, as the registry had it when it was loaded.

    `columns` are in the order of the estimator. `takes_array` is true if it was fitted on an array,
    whose columns have no names. `digest` covers all files. `categories` are the columns that the
    estimator takes as pandas categories. A model refitted from this one is stored according to
    `trusted_types` and `allow_pickle`. `findings` are sentences about problems that did not prevent
    loading.
    """

    name: str
    alias: str
    version: str
    run_id: str | None
    model_id: str | None
    columns: tuple[Column, ...]
    takes_array: bool
    estimator: Any
    flavor: str
    signature: ModelSignature | None
    digest: str
    categories: tuple[str, ...] = ()
    trusted_types: tuple[str, ...] = ()
    allow_pickle: bool = False
    findings: tuple[str, ...] = ()

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def rows(self, frame: pd.DataFrame) -> Any:
        """Return the rows of a table in the form that the estimator takes."""
        table = frame[self.column_names]
        if self.takes_array:
            return as_tensor(table, self.signature)
        return table.astype(dict.fromkeys(self.categories, "category"))

    def __str__(self) -> str:
        return f"Model {self.name!r} version {self.version}"


def load_champion(
    client: MlflowClient, settings: ModelSettings, earlier: str | None = None
) -> Champion:
    """Load and check the version that the alias names, or an `earlier` version."""
    if earlier is None:
        version = find_champion(client, settings)
    else:
        with asking(f"find version {earlier} of {settings.name!r}"):
            version = client.get_model_version(settings.name, earlier)
    title = f"Model {settings.name!r} version {version.version}"
    with fetched(client, f"models:/{settings.name}/{version.version}") as folder:
        digest = list_files(folder).digest
        _check_sealed(client, version, digest, title)
        description = _read_description(folder, title)
        stored = _StoredModel(folder, description, settings, title)
        flavor, estimator = stored.flavor, stored.load()
    check_classifier(estimator, title)
    columns = model_columns(description, settings, title)
    takes_array = stored.takes_array(estimator)
    return Champion(
        name=settings.name,
        alias=settings.alias,
        version=str(version.version),
        run_id=version.run_id or description.run_id,
        model_id=logged_model_id(version),
        columns=columns if takes_array else _sort_as_fitted(columns, estimator, title),
        takes_array=takes_array,
        estimator=estimator,
        flavor=flavor,
        signature=description.signature,
        digest=digest,
        categories=tuple(metadata_of(description).get("categories", ())),
        trusted_types=settings.trusted_types,
        allow_pickle=settings.allow_pickle,
        findings=tuple(stored.findings()),
    )


def find_champion(client: MlflowClient, settings: ModelSettings) -> ModelVersion:
    """Return the version that the alias names."""
    registered = _find_model(client, settings.name)
    try:
        return client.get_model_version_by_alias(settings.name, settings.alias)
    except MlflowException as error:
        if settings.alias not in registered.aliases:
            how = _how_to_set_alias(client, registered, settings)
            raise NotAssessed(Code.NO_CHAMPION, how) from error
        with asking(f"find the {settings.alias} of {settings.name!r}"):
            raise


def read_columns(client: MlflowClient, settings: ModelSettings) -> tuple[Column, ...]:
    """Return the columns in the champion's description, without loading the model."""
    version = find_champion(client, settings).version
    model = f"Model {settings.name!r} version {version}"
    with fetched(client, f"models:/{settings.name}/{version}") as folder:
        return model_columns(_read_description(folder, model), settings, model)


def _find_model(client: MlflowClient, name: str) -> RegisteredModel:
    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        with asking(f"look for the model {name!r}"):
            if not is_absent(error):
                raise
            others = [model.name for model in client.search_registered_models(max_results=1000)]
        near = difflib.get_close_matches(name, others, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Check model.name."
        raise ModelError(
            f"MLflow has no registered model {name!r}. {hint}", code=Code.NO_MODEL
        ) from error


def _how_to_set_alias(
    client: MlflowClient, registered: RegisteredModel, settings: ModelSettings
) -> str:
    """Return a message with the aliases to choose from, or with the command that sets one.

    It never suggests a version that awaits review.
    """
    absent = (
        f"Model {settings.name!r} has no version with the alias {settings.alias!r}, so there is "
        "nothing to monitor."
    )
    others = [
        f"{alias!r} (version {version})"
        for alias, version in sorted(registered.aliases.items())
        if alias not in RESERVED_ALIASES
    ]
    if others:
        return f"{absent} It has {', '.join(others)}: name the one that serves in model.alias."
    newest = max(
        (int(one.version) for one in registered.latest_versions if tags.KIND not in one.tags),
        default=None,
    )
    which = repr(str(newest)) if newest else "'<version>'"
    call = f"set_registered_model_alias({settings.name!r}, {settings.alias!r}, {which})"
    return (
        f"{absent} Set it to the version that serves: "
        f'python -c "import mlflow; mlflow.MlflowClient({public_address(client)!r}).{call}"'
    )


def _check_sealed(client: MlflowClient, version: ModelVersion, digest: str, model: str) -> None:
    """Raise if the files differ from those that were sealed, before any of them is read.

    A challenger's digest is in the ledger. That of a model that was logged is a tag, which only
    shows that files were damaged: those who can change them can change the tag.
    """
    model_id = logged_model_id(version)
    claims = Ledger(client, version.name).claims(is_valid_seal)
    seal = find_seal(claims, version.run_id or "")
    is_ours = seal is not None and seal.model_id == model_id
    sealed = seal.model_sha256 if seal and is_ours else version.tags.get(tags.MODEL_SHA256, "")
    if not sealed and model_id:
        with asking(f"read the tags of {model}"):
            sealed = client.get_logged_model(model_id).tags.get(tags.MODEL_SHA256, "")
    if sealed and sealed != digest:
        raise ModelError(
            f"The files of {model} have the digest {digest[:12]}, but were sealed with "
            f"{sealed[:12]}: they were changed. Nothing was loaded. Restore them, or log the model "
            "again and move the alias.",
            code=Code.DIGEST_MISMATCH,
        )


def check_folder(folder: Path, settings: ModelSettings, model: str) -> None:
    """Raise if loading a model from a folder could run code that the settings do not allow."""
    _StoredModel(folder, _read_description(folder, model), settings, model).check()


def _read_description(folder: Path, model: str) -> Model:
    try:
        return Model.load(folder)
    except Exception as error:  # the YAML is untrusted and can fail in any way
        raise ModelError(
            f"{model} has an MLmodel file that cannot be read: {error}", code=Code.UNREADABLE_MODEL
        ) from error


@dataclass(frozen=True, slots=True)
class _StoredModel:
    """A model in a local folder, with MLflow's description of it. Neither is trusted."""

    folder: Path
    description: Model
    settings: ModelSettings
    title: str

    @property
    def flavor(self) -> str:
        """The flavor by which the model can be loaded and, by clone or `fit`, refitted."""
        flavors = self.description.flavors
        supported = next((flavor for flavor in SUPPORTED if flavor in flavors), None)
        kind = flavors[supported].get("model_class") if supported else None
        if supported and kind == REFITTABLE.get(supported):
            return supported
        if self.settings.fit:
            return "python_function"
        raise ModelError(
            f"{self.title} is stored as {kind or ', '.join(sorted(flavors)) or 'no flavor'}, which "
            "cannot be refitted: it needs an estimator or a `fit` factory. Supported flavors: "
            f"{', '.join(SUPPORTED)} (classifiers with scikit-learn's interface, including skorch "
            "networks). For any other model, name a function in model.fit.",
            code=Code.UNSUPPORTED_FLAVOR,
        )

    def load(self) -> Any:
        """Return the estimator, or raise if loading it fails or could run untrusted code."""
        from sklearn.exceptions import InconsistentVersionWarning

        try:
            with warnings.catch_warnings():
                # A finding reports another version, from the model's description.
                warnings.simplefilter("ignore", InconsistentVersionWarning)
                estimator = self._load_checked()
            check_uncached(estimator, self.title)
            return estimator
        except ModelError:
            raise
        except ImportError as error:
            ships = " or set model.allow_pickle, which lets the model bring its own code"
            raise ModelError(
                f"{self.title} needs the module {error.name or error!s}, which is missing here "
                f"({error}). Install it where the monitor runs{ships if self.ships_code else ''}.",
                code=Code.MISSING_MODULE,
            ) from error
        except Exception as error:  # restoring an object runs its class's own code
            raise ModelError(
                f"{self.title} cannot be loaded: {type(error).__name__}: {error}."
                f"{self.version_note}",
                code=Code.UNREADABLE_MODEL,
            ) from error

    def check(self) -> tuple[Path, str] | None:
        """Raise if loading could run untrusted code; return the file and how it is serialized.

        None means that the model loads itself, which is allowed.
        """
        flavor, settings = self.flavor, self.settings
        if flavor == "python_function":
            if not settings.allow_pickle:
                raise ModelError(
                    f"{self.title} is a custom Python function, and loading it runs its code. "
                    f"{PICKLE_RISK}",
                    code=Code.PICKLE_NOT_ALLOWED,
                )
            return None
        conf = self.description.flavors[flavor]
        file = self._find_file(conf.get("pickled_model") or conf.get("data") or "")
        serialization = conf.get("serialization_format") or "pickle"
        if flavor != "xgboost":
            check_loadable(file, serialization, settings, self.title)
        return file, serialization

    def _load_checked(self) -> Any:
        checked, flavor, settings = self.check(), self.flavor, self.settings
        if checked is None:
            return mlflow.pyfunc.load_model(str(self.folder))
        file, serialization = checked
        if flavor == "xgboost":
            return _load_xgboost(file)
        if serialization == "skops" and not (settings.allow_pickle and self.ships_code):
            return load_skops(file, settings.trusted_types)
        loader = mlflow.sklearn if flavor == "sklearn" else mlflow.lightgbm
        return loader.load_model(str(self.folder))

    def _find_file(self, name: str) -> Path:
        """Return a file of the model. The description must not point outside the folder."""
        file = (self.folder / name).resolve()
        if not file.is_relative_to(self.folder.resolve()):
            raise ModelError(
                f"{self.title} points at a file outside its folder ({name}). It was not loaded; "
                "log the model again.",
                code=Code.UNREADABLE_MODEL,
            )
        if not file.is_file():
            raise ModelError(
                f"{self.title} lacks its file {name or 'of the estimator'}. Restore it, or log the "
                "model again and move the alias.",
                code=Code.ARTIFACTS_MISSING,
            )
        return file

    @property
    def ships_code(self) -> bool:
        return any(conf.get("code") for conf in self.description.flavors.values())

    @property
    def version_note(self) -> str:
        """A sentence if another version of scikit-learn stored the model; else empty."""
        import sklearn

        theirs = self.description.flavors.get("sklearn", {}).get("sklearn_version")
        if theirs is None or theirs == sklearn.__version__:
            return ""
        return (
            f" It was stored by scikit-learn {theirs}; this is {sklearn.__version__}. "
            f"Install scikit-learn {theirs}, or log the model again."
        )

    def takes_array(self, estimator: Any) -> bool:
        """Return whether the estimator takes an array rather than a table."""
        inputs = self.description.signature.inputs if self.description.signature else None
        if inputs and (inputs.is_tensor_spec() or not inputs.has_input_names()):
            return True
        from rtscv_mlops.estimator.learner import unwrapped

        if self.flavor == "python_function" or feature_names(estimator) is not None:
            return False
        # A pipeline that starts with a custom transformer may keep no names and still use them.
        inner = unwrapped(estimator)
        first = inner[0] if is_pipeline(inner) else inner
        return type(first).__module__.partition(".")[0] in {*SUPPORTED, "skorch"}

    def findings(self) -> Iterator[str]:
        if self.version_note:
            yield f"{self.title} was loaded, but its predictions may differ.{self.version_note}"
        if self.flavor == "xgboost":
            yield (
                f"{self.title} is stored in XGBoost's own format, which keeps no settings except "
                "the number of rounds: the refit uses XGBoost's defaults for all others. Log the "
                "model with rtscv_mlops.log_champion to keep them."
            )


def _load_xgboost(file: Path) -> Any:
    from xgboost import XGBClassifier

    estimator = XGBClassifier()
    estimator.load_model(file)
    # XGBoost's own format keeps the trees but no settings, and one start value per known class,
    # which makes a fit with one more class fail.
    return estimator.set_params(
        n_estimators=estimator.get_booster().num_boosted_rounds(), base_score=None
    )


def check_classifier(estimator: Any, model: str) -> None:
    """Raise unless the estimator is a fitted classifier with one prediction per row."""
    from sklearn.base import is_regressor
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    kind = type(estimator).__name__
    if not hasattr(estimator, "predict"):
        raise ModelError(f"{model} is a {kind}, which has no predict method.", code=Code.NO_PREDICT)
    if not hasattr(estimator, "fit"):
        return  # The model of a `fit` factory need not follow scikit-learn's conventions.
    if is_regressor(estimator):
        raise ModelError(
            f"{model} is a {kind}, a regressor. Only a classifier can be monitored.",
            code=Code.NO_CLASSIFIER,
        )
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise ModelError(
            f"{model} is a {kind} that was never fitted.", code=Code.NOT_FITTED
        ) from error
    if isinstance(getattr(estimator, "classes_", None), list):
        raise ModelError(
            f"{model} is a {kind} with several outputs; a monitor needs one label per row.",
            code=Code.NO_CLASSIFIER,
        )


def is_pipeline(estimator: Any) -> bool:
    """Return whether an estimator is a scikit-learn pipeline."""
    from sklearn.pipeline import Pipeline

    return isinstance(estimator, Pipeline)


def feature_names(estimator: Any) -> list[str] | None:
    """Return the columns that an estimator was fitted on, if it was fitted on a table."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or list(names) == [f"Column_{index}" for index in range(len(names))]:
        return None  # LightGBM gives such names to the columns of an array.
    return [str(name) for name in names]


def _sort_as_fitted(columns: tuple[Column, ...], estimator: Any, model: str) -> tuple[Column, ...]:
    """Return the columns in the order of the fit, which scikit-learn requires."""
    fitted = feature_names(estimator)
    if fitted is None:
        return columns
    by_name = {column.name: column for column in columns}
    check_same(
        fitted,
        list(by_name),
        f"{model} was fitted on columns other than those that it declares: {{}}. Log it again, "
        "with the signature of its training data.",
    )
    return tuple(by_name[name] for name in fitted)


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
