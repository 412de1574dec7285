"""Loading a model is running code: planted models are refused, by whole windows, before they run.

Each planted model would make a folder, the marker, if anything of it ran. What may be loaded with
consent, and in which process, is in `test_registry_champion` and `test_registry_models`.
"""

import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import mlflow
import pytest
import skops.io as sio
import yaml
from joblib import Memory
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from benchmarks.deployments import MODEL, NEW, leaves
from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import ModelError
from rtscv_mlops.models import load, trust
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.save import signature_of, store_model, verify_version
from tests.deployments import deployed

CANARIES = {
    "MLFLOW_TRACKING_PASSWORD": "canary-1",
    "MLFLOW_TRACKING_TOKEN": "canary-2",
    "MLFLOW_TRACKING_URI": "http://ann:canary-3@mlflow.example",
    "AWS_SECRET_ACCESS_KEY": "canary-4",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://a:canary-5@db/airflow",
    "AIRFLOW__CORE__FERNET_KEY": "canary-6",
    "SERVED_URL": "postgresql://a:canary-7@db/served",
    "HOOK_URL": "https://hooks.example/canary-8",
    "SMTP_PASSWORD": "canary-9",
}


class Bomb:
    """Makes the marker when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def deployment(tmp_path):
    """A deployment of which no window was judged."""
    return deployed(tmp_path / "deployment")


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "ran"


# -- models that somebody planted; each function makes one in a folder


def saved(folder, model=None, **given):
    rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash"), 20))
    model = SVC().fit(rows, kinds) if model is None else model
    mlflow.sklearn.save_model(model, folder, pip_requirements=["scikit-learn"], **given)
    return folder


def edited(folder, flavor="sklearn", **changes):
    file = folder / "MLmodel"
    description = yaml.safe_load(file.read_text())
    description["flavors"].setdefault(flavor, {}).update(changes)
    file.write_text(yaml.safe_dump(description))


def by_pickle(folder, marker):
    saved(folder, serialization_format="pickle")
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb(marker)))


def by_cloudpickle(folder, marker):
    saved(folder, serialization_format="cloudpickle")
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb(marker)))


def by_pickle_called_skops(folder, marker):
    saved(folder)
    (folder / "model.skops").write_bytes(pickle.dumps(Bomb(marker)))


def by_skops_that_trusts_itself(folder, marker):
    model = make_pipeline(FunctionTransformer(os.mkdir, kw_args={"mode": 0o755}), SVC())
    saved(folder, model, skops_trusted_types=["posix.mkdir"])


def by_code_beside_skops(folder, marker):
    saved(folder)
    ship_code(folder, marker)
    edited(folder, code="code")
    edited(folder, "python_function", code="code", loader_module="planted")
    # So that the model is refused in the end, and not merely loaded without its code.
    (folder / "model.skops").write_bytes(b"no archive")


def by_python_function(folder, marker):
    saved(folder)
    ship_code(folder, marker)
    description = yaml.safe_load((folder / "MLmodel").read_text())
    description["flavors"] = {
        "python_function": {"loader_module": "planted", "code": "code", "data": "model.skops"}
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(description))


def ship_code(folder, marker):
    (folder / "code").mkdir()
    (folder / "code" / "planted.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")


def by_description(folder, marker):
    saved(folder)
    line = f"planted: !!python/object/apply:os.mkdir [{str(marker)!r}]\n"
    (folder / "MLmodel").write_text(line + (folder / "MLmodel").read_text())


def by_lightgbm(folder, marker):
    saved(folder)
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb(marker)))
    description = yaml.safe_load((folder / "MLmodel").read_text())
    description["flavors"] = {
        "lightgbm": {"data": "model.pkl", "model_class": "lightgbm.sklearn.LGBMClassifier"}
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(description))


def by_xgboost(folder, marker):
    saved(folder)
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb(marker)))
    description = yaml.safe_load((folder / "MLmodel").read_text())
    description["flavors"] = {
        "xgboost": {"data": "model.pkl", "model_class": "xgboost.sklearn.XGBClassifier"}
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(description))


def by_a_file_elsewhere(folder, marker):
    saved(folder, serialization_format="pickle")
    outside = folder.parent / "outside.skops"
    outside.write_bytes(pickle.dumps(Bomb(marker)))
    edited(folder, pickled_model="../outside.skops", serialization_format="skops")


PLANTED = {
    by_pickle: ("pickle_not_allowed", "Loading a pickle runs whatever code"),
    by_cloudpickle: ("pickle_not_allowed", "Loading a pickle runs whatever code"),
    by_pickle_called_skops: ("unreadable_model", "model.skops that is not a valid skops file"),
    by_skops_that_trusts_itself: ("untrusted_types", "outside the reviewed list: posix.mkdir"),
    by_code_beside_skops: ("unreadable_model", "that is not a valid skops file"),
    by_python_function: ("unsupported_flavor", "cannot be refitted"),
    by_description: ("unreadable_model", "an MLmodel file that cannot be read"),
    by_lightgbm: ("pickle_not_allowed", "Loading a pickle runs whatever code"),
    by_xgboost: ("unreadable_model", "cannot be loaded"),
    by_a_file_elsewhere: ("unreadable_model", "points at a file outside its folder"),
}


def plant(deployment, folder):
    """Make what lies in a folder the champion, as whoever may write to the registry can."""
    version = deployment.client.create_model_version(MODEL, str(folder))
    deployment.client.set_registered_model_alias(MODEL, "champion", version.version)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda function: function.__name__)
def test_a_planted_model_is_refused(deployment, marker, tmp_path, planted):
    """The window ends in its outcome with a sentence that says why, and nothing of it has run."""
    folder = tmp_path / "planted"
    planted(folder, marker)
    plant(deployment, folder)

    outcome = deployment.run(NEW)

    code, sentence = PLANTED[planted]
    assert outcome.facts.verdict == f"not_assessed:{code}"
    assert sentence in outcome.facts.headline
    assert not marker.exists()


def cached(place):
    return Pipeline([("scale", StandardScaler()), ("svc", SVC())], memory=place)


CACHED = {
    "a pipeline": cached,
    "an object": lambda place: cached(Memory(place, verbose=0)),
    "a step": lambda place: make_pipeline(cached(place)[:1].set_params(memory=place), SVC()),
    "columns": lambda place: make_pipeline(
        ColumnTransformer([("all", Pipeline([("s", StandardScaler())], memory=place), [0, 1])]),
        SVC(),
    ),
    "a union": lambda place: make_pipeline(
        FeatureUnion([("one", Pipeline([("s", StandardScaler())], memory=place))]), SVC()
    ),
    "a search": lambda place: GridSearchCV(cached(place), {"svc__C": [1, 2]}, cv=2),
    "a grid": lambda place: GridSearchCV(cached(None), {"memory": [place]}, cv=2),
    "a vote": lambda place: VotingClassifier([("a", cached(place)), ("b", SVC())]),
}


@pytest.mark.parametrize("make", CACHED.values(), ids=CACHED)
@pytest.mark.parametrize("consent", ["", "  allow_pickle: true\n"])
def test_a_champion_with_a_cache_is_refused(deployment, tmp_path, make, consent):
    """joblib unpickles what lies in a cache, so no model that has one is refitted or stored."""
    rows, kinds = leaves(0, dict.fromkeys(("oak", "elm", "ash"), 20))
    model = make(str(tmp_path / "cache")).fit(rows, kinds)
    kept = "cloudpickle" if consent else "skops"
    needed = sio.get_untrusted_types(data=sio.dumps(model)) if not consent else None
    saved(tmp_path / "planted", model, serialization_format=kept, skops_trusted_types=needed)
    plant(deployment, tmp_path / "planted")

    outcome = deployment.run(NEW, deployment.monitor(more=consent))

    assert outcome.facts.verdict == "not_assessed:untrusted_types"
    assert "cache" in outcome.facts.headline or "joblib.memory" in outcome.facts.headline
    with pytest.raises(ModelError, match=r"keeps a cache .* Set memory=None") as refusal:
        deployment.add_champion(model, allow_pickle=True, replace=True)
    assert refusal.value.code == "untrusted_types"


def test_an_empty_memory_is_no_cache(tmp_path):
    """Most pipelines have the setting and no cache."""
    trust.check_uncached(GridSearchCV(cached(None), {"svc__C": [1, 2]}), "Model")
    trust.check_uncached(SVC().fit([[0], [1]], ["memory", "cache"]), "Model")
    with pytest.raises(ModelError, match="keeps a cache"):
        trust.check_uncached(make_pipeline(FeatureAgglomeration(memory=tmp_path), SVC()), "Model")


def zip_of(file, schema, declared=None):
    """Write a skops file with this schema, whose directory may declare another size."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", schema)
        if declared is not None:
            archive.getinfo("schema.json").file_size = declared
    return file


