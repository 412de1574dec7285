"""Scheduled by a real Airflow, reviewed by a person, promoted once; MLflow is a real server.

One stack for the whole file, and one story: the tests stand in its order.
"""

import json
import re
from datetime import timedelta

import pytest

from rtscv_mlops.demo import MODEL
from rtscv_mlops.review.answers import list_challengers, roll_back
from rtscv_mlops.tracking.registry import ModelRegistry
from tests.stacks import (
    DAG_ID,
    TASKS,
    TODAY,
    aliases,
    answer,
    clear,
    client_of,
    keep_picture,
    log_of,
    monitor_of,
    questions,
    running,
    runs,
    set_state,
    states,
    trigger,
    visitor,
    wait_for_question,
    wait_for_run,
    wait_until,
)
from tools.stack import ROOT, Stack

MORE = """\
  notifiers:
    tests.notifiers.FileNotifier:
      path: {path}
      text: "{{{{ rtscv.subject }}}} | {{{{ dag.dag_id }}}}"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Airflow that has just been given the demo's monitor, to begin with yesterday."""
    folder = tmp_path_factory.mktemp("stack")
    stack = Stack(folder, more={"PYTHONPATH": str(ROOT)})  # Airflow is to find our notifier
    more = MORE.format(path=folder / "alerts.txt")
    with running(stack, start=TODAY - timedelta(days=1), more=more):
        (stack.monitors / "torn.yaml").write_text("model:\n  nam: digits\n")
        yield stack


@pytest.fixture(scope="module")
def first(stack):
    """The question that the scheduled run of yesterday's window ends in."""
    return wait_for_question(stack)


def versions(stack):
    return {one.version: one for one in list_challengers(monitor_of(stack))}


def test_a_scheduled_run_ends_in_a_question(stack, first):
    """Nobody triggered it; the window has verdict, report and version, and a person is asked."""
    run_id = first["task_instance"]["dag_run_id"]

    assert run_id.startswith("scheduled__")
    wait_until(lambda: states(stack, run_id)["raise_alert"] == "success", "the alert", stack)
    done = {name: state for name, state in states(stack, run_id).items() if state}
    assert done == {
        **dict.fromkeys(TASKS[:4], "success"),
        "review_challenger": "deferred",
    }
    assert set(states(stack, run_id)) == set(TASKS)
    assert aliases(stack) == {"champion": "1", "challenger": "2"}
    (window,) = ModelRegistry(client_of(stack), MODEL).runs.find()
    assert (window.verdict, window.state, window.version) == ("unknowns", "complete", "2")
    assert window.window_end == TODAY


def test_the_question_has_the_facts(stack, first):
    """The text names what is asked, the numbers and the links; data stays text."""
    assert first["subject"] == f"May version 2 of {MODEL} serve?"
    assert "of this window belongs to something the model was never taught" in first["body"]
    assert "Champion against challenger" in first["body"]
    assert f"({stack.mlflow}/#/models/{MODEL}/versions/2)" in first["body"]
    assert first["params"]["question"]["value"].startswith("version-2.champion-1.")
    assert first["options"] == ["Approve", "Reject"]
    assert first["defaults"] is None


def test_only_ids_travel_between_tasks(stack, first):
    """What tasks hand on is short: ids, a status, task names; never rows or words of people."""
    run_id = first["task_instance"]["dag_run_id"]
    allowed = {"run_id", "facts_sha256", "return_value", "status"}

    for task in TASKS[:5]:
        place = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task}/xcomEntries"
        for entry in stack.call("ada", "GET", place).json()["xcom_entries"]:
            assert entry["key"] in allowed, entry
            value = stack.call("ada", "GET", f"{place}/{entry['key']}").json()["value"]
            assert len(json.dumps(value)) < 300


