"""Every command as a person would type it, in an order that tells a story, with its outputs."""

import contextlib
import io
import json
import logging
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tools.golden.words import ROOT, pretty

DEMO = "demo/digits.yaml"
LEAVES = "leaves.yaml"
LEAVES_DATABASE = "sqlite:///leaves.db"
HOOK = "GOLDEN_HOOK"
HEADING = re.compile(r"^#+ `rtscv-mlops (.+)`$", re.MULTILINE)
COST = re.compile(r"^( .+ (?:yes|no) .+?) +\d+\.\d *$", re.MULTILINE)
KINDS = {
    "oak": (0.0, 0.0, 0.0),
    "elm": (8.0, 0.0, 0.0),
    "ash": (0.0, 8.0, 0.0),
    "fig": (9.0, 9.0, 4.0),
}
KNOWN = {"oak": 70, "elm": 70, "ash": 70}
ESTIMATOR = """\
from sklearn.svm import SVC

def make():
    return SVC()
"""
LEAVES_MONITOR = f"""\
model:
  name: leaves
  tracking_uri: {LEAVES_DATABASE}
source:
  path: leaves/*.csv
  timestamp: served_at
  key: leaf
labels:
  path: leaf_labels.csv
  key: leaf
  label: kind
alert:
  webhook_url_env: {HOOK}
  cooldown: 0s
"""
TABLE_MONITOR = """\
name: table
model:
  name: leaves
  tracking_uri_env: GOLDEN_MLFLOW
source:
  table: served
  url_env: GOLDEN_ROWS
  timezone: UTC
  timestamp: served_at
"""
MISTAKES = """\
model:
  name: digits
  alais: champion
source:
  path: windows/
  timezone: Europe/Zurch
rectify:
  alpha: 1.5
  cv: many
airflow:
  schedule: sometimes
"""
NO_CHAMPION = """\
model:
  name: nobody
  tracking_uri: {database}
source:
  path: nowhere/
  timestamp: at
"""


