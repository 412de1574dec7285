"""`make up`: Airflow and MLflow on this machine, with the demo's fortnight; Ctrl-C stops it all."""

import json
import signal
import socket
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from rtscv_mlops.demo import make_days, prepare
from tools.stack import ROLES, ROOT, Stack, free_port

FOLDER = ROOT / "stack"
SETTINGS = """\
airflow:
  schedule: 0 0 * * *
  start: {start:%Y-%m-%d}
  catchup: true  # a fortnight of windows, one after the other
  retries: 0
  poll: 5s
"""


def usual_port(wanted: int) -> int:
    """Return the port that people expect, or a free one where that is taken."""
    with socket.socket() as tried:
        taken = tried.connect_ex(("127.0.0.1", wanted)) == 0
    return free_port() if taken else wanted


def make_stack(folder: Path) -> Stack:
    """Return the stack; passwords stay the same from one start to the next."""
    users = folder / "users.json"
    passwords = json.loads(users.read_text()) if users.exists() else {}
    return Stack(
        folder,
        airflow_port=usual_port(8080),
        mlflow_port=usual_port(5000),
        passwords=passwords,
    )


def start(stack: Stack, console: Console) -> None:
    """Start everything, and say where it is."""
    with console.status("Making Airflow's database"):
        stack.prepare()
    with console.status("Starting MLflow"):
        stack.start_mlflow()
    with console.status("Writing a fortnight of digits, and registering the champion"):
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        first = today - timedelta(days=14)
        prepare(stack.monitors, list(make_days(first)), stack.mlflow, SETTINGS.format(start=first))
    with console.status("Starting Airflow"):
        stack.start_airflow()


def tell(stack: Stack, console: Console) -> None:
    """Say where everything is, and what to do there."""
    lines = [
        f"Airflow   {stack.airflow}   the page Unknowns is in its menu, under Browse",
        f"MLflow    {stack.mlflow}",
        f"Monitors  {stack.monitors}   each YAML file there is a DAG",
        "",
        *(
            f"  user {name}, password {stack.passwords[name]}   {role}"
            for name, role in ROLES.items()
        ),
        "",
        "The first window is judged in about a minute, the last in about ten. Ctrl-C stops all.",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    console = Console()
    stack = make_stack(FOLDER)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        start(stack, console)
        tell(stack, console)
        while all(process.poll() is None for process in stack.processes.values()):
            threading.Event().wait(1)
        ended = next(name for name, one in stack.processes.items() if one.poll() is not None)
        console.print(f"{ended} ended:\n{stack.last_words(ended)}", markup=False)
        raise SystemExit(1)
    except KeyboardInterrupt:
        pass
    finally:
        with console.status("Stopping"):
            stack.stop()


if __name__ == "__main__":
    main()
