"""The champion is loaded without trusting its files, or the reason why not is named."""

import errno
import os
import pickle
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import sklearn
import yaml
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from rtscv_mlops import RTSCVClassifier, log_champion
from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.config.values import RESERVED_ALIASES
from rtscv_mlops.errors import ModelError, NotAssessed, ServiceError
from rtscv_mlops.estimator.learner import FactoryClassifier
from rtscv_mlops.models.load import as_estimator, find_champion, load_champion
from rtscv_mlops.models.trust import TRUSTED_TYPES, fetched, list_files, model_digest
from tests.champions import (
    EXPERIMENT,
    champion_of,
    fit_forest,
    log,
    mixed_pipeline,
    open_registry,
    table,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return open_registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture
def numbers():
    frame, codes = table()
    return frame[["height", "width"]], np.array(["a", "b", "c"])[codes]


def register_folder(client, folder, name):
    """Register whatever lies in a folder as the champion, as a careless or hostile writer may."""
    client.create_registered_model(name)
    version = client.create_model_version(name, str(folder))
    client.set_registered_model_alias(name, "champion", version.version)
    return ModelSettings(name=name)


def save(folder, model, **given):
    """Save a model as MLflow does, with explicit requirements, which spares a subprocess."""
    mlflow.sklearn.save_model(model, folder, pip_requirements=["scikit-learn"], **given)
    return folder


def edit_description(folder, **changes):
    """Change what a model says of its scikit-learn flavor."""
    file = Path(folder) / "MLmodel"
    description = yaml.safe_load(file.read_text())
    description["flavors"]["sklearn"].update(changes)
    file.write_text(yaml.safe_dump(description))


# -- what is loaded


def test_a_champion_is_what_was_logged(client, numbers):
    """Name, version, run, model, columns and digest are those of the logged model; it predicts."""
    X, y = numbers

    champion = champion_of(client, LogisticRegression(), X, y, "plain")

    found = client.get_model_version_by_alias("plain", "champion")
    assert (champion.name, champion.alias, champion.version) == ("plain", "champion", "1")
    assert champion.run_id == found.run_id
    assert found.source == f"models:/{champion.model_id}"
    assert [(column.name, column.kind) for column in champion.columns] == [
        ("height", "float"),
        ("width", "float"),
    ]
    assert champion.digest == model_digest(client, found.source)
    assert (champion.flavor, champion.takes_array, champion.findings) == ("sklearn", False, ())
    assert np.mean(champion.estimator.predict(champion.rows(X)) == y) > 0.9
    assert str(find_champion(client, ModelSettings(name="plain")).version) == "1"


@pytest.mark.parametrize("kind", ["text", "integer", "boolean"])
def test_a_pipeline_takes_text_and_categories(client, kind):
    """Columns keep their kinds, and categories come back as categories from plain text."""
    X, codes = table()
    y = {"text": np.array(["a", "b", "c"])[codes], "integer": codes * 10, "boolean": codes == 1}

    champion = champion_of(client, mixed_pipeline(), X, y[kind], f"pipeline-{kind}")

    assert [column.kind for column in champion.columns] == ["float", "float", "text", "text"]
    rows = champion.rows(X.astype({"shape": str})[["shape", "colour", "width", "height"]])
    assert rows["shape"].dtype == "category"
    assert list(rows.columns) == list(X.columns)
    answers = champion.estimator.predict(rows)
    assert answers.dtype.kind == y[kind].dtype.kind
    assert np.mean(answers == y[kind]) > 0.6


def test_a_champion_fitted_on_an_array_gets_arrays(client, numbers):
    """Columns of an array are named by place, and a table is turned back into an array."""
    X, y = numbers

    champion = champion_of(client, RandomForestClassifier(5), X.to_numpy(), y, "array")

    assert champion.takes_array
    assert champion.column_names == ["f0", "f1"]
    rows = champion.rows(pd.DataFrame({"f1": X["width"], "f0": X["height"]}))
    np.testing.assert_array_equal(rows, X.to_numpy())


def test_settings_name_the_columns_of_an_array(client, numbers):
    """The monitor's names for an array's columns count; too few or too many are refused."""
    X, y = numbers
    log(client, SVC(), X.to_numpy(), y, "renamed")

    champion = load_champion(client, ModelSettings(name="renamed", columns=("height", "width")))

    assert champion.column_names == ["height", "width"]
    with pytest.raises(ModelError, match=r"takes 2 column\(s\), but 1 name\(s\) are given"):
        load_champion(client, ModelSettings(name="renamed", columns=("height",)))


def test_images_keep_their_shape(client):
    """Rows with a shape of their own come back in it."""
    images = np.random.default_rng(0).normal(size=(20, 2, 3)).astype(np.float32)
    flatten = FunctionTransformer(np.reshape, kw_args={"shape": (-1, 6)})

    champion = champion_of(
        client,
        make_pipeline(flatten, LogisticRegression()),
        images,
        np.arange(20) % 2,
        "images",
        trusted_types=("numpy.reshape",),
        settings={"trusted_types": ("numpy.reshape",)},
    )

    frame = pd.DataFrame(images.reshape(20, -1), columns=champion.column_names)
    np.testing.assert_array_equal(champion.rows(frame), images)
    assert champion.rows(frame).dtype == np.float32


def test_columns_follow_the_fit(client, numbers, tmp_path):
    """Where signature and fit differ in order, the fit's order counts; scikit-learn insists."""
    X, y = numbers
    model = LogisticRegression().fit(X, y)
    signature = mlflow.models.infer_signature(X[["width", "height"]], y)
    settings = register_folder(client, save(tmp_path / "m", model, signature=signature), "turned")

    champion = load_champion(client, settings)

    assert champion.column_names == ["height", "width"]
    champion.estimator.predict(champion.rows(X))


# -- rows 83 to 99 of the bad inputs


def test_an_unknown_name_gets_near_ones(client, numbers):
    """Row 83: a wrong name is refused with names that are like it."""
    log(client, SVC(), *numbers, "letters")

    with pytest.raises(ModelError, match=r"no registered model 'leters'\. Did you mean 'letters'"):
        load_champion(client, ModelSettings(name="leters"))


def test_no_champion_is_told_with_the_command(client, numbers):
    """Row 84: a model without the alias is not assessed, and the command given sets the alias."""
    log(client, SVC(), *numbers, "headless", alias=None)

    with pytest.raises(NotAssessed, match="no version with the alias 'champion'") as caught:
        load_champion(client, ModelSettings(name="headless"))

    assert caught.value.code == "no_champion"
    program = str(caught.value).split('python -c "')[1].rstrip('"')
    exec(program)
    assert str(find_champion(client, ModelSettings(name="headless")).version) == "1"


def test_a_reserved_alias_is_not_offered(client, numbers):
    """The hint lists only aliases that `model.alias` accepts."""
    log(client, SVC(), *numbers, "live-only", alias="live")
    for alias in RESERVED_ALIASES:
        client.set_registered_model_alias("live-only", alias, "1")

    with pytest.raises(NotAssessed, match=r"It has 'live' \(version 1\): name the one") as caught:
        load_champion(client, ModelSettings(name="live-only"))

    assert not any(alias in str(caught.value) for alias in RESERVED_ALIASES)


def test_a_deleted_champion_is_no_champion(client, numbers):
    """Deleting the version takes the alias with it: the outcome has a name all the same."""
    log(client, SVC(), *numbers, "deleted")
    client.delete_model_version("deleted", "1")

    with pytest.raises(NotAssessed, match="<version>"):
        load_champion(client, ModelSettings(name="deleted"))


def test_without_signature_settings_must_name_columns(client, numbers, tmp_path):
    """Row 87: no signature is refused, unless the monitor lists the columns."""
    X, y = numbers
    settings = register_folder(client, save(tmp_path / "m", SVC().fit(X, y)), "unsigned")

    with pytest.raises(ModelError, match=r"List them in model\.columns"):
        load_champion(client, settings)

    champion = load_champion(client, ModelSettings(name="unsigned", columns=("height", "width")))
    assert champion.column_names == ["height", "width"]
    assert not champion.takes_array


def test_signature_and_settings_must_agree(client, numbers):
    """Row 88: other columns in the monitor than in the signature are refused by name."""
    log(client, SVC(), *numbers, "signed")

    with pytest.raises(ModelError, match="missing 'height'; extra 'depth'"):
        load_champion(client, ModelSettings(name="signed", columns=("depth", "width")))

    load_champion(client, ModelSettings(name="signed", columns=("width", "height")))


def test_signature_and_fit_must_agree(client, numbers, tmp_path):
    """A signature that the estimator was not fitted on is refused with the difference."""
    X, y = numbers
    signature = mlflow.models.infer_signature(X.rename(columns={"width": "depth"}), y)
    folder = save(tmp_path / "m", SVC().fit(X, y), signature=signature)

    with pytest.raises(ModelError, match="missing 'width'; extra 'depth'"):
        load_champion(client, register_folder(client, folder, "other-columns"))


class Echo(mlflow.pyfunc.PythonModel):
    """A model that only MLflow's own interface knows."""

    def predict(self, model_input: list[str]) -> list[str]:
        return model_input


def test_a_python_function_cannot_be_refitted(client, tmp_path):
    """Rows 89 and 90: what has no estimator is refused, and the supported flavors are named."""
    mlflow.pyfunc.save_model(tmp_path / "m", python_model=Echo(), pip_requirements=["mlflow"])
    settings = register_folder(client, tmp_path / "m", "function")

    with pytest.raises(ModelError, match=r"(?s)needs an estimator or a `fit` factory.*lightgbm"):
        load_champion(client, settings)

    by_factory = settings.model_copy(update={"fit": "tests.champions:fit_forest"})
    with pytest.raises(ModelError, match="loading it runs its code"):
        load_champion(client, by_factory)


@pytest.mark.parametrize("flavor", ["keras", "pytorch", "spark", "tensorflow"])
def test_other_flavors_are_named(client, numbers, tmp_path, flavor):
    """Row 90: a flavor that cannot be refitted is named beside those that can."""
    folder = save(tmp_path / "m", SVC().fit(*numbers))
    file = folder / "MLmodel"
    file.write_text(file.read_text().replace("  sklearn:", f"  {flavor}:"))

    with pytest.raises(
        ModelError, match=rf"stored as .*{flavor}.*, which cannot be refitted.*sklearn, xgb"
    ):
        load_champion(client, register_folder(client, folder, f"of-{flavor}"))


def test_a_raw_booster_cannot_be_refitted(client, numbers, tmp_path):
    """A booster without scikit-learn's interface is refused by its class."""
    xgboost = pytest.importorskip("xgboost", reason="needs the extra [boosting]")
    X, y = numbers
    booster = xgboost.train({}, xgboost.DMatrix(X, y == "a"), num_boost_round=1)
    mlflow.xgboost.save_model(booster, tmp_path / "m", pip_requirements=["xgboost"])

    with pytest.raises(ModelError, match=r"stored as xgboost\.core\.Booster, which cannot be"):
        load_champion(client, register_folder(client, tmp_path / "m", "booster"))


def test_a_missing_module_is_named(client, numbers, tmp_path, monkeypatch):
    """Row 91: a pipeline with code that is not installed here says which module it lacks."""
    (tmp_path / "teams_code.py").write_text(
        "from sklearn.preprocessing import StandardScaler\n"
        "class Scaler(StandardScaler):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from teams_code import Scaler

    X, y = numbers
    model = make_pipeline(Scaler(), SVC()).fit(X, y)
    signature = mlflow.models.infer_signature(X, y)
    trusted = ["teams_code.Scaler"]
    save(tmp_path / "m", model, signature=signature, skops_trusted_types=trusted)
    settings = register_folder(client, tmp_path / "m", "own-code")
    settings = settings.model_copy(update={"trusted_types": tuple(trusted)})
    assert isinstance(load_champion(client, settings).estimator[0], Scaler)

    monkeypatch.undo()
    monkeypatch.delitem(__import__("sys").modules, "teams_code")

    with pytest.raises(ModelError, match="needs the module teams_code, which is missing here"):
        load_champion(client, settings)


def test_another_scikit_learn_is_a_finding(client, numbers, tmp_path):
    """Row 92: a model of another version is loaded, and both versions are named."""
    X, y = numbers
    signature = mlflow.models.infer_signature(X, y)
    folder = save(tmp_path / "m", SVC().fit(X, y), signature=signature)
    edit_description(folder, sklearn_version="1.2.3")

    champion = load_champion(client, register_folder(client, folder, "older"))

    assert len(champion.findings) == 1
    assert "1.2.3" in champion.findings[0]
    assert sklearn.__version__ in champion.findings[0]


def test_another_scikit_learn_that_fails_is_an_error(client, numbers, tmp_path):
    """Row 92: where such a model cannot be loaded, the versions are in the message."""
    folder = save(tmp_path / "m", SVC().fit(*numbers), serialization_format="pickle")
    edit_description(folder, sklearn_version="1.2.3")
    (folder / "model.pkl").write_bytes(b"\x80\x04nonsense")
    settings = register_folder(client, folder, "broken")

    with pytest.raises(ModelError, match=r"cannot be loaded.*by scikit-learn 1\.2\.3; this is"):
        load_champion(client, settings.model_copy(update={"allow_pickle": True}))


# -- what may be loaded


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("serialization", ["pickle", "cloudpickle", None])
def test_a_hostile_pickle_is_not_loaded(client, numbers, tmp_path, serialization):
    """Row 93: a pickle is refused before a byte of it is read, with the setting and its risk."""
    folder = save(tmp_path / "m", SVC().fit(*numbers), serialization_format="pickle")
    edit_description(folder, serialization_format=serialization)
    marker = tmp_path / "ran"
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb(marker)))
    settings = register_folder(client, folder, f"hostile-{serialization}")

    with pytest.raises(ModelError, match=r"(?s)runs whatever code.*model\.allow_pickle") as caught:
        load_champion(client, settings)

    assert caught.value.code == "pickle_not_allowed"
    assert not marker.exists()