def test_the_log_tells_the_story(stack, first):
    """A few lines say what became of the window, and no vendor's warnings drown them."""
    log = log_of(stack, first["task_instance"]["dag_run_id"], "rectify_window")

    assert "take_window: 500 rows" in log
    assert "unknowns  about " in log
    assert len(log.splitlines()) < 40
    assert "Deprecat" not in log


def test_a_notifier_of_airflow_gets_the_alert(stack, first):
    """A notifier that the monitor names is called once, with the alert in its templates.

    The sample, and so the interval, depends on the day: it is compared with the question's.
    """
    lines = (stack.folder / "alerts.txt").read_text().splitlines()
    share_of = r"^\*\*Window .*: (About \d+ % \(\d+-\d+ %\)) of this window"
    (share,) = re.findall(share_of, first["body"])

    assert len(lines) == 1
    assert lines[0].startswith(f"[rtscv] {MODEL} ")
    assert lines[0].endswith(f"unknowns: {share.lower()} | {DAG_ID}")


def test_a_broken_monitor_is_its_own_import_error(stack, first):
    """Its error is listed under its own name, and the other monitors run on."""
    (error,) = wait_until(
        lambda: stack.call("ada", "GET", "/importErrors").json()["import_errors"], "error", stack
    )

    assert error["filename"] == str(stack.monitors / "torn.yaml")
    assert "torn.yaml:2: model.nam: unknown setting; did you mean name?" in error["stack_trace"]
    dags = stack.call("vic", "GET", "/dags").json()["dags"]
    assert [one["dag_id"] for one in dags] == [DAG_ID]
    (stack.monitors / "torn.yaml").unlink()


def test_a_viewer_cannot_answer(stack, first):
    """Who may only look gets 403, and nothing changes."""
    assert answer(stack, "vic", first, "Approve") == 403
    assert aliases(stack)["champion"] == "1"


def test_an_answer_to_something_else_changes_nothing(stack, first):
    """An answer is bound to what was seen; where that is not what is asked, it is asked again."""
    run_id = first["task_instance"]["dag_run_id"]

    assert answer(stack, "ann", first, "Approve", question="version-2.champion-9.x.y") == 200

    again = wait_for_question(stack)
    assert again["task_instance"]["dag_run_id"].startswith("again__")
    assert again["subject"] == first["subject"]
    assert wait_for_run(stack, run_id) == "success"
    assert states(stack, run_id)["ask_again"] == "success"
    assert states(stack, run_id)["promote_challenger"] == "skipped"
    assert aliases(stack) == {"champion": "1", "challenger": "2"}


def test_approving_moves_the_champion_once(stack, first):
    """The alias moves, tags say who and why, the asset tells other DAGs, a second is refused."""
    asked = wait_for_question(stack)
    run_id = asked["task_instance"]["dag_run_id"]

    assert answer(stack, "ann", asked, "Approve", reason="digits 0 and 6, seen") == 200

    assert wait_for_run(stack, run_id) == "success"
    assert aliases(stack) == {"champion": "2", "previous_champion": "1"}
    assert answer(stack, "ben", asked, "Reject") == 409
    tags = client_of(stack).get_model_version(MODEL, "2").tags
    assert tags["rtscv.review"] == "approved"
    assert tags["rtscv.reviewer"] == "ann"
    assert tags["rtscv.reason"] == "digits 0 and 6, seen"
    events = stack.call("vic", "GET", "/assets/events").json()["asset_events"]
    champion = [one for one in events if one["uri"] == f"rtscv://{MODEL}/champion"]
    assert [one["extra"]["version"] for one in champion] == ["2"]
    assert champion[0]["extra"]["run_id"] == versions(stack)["2"].run_id
    assert {"ask_again": "skipped"}.items() <= states(stack, run_id).items()


