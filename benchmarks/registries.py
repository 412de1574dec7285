"""MLflow databases made from one template, and models in them. Tests use them too."""

import shutil
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import mlflow
from mlflow.entities import LoggedModelStatus
from mlflow.tracking import MlflowClient

from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.registry import REPORT, VERDICT, facts_digest, facts_text
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.tracking.seals import Seal, claim_seal

MODEL = "letters"
REPORT_PAGE = "<p>What was found.</p>"


@cache
def _template() -> Path:
    """Return an empty MLflow database; creating its tables takes longer than a copy of it."""
    file = Path(mkdtemp()) / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


def new_database(folder: Path) -> str:
    """Return the address of a new, empty MLflow."""
    shutil.copy(_template(), folder / "mlflow.db")
    return f"sqlite:///{folder}/mlflow.db"


def client_of(uri: str) -> MlflowClient:
    """Return a client; MLflow also registers logged models at the address of the process."""
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    return MlflowClient(uri, uri)


def log_model(client: MlflowClient, run_id: str) -> str:
    """Log a model without content on a run; return its id."""
    experiment = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment, "model", source_run_id=run_id)
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)


def add_champion(client: MlflowClient, model: str = MODEL) -> str:
    """Register a model whose first version is the champion."""
    client.create_registered_model(model)
    run = client.create_run("0")
    model_id = log_model(client, run.info.run_id)
    source = f"models:/{model_id}"
    version = client.create_model_version(model, source, run.info.run_id, model_id=model_id)
    client.set_registered_model_alias(model, "champion", str(version.version))
    return str(version.version)


def seal_window(
    client: MlflowClient,
    key: str,
    run_id: str,
    model_id: str,
    *,
    day: int,
    champion: str = "1",
    model: str = MODEL,
    model_sha256: str = "m" * 64,
    files: bool = False,
) -> Seal:
    """Seal one day's window, as if it had been judged; with `files` it has verdict and report."""
    facts_sha256, report_sha256 = "f" * 64, "r" * 64
    if files:
        facts = WindowFacts(
            key=key,
            monitor="monitor",
            model=model,
            champion_version=champion,
            window_start=datetime(2026, 1, day, tzinfo=UTC),
            window_end=datetime(2026, 1, day + 1, tzinfo=UTC),
            verdict="unknowns",
            headline="About 10 % of this window is unknown.",
            model_id=model_id,
            model_sha256=model_sha256,
        )
        run = WindowRun(client, run_id)
        run.write_text(VERDICT, facts_text(facts))
        run.write_text(REPORT, REPORT_PAGE)
        facts_sha256 = facts_digest(facts)
        report_sha256 = sha256(REPORT_PAGE.encode()).hexdigest()
    seal = Seal(
        run_id=run_id,
        key=key,
        monitor="monitor",
        window=f"202601{day:02d}T000000Z-202601{day + 1:02d}T000000Z",
        window_start=f"2026-01-{day:02d}T00:00:00+00:00",
        window_end=f"2026-01-{day + 1:02d}T00:00:00+00:00",
        champion_version=champion,
        verdict="unknowns",
        facts_sha256=facts_sha256,
        report_sha256=report_sha256,
        model_id=model_id,
        model_sha256=model_sha256,
    )
    return claim_seal(Ledger(client, model), seal)