def test_a_pickle_under_a_false_name_is_not_loaded(client, numbers, tmp_path):
    """A pickle that is described as skops is refused as what it is not."""
    folder = save(tmp_path / "m", SVC().fit(*numbers))
    marker = tmp_path / "ran"
    (folder / "model.skops").write_bytes(pickle.dumps(Bomb(marker)))

    with pytest.raises(ModelError, match=r"has a file model\.skops that is not a valid skops file"):
        load_champion(client, register_folder(client, folder, "disguised"))

    assert not marker.exists()


def test_a_list_beside_the_model_is_not_believed(client, numbers, tmp_path):
    """Types that only the model itself calls trusted are named, and nothing is loaded."""
    X, y = numbers
    model = make_pipeline(FunctionTransformer(os.path.abspath), SVC())
    model.steps[1] = ("svc", SVC().fit(X, y))
    types = ["posixpath.abspath"]
    folder = save(tmp_path / "m", model, skops_trusted_types=types)
    settings = register_folder(client, folder, "self-trusting")

    with pytest.raises(ModelError, match=r"outside the reviewed list: posixpath\.abspath"):
        load_champion(client, settings)


def test_a_file_elsewhere_is_not_loaded(client, numbers, tmp_path):
    """A description that points out of the model's folder is refused."""
    folder = save(tmp_path / "m", SVC().fit(*numbers))
    shutil.copy(folder / "model.skops", tmp_path / "other.skops")
    edit_description(folder, pickled_model=str(tmp_path / "other.skops"))

    with pytest.raises(ModelError, match="points at a file outside its folder"):
        load_champion(client, register_folder(client, folder, "outside"))


