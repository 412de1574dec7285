"""Storing models: serialized by explicit choice, sealed by a manifest, tried in a new process."""

import json
import os
import subprocess
import sys
import uuid
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.entities import LoggedModel, LoggedModelOutput
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature, infer_signature
from mlflow.tracking import MlflowClient

from rtscv_mlops.errors import Code, ModelError
from rtscv_mlops.models.load import Champion
from rtscv_mlops.models.signature import METADATA
from rtscv_mlops.models.trust import ADAPTERS, Manifest, choose_serialization, fetched, list_files
from rtscv_mlops.process import GC_THRESHOLDS
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import Check, asking, unchecked
from rtscv_mlops.tracking.ledger import create_once

MODEL_NAME = "model"
MANIFEST_FILE = "model_manifest.json"
SAVED_BY = "rtscv.saved_by"
"""The tag by which the model of a create whose answer was lost is found again."""
BASE_PACKAGES = {"mlflow", "numpy", "pandas", "scikit-learn"}
HOMES = {
    "sklearn": "scikit-learn",
    **{name: name for name in ("numpy", "pandas", "scipy", "skops")},
}
"""Packages of modules that most models are made of; others are looked for."""

PASSED_ON = (  # what a fresh Python needs to start; no address, no credential
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "PATH",
    "PYTHONPATH",
    "SYSTEMROOT",
    "TMPDIR",
    "VIRTUAL_ENV",
)
MODULE_HINT = " Install that module, or name its folder in PYTHONPATH by an absolute path."


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that MLflow holds: its id, and the files it consisted of when it was sealed."""

    model_id: str
    manifest: Manifest

    @property
    def uri(self) -> str:
        return f"models:/{self.model_id}"

    @property
    def digest(self) -> str:
        return self.manifest.digest


def save_rectified(
    client: MlflowClient,
    run_id: str,
    estimator: Any,
    champion: Champion,
    example: pd.DataFrame,
    check: Check = unchecked,
) -> SavedModel:
    """Log a refitted estimator to a run, to be used where the champion is used.

    `estimator` is the bare one, not wrapped by us, so that its users need not install this
    package. It keeps the champion's inputs; its output has the type of its own labels.
    `example` are some rows with the champion's columns.
    """
    from rtscv_mlops.estimator.learner import FactoryClassifier

    if isinstance(estimator, FactoryClassifier):
        estimator = estimator.model_
    rows = champion.rows(example)
    signature = signature_of(rows, estimator.predict(rows))
    if champion.signature is not None:
        signature = ModelSignature(champion.signature.inputs, signature.outputs)
        rows = rows if _is_tensor(signature) else example[champion.column_names]
    return store_model(
        client,
        run_id,
        estimator,
        signature,
        rows,
        trusted_types=champion.trusted_types,
        allow_pickle=champion.allow_pickle,
        metadata={
            METADATA: {"columns": champion.column_names, "categories": list(champion.categories)}
        },
        check=check,
    )


def signature_of(rows: Any, predictions: Any) -> ModelSignature:
    """Return the signature of a model that answers these rows with labels."""
    labels = pd.Series(np.asarray(predictions).ravel()).infer_objects()
    with warnings.catch_warnings():
        # That whole numbers could not be missing is for the model to say, not for each window.
        warnings.filterwarnings("ignore", message=".*integer column", category=UserWarning)
        return infer_signature(rows, labels)


def _is_tensor(signature: ModelSignature) -> bool:
    return signature.inputs is not None and signature.inputs.is_tensor_spec()


def store_model(
    client: MlflowClient,
    run_id: str,
    estimator: Any,
    signature: ModelSignature,
    example: Any,
    *,
    trusted_types: Collection[str] = (),
    allow_pickle: bool = False,
    metadata: dict[str, Any] | None = None,
    check: Check = unchecked,
) -> SavedModel:
    """Write a model, upload it to the run, and seal it: the manifest comes last.

    `check` is called before each write to the run, and raises if that is not allowed.
    """
    serialization, types = choose_serialization(estimator, trusted_types, allow_pickle)
    with asking(f"store a model on run {run_id}"), TemporaryDirectory(prefix="rtscv-") as folder:
        experiment = client.get_run(run_id).info.experiment_id
        logged = _create(client, experiment, run_id)
        path = Path(folder) / MODEL_NAME
        mlflow.sklearn.save_model(
            estimator,
            path,
            mlflow_model=Model(artifact_path=MODEL_NAME, run_id=run_id, model_id=logged.model_id),
            serialization_format=serialization,
            skops_trusted_types=types,
            signature=signature,
            input_example=example,
            pip_requirements=requirements(estimator, serialization),
            metadata=metadata,
        )
        client.log_model_artifacts(logged.model_id, str(path))
        check()
        _link(client, run_id, logged.model_id)
        client.finalize_logged_model(logged.model_id, "READY")
        saved = SavedModel(logged.model_id, list_files(path))
        client.set_logged_model_tags(saved.model_id, {tags.MODEL_SHA256: saved.digest})
        check()
        client.log_text(run_id, saved.manifest.to_json(), MANIFEST_FILE)
    return saved


def _create(client: MlflowClient, experiment: str, run_id: str) -> LoggedModel:
    """Create an empty logged model; one whose answer was lost is found by its tag and taken."""
    named = {SAVED_BY: uuid.uuid4().hex}
    ours = f"tags.`{SAVED_BY}` = '{named[SAVED_BY]}'"
    return create_once(
        lambda: next(iter(client.search_logged_models([experiment], ours)), None),
        lambda: client.create_logged_model(experiment, MODEL_NAME, run_id, tags=named),
    )


def _link(client: MlflowClient, run_id: str, model_id: str) -> None:
    """Link a model to its run; MLflow refuses a second link, as after a lost answer."""
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    except MlflowException:
        outputs = client.get_run(run_id).outputs
        if outputs is None or model_id not in [each.model_id for each in outputs.model_outputs]:
            raise


def requirements(estimator: Any, serialization: str) -> list[str]:
    """Return the packages, with their versions, that a reader of the model must have."""
    parts = [estimator]
    if hasattr(estimator, "get_params"):
        parts += estimator.get_params(deep=True).values()
    used = {(part if isinstance(part, type) else type(part)).__module__ for part in parts}
    modules = {name.partition(".")[0] for name in used} | {serialization}
    packages = {home for module in modules if (home := _home(module))} | BASE_PACKAGES
    return sorted(f"{package}=={version(package).partition('+')[0]}" for package in packages)


def _home(module: str) -> str | None:
    """Return the package of a module, if it is of one."""
    if module in sys.stdlib_module_names:
        return None
    return HOMES[module] if module in HOMES else _homes().get(module, [None])[0]


@cache
def _homes() -> Mapping[str, list[str]]:
    """Return the packages of each module; finding them takes a second."""
    return packages_distributions()


# -- a fresh process

TRIAL = Path(__file__).with_name("trial.py")
TRIAL_CONSTANTS = json.dumps({"thresholds": GC_THRESHOLDS, "adapters": ADAPTERS})


def verify_version(
    client: MlflowClient,
    uri: str,
    example: pd.DataFrame | np.ndarray[Any, Any] | None = None,
    *,
    digest: str | None = None,
    timeout: float = 300,
) -> list[Any]:
    """Load a stored model in a fresh process, and return what it predicts for the example.

    `uri` is `models:/<model_id>` or `models:/<name>/<version>`. The files are fetched here and
    compared with `digest`; the process that loads them gets no address and no credential. Without
    an example, the model's own input example is used.
    """
    with fetched(client, uri) as folder, TemporaryDirectory(prefix="rtscv-") as place:
        found = list_files(folder).digest
        if digest is not None and found != digest:
            raise ModelError(
                f"The files of {uri} have the digest {found[:12]}, not {digest[:12]} as when they "
                "were sealed. They were changed; do not use this model.",
                code=Code.DIGEST_MISMATCH,
            )
        rows = _write_rows(example, Path(place))
        return run_trial(uri, [str(folder), rows], place, timeout)


def _write_rows(example: Any, folder: Path) -> str:
    if example is None:
        return ""
    if isinstance(example, pd.DataFrame):
        # A signature knows no categories: users of the model send them as text.
        categories = example.select_dtypes("category").columns
        example.astype(dict.fromkeys(categories, str)).to_parquet(folder / "rows.parquet")
        return str(folder / "rows.parquet")
    np.save(folder / "rows.npy", example, allow_pickle=False)
    return str(folder / "rows.npy")


def run_trial(uri: str, arguments: list[str], place: str, timeout: float) -> list[Any]:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
    unusable = f"{uri} was stored, but a fresh process could not use it"
    try:
        done = subprocess.run(
            [sys.executable, str(TRIAL), *arguments, TRIAL_CONSTANTS],
            env=environment,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{unusable}: it had no answer after {timeout:g} s.", code=Code.CHALLENGER_UNUSABLE
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        hint = MODULE_HINT if last.startswith(ModuleNotFoundError.__name__) else ""
        raise ModelError(f"{unusable}: {last}.{hint}", code=Code.CHALLENGER_UNUSABLE)
    answers: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answers
