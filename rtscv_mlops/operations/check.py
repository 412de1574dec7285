"""The doctor: what a monitor needs, whether it is there, and what to do if not."""

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
from rtscv_mlops.tracking.promotion import read_history
from rtscv_mlops.window import Column

SAFE_MLFLOW = "3.17.2"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `found` ends with what to do where it is not well."""

    what: str
    state: Literal["ok", "warning", "problem"]
    found: str


def check_monitor(monitor: Monitor) -> Iterator[Check]:
    """Look at everything that a run needs, in the order in which a run needs it."""
    yield Check("monitor", "ok", f"{monitor.name!r} watches model {monitor.model.name!r}")
    try:
        client = connect(monitor.model)
        yield from _server(client)
        champion = load_champion(client, monitor.model)
    except RtscvError as error:
        yield Check("champion", "problem", str(error))
        yield from _place(monitor)
        return
    columns = ", ".join(champion.column_names[:4]) + (", …" if len(champion.columns) > 4 else "")
    yield Check(
        "champion",
        "ok",
        f"version {champion.version}, {type(champion.estimator).__name__}, "
        f"{len(champion.columns)} columns ({columns})",
    )
    problems = read_history(client, champion.name, alias=champion.alias).problems
    yield from (Check("champion", "warning", each) for each in (*champion.findings, *problems))
    yield from _training(monitor, client, champion)
    yield from _place(monitor, champion.columns)
    yield from _compute(monitor)
    yield from _alerts(monitor)


def _server(client: MlflowClient) -> Iterator[Check]:
    name = greet(client)
    yield Check("mlflow", "ok", name)
    if is_open(client):
        yield Check(
            "mlflow",
            "warning",
            "the server answers without a login: whoever reaches it can move the champion. "
            "Start it with --app-name basic-auth, or put it behind a proxy that asks.",
        )
    told = server_version(client)
    if told and Version(told) < Version(SAFE_MLFLOW):
        yield Check(
            "mlflow",
            "warning",
            f"the server is MLflow {told}. Holes that let others read its files or act through it "
            f"were closed by {SAFE_MLFLOW}: update it.",
        )


def _training(monitor: Monitor, client: MlflowClient, champion: Champion) -> Iterator[Check]:
    try:
        training = find_training(monitor, client, champion)
    except RtscvError as error:
        yield Check("training data", "problem", str(error))
        return
    classes = len(set(training.known.labels.tolist()))
    held_out = "" if training.holdout is None else f", {len(training.holdout.labels)} held out"
    yield Check(
        "training data",
        "ok",
        f"{len(training.known.labels)} rows{held_out}, {classes} classes, from {training.source}",
    )
    yield from (Check("training data", "warning", finding) for finding in training.findings)


def _place(monitor: Monitor, columns: Sequence[Column] = ()) -> Iterator[Check]:
    try:
        found = peek(monitor.source, columns)
    except RtscvError as error:
        yield Check("source", "problem", str(error))
        return
    files = f"{len(found.files)} file(s) at " if found.files else ""
    rows = "" if found.rows is None else f", {'' if found.exact else 'about '}{found.rows:,} rows"
    times = "" if found.first is None else f", from {found.first} to {found.last}"
    yield Check("source", "ok", f"{files}{found.name}{rows}{times}")
    yield from (Check("source", "warning", finding) for finding in found.findings)


def _compute(monitor: Monitor) -> Iterator[Check]:
    try:
        with computing(monitor.compute) as engine:
            pass
    except RtscvError as error:
        yield Check("compute", "problem", str(error))
        return
    yield Check("compute", "ok", f"the work is done by {engine.description}")
    yield from (Check("compute", "warning", finding) for finding in engine.findings)


def _alerts(monitor: Monitor) -> Iterator[Check]:
    rule, email = monitor.alert, monitor.alert.email
    wanted = [rule.webhook_url_env]
    if email is not None:
        wanted += [email.user_env, email.password_env]
    for name in filter(None, wanted):
        if name not in os.environ:
            yield Check("alerts", "problem", f"the environment variable {name} is not set. Set it.")
    channels = ["log"]
    channels += ["webhook"] if rule.webhook_url or rule.webhook_url_env else []
    channels += ["e-mail"] if email else []
    yield Check("alerts", "ok", f"by {', '.join(channels)}")