def test_pickle_by_consent(client, numbers):
    """With allow_pickle, a model that skops cannot hold is logged and loaded."""
    X, y = numbers
    odd = make_pipeline(FunctionTransformer(lambda rows: rows), SVC())
    with pytest.raises(ModelError, match=r"cannot be stored safely.*trusted_types.*allow_pickle"):
        log(client, odd, X, y, "lambda")

    champion = champion_of(
        client, odd, X, y, "lambda", allow_pickle=True, settings={"allow_pickle": True}
    )

    assert np.mean(champion.estimator.predict(champion.rows(X)) == y) > 0.9


@pytest.mark.parametrize("gone", ["model.skops", "everything"])
def test_a_version_without_files_is_named(client, numbers, tmp_path, gone):
    """Row 99: a READY version whose files are missing is refused as such."""
    folder = save(tmp_path / "m", SVC().fit(*numbers))
    settings = register_folder(client, folder, f"without-{gone}")
    if gone == "everything":
        shutil.rmtree(folder)
    else:
        (folder / gone).unlink()

    with pytest.raises(
        ModelError, match=r"missing from the artifact store|lacks its file"
    ) as caught:
        load_champion(client, settings)

    assert caught.value.code == "artifacts_missing"


def test_a_full_disk_of_ours_is_no_missing_model(client, tmp_path, numbers, monkeypatch):
    """Where the files cannot be kept, they are not called missing, and it may be tried again."""
    settings = register_folder(client, save(tmp_path / "m", SVC().fit(*numbers)), "kept")

    def full(*given, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", full)

    with pytest.raises(ServiceError, match=r"No space left on device. Check the disk") as caught:
        load_champion(client, settings)

    assert caught.value.code == "storage"


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (LinearRegression().fit([[0.0], [1.0]], [0, 1]), "a regressor. Only a classifier"),
        (StandardScaler().fit([[0.0], [1.0]]), "a StandardScaler, which has no predict"),
        (SVC(), "a SVC that was never fitted"),
        (
            RandomForestClassifier(2).fit([[0.0], [1.0]], [[0, 1], [1, 0]]),
            "with several outputs; a monitor needs one label per row",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_fitted_classifier_is_refused(client, tmp_path, model, complaint):
    """Row 96: a model must be a fitted classifier with one answer per row."""
    folder = save(tmp_path / "m", model, skops_trusted_types=sorted(TRUSTED_TYPES))

    with pytest.raises(ModelError, match=complaint):
        load_champion(client, register_folder(client, folder, f"odd-{type(model).__name__}"))


def test_the_digest_is_that_of_the_files(client, numbers, tmp_path):
    """One changed byte in any file of a model is another digest."""
    folder = save(tmp_path / "m", SVC().fit(*numbers))
    before = list_files(folder)

    (folder / "requirements.txt").write_text("another==1")

    after = list_files(folder)
    assert before.digest != after.digest
    assert [file.path for file in before.files] == [file.path for file in after.files]


# -- boosted trees


def test_xgboost_keeps_its_settings(client, numbers):
    """A champion by `log_champion` is refitted with the settings that it was fitted with."""
    xgboost = pytest.importorskip("xgboost", reason="needs the extra [boosting]")
    X, codes = table()

    model = xgboost.XGBClassifier(n_estimators=7, max_depth=2, n_jobs=1)
    champion = champion_of(client, model, X[["height", "width"]], codes, "xgboost")

    again = as_estimator(champion)
    assert (again.n_estimators, again.max_depth, again.base_score) == (7, 2, None)
    again.fit(X[["height", "width"]], np.arange(len(X)) % 4)
    assert list(again.classes_) == [0, 1, 2, 3]


def test_xgboost_in_its_own_format(client, tmp_path):
    """XGBoost's own format keeps no settings: it can be refitted with a class more, and says so."""
    xgboost = pytest.importorskip("xgboost", reason="needs the extra [boosting]")
    X, codes = table()
    X = X[["height", "width"]]
    model = xgboost.XGBClassifier(n_estimators=7, n_jobs=1).fit(X, codes)
    signature = mlflow.models.infer_signature(X, codes)
    mlflow.xgboost.save_model(model, tmp_path / "m", signature=signature, pip_requirements=["x"])

    champion = load_champion(client, register_folder(client, tmp_path / "m", "native"))

    assert champion.flavor == "xgboost"
    assert "keeps no settings" in champion.findings[0]
    again = as_estimator(champion).fit(X, np.arange(len(X)) % 4)
    assert (again.n_estimators, list(again.classes_)) == (7, [0, 1, 2, 3])


@pytest.mark.parametrize("by", ["log_champion", "mlflow"])
def test_lightgbm(client, tmp_path, by):
    """LightGBM's classifier, logged by us or by MLflow's own flavor."""
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra [boosting]")
    X, codes = table()
    X, y = X[["height", "width"]], np.array(["a", "b", "c"])[codes]
    model = lightgbm.LGBMClassifier(n_estimators=7, n_jobs=1, verbose=-1)

    if by == "log_champion":
        champion = champion_of(client, model, X, y, "lightgbm")
    else:
        signature = mlflow.models.infer_signature(X, y)
        mlflow.lightgbm.save_model(
            model.fit(X, y), tmp_path / "m", signature=signature, pip_requirements=["lightgbm"]
        )
        champion = load_champion(client, register_folder(client, tmp_path / "m", "lightgbm-own"))

    assert not champion.takes_array
    assert np.mean(champion.estimator.predict(champion.rows(X)) == y) > 0.9
    assert as_estimator(champion).n_estimators == 7


def test_categories_of_boosted_trees(client):
    """A model that splits on categories gets categories, though windows bring text."""
    X, codes = table()
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype")

    champion = champion_of(client, model, X.drop(columns="colour"), codes, "categories")

    assert champion.categories == ("shape",)
    champion.estimator.predict(champion.rows(X.astype({"shape": str})))


# -- networks


def network(*, grows):
    """A skorch network of three outputs, which may grow."""
    pytest.importorskip("torch", reason="needs the extra [torch]")
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_network

    return make_network(grows=grows)


def test_a_network_that_grows(client, numbers):
    """A skorch network by pickle, which takes arrays, and learns a class more."""
    X, codes = table()
    X = X[["height", "width"]].to_numpy(dtype=np.float32)

    champion = champion_of(
        client,
        network(grows=True),
        X,
        codes,
        "network",
        allow_pickle=True,
        settings={"allow_pickle": True},
    )

    assert champion.takes_array
    rows = champion.rows(pd.DataFrame(X.astype(float), columns=champion.column_names))
    assert rows.dtype == np.float32
    again = as_estimator(champion).fit(rows, np.arange(len(X)) % 4)
    assert again.predict_proba(rows).shape[1] == 4


def test_a_network_that_cannot_grow(client):
    """A network with a fixed number of outputs is refused, and told how to grow."""
    X, codes = table()
    X = X[["height", "width"]].to_numpy(dtype=np.float32)
    champion = champion_of(
        client,
        network(grows=False),
        X,
        codes,
        "fixed-network",
        allow_pickle=True,
        settings={"allow_pickle": True},
    )

    with pytest.raises(ModelError, match=r"(?s)network.*on_train_begin.*module__n_outputs"):
        as_estimator(champion)


# -- factories


def test_a_factory_fits_where_clone_cannot(client, numbers):
    """With model.fit, the named function fits, inside RTSCV too; it survives clone and pickle."""
    X, y = numbers
    champion = champion_of(client, SVC(), X, y, "by-factory")

    estimator = as_estimator(champion, "tests.champions:fit_forest")

    assert isinstance(estimator, FactoryClassifier)
    fitted = clone(pickle.loads(pickle.dumps(estimator))).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(X), fit_forest(X, y).predict(X))
    np.testing.assert_array_equal(fitted.predict_proba(X), fit_forest(X, y).predict_proba(X))
    new = X.tail(40).add(6)
    rectified = RTSCVClassifier(estimator).fit(X, y, pd.concat([X.head(60), new]))
    assert np.mean(rectified.predict(new) == "unknown") > 0.8


def test_a_model_without_conventions():
    """A factory's model needs `predict` only; without class names it has no probabilities."""
    X, y = np.zeros((5, 1)), np.array(["a", "a", "a", "b", "b"])

    fitted = FactoryClassifier("tests.champions:fit_majority").fit(X, y)

    assert list(fitted.predict(X)) == ["a"] * 5
    assert list(fitted.classes_) == ["a", "b"]
    assert not hasattr(fitted, "predict_proba")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tests.nowhere:fit", "cannot be imported here: No module named 'tests.nowhere'"),
        ("tests.champions:fit_forset", "cannot be imported here: .*fit_forset"),
        ("tests.champions:not_a_function", "which is not a function"),
    ],
)
def test_a_factory_must_exist(client, numbers, name, complaint):
    """A factory that is not there is named before anything is fitted."""
    champion = champion_of(client, SVC(), *numbers, "no-factory", replace=True)

    with pytest.raises(ModelError, match=complaint):
        as_estimator(champion, name)