class Terminal:
    """Runs commands in this process, as the console script does, and keeps a transcript."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = f"sqlite:///{folder}/demo/mlflow.db"
        self.transcripts: dict[str, list[str]] = defaultdict(list)

    def run(self, file: str, *words: str) -> str:
        """Run a command; keep what it printed and its exit code; return its standard output."""
        from rtscv_mlops.cli import main

        logging.getLogger().handlers.clear()  # They hold the standard error of the command before.
        out, err = io.StringIO(), io.StringIO()
        arguments, sys.argv = sys.argv, ["rtscv-mlops", *words]
        code: Any = 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.argv = arguments
        typed = " ".join(f"'{word}'" if " " in word else word for word in words)
        self.write(file, f"$ rtscv-mlops {typed}", f"exit code {code}")
        self.write(file, *_block("stdout", out), *_block("stderr", err), "")
        return out.getvalue()

    def write(self, file: str, *lines: str) -> None:
        """Add lines to a transcript."""
        self.transcripts[file].extend(lines)

    def both(self, file: str, *words: str) -> None:
        """Run a command for a person, then for a program."""
        self.run(file, *words)
        self.run(file, *words, "--json")


def _block(name: str, text: io.StringIO) -> list[str]:
    return [f"-- {name}", text.getvalue().rstrip("\n")] if text.getvalue().strip() else []


def write_helps(terminal: Terminal) -> None:
    """Ask every command for help; docs/cli.md lists them, and a test keeps that list whole."""
    names = HEADING.findall((ROOT / "docs" / "cli.md").read_text())
    terminal.run("help/rtscv-mlops.txt", "--help")
    for name in names:
        terminal.run(f"help/{name.replace(' ', '-')}.txt", *name.split(), "--help")


def use_demo(terminal: Terminal) -> None:
    """Try every command on what the fortnight left."""
    for use in (_check, _run, _review, _roll_back, _score, _purge, _init, _bench):
        use(terminal)


def _check(terminal: Terminal) -> None:
    file, folder = "commands/check.txt", terminal.folder
    (folder / "mistakes.yaml").write_text(MISTAKES)
    (folder / "nobody.yaml").write_text(NO_CHAMPION.format(database=terminal.database))
    terminal.both(file, "check", DEMO)
    terminal.both(file, "check", "nobody.yaml")
    terminal.run(file, "check", "mistakes.yaml")
    terminal.run(file, "check", "missing.yaml")
    terminal.run(file, "check")


def _run(terminal: Terminal) -> None:
    file = "commands/run.txt"
    for day in ("2026-01-05", "2026-01-10", "2026-01-18"):
        terminal.run(file, "run", DEMO, "--window", day)
    terminal.run(file, "run", DEMO, "--window", "2026-01-10", "--json")
    terminal.both(file, "run", DEMO, "--window", "2026-02-01")
    terminal.run(file, "run", DEMO)
    terminal.run(file, "run", DEMO, "--window", "yesterday")
    terminal.run(file, "run", DEMO, "--start", "2026-01-06", "--end", "2026-01-05")
    terminal.run(file, "run", DEMO, "--window", "2026-01-05", "--start", "2026-01-05")
    terminal.run(file, "run", DEMO, "--wndow", "2026-01-05")
    terminal.run(file, "run", "nobody.yaml", "--window", "2026-01-05")
    terminal.run(file, "nothing")


def _review(terminal: Terminal) -> None:
    file = "commands/review.txt"
    terminal.both(file, "review", "list", DEMO)
    terminal.both(file, "review", "show", DEMO)
    terminal.run(file, "review", "show", DEMO, "--version", "2")
    terminal.run(file, "review", "show", DEMO, "--version", "99")
    terminal.run(file, "review", "show", DEMO, "--version", "1")
    terminal.run(file, "review", "list", "nobody.yaml")
    terminal.run(file, "review", "collect", DEMO)
    terminal.run(file, "review", "baseline", DEMO, "--window", "2026-01-10")
    terminal.run(file, "review", "baseline", DEMO, "--window", "2026-03-01")
    for version in ("99", "2", "6"):
        words = ("--version", version, "--reviewer", "ann", "--reason", "zeros and sixes")
        terminal.run(file, "review", "approve", DEMO, *words)
    terminal.run(file, "review", "approve", DEMO)
    late = ("--version", "6", "--reviewer", "bob")
    terminal.run(file, "review", "reject", DEMO, *late)
    terminal.run(file, "review", "reject", DEMO, *late, "--reason", "too late")
    terminal.both(file, "review", "list", DEMO)
    terminal.run(file, "review", "show", DEMO)


def _roll_back(terminal: Terminal) -> None:
    file = "commands/rollback.txt"
    terminal.both(file, "audit", "verify", DEMO)
    terminal.run(file, "rollback", DEMO, "--undo", "--reviewer", "ann", "--reason", "none yet")
    terminal.run(file, "rollback", DEMO, "--reviewer", "ann", "--reason", "too many sixes")
    terminal.run(file, "rollback", DEMO, "--reviewer", "ann")
    terminal.run(file, "rollback", DEMO, "--reviewer", "ann", "--reason", "once more")
    terminal.run(file, "rollback", DEMO, "--undo", "--reviewer", "bob", "--reason", "they are")
    terminal.run(file, "rollback", DEMO, "--undo", "--reviewer", "bob", "--reason", "twice")
    terminal.both(file, "audit", "verify", DEMO)
    terminal.run(file, "review", "list", DEMO)
    terminal.run(file, "rollback", "nobody.yaml")
    terminal.run(file, "audit", "verify", "nobody.yaml")
    client = connect(terminal.database)
    client.set_registered_model_alias("digits", "champion", "3")
    terminal.write(file, "(The champion is moved by hand in MLflow.)")
    terminal.both(file, "audit", "verify", DEMO)
    terminal.run(file, "check", DEMO)
    client.set_registered_model_alias("digits", "champion", "6")
    terminal.write(file, "(The champion is moved back.)")
    terminal.run(file, "audit", "verify", DEMO)


def _score(terminal: Terminal) -> None:
    file = "commands/score.txt"
    terminal.both(file, "score", DEMO, "--window", "2026-01-18")
    terminal.run(file, "score", DEMO, "--window", "2026-01-05")
    terminal.run(file, "score", DEMO, "--window", "2026-03-01")
    terminal.run(file, "score", DEMO)
    terminal.run(file, "score", "nobody.yaml", "--window", "2026-01-05")


def _purge(terminal: Terminal) -> None:
    file = "commands/purge.txt"
    terminal.run(file, "purge", DEMO, "--before", "2026-01-07")
    terminal.run(file, "purge", DEMO, "--before", "2026-01-07")
    terminal.run(file, "purge", DEMO, "--before", "2026-01-15", "--json")
    terminal.run(file, "purge", DEMO, "--before", "2026-01-11", "--baselines")
    terminal.run(file, "purge", DEMO, "--before", "soon")
    terminal.run(file, "purge", DEMO)
    terminal.run(file, "run", DEMO, "--window", "2026-01-05")


def _init(terminal: Terminal) -> None:
    file, folder = "commands/init.txt", terminal.folder
    terminal.run(file, "init", "digits", "--tracking-uri", terminal.database)
    terminal.run(file, "init", "digits", "--tracking-uri", terminal.database)
    terminal.run(file, "init", "stranger", "--tracking-uri", terminal.database)
    terminal.write("commands/init-digits.yaml", (folder / "digits.yaml").read_text())
    written = (folder / "monitor.schema.json").read_text()
    published = (ROOT / "docs" / "monitor.schema.json").read_text()
    same = "the same as" if written == published else "another than"
    terminal.write(file, f"monitor.schema.json is {same} docs/monitor.schema.json.")
    terminal.run(file, "check", "digits.yaml")


def _bench(terminal: Terminal) -> None:
    file = "commands/bench.txt"
    words = ("bench", "--monitor", DEMO, "--hide-class", "3", "--max-rows", "300")
    terminal.run(file, "bench", "--hide-class", "11")
    terminal.run(file, "bench", "--detector", "nothing")
    terminal.run(file, *words, "--detector", "msp", "--detector", "monitor")
    terminal.run(file, *words, "--json")
    terminal.transcripts[file] = [without_costs(text) for text in terminal.transcripts[file]]


def without_costs(text: str) -> str:
    """Return a text of `bench` without how long each detector took."""
    text = re.sub(r'"seconds": [\d.e-]+', '"seconds": "<seconds>"', text)
    return COST.sub(r"\1  <s>", text)


# -- another model, small: what the demo has no example of


def write_leaves(folder: Path) -> None:
    """Write leaves: training rows, days of traffic that are quiet, moved, new, and spoilt."""
    (folder / "golden_model.py").write_text(ESTIMATOR)
    (folder / LEAVES).write_text(LEAVES_MONITOR)
    (folder / "leaves").mkdir()
    leaves(0, KNOWN).to_csv(folder / "training.csv", index=False)
    leaves(9, {kind: 30 for kind in KNOWN}).to_csv(folder / "holdout.csv", index=False)
    days = {
        "2026-01-05": leaves(1, KNOWN),
        "2026-01-06": leaves(2, KNOWN, shift=1.5),
        "2026-01-07": leaves(3, {**KNOWN, "fig": 40}),
        "2026-01-08": leaves(4, {**KNOWN, "fig": 60}, shift=1.0),
        "2026-01-09": leaves(5, {"oak": 5}),
        "2026-01-10": leaves(6, {**KNOWN, "fig": 50}),
    }
    labels = []
    for day, rows in days.items():
        rows.insert(0, "leaf", [f"{day}-{place}" for place in range(len(rows))])
        rows.insert(1, "served_at", pd.date_range(day, periods=len(rows), freq="5min", tz="UTC"))
        labels.append(rows[["leaf", "kind"]])
        rows.drop(columns="kind").to_csv(folder / "leaves" / f"{day}.csv", index=False)
    pd.concat(labels).to_csv(folder / "leaf_labels.csv", index=False)


def leaves(seed: int, counts: dict[str, int], shift: float = 0.0) -> pd.DataFrame:
    """Return leaves of each kind in any order, and what they are."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat(list(counts), list(counts.values())))
    values = np.array([KINDS[str(kind)] for kind in kinds]) + rng.normal(size=(len(kinds), 3))
    table = pd.DataFrame((values + shift).round(3), columns=["length", "width", "veins"])
    return table.assign(kind=kinds)


