"""Rectified models are stored for the champion's users: same inputs, safe files, tried afresh."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import requests
import skops.io
from mlflow.tracking import MlflowClient
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.errors import ModelError
from rtscv_mlops.estimator.learner import FactoryClassifier
from rtscv_mlops.models import save
from rtscv_mlops.models.load import as_estimator
from rtscv_mlops.models.save import (
    MANIFEST_FILE,
    requirements,
    save_rectified,
    signature_of,
    store_model,
    verify_version,
)
from rtscv_mlops.models.training import load_training_data
from rtscv_mlops.models.trust import (
    TRUSTED_TYPES,
    choose_serialization,
    fetched,
    load_skops,
    model_digest,
)
from tests.champions import EXPERIMENT, champion_of, mixed_pipeline, open_registry, table

NUMBERS = ["height", "width"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return open_registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture
def run_id(client):
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return client.create_run(experiment.experiment_id).info.run_id


def add_unknowns(y):
    """Labels of which the last third became unknown, as RTSCV would teach them."""
    y = y.astype(int) if y.dtype == bool else y
    unknown = "unknown" if y.dtype.kind == "U" else y.max() + 1
    return np.array([*y[: 2 * len(y) // 3].tolist(), *[unknown] * (len(y) // 3)]), unknown


def rectify(champion, X, y):
    """Refit a champion on labels with unknowns, told apart by a shift of the numbers."""
    taught, unknown = add_unknowns(y)
    shifted = X.copy()
    shifted.loc[taught == unknown, NUMBERS] += 8
    return as_estimator(champion).fit(champion.rows(shifted), taught), shifted, unknown


# -- what may be stored


def text_pipeline():
    columns = make_column_transformer(
        (TfidfVectorizer(), "colour"),
        (OrdinalEncoder(), ["shape"]),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    return make_pipeline(columns, RandomForestClassifier(3))


SAFE = {
    "calibrated": CalibratedClassifierCV(SVC()),
    "calibrated trees": CalibratedClassifierCV(GaussianNB(), method="isotonic"),
    "gradient boosting": GradientBoostingClassifier(n_estimators=2),
    "hist gradient boosting": HistGradientBoostingClassifier(max_iter=2),
    "neighbours": KNeighborsClassifier(),
    "neighbours by ball tree": KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    "network": MLPClassifier((4,), max_iter=2),
    "search": GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-8]}, cv=2),
    "stack": StackingClassifier([("a", GaussianNB()), ("b", RandomForestClassifier(2))], cv=2),
    "support vectors": SVC(),
}


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_common_classifiers_are_stored_safely(name, tmp_path):
    """The reviewed list covers common classifiers, which come back and answer the same."""
    X, codes = table()
    model = SAFE[name].fit(X[NUMBERS], codes)

    serialization, types = choose_serialization(model, (), allow_pickle=False)

    skops.io.dump(model, tmp_path / "model.skops")
    back = load_skops(tmp_path / "model.skops", ())
    assert serialization == "skops"
    assert set(types) <= TRUSTED_TYPES
    np.testing.assert_array_equal(back.predict(X[NUMBERS]), model.predict(X[NUMBERS]))


@pytest.mark.parametrize("make", [mixed_pipeline, text_pipeline])
def test_pipelines_are_stored_safely(make, tmp_path):
    """Pipelines with imputers, encoders, text and column selectors need no further trust."""
    X, codes = table()
    model = make().fit(X, codes)

    assert choose_serialization(model, (), allow_pickle=False)[0] == "skops"

    skops.io.dump(model, tmp_path / "model.skops")
    back = load_skops(tmp_path / "model.skops", ())
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_what_the_list_lacks_is_named():
    """A type outside the list is named with both settings; each of them then allows it."""
    model = make_pipeline(FunctionTransformer(np.cumsum), SVC())

    with pytest.raises(ModelError, match=r"(?s)numpy\.cumsum.*trusted_types.*allow_pickle"):
        choose_serialization(model, (), allow_pickle=False)

    by_type = choose_serialization(model, ("numpy.cumsum",), allow_pickle=False)
    assert by_type == ("skops", ["numpy.cumsum"])
    assert choose_serialization(model, (), allow_pickle=True) == ("cloudpickle", [])


def test_requirements_name_what_the_model_uses():
    """A reader gets the packages of each part of the model, at their versions, and not ours."""
    model = make_pipeline(StandardScaler(), SVC())

    found = {line.partition("==")[0] for line in requirements(model, "skops")}

    assert found == {"mlflow", "numpy", "pandas", "scikit-learn", "skops"}


def test_requirements_of_boosted_trees():
    """Boosters bring their own package, as it is called where it was installed."""
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra [boosting]")
    model = make_pipeline(StandardScaler(), lightgbm.LGBMClassifier())

    assert f"lightgbm=={lightgbm.__version__}" in requirements(model, "skops")


# -- rectified models


@pytest.mark.parametrize(
    ("kind", "output"), [("text", "string"), ("integer", "long"), ("boolean", "long")]
)
def test_a_rectified_model_is_a_drop_in(client, run_id, kind, output):
    """It takes the champion's inputs, and answers in the type of its labels, unknowns included."""
    X, codes = table()
    y = {"text": np.array(["a", "b", "c"])[codes], "integer": codes * 10, "boolean": codes == 1}
    champion = champion_of(client, mixed_pipeline(), X, y[kind], f"drop-in-{kind}")
    estimator, shifted, unknown = rectify(champion, X, y[kind])

    saved = save_rectified(client, run_id, estimator, champion, X.head(3))

    model = mlflow.pyfunc.load_model(saved.uri)
    assert model.metadata.signature.inputs == champion.signature.inputs
    assert [spec.type.name for spec in model.metadata.signature.outputs] == [output]
    answers = model.predict(shifted.astype({"shape": str}))
    assert answers[-1] == unknown
    np.testing.assert_array_equal(answers, estimator.predict(shifted))
    assert len(model.input_example) == 3


