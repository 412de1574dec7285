"""The champion: the version that an alias names, loaded without trusting its files.

Knows MLflow's flavors and what may be loaded; knows nothing of windows or training data.
"""

import difflib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.config.values import RESERVED_ALIASES
from rtscv_mlops.errors import Code, ModelError, NotAssessed
from rtscv_mlops.models.signature import as_tensor, check_same, metadata_of, model_columns
from rtscv_mlops.models.trust import PICKLE_RISK, check_loadable, fetched, list_files, load_skops
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import asking, is_absent, public_address
from rtscv_mlops.window import Column

SUPPORTED = ("sklearn", "xgboost", "lightgbm")
"""Flavors whose models can be refitted; skorch networks are of the first."""

REFITTABLE = {
    "xgboost": "xgboost.sklearn.XGBClassifier",
    "lightgbm": "lightgbm.sklearn.LGBMClassifier",
}
"""The one class of each flavor that follows scikit-learn's contract for classifiers."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The model in production, as the registry had it when it was asked.

    `columns` are in the order in which the estimator takes them. `takes_array` says that it was
    fitted on an array, whose columns have no names of their own. `digest` is that of all files.
    `categories` are columns that it takes as pandas categories. `trusted_types` and `allow_pickle`
    say how a model made from it may be stored. `findings` are sentences about what was odd but
    could be handled.
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
        """Return the rows of a table as the estimator takes them."""
        table = frame[self.column_names]
        if self.takes_array:
            return as_tensor(table, self.signature)
        return table.astype(dict.fromkeys(self.categories, "category"))

    def __str__(self) -> str:
        return f"Model {self.name!r} version {self.version}"


def load_champion(
    client: MlflowClient, settings: ModelSettings, earlier: str | None = None
) -> Champion:
    """Return the model that the alias names, or raise what is wrong with it.

    `earlier` is the version of one that the alias named before.
    """
    if earlier is None:
        version = find_champion(client, settings)
    else:
        with asking(f"find version {earlier} of {settings.name!r}"):
            version = client.get_model_version(settings.name, earlier)
    model = f"Model {settings.name!r} version {version.version}"
    with fetched(client, f"models:/{settings.name}/{version.version}") as folder:
        digest = list_files(folder).digest
        _check_sealed(client, version, digest, model)
        stored = _read_description(folder, model)
        flavor = _choose_flavor(stored, settings, model)
        estimator = _load(folder, stored, flavor, settings, model)
    check_classifier(estimator, model)
    champion = Champion(
        name=settings.name,
        alias=settings.alias,
        version=str(version.version),
        run_id=version.run_id or stored.run_id,
        model_id=_model_id(version),
        columns=model_columns(stored, settings, model),
        takes_array=_takes_array(stored.signature, estimator, flavor),
        estimator=estimator,
        flavor=flavor,
        signature=stored.signature,
        digest=digest,
        categories=tuple(metadata_of(stored).get("categories", ())),
        trusted_types=settings.trusted_types,
        allow_pickle=settings.allow_pickle,
        findings=tuple(_findings(stored, flavor, model)),
    )
    return _in_estimator_order(champion)


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
    """Return the columns that the champion's description names, without loading the model."""
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
    """Say which aliases there are, or how to set one; never to a version that waits for review."""
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
    versions = [one for one in registered.latest_versions if tags.KIND not in one.tags]
    newest = max((int(one.version) for one in versions), default=None)
    which = repr(str(newest)) if newest else "'<version>'"
    call = f"set_registered_model_alias({settings.name!r}, {settings.alias!r}, {which})"
    return (
        f"{absent} Set it to the version that serves: "
        f'python -c "import mlflow; mlflow.MlflowClient({public_address(client)!r}).{call}"'
    )


def _model_id(version: ModelVersion) -> str | None:
    """Return the id of the logged model, which MLflow leaves out of versions read back."""
    if version.model_id:
        return str(version.model_id)
    source = version.source or ""
    return source.removeprefix("models:/") if source.startswith("models:/m-") else None


