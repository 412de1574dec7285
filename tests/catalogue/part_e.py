"""Rows 83 to 100: the model and its registry."""

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import sklearn
import yaml
from mlflow.models import infer_signature
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from rtscv_mlops.errors import ReviewError
from rtscv_mlops.models.load import find_champion
from rtscv_mlops.pipeline import run, stages
from rtscv_mlops.review.answers import review_challenger
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.catalogue.bench import DAY, GAPS, Bench, Part, error_of, shapes, traffic
from tests.registries import KEY, add_champion, log_model, seal_window

PART = Part()
FEATURES = ["height", "width"]


def numbers() -> tuple[pd.DataFrame, Any]:
    X, y = shapes(150)
    return X[FEATURES], y


def save(bench: Bench, model: Any, *, signed: bool = True, **given: Any) -> Path:
    """Save a model as MLflow does, outside of the row's own folder."""
    X, y = numbers()
    folder = bench.artifacts / "model"
    signature = infer_signature(X, y) if signed else None
    mlflow.sklearn.save_model(
        model, folder, signature=signature, pip_requirements=["scikit-learn"], **given
    )
    return folder


def serve(bench: Bench, folder: Path) -> None:
    """Register whatever lies in a folder as the champion, as a careless or hostile writer may."""
    bench.client.create_registered_model(bench.name)
    version = bench.client.create_model_version(bench.name, str(folder))
    bench.client.set_registered_model_alias(bench.name, "champion", version.version)
    bench.model = bench.name
    bench.put(traffic())


def fitted() -> GaussianNB:
    return GaussianNB().fit(*numbers())


def edit(folder: Path, flavor: str = "sklearn", **changes: Any) -> None:
    """Change what a model says of itself."""
    file = folder / "MLmodel"
    description = yaml.safe_load(file.read_text())
    description["flavors"][flavor].update(changes)
    file.write_text(yaml.safe_dump(description))


@PART.row(83, "no-such-model")
def no_such_model(bench):
    bench.put(traffic())
    bench.refused("no_model", "no registered model 'mixd'. Did you mean 'mixed'", model=MISSPELT)


MISSPELT = {"name": "mixd"}


@PART.row(84, "no-champion")
def no_champion(bench):
    bench.log_champion(GaussianNB(), *numbers(), alias=None)
    bench.put(traffic())
    bench.refused("no_champion", r"Set it .*: python -c .*set_registered_model_alias\('.*', '1'\)")


def meanwhile(bench: Bench, act: Any) -> None:
    """Do something while a window with a new class is judged."""
    bench.log_champion(GaussianNB(), *numbers())
    bench.put(traffic(160, new=40))

    def report_is_written(monitor: Any, window_run: Any, facts: Any, evidence: Any) -> Any:
        act(bench.client, bench.name)
        return facts

    bench.patch.setattr(stages, "write_report", report_is_written)


def assert_nothing_is_offered(bench: Bench) -> None:
    assert ModelRegistry(bench.client, bench.name).versions.all() == []
    assert "challenger" not in bench.client.get_registered_model(bench.name).aliases


@PART.row(85, "champion-deleted-meanwhile")
def champion_deleted_meanwhile(bench):
    meanwhile(bench, lambda client, name: client.delete_model_version(name, "1"))
    outcome = run.run_window(bench.monitor(), DAY)
    assert outcome.facts.verdict == "not_assessed:champion_gone"
    assert "set a champion and run the window again" in outcome.facts.headline
    assert_nothing_is_offered(bench)


@PART.row(86, "champion-moved-meanwhile")
def champion_moved_meanwhile(bench):
    def move(client: Any, name: str) -> None:
        client.copy_model_version(f"models:/{name}/1", name)
        client.set_registered_model_alias(name, "champion", "2")

    meanwhile(bench, move)
    outcome = run.run_window(bench.monitor(), DAY)
    assert outcome.facts.assessed
    assert outcome.facts.champion_version == "2"


@PART.row(87, "no-signature")
def no_signature(bench):
    serve(bench, save(bench, fitted(), signed=False))
    bench.refused("no_signature", r"no signature .* List them in model\.columns")
    assert bench.loaded_champion(model={"columns": FEATURES}).column_names == FEATURES


@PART.row(88, "signature-and-settings-disagree")
def signature_and_settings_disagree(bench):
    bench.put(traffic())
    bench.refused(
        "columns_differ",
        r"disagree: missing 'width', 'visits'; extra 'depth'\. Remove model\.columns",
        model={"name": GAPS, "columns": ["height", "depth"]},
    )