def test_a_saved_model_is_sealed(client, run_id):
    """The manifest on the run and the tag on the model are those of the files that MLflow has."""
    X, codes = table()
    champion = champion_of(client, GaussianNB(), X[NUMBERS], codes, "sealed")

    saved = save_rectified(client, run_id, champion.estimator, champion, X.head(3))

    logged = client.get_logged_model(saved.model_id)
    assert logged.status == "READY"
    assert logged.source_run_id == run_id
    assert logged.tags["rtscv.model_sha256"] == saved.digest == model_digest(client, saved.uri)
    manifest = json.loads(mlflow.artifacts.load_text(f"runs:/{run_id}/{MANIFEST_FILE}"))
    assert {"MLmodel", "model.skops", "requirements.txt"} <= {file["path"] for file in manifest}
    assert client.get_run(run_id).outputs.model_outputs[0].model_id == saved.model_id
    assert client.get_run(run_id).info.status == "RUNNING"


def test_an_array_champion_has_an_array_challenger(client, run_id):
    """A champion that takes arrays is followed by a model that takes arrays."""
    X, codes = table()
    champion = champion_of(client, SVC(), X[NUMBERS].to_numpy(), codes, "arrays")
    example = X[NUMBERS].set_axis(champion.column_names, axis=1).head(3)

    saved = save_rectified(client, run_id, champion.estimator, champion, example)

    model = mlflow.pyfunc.load_model(saved.uri)
    assert isinstance(model.input_example, np.ndarray)
    np.testing.assert_array_equal(model.predict(X[NUMBERS].to_numpy()), codes)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosted_trees_are_stored_safely(client, run_id, library):
    """XGBoost and LightGBM need no pickle, and their models come back."""
    module = pytest.importorskip(library, reason="needs the extra [boosting]")
    X, codes = table()
    made = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier"}[library]
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    model = getattr(module, made)(n_estimators=5, n_jobs=1, **quiet)
    champion = champion_of(client, model, X[NUMBERS], codes, f"safe-{library}")
    estimator, shifted, unknown = rectify(champion, X[NUMBERS], codes)

    saved = save_rectified(client, run_id, estimator, champion, X.head(3))

    answers = mlflow.pyfunc.load_model(saved.uri).predict(shifted)
    assert answers[-1] == unknown
    np.testing.assert_array_equal(answers, estimator.predict(shifted))