def test_the_new_champion_is_watched(stack, first):
    """The window that held unknowns is quiet for the model that was taught them; it ends green."""
    trigger(stack, "once-more", window=f"{TODAY - timedelta(days=1):%Y-%m-%d}")

    assert wait_for_run(stack, "once-more") == "success"
    assert states(stack, "once-more") == {
        "rectify_window": "success",
        "write_report": "success",
        "register_challenger": "skipped",
        "raise_alert": "success",
        "review_challenger": "skipped",
        "promote_challenger": "skipped",
        "ask_again": "skipped",
    }
    latest = ModelRegistry(client_of(stack), MODEL).runs.find()[-1]
    assert (latest.verdict, latest.champion_version) == ("no_change", "2")


def test_clearing_a_run_changes_nothing(stack, first):
    """Each task done again finds what it did: no run, version, decision or move is added."""
    run_id = first["task_instance"]["dag_run_id"]
    again = next(one for one in runs(stack) if one.startswith("again__"))
    registry = ModelRegistry(client_of(stack), MODEL)
    before = (
        aliases(stack),
        sorted(versions(stack)),
        len(registry.runs.find()),
    )

    clear(stack, again, "write_report")
    wait_until(lambda: runs(stack)[again] == "running", "the cleared run", stack)

    assert wait_for_run(stack, again) == "success"
    assert states(stack, again)["promote_challenger"] == "success"
    assert before == (
        aliases(stack),
        sorted(versions(stack)),
        len(registry.runs.find()),
    )
    assert states(stack, run_id)["rectify_window"] == "success"


def test_a_run_without_a_window_says_what_to_do(stack, first):
    """A trigger by REST that names no interval fails with one sentence, and judges nothing."""
    registry = ModelRegistry(client_of(stack), MODEL)
    before = len(registry.runs.find())

    trigger(stack, "no-window")

    assert wait_for_run(stack, "no-window") == "failed"
    assert "Trigger it with the param window" in log_of(stack, "no-window", "rectify_window")
    assert len(registry.runs.find()) == before


def test_what_was_not_assessed_is_not_green(stack, first):
    """A window without rows is tried again, then fails visibly; its outcome is recorded."""
    trigger(stack, "no-rows", window="2025-01-01")

    assert wait_for_run(stack, "no-rows") == "failed"
    assert states(stack, "no-rows")["rectify_window"] == "failed"
    assert states(stack, "no-rows")["raise_alert"] == "success"
    window = ModelRegistry(client_of(stack), MODEL).runs.find()[0]
    assert window.verdict == "not_assessed:empty_window"
    assert aliases(stack)["champion"] == "2"


def test_an_answer_in_the_registry_counts(stack, first):
    """A tag in MLflow wakes the waiting run; Airflow's own question is closed, and says by whom.

    The report of this run was made to fail: neither the verdict nor the question needs it.
    """
    roll_back(monitor_of(stack), "ada", "to ask about another day")
    trigger(stack, "by-tag", window=f"{TODAY - timedelta(days=2):%Y-%m-%d}")
    wait_until(lambda: states(stack, "by-tag").get("rectify_window"), "a task", stack)
    set_state(stack, "by-tag", "write_report", "failed")
    asked = wait_for_question(stack)
    assert "There is no report" in asked["body"]
    version = asked["subject"].split()[2]

    client = client_of(stack)
    client.set_model_version_tag(MODEL, version, "rtscv.reviewer", "mara")
    client.set_model_version_tag(MODEL, version, "rtscv.reason", "not ours")
    client.set_model_version_tag(MODEL, version, "rtscv.review", "rejected")

    wait_until(lambda: states(stack, "by-tag")["promote_challenger"] == "skipped", "the end", stack)
    decided = versions(stack)[version]
    assert (decided.review, decided.reviewer, decided.reason) == ("rejected", "mara", "not ours")
    assert aliases(stack) == {"champion": "1"}
    assert questions(stack) == []
    assert answer(stack, "ann", asked, "Approve") == 409