def use_leaves(terminal: Terminal) -> None:
    """Register, judge, reject, answer by tag and fail, with a webhook that hears of it."""
    write_leaves(terminal.folder)
    sys.path.insert(0, str(terminal.folder))
    _register(terminal)
    with webhook() as heard:
        _judge_leaves(terminal)
    terminal.write("commands/webhook.json", pretty(heard))
    _answer_by_tag(terminal)
    _read_table(terminal)
    _spoil(terminal)


def _register(terminal: Terminal) -> None:
    file = "commands/register.txt"
    words = ("register", "leaves", "--training", "training.csv", "--tracking-uri", LEAVES_DATABASE)
    fit = ("--estimator", "golden_model:make")
    terminal.run(file, *words, "--label", "kind", *fit)
    terminal.run(file, *words, "--label", "kind", *fit)
    terminal.run(file, *words, "--label", "species", *fit)
    terminal.run(file, *words, "--label", "kind", "--estimator", "golden_model:nothing")
    terminal.run(file, *words, "--label", "kind", "--estimator", "golden_model")
    terminal.run(file, *words, "--label", "kind", *fit, "--replace", "--holdout", "holdout.csv")
    terminal.run(file, *words[:2], "--training", "none.csv", "--label", "kind", *fit)


def _judge_leaves(terminal: Terminal) -> None:
    file = "commands/leaves.txt"
    terminal.both(file, "check", LEAVES)
    for day in ("2026-01-05", "2026-01-06", "2026-01-07"):
        terminal.run(file, "run", LEAVES, "--window", day)
    decided = ("--version", "3", "--reviewer", "ann", "--reason", "known leaves")
    terminal.run(file, "review", "reject", LEAVES, *decided)
    terminal.run(file, "-v", "run", LEAVES, "--window", "2026-01-08")
    terminal.run(file, "run", LEAVES, "--window", "2026-01-08", "--json")
    terminal.both(file, "run", LEAVES, "--window", "2026-01-09")
    words = ("--start", "2026-01-10T00:00", "--end", "2026-01-10T12:00")
    terminal.both(file, "run", LEAVES, *words)
    terminal.run(file, "review", "list", LEAVES)
    terminal.run(file, "score", LEAVES, "--window", "2026-01-07")


