"""What a fortnight left in MLflow: verdicts, scores, reports, runs, versions and the record."""

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

REPORT = re.compile(r"var report = (.*?);\n\s*var additional_graphs_report", re.S)
LONG = 40
PRECISION = 5
SECONDS = "<seconds>"
REPORTED = ("2026-01-05", "2026-01-06", "2026-01-10", "2026-01-14", "2026-01-18")
"""A window of each kind: reports are long, and say what verdicts say."""
LEFT_OUT = ("linked_metrics", "template", "source_fingerprint", "pageSize")
EMPTY: tuple[Any, ...] = (None, "", [], {})


def runs_of(client: "MlflowClient") -> list["Run"]:
    """Return every run, the oldest first."""
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments, max_results=1000)
    return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_name))


def window_files(client: "MlflowClient", model: str) -> dict[str, Any]:
    """Return, for each judged window, what its run holds; by the name of a golden file."""
    files: dict[str, Any] = {}
    for run in runs_of(client):
        if run.data.tags.get("rtscv.kind") != "window":
            continue
        day = run.data.tags["rtscv.window_start"][:10]
        if run.data.tags["rtscv.monitor"] not in (model, ""):
            day = f"{run.data.tags['rtscv.monitor']}-{day}"
        folder = artifact_folder(run)
        files[f"runs/{day}.json"] = describe_run(run)
        if (folder / "verdict.json").is_file():
            files[f"verdicts/{day}.json"] = verdict_of(folder)
        if (folder / "clusters.json").is_file():
            files[f"runs/{day}.json"]["clusters.json is as in the verdict"] = (
                json.loads((folder / "clusters.json").read_text())
                == files[f"verdicts/{day}.json"]["clusters"]
            )
        if (folder / "evidence.npz").is_file():
            files[f"scores/{day}.json"] = evidence_of(folder)
        if (folder / "report.html").is_file() and day[-10:] in REPORTED:
            files[f"reports/{day}.json"] = report_of(folder / "report.html")
    return files


def artifact_folder(run: "Run") -> Path:
    """Return where the files of a run are."""
    return Path(urlparse(run.info.artifact_uri).path)


def verdict_of(folder: Path) -> Any:
    """Return what verdict.json says, without how long it took."""
    verdict = json.loads((folder / "verdict.json").read_text())
    verdict["timings"] = dict.fromkeys(verdict["timings"], SECONDS)
    return verdict


def describe_run(run: "Run") -> dict[str, Any]:
    """Return all that MLflow shows of a run, and the names and small texts of its files."""
    folder = artifact_folder(run)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    small = [path for path in files if path.name == "alert.json"]
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "params": run.data.params,
        "tags": run.data.tags,
        "metrics": {
            name: SECONDS if name.startswith("seconds") else value
            for name, value in run.data.metrics.items()
        },
        "inputs": [
            _describe_input(one) for one in (run.inputs.dataset_inputs if run.inputs else [])
        ],
        "artifacts": [path.relative_to(folder).as_posix() for path in files],
        "contents": {path.name: json.loads(path.read_text()) for path in small},
    }


def _describe_input(given: Any) -> dict[str, Any]:
    data = given.dataset
    return {
        "name": data.name,
        "digest": data.digest,
        "source": data.source,
        "source_type": data.source_type,
        "profile": json.loads(data.profile or "null"),
        "schema": hashlib.sha256((data.schema or "").encode()).hexdigest()[:12],
        "tags": {tag.key: tag.value for tag in given.tags},
    }


# -- scores


def evidence_of(folder: Path) -> dict[str, Any]:
    """Return the arrays that the plots are drawn from: each score, and a summary of the rest."""
    with np.load(folder / "evidence.npz") as arrays:
        return {name: _describe_array(name, arrays[name]) for name in sorted(arrays.files)}