def test_a_question_goes_stale_with_its_champion(stack, first):
    """If the champion moves while a question waits, it is closed and asked anew; nothing moves."""
    trigger(stack, "will-be-stale", window=f"{TODAY - timedelta(days=3):%Y-%m-%d}")
    asked = wait_for_question(stack)
    version = asked["subject"].split()[2]

    client_of(stack).set_registered_model_alias(MODEL, "champion", "2")

    assert wait_for_run(stack, "will-be-stale") == "success"
    assert versions(stack)[version].review == "stale"
    again = next(one for one in runs(stack) if one.endswith(f"after_version_{version}"))
    assert wait_for_run(stack, again) == "success"
    assert states(stack, again)["register_challenger"] == "skipped"
    assert aliases(stack)["champion"] == "2"


# -- by browser


@pytest.fixture
def visit(browser, stack):
    """Log in to Airflow as people do, and open its page Unknowns; return the page and its frame."""
    with visitor(browser, stack) as open_unknowns:
        yield open_unknowns


def test_a_person_decides_in_the_browser(stack, first, visit):
    """Log in, see what waits, open the report, approve with a reason; the champion moves."""
    client_of(stack).set_registered_model_alias(MODEL, "champion", "1")
    trigger(stack, "by-browser", window=f"{TODAY - timedelta(days=4):%Y-%m-%d}")
    version = wait_for_question(stack)["subject"].split()[2]
    page, unknowns = visit("ann")
    waiting = unknowns.get_by_role("link", name=f"Review waiting: version {version}")
    waiting.wait_for()
    keep_picture(page, "unknowns")

    waiting.click()
    unknowns.locator("#reason").fill("Zeros and sixes, looked at ten of them.")
    keep_picture(page, "window")
    report = unknowns.frame_locator("iframe").first
    report.get_by_text("never taught").first.wait_for()
    keep_picture(page, "window-report")
    unknowns.get_by_role("button", name="Approve").click()
    unknowns.locator("#confirm-yes").click()
    unknowns.locator("#decision[data-state=approved]").wait_for()
    keep_picture(page, "window-approved")

    assert wait_for_run(stack, "by-browser") == "success"
    assert aliases(stack)["champion"] == version
    decided = versions(stack)[version]
    assert (decided.reviewer, decided.review) == ("ann", "approved")
    assert decided.reason == "Zeros and sixes, looked at ten of them."
    _, unknowns = visit("vic")
    unknowns.get_by_text(f"version {version}").first.wait_for()
    assert unknowns.get_by_role("link", name="Review waiting").count() == 0


def test_a_viewer_sees_no_form_and_a_no_leaves_everything(stack, first, visit):
    """Who may only look reads all of it and finds no buttons; a rejection moves nothing."""
    roll_back(monitor_of(stack), "ada", "for one more question")
    before = aliases(stack)["champion"]
    trigger(stack, "to-reject", window=f"{TODAY - timedelta(days=5):%Y-%m-%d}")
    asked = wait_for_question(stack)
    version = asked["subject"].split()[2]

    _, seen = visit("vic")
    seen.get_by_role("link", name=f"Review waiting: version {version}").click()
    seen.locator("#decision").wait_for()
    assert seen.locator("button[data-option]").count() == 0
    assert answer(stack, "vic", asked, "Approve") == 403
    _, unknowns = visit("ben")
    unknowns.get_by_role("link", name=f"Review waiting: version {version}").click()
    unknowns.locator("#reason").fill("Not convinced.")
    unknowns.get_by_role("button", name="Reject").click()
    unknowns.locator("#confirm-yes").click()
    unknowns.locator("#decision[data-state=rejected]").wait_for()

    assert wait_for_run(stack, "to-reject") == "success"
    assert states(stack, "to-reject")["promote_challenger"] == "skipped"
    assert aliases(stack)["champion"] == before
    assert versions(stack)[version].reviewer == "ben"


def test_no_import_error_is_left(stack, first):
    """The broken file is gone, and so is its error."""
    wait_until(
        lambda: "No data found" in stack.run("airflow", "dags", "list-import-errors"),
        "an empty list of import errors",
        stack,
    )
