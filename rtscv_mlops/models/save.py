"""Storing models: serialized as chosen, sealed by a manifest, tried in a new process."""

import json
import os
import signal
import subprocess
import sys
import uuid
import warnings
from collections.abc import Collection
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

from rtscv_mlops.config.monitor import ModelSettings
from rtscv_mlops.errors import Code, ModelError
from rtscv_mlops.models.load import Champion, check_folder
from rtscv_mlops.models.signature import METADATA
from rtscv_mlops.models.trust import ADAPTERS, Manifest, choose_serialization, fetched, list_files
from rtscv_mlops.process import GC_THRESHOLDS
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import Check, asking, unchecked
from rtscv_mlops.tracking.ledger import create_once

MODEL_NAME = "model"
MANIFEST_FILE = "model_manifest.json"
SAVED_BY = "rtscv.saved_by"
"""A tag that finds a model again if the answer to its creation was lost."""
BASE_PACKAGES = {"mlflow", "numpy", "pandas", "scikit-learn"}
PACKAGES = {
    "sklearn": "scikit-learn",
    **{name: name for name in ("numpy", "pandas", "scipy", "skops")},
}
"""Packages of the modules that most models use; those of others are looked up."""

PASSED_ON = (
    *("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "PYTHONPATH"),
    *("SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV"),
)
"""Environment variables that a new Python process needs to start: no address, no credential."""
MODULE_HINT = " Install that module, or add the absolute path of its folder to PYTHONPATH."


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model in MLflow: its id, and the files that it had when it was sealed."""

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
    """Log a refitted estimator to a run, as a replacement for the champion.

    `estimator` is stored without our wrapper, so that its users need not install this package.
    Its signature has the champion's inputs, and the type of its own labels as output. `example`
    are some rows with the champion's columns.
    """
    from rtscv_mlops.estimator.learner import FactoryClassifier

    if isinstance(estimator, FactoryClassifier):
        estimator = estimator.model_
    rows = champion.rows(example)
    signature = signature_of(rows, estimator.predict(rows))
    if champion.signature is not None:
        signature = ModelSignature(champion.signature.inputs, signature.outputs)
        if signature.inputs is None or not signature.inputs.is_tensor_spec():
            rows = example[champion.column_names]
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
    """Return the signature of a model that predicts these labels for these rows."""
    labels = pd.Series(np.asarray(predictions).ravel()).infer_objects()
    with warnings.catch_warnings():
        # MLflow warns that whole numbers cannot be missing. That is not news of each window.
        warnings.filterwarnings("ignore", message=".*integer column", category=UserWarning)
        return infer_signature(rows, labels)


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
    saved_by = uuid.uuid4().hex
    ours = f"tags.`{SAVED_BY}` = '{saved_by}'"
    with asking(f"store a model on run {run_id}"), TemporaryDirectory(prefix="rtscv-") as folder:
        experiment = client.get_run(run_id).info.experiment_id
        logged: LoggedModel = create_once(
            lambda: next(iter(client.search_logged_models([experiment], ours)), None),
            lambda: client.create_logged_model(
                experiment, MODEL_NAME, run_id, tags={SAVED_BY: saved_by}
            ),
        )
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
        _link_model(client, run_id, logged.model_id)
        client.finalize_logged_model(logged.model_id, "READY")
        saved = SavedModel(logged.model_id, list_files(path))
        client.set_logged_model_tags(saved.model_id, {tags.MODEL_SHA256: saved.digest})
        check()
        client.log_text(run_id, saved.manifest.to_json(), MANIFEST_FILE)
    return saved


def _link_model(client: MlflowClient, run_id: str, model_id: str) -> None:
    """Link a model to its run. MLflow refuses to do so again after an answer was lost."""
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    except MlflowException:
        outputs = client.get_run(run_id).outputs
        if outputs is None or model_id not in [each.model_id for each in outputs.model_outputs]:
            raise


_distributions = cache(packages_distributions)  # Looking them up takes a second.


def requirements(estimator: Any, serialization: str) -> list[str]:
    """Return the packages, with their versions, that are needed to load the model."""
    parts = [estimator]
    if hasattr(estimator, "get_params"):
        parts += estimator.get_params(deep=True).values()
    used = {(part if isinstance(part, type) else type(part)).__module__ for part in parts}
    modules = {name.partition(".")[0] for name in used} | {serialization}
    packages = set(BASE_PACKAGES)
    for module in modules - sys.stdlib_module_names:
        known = [PACKAGES[module]] if module in PACKAGES else _distributions().get(module, [])
        packages.update(known[:1])
    return sorted(f"{package}=={version(package).partition('+')[0]}" for package in packages)


# -- a new process

TRIAL = Path(__file__).with_name("trial.py")
TRIAL_CPU_SECONDS = 600
"""What a model may need to load and answer. Waiting for a busy machine does not count."""
TRIAL_SECONDS = 3600.0
"""When a process that uses no CPU either is given up."""
OUT_OF_CPU = getattr(signal, "SIGXCPU", None)
TRIAL_CONSTANTS = json.dumps({"thresholds": GC_THRESHOLDS, "adapters": ADAPTERS})


def verify_version(
    client: MlflowClient,
    uri: str,
    example: pd.DataFrame | np.ndarray[Any, Any] | None = None,
    *,
    digest: str | None = None,
    settings: ModelSettings | None = None,
    timeout: float = TRIAL_SECONDS,
) -> list[Any]:
    """Load a stored model in a new process, and return what it predicts for the example.

    `uri` is `models:/<model_id>` or `models:/<name>/<version>`. The files are fetched here and
    compared with `digest`, and with what `settings` allow to be loaded; the process that loads
    them gets no address and no credential. Without an example, the model's own is used.
    """
    with fetched(client, uri) as folder, TemporaryDirectory(prefix="rtscv-") as work:
        stored = list_files(folder).digest
        if digest is not None and stored != digest:
            raise ModelError(
                f"The files of {uri} have the digest {stored[:12]}, but were sealed with "
                f"{digest[:12]}: they were changed. Do not use this model.",
                code=Code.DIGEST_MISMATCH,
            )
        if settings is not None:
            check_folder(folder, settings, uri)
        rows = ""
        if isinstance(example, pd.DataFrame):
            rows = str(Path(work) / "rows.parquet")
            # A signature has no categories: users of the model send them as text.
            categories = example.select_dtypes("category").columns
            example.astype(dict.fromkeys(categories, str)).to_parquet(rows)
        elif example is not None:
            rows = str(Path(work) / "rows.npy")
            np.save(rows, example, allow_pickle=False)
        return run_trial(uri, [str(folder), rows], work, timeout)


def run_trial(uri: str, arguments: list[str], work: str, timeout: float) -> list[Any]:
    """Run `trial.py` in the folder `work`, and return the predictions that it prints."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
    unusable = f"{uri} was stored, but a new process could not use it"
    try:
        done = subprocess.run(
            [sys.executable, str(TRIAL), *arguments, str(TRIAL_CPU_SECONDS), TRIAL_CONSTANTS],
            env=environment,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{unusable}: it did not answer within {timeout:g} s.", code=Code.CHALLENGER_UNUSABLE
        ) from error
    if -done.returncode == OUT_OF_CPU:
        raise ModelError(
            f"{unusable}: it did not answer within {TRIAL_CPU_SECONDS} s of CPU time.",
            code=Code.CHALLENGER_UNUSABLE,
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        hint = MODULE_HINT if last.startswith(ModuleNotFoundError.__name__) else ""
        raise ModelError(f"{unusable}: {last}.{hint}", code=Code.CHALLENGER_UNUSABLE)
    answers: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answers
