"""A real Airflow with a real MLflow for tests, and what people do there by its API."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.demo import MODEL, make_days, prepare
from tools.stack import Stack

DAG_ID = "rtscv__digits"
CONFLICT, SERVER_ERROR = 409, 500
TASKS = (
    *("rectify_window", "write_report", "register_challenger", "raise_alert"),
    *("review_challenger", "promote_challenger", "ask_again"),
)
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FIRST = TODAY - timedelta(days=14)
"""First day of the demo's fortnight: five quiet days, four of drift, five with hidden digits."""

SETTINGS = """\
airflow:
  schedule: 0 0 * * *
  start: {start:%Y-%m-%d}
  catchup: {catchup}
  poll: 1s
  retry_delay: 2s
  retries: 1
{more}"""


@contextmanager
def running(
    stack: Stack, *, start: datetime, catchup: bool = True, more: str = ""
) -> Iterator[Any]:
    """Run a stack that watches the demo's model; stop it and all it started in the end."""
    try:
        stack.prepare()
        stack.start_mlflow()
        told = SETTINGS.format(start=start, catchup=str(catchup).lower(), more=more)
        prepare(stack.monitors, list(make_days(FIRST)), stack.mlflow, told)
        stack.start_airflow()
        yield stack
    finally:
        stack.stop()


def monitor_of(stack: Stack) -> Monitor:
    """Return the demo's monitor."""
    return load_monitor(stack.monitors / "digits.yaml")


def client_of(stack: Stack) -> MlflowClient:
    """Return a client of the stack's MLflow."""
    return MlflowClient(stack.mlflow, stack.mlflow)


def aliases(stack: Stack) -> dict[str, str]:
    """Return the version behind each alias of the demo's model."""
    found = client_of(stack).get_registered_model(MODEL).aliases
    return {alias: str(version) for alias, version in found.items()}


