"""Checks what a monitor needs: whether it is there, and what to do if not."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import RtscvError
from rtscv_mlops.judging.reference import find_training
from rtscv_mlops.models.load import Champion, load_champion
from rtscv_mlops.runtime import computing
from rtscv_mlops.sources.peek import peek
from rtscv_mlops.tracking.client import MlflowClient, connect, greet, is_open, server_version
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.signing import KEY_VARIABLE, Signer
from rtscv_mlops.window import Column

SAFE_MLFLOW = "3.17.2"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `found` ends with what to do if it is not ok."""

    what: str
    state: Literal["ok", "warning", "problem"]
    found: str


def check_monitor(monitor: Monitor) -> Iterator[Check]:
    """Check everything that a run needs, in the order in which a run needs it.

    Parameters
    ----------
    monitor : Monitor
        The monitor to check.

    Yields
    ------
    Check
        One result for each thing, and one more for each warning about it.
    """
    yield Check("monitor", "ok", f"{monitor.name!r} watches model {monitor.model.name!r}")
    try:
        client = connect(monitor.model)
        yield from _check_server(client)
        champion = load_champion(client, monitor.model)
    except RtscvError as error:
        yield Check("champion", "problem", str(error))
        yield from _report_problem("source", _check_source(monitor))
        return
    columns = ", ".join(champion.column_names[:4]) + (", …" if len(champion.columns) > 4 else "")
    yield Check(
        "champion",
        "ok",
        f"version {champion.version}, {type(champion.estimator).__name__}, "
        f"{len(champion.columns)} columns ({columns})",
    )
    yield from (Check("champion", "warning", each) for each in champion.findings)
    yield from _report_problem("record", _check_record(monitor, client))
    yield from _report_problem("training data", _check_training(monitor, client, champion))
    yield from _report_problem("source", _check_source(monitor, champion.columns))
    yield from _report_problem("compute", _check_compute(monitor))
    yield from _check_alerts(monitor)


def _report_problem(what: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield the checks, and an error of ours as a problem."""
    try:
        yield from checks
    except RtscvError as error:
        yield Check(what, "problem", str(error))


def _check_server(client: MlflowClient) -> Iterator[Check]:
    yield Check("mlflow", "ok", greet(client))
    if is_open(client):
        yield Check(
            "mlflow",
            "warning",
            "the server answers without a login: everyone who reaches it can move the champion. "
            "Start it with --app-name basic-auth, or put it behind a proxy that asks for a login.",
        )
    version = server_version(client)
    if version and Version(version) < Version(SAFE_MLFLOW):
        yield Check(
            "mlflow",
            "warning",
            f"the server is MLflow {version}. Vulnerabilities that let others read its files or "
            f"act through it were fixed by {SAFE_MLFLOW}: update it.",
        )


def _check_record(monitor: Monitor, client: MlflowClient) -> Iterator[Check]:
    signer = Signer.from_environment()
    problems = ModelRegistry.of(client, monitor.model).decisions.history().problems
    if signer.keys:
        yield Check("record", "ok", "decisions and seals are signed")
    else:
        yield Check(
            "record",
            "warning",
            f"{KEY_VARIABLE} is not set, so decisions and seals are not signed: everyone who may "
            "write to MLflow can forge them before they are made. Set the same random key "
            "for all tasks, the API server and the command line, then run `audit repair`.",
        )
    yield from (Check("record", "warning", each) for each in problems)


def _check_training(monitor: Monitor, client: MlflowClient, champion: Champion) -> Iterator[Check]:
    training = find_training(monitor, client, champion)
    classes = len(set(training.known.labels.tolist()))
    held_out = "" if training.holdout is None else f", {len(training.holdout)} held out"
    yield Check(
        "training data",
        "ok",
        f"{len(training.known)} rows{held_out}, {classes} classes, from {training.known.source}",
    )
    yield from (Check("training data", "warning", finding) for finding in training.findings)


def _check_source(monitor: Monitor, columns: Sequence[Column] = ()) -> Iterator[Check]:
    seen = peek(monitor.source, columns)
    files = f"{len(seen.files)} file(s) at " if seen.files else ""
    rows = "" if seen.rows is None else f", {'' if seen.exact else 'about '}{seen.rows:,} rows"
    times = "" if seen.first is None else f", from {seen.first} to {seen.last}"
    yield Check("source", "ok", f"{files}{seen.name}{rows}{times}")
    yield from (Check("source", "warning", finding) for finding in seen.findings)


def _check_compute(monitor: Monitor) -> Iterator[Check]:
    with computing(monitor.compute) as engine:
        pass
    yield Check("compute", "ok", f"the work is done by {engine.description}")
    yield from (Check("compute", "warning", finding) for finding in engine.findings)


def _check_alerts(monitor: Monitor) -> Iterator[Check]:
    rule, email = monitor.alert, monitor.alert.email
    variables = [rule.webhook_url_env]
    if email is not None:
        variables += [email.user_env, email.password_env]
    for name in filter(None, variables):
        if name not in os.environ:
            yield Check("alerts", "problem", f"the environment variable {name} is not set. Set it.")
    channels = ["log"]
    channels += ["webhook"] if rule.webhook_url or rule.webhook_url_env else []
    channels += ["e-mail"] if email else []
    yield Check("alerts", "ok", f"by {', '.join(channels)}")