def test_a_factory_must_return_a_model():
    """A factory that forgets to return its model is told so."""
    with pytest.raises(ModelError, match="returned NoneType, which has no predict"):
        FactoryClassifier("tests.champions:fit_nothing").fit([[0], [1]], [0, 1])


# -- log_champion


@pytest.mark.parametrize("alias", RESERVED_ALIASES)
def test_a_reserved_alias_is_refused(client, numbers, alias):
    """An alias that reviews and promotions move is not for a champion; nothing is logged."""
    complaint = f"The alias '{alias}' is reserved for the version .*Choose another alias"
    with pytest.raises(ModelError, match=complaint) as caught:
        log(client, SVC(), *numbers, f"reserved-{alias}", alias=alias, replace=True)

    assert caught.value.code == "alias_taken"
    assert client.search_registered_models(f"name = 'reserved-{alias}'") == []


def test_an_alias_does_not_move_by_accident(client, numbers):
    """A model that has a champion keeps it, and nothing is logged, unless replace is asked for."""
    X, y = numbers
    log(client, SVC(), X, y, "taken")
    runs = len(client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id]))

    with pytest.raises(ModelError, match="Version 1 of 'taken' has the alias 'champion' already"):
        log(client, SVC(), X, y, "taken")

    after = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert len(after) == runs
    assert log(client, SVC(), X, y, "taken", alias=None) == "2"
    assert str(find_champion(client, ModelSettings(name="taken")).version) == "1"
    assert log(client, SVC(), X, y, "taken", replace=True) == "3"
    assert str(find_champion(client, ModelSettings(name="taken")).version) == "3"