def _check_sealed(client: MlflowClient, version: ModelVersion, digest: str, model: str) -> None:
    """Refuse files other than those that we sealed, before anything is made of them."""
    sealed, model_id = version.tags.get(tags.MODEL_SHA256, ""), _model_id(version)
    if not sealed and model_id:
        with asking(f"read the tags of {model}"):
            sealed = client.get_logged_model(model_id).tags.get(tags.MODEL_SHA256, "")
    if sealed and sealed != digest:
        raise ModelError(
            f"The files of {model} have the digest {digest[:12]}, not {sealed[:12]} as when they "
            "were sealed: somebody changed them. Nothing was loaded. Restore them, or log the "
            "model again and move the alias.",
            code=Code.DIGEST_MISMATCH,
        )


def _read_description(folder: Path, model: str) -> Model:
    try:
        return Model.load(folder)
    except Exception as error:  # the file is YAML of anybody's making
        raise ModelError(
            f"{model} has an MLmodel file that cannot be read: {error}", code=Code.UNREADABLE_MODEL
        ) from error


def _choose_flavor(stored: Model, settings: ModelSettings, model: str) -> str:
    """Return the flavor by which the model can be loaded and, by clone or `fit`, refitted."""
    found = next((flavor for flavor in SUPPORTED if flavor in stored.flavors), None)
    kind = stored.flavors[found].get("model_class") if found else None
    if found and kind == REFITTABLE.get(found):
        return found
    if settings.fit:
        return "python_function"
    what = kind or ", ".join(sorted(stored.flavors)) or "no flavor"
    raise ModelError(
        f"{model} is stored as {what}, which cannot be refitted: it needs an estimator or a `fit` "
        f"factory. Supported flavors: {', '.join(SUPPORTED)} (classifiers with scikit-learn's "
        "interface, skorch networks among them). For anything else, name a function in "
        "model.fit.",
        code=Code.UNSUPPORTED_FLAVOR,
    )


def _load(folder: Path, stored: Model, flavor: str, settings: ModelSettings, model: str) -> Any:
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        with warnings.catch_warnings():
            # Other versions are told as a finding, from what the model says of itself.
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            return _load_checked(folder, stored, flavor, settings, model)
    except ModelError:
        raise
    except ImportError as error:
        ships = " or set model.allow_pickle, which lets the model bring its own code"
        raise ModelError(
            f"{model} needs the module {error.name or error!s}, which is missing here ({error}). "
            f"Install it where the monitor runs{ships if _ships_code(stored) else ''}.",
            code=Code.MISSING_MODULE,
        ) from error
    except Exception as error:  # restoring an object runs its class's own code
        raise ModelError(
            f"{model} cannot be loaded: {type(error).__name__}: {error}.{_versions(stored)}",
            code=Code.UNREADABLE_MODEL,
        ) from error


def _load_checked(
    folder: Path, stored: Model, flavor: str, settings: ModelSettings, model: str
) -> Any:
    if flavor == "python_function":
        if not settings.allow_pickle:
            raise ModelError(
                f"{model} is a Python function of its own making, and loading it runs its code. "
                f"{PICKLE_RISK}",
                code=Code.PICKLE_NOT_ALLOWED,
            )
        return mlflow.pyfunc.load_model(str(folder))
    conf = stored.flavors[flavor]
    file = _inside(folder, conf.get("pickled_model") or conf.get("data") or "", model)
    if flavor == "xgboost":
        return _load_xgboost(file)
    serialization = conf.get("serialization_format") or "pickle"
    check_loadable(file, serialization, settings, model)
    if serialization == "skops" and not (settings.allow_pickle and _ships_code(stored)):
        return load_skops(file, settings.trusted_types)
    loader = mlflow.sklearn if flavor == "sklearn" else mlflow.lightgbm
    return loader.load_model(str(folder))