def _answer_by_tag(terminal: Terminal) -> None:
    file = "commands/collect.txt"
    client = connect(LEAVES_DATABASE)
    waiting = str(client.get_registered_model("leaves").aliases["challenger"])
    tags = {"rtscv.reviewer": "ann", "rtscv.reason": "figs", "rtscv.review": "aproved"}
    for name, value in tags.items():
        client.set_model_version_tag("leaves", waiting, name, value)
    terminal.write(file, f"(Version {waiting} is answered by tag, with a misspelt word.)")
    terminal.run(file, "review", "list", LEAVES)
    terminal.run(file, "review", "collect", LEAVES)
    client.set_model_version_tag("leaves", waiting, "rtscv.review", "approved")
    terminal.write(file, f"(Version {waiting} is approved by tag.)")
    terminal.run(file, "review", "list", LEAVES)
    terminal.run(file, "review", "show", LEAVES, "--version", waiting)
    terminal.run(file, "review", "collect", LEAVES)
    terminal.run(file, "review", "collect", LEAVES)
    terminal.both(file, "audit", "verify", LEAVES)


def _read_table(terminal: Terminal) -> None:
    """Judge rows of a database: no path is part of this monitor, so its window's key is frozen."""
    file, folder = "commands/table.txt", terminal.folder
    day = pd.read_csv(folder / "leaves" / "2026-01-07.csv", parse_dates=["served_at"])
    day["served_at"] = day["served_at"].dt.tz_localize(None)
    day.to_sql("served", "sqlite:///rows.db", index=False)
    (folder / "table.yaml").write_text(TABLE_MONITOR)
    os.environ |= {"GOLDEN_ROWS": "sqlite:///rows.db", "GOLDEN_MLFLOW": LEAVES_DATABASE}
    terminal.run(file, "check", "table.yaml")
    terminal.both(file, "run", "table.yaml", "--window", "2026-01-07")


def _spoil(terminal: Terminal) -> None:
    file, folder = "commands/not-assessed.txt", terminal.folder / "leaves"
    day = pd.read_csv(folder / "2026-01-05.csv")
    later = day.assign(served_at=day["served_at"].str.replace("-05", "-12"))
    later.drop(columns="veins").to_csv(folder / "2026-01-12.csv", index=False)
    terminal.write(file, "(A day lacks a column.)")
    terminal.both(file, "run", LEAVES, "--window", "2026-01-12")
    later.assign(width="wide").to_csv(folder / "2026-01-12.csv", index=False)
    terminal.write(file, "(A day has text in a column of numbers.)")
    terminal.run(file, "run", LEAVES, "--window", "2026-01-12")
    later.assign(served_at="noon").to_csv(folder / "2026-01-12.csv", index=False)
    terminal.write(file, "(A day has times that cannot be read.)")
    terminal.run(file, "run", LEAVES, "--window", "2026-01-12")
    (folder / "2026-01-12.csv").unlink()
    terminal.write(file, "(A day has no rows.)")
    terminal.both(file, "run", LEAVES, "--window", "2026-01-12")
    del os.environ[HOOK]
    terminal.write(file, "(The variable that names the webhook is not set.)")
    terminal.run(file, "check", LEAVES)


@contextlib.contextmanager
def webhook() -> Iterator[list[Any]]:
    """Listen on this machine for alerts; yield those that came."""
    heard: list[Any] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep standard error for the commands."""

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        os.environ[HOOK] = f"http://127.0.0.1:{server.server_port}/alerts"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield heard
        server.shutdown()


def connect(address: str) -> Any:
    """Return MLflow's own client."""
    from mlflow import MlflowClient

    return MlflowClient(address)