def test_what_else_is_logged(client, numbers):
    """Parameters, metrics and tags go to the run, which is finished."""
    X, y = numbers
    champion = champion_of(
        client,
        SVC(),
        X,
        y,
        "numbers",
        params={"C": 1.0},
        metrics={"accuracy": 0.9},
        tags={"team": "letters"},
    )

    run = client.get_run(champion.run_id)
    assert (run.data.params, run.data.metrics) == ({"C": "1.0"}, {"accuracy": 0.9})
    assert run.data.tags["team"] == "letters"
    assert run.info.status == "FINISHED"
    assert [output.model_id for output in run.outputs.model_outputs] == [champion.model_id]


def test_a_failed_log_registers_nothing(client, numbers):
    """What cannot be stored leaves a failed run and no version."""
    with pytest.raises(ModelError, match="cannot be stored safely"):
        log(client, make_pipeline(FunctionTransformer(lambda X: X), SVC()), *numbers, "unsaved")

    with pytest.raises(ModelError, match="no registered model 'unsaved'"):
        load_champion(client, ModelSettings(name="unsaved"))


def test_an_unfitted_model_is_refused(client, numbers):
    """Only a fitted model can be a champion."""
    X, y = numbers
    with pytest.raises(ModelError, match="SVC that was never fitted"):
        log_champion(SVC(), X, y, name="unfitted", tracking_uri=client.tracking_uri)


def test_the_fetched_files_are_gone_afterwards(client, numbers):
    """A model's files stay no longer than they are needed."""
    log(client, SVC(), *numbers, "passing")

    with fetched(client, "models:/passing/1") as folder:
        assert (folder / "MLmodel").is_file()

    assert not folder.exists()