def test_a_factory_s_model_is_stored_bare(client, run_id):
    """What the factory made is stored, so that its users need not install this package."""
    X, codes = table()
    champion = champion_of(client, SVC(), X[NUMBERS], codes, "factory-made")
    estimator = FactoryClassifier("tests.champions:fit_forest").fit(X[NUMBERS], codes)

    saved = save_rectified(client, run_id, estimator, champion, X.head(3))

    with fetched(client, saved.uri) as folder:
        assert b"rtscv" not in (folder / "model.skops").read_bytes()
        stored = load_skops(folder / "model.skops", ())
    assert isinstance(stored, RandomForestClassifier)


def test_a_network_is_stored_by_consent(client, run_id):
    """A rectified skorch network is stored by pickle where the monitor allows it, and answers."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_network

    X, codes = table()
    rows = X[NUMBERS].to_numpy(dtype=np.float32)
    consent = {"allow_pickle": True}
    champion = champion_of(
        client, make_network(grows=True), rows, codes, "net", settings=consent, **consent
    )
    estimator = as_estimator(champion).fit(rows, np.arange(len(rows)) % 4)
    example = pd.DataFrame(rows, columns=champion.column_names).head(3)

    saved = save_rectified(client, run_id, estimator, champion, example)

    model = mlflow.pyfunc.load_model(saved.uri)
    np.testing.assert_array_equal(model.predict(rows), estimator.predict(rows))


def test_a_network_is_given_rows_that_it_may_write_to(client):
    """torch warns of memory that is lent read-only, as pandas lends it; here it has no reason."""
    pytest.importorskip("skorch", reason="needs the extra [torch]")
    from tests.networks import make_network

    X, codes = table()
    frame, consent = X[NUMBERS].astype(np.float32), {"allow_pickle": True}
    net, array = make_network(grows=True), frame.to_numpy(copy=True)
    champion = champion_of(client, net, array, codes, "lent", settings=consent, **consent)
    frame.columns = champion.column_names

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = champion.rows(frame)
        RTSCVClassifier(net).fit(rows, codes, deployment=champion.rows(frame.head(100)))

    assert rows.flags.writeable


# -- a fresh process


def test_a_stored_model_answers_in_a_fresh_process(client, run_id):
    """The model's own example gets the answers that the estimator gives here."""
    X, codes = table()
    champion = champion_of(client, mixed_pipeline(), X, codes, "fresh")
    saved = save_rectified(client, run_id, champion.estimator, champion, X.head(3))

    answers = verify_version(client, saved.uri, digest=saved.digest)

    assert answers == champion.estimator.predict(X.head(3)).tolist()


def test_changed_files_are_not_tried(client, run_id):
    """A model whose files are not those that were sealed is refused before it is loaded."""
    X, codes = table()
    champion = champion_of(client, GaussianNB(), X[NUMBERS], codes, "tampered")
    saved = save_rectified(client, run_id, champion.estimator, champion, X.head(3))
    place = client.get_logged_model(saved.model_id).artifact_location
    (Path(place) / "requirements.txt").write_text("another==1")

    with pytest.raises(ModelError, match="they were changed") as caught:
        verify_version(client, saved.uri, digest=saved.digest)

    assert caught.value.code == "digest_mismatch"


def store_odd(client, run_id, predict):
    """Store a model of a class that exists in the file only."""

    class Odd:
        pass

    Odd.predict = lambda self, X: predict()
    rows = pd.DataFrame({"a": [1.0]})
    return store_model(client, run_id, Odd(), signature_of(rows, ["x"]), rows, allow_pickle=True)