@pytest.mark.parametrize("declared", [None, 100])
def test_a_schema_that_expands_without_end_is_refused_unread(tmp_path, monkeypatch, declared):
    """A small file with a huge schema costs neither memory nor time, whatever its size says."""
    file = zip_of(tmp_path / "model.skops", b" " * 100_000_000, declared)
    monkeypatch.setattr(trust, "import_skops", lambda: pytest.fail("skops read the file"))
    assert file.stat().st_size < 300_000

    tracemalloc.start()
    with pytest.raises(ModelError, match=r"schema.json expands to more than .* bytes") as refusal:
        trust.check_loadable(file, "skops", ModelSettings(name=MODEL), "Model 'leaves' version 1")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert refusal.value.code == "unreadable_model"
    assert peak < 5_000_000


def test_other_compressions_are_not_expanded(tmp_path):
    """A few bytes of LZMA can expand to gigabytes at once."""
    with zipfile.ZipFile(tmp_path / "model.skops", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("schema.json", b" " * 1_000_000)

    with pytest.raises(ModelError, match="compressed in an unusual way"):
        trust.check_loadable(
            tmp_path / "model.skops", "skops", ModelSettings(name=MODEL), "Model 'leaves'"
        )


def test_a_python_function_needs_consent(deployment, marker, tmp_path):
    """Also where the monitor names a factory that could refit it."""
    by_python_function(tmp_path / "planted", marker)
    plant(deployment, tmp_path / "planted")
    fit = "  fit: tests.champions:fit_forest\n"

    outcome = deployment.run(NEW, deployment.monitor(more=fit))

    assert outcome.facts.verdict == "not_assessed:pickle_not_allowed"
    assert "loading it runs its code" in outcome.facts.headline
    assert not marker.exists()


def test_changed_files_are_refused_before_they_are_loaded(deployment, marker):
    """Also with allow_pickle: files other than those that were sealed are not looked into."""
    place = champion_folder(deployment)
    (place / "model.skops").write_bytes(pickle.dumps(Bomb(marker)))
    edited(place, serialization_format="pickle")

    outcome = deployment.run(NEW, deployment.monitor(more="  allow_pickle: true\n"))

    assert outcome.facts.verdict == "not_assessed:digest_mismatch"
    assert "they were changed. Nothing was loaded" in outcome.facts.headline
    assert not marker.exists()


def champion_folder(deployment):
    (file,) = (
        file
        for file in deployment.folder.rglob("MLmodel")
        if "models" in file.parts or "artifacts" in file.parts
    )
    return file.parent


def test_changed_files_of_a_challenger_are_refused_first(deployment, marker, monkeypatch):
    """What was promoted is sealed too; its digest is looked at before its description."""
    opened = []
    read = load._read_description
    monkeypatch.setattr(load, "_read_description", lambda *call: opened.append(call) or read(*call))
    place = champion_folder(deployment)
    with (place / "requirements.txt").open("a") as file:
        file.write("another==1\n")

    with pytest.raises(ModelError, match="they were changed") as caught:
        load_champion(deployment.client, deployment.monitor().model)

    assert caught.value.code == "digest_mismatch"
    assert opened == []


def test_only_the_monitor_s_model_is_fetched(deployment, marker, tmp_path, monkeypatch):
    """Other models of the registry are not even downloaded, whoever calls them champion."""
    by_pickle(tmp_path / "planted", marker)
    client = deployment.client
    for name in ("other", "leaves-2", "LEAVES"):
        client.create_registered_model(name)
        version = client.create_model_version(name, str(tmp_path / "planted"))
        client.set_registered_model_alias(name, "champion", version.version)
    fetched = []
    download = mlflow.artifacts.download_artifacts

    def noting(**given):
        fetched.append(given["artifact_uri"])
        return download(**given)

    monkeypatch.setattr(trust.mlflow.artifacts, "download_artifacts", noting)

    assert deployment.run(NEW).version == "2"
    assert fetched
    assert not [uri for uri in fetched if "planted" in uri]
    assert not marker.exists()


def test_the_process_that_tries_a_challenger_holds_no_secret(deployment, monkeypatch):
    """With allow_pickle, code in a challenger finds no canary: not in its environment or place."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    client = deployment.client
    run = client.create_run(client.get_experiment_by_name(MODEL).experiment_id)
    rows, _ = leaves(0, {"oak": 2})

    class Curious:
        def predict(self, X):
            import os

            seen = [f"{name}={value}" for name, value in os.environ.items()]
            seen += Path("/proc/self/environ").read_text().split("\0")
            seen += Path("/proc/self/cmdline").read_text().split("\0")
            return [*seen, *map(str, Path.cwd().iterdir())]

    saved = store_model(
        client, run.info.run_id, Curious(), signature_of(rows, ["x"]), rows, allow_pickle=True
    )
    seen = verify_version(client, saved.uri, digest=saved.digest)

    assert any(one.startswith("PATH=") for one in seen)
    assert [one for one in seen if "canary" in one] == []


def test_a_marker_can_be_made(marker, tmp_path):
    """The planted pickle works: whoever loads it without our checks runs it."""
    by_pickle(tmp_path / "planted", marker)

    pickle.loads((tmp_path / "planted" / "model.pkl").read_bytes())

    assert marker.exists()


def test_reading_a_model_s_types_loads_no_tensor_library():
    """What skops trusts is unchanged, and costs no import of libraries that are only beside it."""
    program = """
import sys
from rtscv_mlops.models.trust import import_skops
import_skops()
from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as names
print(len(names), *({"torch", "dask", "cupy"} & set(sys.modules)))
import sklearn.externals.array_api_compat.numpy
"""
    plain = "from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as names"
    ours, theirs = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        for text in (program, f"{plain}\nprint(len(names))")
    )

    assert ours.stdout == theirs.stdout
