"""The story itself, in a process of its own: what it leaves is written as files, normalised."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.golden import commands, facts
from tools.golden.words import ROOT, Placeholders, pretty

LENGTH = 64
"""Length of the folder's path: texts are broken into lines by it."""

PATHS = ("rtscv_mlops.rectify:RTSCVClassifier", "rtscv_mlops.airflow.trigger:ReviewTrigger")
"""Paths that pickles, and tasks that wait in Airflow's database, name."""

PARSE = """
import json
from pathlib import Path
import structlog
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.dag_processing.processor import _serialize_dags

file = Path("dags/rtscv_monitors.py").resolve()
bag = BundleDagBag(
    dag_folder=str(file), bundle_path=file.parent, bundle_name="dags", load_op_links=False
)
stored, errors = _serialize_dags(bag, structlog.get_logger())
dags = {one.dag_id: one.data for one in stored}
print(json.dumps({"dags": dags, "errors": bag.import_errors | errors}))
"""
ERROR = re.compile(r"^[\w.]+(?:Error|Exception): ", re.MULTILINE)
MONITOR = """\
model:
  name: {name}
  tracking_uri: sqlite:///mlflow.db
source:
  path: {name}/
  timestamp: served_at
"""
AIRFLOW = """\
  key: scan
labels:
  path: labels.parquet
  key: scan
  label: digit
airflow:
  schedule: 15 3 * * 1
  timezone: Europe/Zurich
  start: 2026-01-05
  catchup: true
  owner: fraud-team
  tags: [fraud]
  pool: small
  queue: large
  retries: 5
  timeout: 10m
  max_active_runs: 2
"""


def play(parts: set[str], out: Path) -> None:
    """Make what the parts ask for, and write it below `out`."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        folder /= "g" * max(1, LENGTH - len(str(folder)) - 1)
        folder.mkdir()
        os.chdir(folder)
        files: dict[str, Any] = {}
        terminal = commands.Terminal(folder)
        if "help" in parts:
            commands.write_helps(terminal)
        if "public" in parts:
            files["public.json"] = public_names()
        if "dags" in parts:
            files |= dag_files(folder)
        clients = tell_story(terminal, files) if "story" in parts else []
        files |= {name: "\n".join(lines) for name, lines in terminal.transcripts.items()}
        write(files, placeholders(folder, clients), out)


def tell_story(terminal: commands.Terminal, files: dict[str, Any]) -> list[Any]:
    """Judge the fortnight, then try each command; return clients of both registries."""
    terminal.run("commands/demo.txt", "demo", "--folder", "demo")
    client = commands.connect(terminal.database)
    files |= facts.window_files(client, "digits") | facts.registry_files(client, "digits")
    commands.use_demo(terminal)
    commands.use_leaves(terminal)
    other = commands.connect(commands.LEAVES_DATABASE)
    after = facts.registry_files(client, "digits", "-after")
    files |= {name: value for name, value in after.items() if name.endswith(".json")}
    files |= facts.registry_files(other, "leaves")
    for name, value in facts.window_files(other, "leaves").items():
        kind, day = name.split("/")
        files[f"{kind}/leaves-{day}"] = value
    return [client, other]


def placeholders(folder: Path, clients: list[Any]) -> Placeholders:
    """Return stand-ins that know which id is a run and which a window's key."""
    names, kept = {}, set()
    for client in clients:
        for run in facts.runs_of(client):
            names[run.info.run_id] = "run"
            if has_path_in_key(run):
                names[run.data.tags["rtscv.key"]] = "key"
            else:
                kept.add(run.data.tags.get("rtscv.key", ""))
            verdict = facts.artifact_folder(run) / "verdict.json"
            if verdict.is_file():
                kept.add(json.loads(verdict.read_text())["digest"])
    return Placeholders(folder, names, kept)


def has_path_in_key(run: Any) -> bool:
    """Return whether a window's key depends on a folder of this run; others are frozen."""
    tags = run.data.tags
    assessed = not tags.get("rtscv.verdict", "").startswith("not_assessed")
    return "rtscv.key" in tags and tags["rtscv.monitor"] != "table" and assessed


def write(files: dict[str, Any], names: Placeholders, out: Path) -> None:
    """Write each file, with stand-ins for what differs from run to run."""
    for name, value in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = value if isinstance(value, str) else pretty(value)
        path.write_text(names.fill(text))


def public_names() -> dict[str, Any]:
    """Return names that others write down: in programs, in pickles, in Airflow's settings."""
    import rtscv_mlops

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "rtscv_mlops.__all__": rtscv_mlops.__all__,
        "importable": {path: _describe(path) for path in PATHS},
        "scripts": {name: _describe(path) for name, path in project["scripts"].items()},
        "entry_points": {
            group: {name: _describe(path) for name, path in entries.items()}
            for group, entries in project["entry-points"].items()
        },
        "named by a pickled classifier": pickled_names(),
        "extras": sorted(project["optional-dependencies"]),
        "commands": commands.HEADING.findall((ROOT / "docs" / "cli.md").read_text()),
    }


def pickled_names() -> list[str]:
    """Return which names of ours the pickle of a fitted classifier holds: users keep such files."""
    from sklearn.datasets import load_digits
    from sklearn.svm import SVC

    from rtscv_mlops import RTSCVClassifier

    images, digits = load_digits(return_X_y=True)
    taught = digits < 8
    model = RTSCVClassifier(SVC())
    model.fit(images[taught][:600], digits[taught][:600], deployment=images[600:1000])
    return sorted(_Globals(model).names)


class _Globals(pickle.Unpickler):
    """Reads a pickle of an object, and remembers what of ours was imported for it."""

    def __init__(self, pickled: object) -> None:
        super().__init__(io.BytesIO(pickle.dumps(pickled)))
        self.names: set[str] = set()
        self.load()

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("rtscv_mlops"):
            self.names.add(f"{module}:{name}")
        return super().find_class(module, name)


def _describe(path: str) -> str:
    module, _, name = path.partition(":")
    found = getattr(import_module(module), name)
    return f"{type(found).__name__} {path}"


def dag_files(folder: Path) -> dict[str, Any]:
    """Return what Airflow stores of the DAGs of three monitors, one of which is broken."""
    monitors = folder / "monitors"
    monitors.mkdir()
    (monitors / "plain.yaml").write_text(MONITOR.format(name="plain"))
    (monitors / "placed.yaml").write_text(MONITOR.format(name="placed") + AIRFLOW)
    (monitors / "broken.yaml").write_text(commands.MISTAKES)
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        cwd=ROOT,
        env={
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "RTSCV_MONITORS_DIR": str(monitors),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    files = {f"dags/{name}.json": dag for name, dag in found["dags"].items()}
    errors = {path: ERROR.split(error)[-1] for path, error in found["errors"].items()}
    return {**files, "dags/errors.json": errors}


def main() -> None:
    """Take the folder and the parts from the command line."""
    play(set(sys.argv[2:]), Path(sys.argv[1]).resolve())