def _describe_array(name: str, values: NDArray[Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"dtype": str(values.dtype), "shape": list(values.shape)}
    if values.dtype.kind != "f":
        texts = values.astype(str).ravel().tolist()
        described["counts"] = dict(Counter(texts))
        described["sha"] = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        return described
    described["summary"] = summary(values)
    plain = [shorten(value) for value in values.ravel()]
    described["values"] = plain if name.endswith("scores") else plain[:20]
    return described


def shorten(value: Any) -> float:
    """Return a number of few digits."""
    return float(f"{float(value):.{PRECISION}g}")


def summary(values: NDArray[Any]) -> dict[str, float]:
    """Return where the numbers lie."""
    finite = values[np.isfinite(values)].astype(float)
    if not finite.size:
        return {"finite": 0}
    return {
        "finite": int(finite.size),
        "least": shorten(finite.min()),
        "median": shorten(np.median(finite)),
        "mean": shorten(finite.mean()),
        "most": shorten(finite.max()),
    }


# -- reports


def report_of(page: Path) -> Any:
    """Return what a report shows: its words, its tables, and its plots in a few numbers."""
    found = REPORT.search(page.read_text())
    if found is None:
        raise ValueError(f"{page.name} holds no data of a report that can be read.")
    return _shown(json.loads(found[1]))


def _shown(part: Any) -> Any:
    if isinstance(part, dict):
        if "bdata" in part:
            numbers = np.frombuffer(base64.b64decode(part["bdata"]), np.dtype(part["dtype"]))
            return _shown(numbers.tolist())
        shown = {name: _shown(value) for name, value in part.items() if name not in LEFT_OUT}
        return {name: value for name, value in shown.items() if value not in EMPTY}
    if isinstance(part, list):
        return _shown_list(part)
    if isinstance(part, str) and ";base64," in part:
        return re.sub(r";base64,[\w+/=]+", ";base64,<data>", part)
    return part


def _shown_list(parts: list[Any]) -> Any:
    if len(parts) <= LONG or any(isinstance(part, dict | list) for part in parts):
        return [_shown(part) for part in parts]
    if all(isinstance(part, int | float | None) for part in parts):
        return summary(np.array([np.nan if part is None else part for part in parts]))
    texts = [str(part) for part in parts]
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
    return {"texts": len(texts), "first": texts[:3], "sha": digest}


# -- registry


def registry_files(client: "MlflowClient", model: str, suffix: str = "") -> dict[str, Any]:
    """Return what the registry says of a model: versions, descriptions, aliases, the record."""
    versions = sorted(
        client.search_model_versions(f"name='{model}'"), key=lambda one: int(one.version)
    )
    registered = client.get_registered_model(model)
    names = _names_of(client)
    files: dict[str, Any] = {
        f"registry/{model}{suffix}.json": {
            "aliases": {alias: str(version) for alias, version in registered.aliases.items()},
            "description": registered.description,
            "tags": registered.tags,
            "experiments": {
                one.name: {"tags": one.tags, "artifacts": one.artifact_location}
                for one in client.search_experiments()
            },
            "versions": {
                str(one.version): {
                    "tags": one.tags,
                    "run": names.get(one.run_id or "", ""),
                    "aliases": one.aliases,
                    "model": _describe_model(client, one.source or ""),
                }
                for one in versions
            },
            "ledgers": [
                _ledger(run, names)
                for run in runs_of(client)
                if run.data.tags.get("rtscv.kind") == "ledger"
            ],
        }
    }
    for one in versions:
        if one.description:
            files[f"registry/{model}{suffix}-version-{one.version}.md"] = one.description
    return files


def _names_of(client: "MlflowClient") -> dict[str, str]:
    """Return what to call runs and windows by their ids."""
    names = {}
    for run in runs_of(client):
        names[run.info.run_id] = run.info.run_name
        if key := run.data.tags.get("rtscv.key"):
            names[key] = (
                f"{run.info.run_name} with version {run.data.tags['rtscv.champion_version']}"
            )
    return names


def _ledger(run: "Run", names: dict[str, str]) -> dict[str, Any]:
    def named(text: str) -> str:
        for identity, name in names.items():
            text = text.replace(identity, name)
        return text

    params = {named(name): named(value) for name, value in run.data.params.items()}
    return {"name": run.info.run_name, "tags": run.data.tags, "params": params}


def _describe_model(client: "MlflowClient", source: str) -> Any:
    import yaml

    logged = client.get_logged_model(source.removeprefix("models:/"))
    folder = Path(urlparse(logged.artifact_location).path)
    described = yaml.safe_load((folder / "MLmodel").read_text())
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "loader": described["flavors"]["python_function"]["loader_module"],
        "metadata": described["metadata"],
        "signature": described["signature"],
        "tags": {name: value for name, value in logged.tags.items() if "mlflow" not in name},
        "params": logged.params,
    }