def _inside(folder: Path, name: str, model: str) -> Path:
    """Return a file of the model; its description may not point elsewhere."""
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise ModelError(
            f"{model} points at a file outside its folder ({name}). It was not loaded; log the "
            "model again.",
            code=Code.UNREADABLE_MODEL,
        )
    if not file.is_file():
        raise ModelError(
            f"{model} lacks its file {name or 'of the estimator'}. Restore it, or log the model "
            "again and move the alias.",
            code=Code.ARTIFACTS_MISSING,
        )
    return file


def _load_xgboost(file: Path) -> Any:
    from xgboost import XGBClassifier

    estimator = XGBClassifier()
    estimator.load_model(file)
    # XGBoost's own format keeps the trees but no settings, and a start value per known class,
    # with which no further class could be fitted.
    return estimator.set_params(
        n_estimators=estimator.get_booster().num_boosted_rounds(), base_score=None
    )


def _ships_code(stored: Model) -> bool:
    return any(conf.get("code") for conf in stored.flavors.values())


def _versions(stored: Model) -> str:
    """Say which scikit-learn stored the model, if it was another one."""
    import sklearn

    there = stored.flavors.get("sklearn", {}).get("sklearn_version")
    if there is None or there == sklearn.__version__:
        return ""
    return (
        f" It was stored by scikit-learn {there}; this is {sklearn.__version__}. "
        f"Install scikit-learn {there}, or log the model again."
    )


def _findings(stored: Model, flavor: str, model: str) -> list[str]:
    findings = []
    if versions := _versions(stored):
        findings.append(f"{model} could be loaded, but its answers may differ.{versions}")
    if flavor == "xgboost":
        findings.append(
            f"{model} is stored in XGBoost's own format, which keeps no settings but the number of "
            "rounds: the refit uses XGBoost's defaults for all others. Log it by "
            "rtscv_mlops.log_champion to keep them."
        )
    return findings


def check_classifier(estimator: Any, model: str) -> None:
    """Refuse what is no fitted classifier with one answer per row."""
    from sklearn.base import is_regressor
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    kind = type(estimator).__name__
    if not hasattr(estimator, "predict"):
        raise ModelError(f"{model} is a {kind}, which has no predict.", code=Code.NO_PREDICT)
    if not hasattr(estimator, "fit"):
        return  # A factory's model need not follow scikit-learn's conventions.
    if is_regressor(estimator):
        raise ModelError(
            f"{model} is a {kind}, a regressor. Only classifiers have classes that can be new.",
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
            f"{model} is a {kind} with several outputs; a monitor takes one label per row.",
            code=Code.NO_CLASSIFIER,
        )


def _takes_array(signature: ModelSignature | None, estimator: Any, flavor: str) -> bool:
    inputs = signature.inputs if signature else None
    if inputs and (inputs.is_tensor_spec() or not inputs.has_input_names()):
        return True
    if flavor == "python_function" or feature_names(estimator) is not None:
        return False
    # A pipeline that starts with somebody's own transformer may keep no names and yet use them.
    first = estimator[0] if is_pipeline(estimator) else estimator
    return type(first).__module__.partition(".")[0] in {"sklearn", "xgboost", "lightgbm", "skorch"}


def is_pipeline(estimator: Any) -> bool:
    """Tell whether an estimator is a pipeline of scikit-learn's."""
    from sklearn.pipeline import Pipeline

    return isinstance(estimator, Pipeline)


def feature_names(estimator: Any) -> list[str] | None:
    """Return the columns that an estimator was fitted on, if it was fitted on a table."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or list(names) == [f"Column_{place}" for place in range(len(names))]:
        return None  # LightGBM makes up names of this form for the columns of an array.
    return [str(name) for name in names]


def _in_estimator_order(champion: Champion) -> Champion:
    """Check the columns against those of the fit, whose order scikit-learn insists on."""
    fitted = feature_names(champion.estimator)
    if fitted is None or champion.takes_array:
        return champion
    check_same(
        fitted,
        champion.column_names,
        f"{champion} was fitted on other columns than it says it takes: {{}}. Log it again, with "
        "the signature of its training data.",
    )
    by_name = {column.name: column for column in champion.columns}
    return replace(champion, columns=tuple(by_name[name] for name in fitted))