class Echo(mlflow.pyfunc.PythonModel):
    """A model that only MLflow's own interface knows."""

    def predict(self, model_input: list[str]) -> list[str]:
        return model_input


@PART.row(89, "python-function-only")
def python_function_only(bench):
    folder = bench.artifacts / "model"
    mlflow.pyfunc.save_model(folder, python_model=Echo(), pip_requirements=["mlflow"])
    serve(bench, folder)
    bench.refused("unsupported_flavor", "needs an estimator or a `fit` factory")


for flavor in ("pytorch", "spark"):

    @PART.row(90, flavor)
    def other_flavor(bench, flavor=flavor):
        folder = save(bench, fitted())
        file = folder / "MLmodel"
        file.write_text(file.read_text().replace("  sklearn:", f"  {flavor}:"))
        serve(bench, folder)
        bench.refused(
            "unsupported_flavor", f"{flavor}, which cannot .*: sklearn, xgboost, lightgbm"
        )


@PART.row(91, "code-that-is-missing-here")
def code_that_is_missing_here(bench):
    (bench.artifacts / "absent_code.py").write_text(
        "from sklearn.preprocessing import StandardScaler\n"
        "class Scaler(StandardScaler):\n    pass\n"
    )
    bench.patch.syspath_prepend(bench.artifacts)
    from absent_code import Scaler

    trusted = ["absent_code.Scaler"]
    model = make_pipeline(Scaler(), GaussianNB()).fit(*numbers())
    serve(bench, save(bench, model, skops_trusted_types=trusted))
    bench.patch.undo()
    bench.patch.delitem(__import__("sys").modules, "absent_code")
    says = "needs the module absent_code, which is missing here.* Install it"
    bench.refused("missing_module", says, model={"trusted_types": trusted})


@PART.row(92, "other-scikit-learn")
def other_scikit_learn(bench):
    folder = save(bench, fitted())
    edit(folder, sklearn_version="1.2.3")
    serve(bench, folder)
    (finding,) = bench.loaded_champion().findings
    assert "1.2.3" in finding
    assert sklearn.__version__ in finding


@PART.row(92, "other-scikit-learn-that-fails")
def other_scikit_learn_that_fails(bench):
    folder = save(bench, fitted(), serialization_format="pickle")
    edit(folder, sklearn_version="1.2.3")
    (folder / "model.pkl").write_bytes(b"\x80\x04nonsense")
    serve(bench, folder)
    says = rf"stored by scikit-learn 1\.2\.3; this is {sklearn.__version__}\. Install"
    bench.refused("unreadable_model", says, model={"allow_pickle": True})


@PART.row(93, "pickle-not-allowed")
def pickle_not_allowed(bench):
    serve(bench, save(bench, fitted(), serialization_format="pickle"))
    bench.refused("pickle_not_allowed", r"runs whatever code.*model\.allow_pickle")


def training_files(bench: Bench) -> list[Path]:
    champion = find_champion(bench.client, bench.monitor().model)
    place = bench.client.get_run(champion.run_id).info.artifact_uri
    return list(Path(place.removeprefix("file://")).rglob("training/*.parquet"))


@PART.row(94, "training-data-gone")
def training_data_gone(bench):
    bench.log_champion(GaussianNB(), *numbers())
    bench.put(traffic())
    (file,) = training_files(bench)
    file.unlink()
    bench.refused("training_data_missing", "cannot be fetched.* Restore it.* reference:")


@PART.row(94, "training-data-changed")
def training_data_changed(bench):
    bench.log_champion(GaussianNB(), *numbers())
    bench.put(traffic())
    (file,) = training_files(bench)
    pd.read_parquet(file).iloc[::-1].to_parquet(file)
    bench.refused("training_data_changed", "SHA-256 is .* not .* Restore the file")


@PART.row(94, "reference-gone")
def reference_gone(bench):
    bench.put(traffic())
    reference = {"path": str(bench.folder / "absent.parquet"), "label": "label"}
    bench.refused("training_data_missing", "missing. .*absent.parquet", reference=reference)


@PART.row(95, "training-columns-differ")
def training_columns_differ(bench):
    bench.put(traffic())
    X, y = shapes(60)
    file = bench.folder / "training.parquet"
    X.rename(columns={"width": "breadth"}).assign(label=y).to_parquet(file)
    bench.refused(
        "bad_training_data",
        r"training\.parquet lacks 1 column .*'width'.* It has: .*'breadth'.* Correct the names",
        reference={"path": str(file), "label": "label"},
    )