def wait_until(true: Callable[[], Any], what: str, stack: Stack, seconds: float = 240) -> Any:
    """Return what becomes true; say what Airflow knows if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(1)
    raise AssertionError(f"{what}: not in {seconds} s.\n{tell(stack)}")


def tell(stack: Stack) -> str:
    """Return what became of every task."""
    found = stack.call("ada", "GET", "/dags/~/dagRuns/~/taskInstances?limit=200").json()
    tasks = found.get("task_instances", [])
    lines = sorted(f"{one['dag_run_id']} {one['task_id']} {one['state']}" for one in tasks)
    return "\n".join([*lines, stack.last_words("scheduler", 15)])


def states(stack: Stack, run_id: str, dag_id: str = DAG_ID) -> dict[str, str]:
    """Return the state of each task of a run."""
    answer = stack.call("ada", "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances").json()
    return {one["task_id"]: one["state"] for one in answer.get("task_instances", [])}


def runs(stack: Stack, dag_id: str = DAG_ID) -> dict[str, str]:
    """Return the state of each run, oldest first."""
    answer = stack.call("ada", "GET", f"/dags/{dag_id}/dagRuns?limit=100&order_by=run_after").json()
    return {one["dag_run_id"]: one["state"] for one in answer.get("dag_runs", [])}


def questions(stack: Stack, user: str = "vic") -> list[dict[str, Any]]:
    """Return the questions that wait for an answer."""
    asked = stack.call(
        user, "GET", "/dags/~/dagRuns/~/hitlDetails?response_received=false&order_by=-created_at"
    ).json()["hitl_details"]
    return [one for one in asked if one["task_instance"]["state"] == "deferred"]


def wait_for_question(stack: Stack, subject: str = "") -> dict[str, Any]:
    """Wait for a question whose subject has these words, and until it may be answered.

    Airflow takes a task that goes on before its executor has reported the deferral, some seconds
    later, for one that was killed, and asks again; people are slower than that, tests are not.
    """
    asked = wait_until(
        lambda: next((one for one in questions(stack) if subject in one["subject"]), None),
        f"a question about {subject or 'anything'}",
        stack,
    )
    reported = f"ti_id={asked['task_instance']['id']}, run_start_date"
    log = stack.folder / "logs" / "scheduler.log"
    wait_until(lambda: reported in log.read_text(errors="replace"), "the executor's report", stack)
    return asked


def answer(stack: Stack, user: str, asked: dict[str, Any], option: str, **words: str) -> int:
    """Answer a question; return the status of the response."""
    ti = asked["task_instance"]
    place = f"/dags/{ti['dag_id']}/dagRuns/{ti['dag_run_id']}/taskInstances/{ti['task_id']}/-1"
    body = {"chosen_options": [option], "params_input": {"reason": "as I see it", **words}}
    return stack.call(user, "PATCH", f"{place}/hitlDetails", json=body).status_code


def trigger(stack: Stack, run_id: str, **conf: str) -> None:
    """Trigger a run without a data interval, as a REST client does, once the DAG was parsed."""
    wait_until(lambda: stack.call("ann", "GET", f"/dags/{DAG_ID}").ok, "the DAG", stack)
    body = {"logical_date": None, "dag_run_id": run_id, "conf": conf}

    def is_triggered() -> bool:
        # On SQLite, Airflow answers 500 while its scheduler holds the database's lock.
        done = stack.call("ann", "POST", f"/dags/{DAG_ID}/dagRuns", json=body)
        assert done.ok or done.status_code in (CONFLICT, SERVER_ERROR), done.text
        return done.ok or done.status_code == CONFLICT

    wait_until(is_triggered, f"the run {run_id}", stack)


def wait_for_run(stack: Stack, run_id: str) -> str:
    """Wait until a run has ended; return how."""
    return wait_until(
        lambda: next(
            (s for r, s in runs(stack).items() if r == run_id and s in ("success", "failed")), None
        ),
        f"the end of {run_id}",
        stack,
    )


def clear(stack: Stack, run_id: str, task_id: str, downstream: bool = True) -> None:
    """Clear a task, as a person does in the UI."""
    body = {
        "dry_run": False,
        "task_ids": [task_id],
        "dag_run_id": run_id,
        "only_failed": False,
        "include_downstream": downstream,
    }
    done = stack.call("otto", "POST", f"/dags/{DAG_ID}/clearTaskInstances", json=body)
    assert done.ok, done.text


def set_state(stack: Stack, run_id: str, task_id: str, state: str) -> None:
    """Mark a task, as a person does in the UI."""
    place = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}"
    done = stack.call("otto", "PATCH", place, json={"new_state": state})
    assert done.ok, done.text


def wait_for_task_at_work(stack: Stack, run_id: str, task_id: str, words: str) -> int:
    """Wait until a task has logged these words; return the process that runs its code."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        process = _task_process(stack, run_id, task_id)
        if process and words in log_of(stack, run_id, task_id):
            return process
        time.sleep(0.1)
    raise AssertionError(f"{task_id} did not say {words!r}.\n{tell(stack)}")


def _task_process(stack: Stack, run_id: str, task_id: str) -> int | None:
    place = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}"
    title = f"airflow worker -- {stack.call('ada', 'GET', place).json().get('id')}"
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has just ended.
            if place.read_text().startswith(title):
                return int(place.parent.name)
    return None


def tries(stack: Stack, run_id: str, task_id: str) -> int:
    """Return how often a task was tried."""
    place = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}"
    return int(stack.call("ada", "GET", place).json()["try_number"])


def log_of(stack: Stack, run_id: str, task_id: str) -> str:
    """Return the words of a task's last try; none if there was none yet."""
    folder = Path(stack.folder, "airflow", "logs", f"dag_id={DAG_ID}", f"run_id={run_id}")
    tried = sorted((folder / f"task_id={task_id}").glob("attempt=*.log"))
    return tried[-1].read_text() if tried else ""


@contextmanager
def visitor(browser: Any, stack: Stack) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """Open the page Unknowns in Airflow for a user who logs in; yields the page and its frame."""
    contexts = []

    def open_unknowns(user: str) -> tuple[Any, Any]:
        context = browser.new_context(viewport={"width": 1440, "height": 1000})
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(f"{stack.airflow}/auth/login")
        page.fill("input[name=username]", user)
        page.fill("input[name=password]", stack.passwords[user])
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/auth/login" not in url)
        page.goto(f"{stack.airflow}/plugin/unknowns")
        return page, page.frame_locator("iframe").first

    yield open_unknowns
    for context in contexts:
        context.close()


def keep_picture(page: Any, name: str) -> None:
    """Keep a screenshot for the documents, where one is asked for."""
    if folder := os.environ.get("RTSCV_SCREENSHOTS"):
        page.wait_for_timeout(3_000)
        page.screenshot(path=f"{folder}/{name}.png")