def test_the_process_gets_no_secrets(client, run_id, monkeypatch):
    """A stored model runs without the credentials and addresses that this process has."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "canary")
    saved = store_odd(client, run_id, lambda: sorted(__import__("os").environ))

    names = verify_version(client, saved.uri)

    assert "PATH" in names
    assert not {"AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD"} & set(names)


def test_the_process_is_that_of_a_user_without_this_package(client, run_id):
    """A model is tried without our package, and none of our files hides a module of the model."""
    ours = ["load", "signature", "training", "trial"]

    def find():
        from importlib.util import find_spec
        from sys import modules

        return [name for name in ours if find_spec(name)] + [
            name for name in modules if name.startswith("rtscv_mlops")
        ]

    saved = store_odd(client, run_id, find)

    assert verify_version(client, saved.uri) == []


def test_a_model_that_fails_afresh_is_unusable(client, run_id):
    """What the process said last is in the message, and what to do about a missing module."""
    saved = store_odd(client, run_id, lambda: __import__("no_such_package"))

    said = r"No module named 'no_such_package'\. Install that module, or add the absolute path"
    with pytest.raises(ModelError, match=said) as caught:
        verify_version(client, saved.uri)

    assert caught.value.code == "challenger_unusable"


def test_a_model_that_never_answers_is_unusable(client, run_id):
    """The process is not waited for without end."""
    saved = store_odd(client, run_id, lambda: __import__("time").sleep(60))

    with pytest.raises(ModelError, match=r"did not answer within 0\.1 s"):
        verify_version(client, saved.uri, timeout=0.1)


def test_a_model_that_computes_without_end_is_unusable(client, run_id, monkeypatch):
    """What ends the process is the CPU time that it used, not the time that it waited."""

    def spin():
        while True:
            pass

    saved = store_odd(client, run_id, spin)
    monkeypatch.setattr(save, "TRIAL_CPU_SECONDS", 8)

    with pytest.raises(ModelError, match="did not answer within 8 s of CPU time") as caught:
        verify_version(client, saved.uri)

    assert caught.value.code == "challenger_unusable"


def test_a_model_on_a_busy_machine_is_waited_for(client, run_id, monkeypatch):
    """A process that waits longer than its CPU time lasts is not given up."""
    saved = store_odd(client, run_id, lambda: __import__("time").sleep(12))
    monkeypatch.setattr(save, "TRIAL_CPU_SECONDS", 11)

    assert verify_version(client, saved.uri) is not None
    assert save.TRIAL_SECONDS >= 10 * 300


# -- servers


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def serving(arguments, health, cwd, **environment):
    """Run `python -m mlflow ...` in a group of its own until it is healthy, and stop it after."""
    log_file = cwd / "server.log"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with log_file.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *arguments],
            cwd=cwd,
            env=os.environ | {"PATH": path} | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            wait_for(health, process, log_file)
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def wait_for(url, process, log_file):
    while process.poll() is None:
        try:
            if requests.get(url, timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.2)
    pytest.fail(log_file.read_text())


@pytest.mark.slow
def test_through_a_server(tmp_path):
    """Log, load, read the data, store and try a model: all of it through an MLflow server."""
    X, codes = table()
    y = np.array(["a", "b", "c"])[codes]
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    store = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        f"{tmp_path}/served",
    ]
    arguments = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *store]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

    with serving(arguments, f"{address}/health", tmp_path, **quiet):
        client = MlflowClient(address, address)
        champion = champion_of(client, mixed_pipeline(), X, y, "served", holdout=(X[:20], y[:20]))
        data, held_out = load_training_data(client, champion)
        run_id = client.create_run(client.get_run(champion.run_id).info.experiment_id).info.run_id
        estimator, shifted, unknown = rectify(champion, data.features, data.labels.astype(str))
        saved = save_rectified(client, run_id, estimator, champion, data.features.head(3))
        answers = verify_version(client, saved.uri, shifted.tail(2), digest=saved.digest)

    pd.testing.assert_frame_equal(data.features, X)
    assert len(held_out) == 20
    assert answers == [unknown, unknown]


@pytest.mark.slow
def test_a_challenger_is_served(client, run_id, tmp_path):
    """`mlflow models serve` answers a request with a known label, and with the unknown one."""
    X, codes = table()
    champion = champion_of(client, mixed_pipeline(), X, np.array(["a", "b", "c"])[codes], "online")
    estimator, shifted, unknown = rectify(champion, X, np.array(["a", "b", "c"])[codes])
    saved = save_rectified(client, run_id, estimator, champion, X.head(3))
    client.create_model_version("online", saved.uri, run_id)
    client.set_registered_model_alias("online", "challenger", "2")
    port = free_port()
    arguments = ["models", "serve", "-m", "models:/online@challenger", "--env-manager", "local"]
    arguments += ["--host", "127.0.0.1", "--port", str(port)]
    asked = shifted.iloc[[0, -1]].astype({"shape": str})

    with serving(
        arguments,
        f"http://127.0.0.1:{port}/ping",
        tmp_path,
        MLFLOW_TRACKING_URI=client.tracking_uri,
    ):
        answer = requests.post(
            f"http://127.0.0.1:{port}/invocations",
            json={"dataframe_split": asked.to_dict(orient="split")},
            timeout=60,
        )

    assert answer.json() == {"predictions": ["a", unknown]}