@PART.row(96, "no-probabilities")
def no_probabilities(bench):
    bench.log_champion(RidgeClassifier(), *numbers())
    bench.put(traffic(160, new=40))
    done = bench.rectified()
    assert done.facts.verdict == "unknowns"
    assert {card.confidence for card in done.facts.clusters} == {None}


FITS = count()
"""Numbers of fits: with another number another row gets a wrong answer, so two fits disagree."""


class Own(ClassifierMixin, BaseEstimator):
    """A classifier of somebody's own, which fits as it likes."""

    def __init__(self, behaviour: str = "well") -> None:
        self.behaviour = behaviour

    def fit(self, X: Any, y: Any) -> "Own":
        self.inner_ = GaussianNB().fit(X, y)
        if self.behaviour != "is silent":
            self.classes_ = self.inner_.classes_
        if self.behaviour == "fails" and len(np.unique(y)) > 3:
            raise RuntimeError("four are too many")
        self.odd_row_ = next(FITS) if self.behaviour == "differs" else None
        return self

    def predict(self, X: Any) -> Any:
        answers = self.inner_.predict(X)
        if self.odd_row_ is not None:
            row = self.odd_row_ % len(answers)
            place = np.searchsorted(self.inner_.classes_, answers[row])
            answers[row] = self.inner_.classes_[place - 1]
        return answers


OURS = {"trusted_types": ["tests.catalogue.part_e.Own"]}


def own_classifier(bench: Bench, behaviour: str) -> None:
    """Serve a classifier of somebody's own."""
    bench.log_champion(Own(behaviour), *numbers(), **OURS)
    bench.settings["model"] = OURS
    bench.put(traffic(160, new=40))


@PART.row(96, "no-classes")
def no_classes(bench):
    own_classifier(bench, "is silent")
    bench.refused("fit_failed", "Own could not be fitted again .*no attribute 'classes_'")


@PART.row(97, "fit-fails")
def fit_fails(bench):
    own_classifier(bench, "fails")
    says = "Own could not be fitted again on 150 training rows.*four are too many.* by hand"
    bench.refused("fit_failed", says)


@PART.row(97, "fit-does-not-converge")
def fit_does_not_converge(bench):
    X, y = numbers()
    with_noise = X.assign(noise=np.random.default_rng(0).normal(size=len(X)))
    model = LogisticRegression(max_iter=1, C=1e6)
    bench.patch.setenv("PYTHONWARNINGS", "ignore")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench.log_champion(model, with_noise, y)
    bench.put(traffic(160, new=40).assign(noise=0.5))
    bench.rectified("A fit did not converge: ")


@PART.row(98, "fit-ignores-the-seed")
def fit_ignores_the_seed(bench):
    own_classifier(bench, "differs")
    bench.rectified(
        "same seed disagree on .* so the result cannot be repeated exactly. Give .* random_state"
    )


for gone in ("model.skops", "everything"):

    @PART.row(99, f"ready-without-{gone}")
    def ready_without_files(bench, gone=gone):
        folder = save(bench, fitted())
        serve(bench, folder)
        shutil.rmtree(folder) if gone == "everything" else (folder / gone).unlink()
        bench.refused("artifacts_missing", "missing from the artifact store|lacks its file")


@PART.row(100, "leftovers")
def leftovers(bench):
    """A run and a version that a dead process left beside ours are found and put away."""
    client, model = bench.client, bench.name
    add_champion(client, model)
    registry = ModelRegistry(client, model)
    run = registry.runs.open(KEY)
    experiment = client.get_run(run.run_id).info.experiment_id
    rival = client.create_run(experiment, tags=run.tags()).info.run_id
    model_id = log_model(client, run.run_id)
    half = client.create_model_version(
        model, f"models:/{model_id}", run.run_id, tags={"rtscv.kind": "challenger"}
    )

    assert registry.runs.open(KEY).run_id == run.run_id
    seal = seal_window(client, KEY, run.run_id, model_id, day=5, model=model)
    version = registry.versions.register(seal)

    assert [one.run_id for one in registry.runs.find()] == [run.run_id]
    assert WindowRun(client, rival).tags()["rtscv.duplicate_of"] == run.run_id
    assert registry.versions.register(seal) == version
    assert version != str(half.version)
    reviews = {one.version: one.review for one in registry.versions.all()}
    assert reviews == {version: ""}
    with error_of(ReviewError, "no_review", "No challenger waits for review"):
        bench.model = model
        review_challenger(bench.monitor(), None, approve=True, reviewer="ann", reason="figs")
