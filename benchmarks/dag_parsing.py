"""What parsing costs: 100 monitors in one folder, by the DAG file that Airflow parses all day.

Protocol: each figure is the CPU time of fresh processes, the least of several, bytecode compiled;
what `import airflow.sdk` costs is measured in the same run, and taken off.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HEAVY = ("sklearn", "pandas", "numpy", "mlflow", "evidently", "scipy")
MONITOR = """\
model:
  name: model-{number}
  tracking_uri: http://localhost:5000
source:
  path: s3://bucket/served-{number}/
  timestamp: served_at
  key: request
rectify:
  alpha: 0.005
alert:
  cooldown: 12h
  email: {{to: [team@example.com]}}
review:
  expires: 7d
airflow:
  schedule: 15 3 * * *
  owner: team-{number}
"""
BARE = "import airflow.sdk"
ALL = """
import airflow.sdk, importlib.util
spec = importlib.util.spec_from_file_location("dag_file", {file!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found = [name for name in vars(module) if name.startswith("rtscv__")]
"""
ONE = """
import os
os.environ["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = "rtscv__monitor-7"
os.environ["_AIRFLOW_PARSING_CONTEXT_TASK_ID"] = "rectify_window"
"""
TELL = """
import json, resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{
    "seconds": used.ru_utime + used.ru_stime,
    "dags": len(globals().get("found", [])),
    "heavy": [name for name in {heavy} if name in sys.modules],
}}))
"""


def measure(program: str, monitors: Path, times: int) -> dict[str, Any]:
    """Run a program in fresh processes; return the cheapest."""
    script = program + TELL.format(heavy=HEAVY)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "RTSCV_MONITORS_DIR": str(monitors), "AIRFLOW_HOME": home}
        runs = [
            subprocess.run(
                [sys.executable, "-c", script],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            for _ in range(times)
        ]
    found = [json.loads(run.stdout.splitlines()[-1]) for run in runs]
    return min(found, key=lambda one: one["seconds"])


def compare(monitors: int, times: int) -> dict[str, dict[str, Any]]:
    """Parse a folder of monitors: all DAGs of it, and one; what airflow.sdk costs taken off."""
    file = str(ROOT / "dags" / "rtscv_monitors.py")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(monitors):
            path = Path(folder, f"monitor-{number}.yaml")
            path.write_text(MONITOR.format(number=number))
        bare = measure(BARE, Path(folder), times)
        every = measure(ALL.format(file=file), Path(folder), times)
        one = measure(ONE + ALL.format(file=file), Path(folder), times)
    for result in (every, one):
        result["beyond_airflow_sdk"] = result["seconds"] - bare["seconds"]
    return {"airflow.sdk": bare, "all": every, "one": one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--monitors", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    print(__doc__)
    found = compare(given.monitors, given.times)
    bare = found["airflow.sdk"]["seconds"]
    for name, result in (("all of them", found["all"]), ("one, for a task", found["one"])):
        print(
            f"{name}: {result['dags']} DAGs, {result['beyond_airflow_sdk']:.2f} CPU s beyond "
            f"{bare:.2f} of airflow.sdk; loaded: {result['heavy'] or 'nothing heavy'}"
        )
    results = {
        "versions": {name: version(name) for name in ("apache-airflow", "pydantic", "pyyaml")},
        **found,
    }
    target = ROOT / "benchmarks" / "results" / "dag-parsing.json"
    target.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
