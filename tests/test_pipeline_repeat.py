"""The same window again: on purpose, at once, after a kill, and after something changed."""

import errno
import logging
import os
import signal
import threading
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.deployments import EMPTY, KNOWN, MODEL, NEW, QUIET, Deployment, leaves
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.errors import ServiceError
from rtscv_mlops.operations.overview import find_window, show_window
from rtscv_mlops.pipeline import run, stages
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.pipeline.stages import take_window
from rtscv_mlops.tracking.registry import read_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import deployed
from tests.registries import race_processes


def test_the_same_window_three_times(tmp_path):
    """It leaves one run and one version, and the same facts are told each time."""
    deployment = deployed(tmp_path)
    first = deployment.run(NEW)

    again = [deployment.run(NEW) for _ in range(2)]

    assert [outcome.facts for outcome in again] == [first.facts, first.facts]
    assert not first.repeated
    assert all(outcome.repeated for outcome in again)
    (run,), (version,) = deployment.runs(NEW), deployment.versions(NEW)
    assert {outcome.run_id for outcome in again} == {run.run_id}
    assert {outcome.version for outcome in again} == {version.version}
    assert len(deployment.client.search_model_versions(f"name = '{MODEL}'")) == 2


def judge(_, folder, day):
    """Judge a day in a process of its own."""
    outcome = Deployment(folder).run(day)
    return outcome.facts.verdict, outcome.run_id, outcome.version


def test_the_same_window_twice_at_once(tmp_path):
    """Two processes that start together end with one run and one live version between them."""
    deployment = deployed(tmp_path)

    (results,) = race_processes(2, 1, judge, tmp_path, NEW)

    (run,), (version,) = deployment.runs(NEW), deployment.versions(NEW)
    assert set(results) == {("unknowns", run.run_id, version.version)}
    assert run.state == "complete"
    assert deployment.aliases() == {"champion": "1", "challenger": version.version}


class KillAt(logging.Handler):
    """Kill this process, without warning, some seconds after a line that begins so was logged."""

    def __init__(self, beginning: str, delay: float) -> None:
        super().__init__()
        self.beginning, self.delay = beginning, delay

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.beginning):
            kill = threading.Timer(self.delay, os.kill, (os.getpid(), signal.SIGKILL))
            kill.start()
            if not self.delay:
                kill.join()


def judge_and_die(file: Path, day: str, beginning: str, delay: float) -> None:
    log = logging.getLogger("rtscv_mlops")
    log.setLevel(logging.INFO)
    log.addHandler(KillAt(beginning, delay))
    run_window(load_monitor(file), Interval.day(day))


def test_a_window_that_was_killed_is_finished_by_the_next_try(tmp_path):
    """Killed after reading, searching, amid registering and after it: one run, one version."""
    deployment = deployed(tmp_path)
    context = get_context("forkserver")
    moments = [
        ("take_window: ", 0),
        ("rectify_window: ", 0),
        ("write_report: ", 1.0),
        ("register_challenger: ", 0),
    ]

    for beginning, delay in moments:
        arguments = (tmp_path / "leaves.yaml", NEW, beginning, delay)
        process = context.Process(target=judge_and_die, args=arguments)
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, beginning
        (run,) = deployment.runs(NEW)
        assert run.state != "complete"
    outcome = deployment.run(NEW)

    (run,), (version,) = deployment.runs(NEW), deployment.versions(NEW)
    assert (run.run_id, version.version) == (outcome.run_id, outcome.version)
    assert (run.verdict, run.state) == ("unknowns", "complete")
    assert version.review == "pending"
    assert len(deployment.client.search_model_versions(f"name = '{MODEL}'")) == 2


# -- something changed


def test_late_rows_make_another_run(tmp_path):
    """It names the one before, whose facts stay; the first is still found for the same settings."""
    deployment = deployed(tmp_path)
    deployment.run(QUIET)
    (before,) = deployment.runs(QUIET)
    facts = read_facts(WindowRun(deployment.client, before.run_id))
    deployment.write_day(QUIET, *leaves(7, {"oak": 20}), part="late")

    outcome = deployment.run(QUIET)

    assert outcome.run_id != before.run_id
    assert outcome.facts.rows == facts.rows + 20
    later = WindowRun(deployment.client, outcome.run_id)
    assert later.tags()["rtscv.rerun_of"] == before.run_id
    assert read_facts(WindowRun(deployment.client, before.run_id)) == facts
    assert deployment.run(QUIET).run_id == outcome.run_id


def test_a_clock_that_went_back_hides_no_newer_judgement(tmp_path):
    """Which run of a window is the latest is counted, not read from the clocks of workers."""
    deployment = deployed(tmp_path)
    before = deployment.run(QUIET)
    deployment.write_day(QUIET, *leaves(7, {"oak": 20}), part="late")
    later = deployment.run(QUIET)
    # What MLflow would hold if the second worker's clock were a day behind.
    client, day = deployment.client, 24 * 3600 * 1000
    ended = client.get_run(before.run_id).info.end_time - day
    client.set_terminated(later.run_id, "FINISHED", ended)

    latest = find_window(deployment.monitor(), Interval.day(QUIET))

    assert latest == later.run_id
    assert show_window(deployment.monitor(), before.run_id).newer_run == later.run_id


def test_other_settings_make_another_run_and_old_ones_find_theirs(tmp_path):
    """What decides a result decides the run; what only shapes pages does not."""
    deployment = deployed(tmp_path)
    deployment.run(QUIET)
    (before,) = deployment.runs(QUIET)

    other = deployment.run(QUIET, deployment.monitor(more="rectify:\n  seed: 1\n"))
    same = deployment.run(QUIET, deployment.monitor(more="report:\n  exemplars: 1\n"))

    assert same.run_id == before.run_id
    assert other.run_id != before.run_id
    tags = WindowRun(deployment.client, other.run_id).tags()
    assert tags["rtscv.rerun_of"] == before.run_id


def test_a_window_whose_champion_moves_is_judged_again_by_itself(tmp_path):
    """It ends with a verdict against the champion that serves; what was sealed before stays."""
    deployment = deployed(tmp_path)
    second = deployment.add_champion(seed=5, alias=None)
    seen = []

    def moving(stage):
        if stage == "write_report":
            seen.append(stage)
            deployment.client.set_registered_model_alias(MODEL, "champion", second)

    outcome = deployment.run(NEW, tell=moving)

    assert (outcome.facts.verdict, outcome.facts.champion_version) == ("unknowns", second)
    assert len(seen) == 2
    (version,) = deployment.versions(NEW)
    states = {run.run_id == outcome.run_id: run.state for run in deployment.runs(NEW)}
    assert states == {True: "complete", False: "failed:stale"}
    assert (version.champion_version, version.review) == (second, "pending")


def test_a_window_whose_champion_never_rests_is_not_assessed(tmp_path):
    """It is tried a bounded number of times, says so, keeps no groups, and `run` tries again."""
    deployment = deployed(tmp_path)
    champions = [deployment.add_champion(seed=seed, alias=None) for seed in (5, 6, 7, 8)]
    moves = iter(champions)

    def moving(stage):
        if stage == "write_report":
            deployment.client.set_registered_model_alias(MODEL, "champion", next(moves))

    outcome = deployment.run(NEW, tell=moving)

    assert outcome.facts.verdict == "not_assessed:stale"
    assert "The champion moved from version" in outcome.facts.headline
    assert len(list(moves)) == len(champions) - run.MOST_JUDGEMENTS
    assert deployment.versions(NEW) == []
    again = deployment.run(NEW)
    assert again.facts.verdict == "unknowns"


def test_a_champion_that_goes_stops_the_offer(tmp_path):
    """Nothing is offered against a champion that no longer serves; the next try uses the new one.

    The version that comes of the last try names the right champion.
    """
    deployment = deployed(tmp_path)
    client = deployment.client
    second = deployment.add_champion(seed=5, alias=None)

    def going(stage):
        if stage == "write_report":
            client.delete_registered_model_alias(MODEL, "champion")

    verdicts = [deployment.run(NEW, tell=going).facts.verdict]
    verdicts.append(deployment.run(NEW).facts.verdict)

    assert verdicts == [f"not_assessed:{why}" for why in ("champion_gone", "no_champion")]
    assert deployment.versions(NEW) == []
    client.set_registered_model_alias(MODEL, "champion", second)
    outcome = deployment.run(NEW)
    assert outcome.facts.verdict == "unknowns"
    (version,) = deployment.versions(NEW)
    assert version.champion_version == second
    assert deployment.aliases() == {"champion": second, "challenger": version.version}
    # The first champion comes back: its result is its own, not that of the second one.
    client.set_registered_model_alias(MODEL, "champion", "1")
    taken = take_window(deployment.monitor(), Interval.day(NEW))
    assert taken.run.run_id != outcome.run_id


def test_an_empty_day_that_fills_keeps_its_run(tmp_path):
    """Not assessed becomes assessed in the same run, which then is finished and without error."""
    deployment = deployed(tmp_path)
    deployment.run(EMPTY)
    (before,) = deployment.runs(EMPTY)
    deployment.write_day(EMPTY, *leaves(8, KNOWN))

    outcome = deployment.run(EMPTY)

    assert outcome.facts.verdict == "no_change"
    assert outcome.run_id == before.run_id
    stored = deployment.client.get_run(outcome.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.tags["rtscv.error"] == ""
    assert stored.data.tags["rtscv.champion_version"] == "1"
    assert stored.data.metrics["window_rows"] == 210


def test_a_source_that_breaks_later_does_not_undo_a_verdict(tmp_path):
    """The rows of a judged day are gone: a run of its own says so, and the verdict stays."""
    deployment = deployed(tmp_path)
    deployment.run(EMPTY)
    deployment.write_day(EMPTY, *leaves(8, KNOWN))
    judged = deployment.run(EMPTY)
    files = tmp_path / "windows" / f"day={EMPTY}"
    files.rename(tmp_path / "elsewhere")

    broken = [deployment.run(EMPTY) for _ in range(2)]

    assert {outcome.facts.verdict for outcome in broken} == {"not_assessed:empty_window"}
    assert len({outcome.run_id for outcome in broken} | {judged.run_id}) == 2
    assert read_facts(WindowRun(deployment.client, judged.run_id)) == judged.facts
    (tmp_path / "elsewhere").rename(files)
    assert deployment.run(EMPTY).run_id == judged.run_id


# -- a service fails


def failing(_, *given, **named):
    """Stand in for a stage while MLflow does not answer."""
    raise ServiceError("MLflow does not answer.", code="mlflow")


def test_a_report_that_mlflow_did_not_take_is_written_by_the_next_try(tmp_path, monkeypatch):
    """A failure that passes is no reason to go on without a report."""
    deployment = deployed(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(stages, "write_report", failing)
        with pytest.raises(ServiceError, match="does not answer"):
            deployment.run(QUIET)
    (failed,) = deployment.runs(QUIET)

    outcome = deployment.run(QUIET)

    assert failed.state == "failed:mlflow"
    assert outcome.run_id == failed.run_id
    assert WindowRun(deployment.client, outcome.run_id).has("report.html")


def test_a_failure_after_the_verdict_leaves_no_second_run(tmp_path, monkeypatch):
    """Who looks at a judged window again while MLflow fails changes nothing."""
    deployment = deployed(tmp_path)
    judged = deployment.run(QUIET)
    with monkeypatch.context() as broken:
        broken.setattr(stages, "take_window", failing)
        with pytest.raises(ServiceError, match="does not answer"):
            deployment.run(QUIET)

    (run_after,) = deployment.runs(QUIET)
    assert (run_after.run_id, run_after.state) == (judged.run_id, "complete")


def full_disk(*given, **named):
    """Stand in for whatever writes to this machine's own disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/secret")


@pytest.mark.parametrize("judge", [run_window, run.rectify_window])
@pytest.mark.parametrize("where", ["read_window", "write_rows"])
def test_an_error_that_nobody_foresaw_is_recorded(tmp_path, monkeypatch, where, judge):
    """A full disk of our own machine: one run says so, is raised, and the next try ends well."""
    deployment = deployed(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(stages, where, full_disk)
        with pytest.raises(OSError, match="No space left"):
            judge(deployment.monitor(), Interval.day(QUIET))
    (failed,) = deployment.runs(QUIET)
    told = read_facts(WindowRun(deployment.client, failed.run_id))

    outcome = deployment.run(QUIET)

    assert failed.state == "failed:unexpected"
    assert told.verdict == "not_assessed:unexpected"
    assert told.headline == (
        "Unexpected error: No space left on device. See the log of this try, fix the cause, and "
        "run the window again."
    )
    assert (outcome.run_id, outcome.facts.verdict) == (failed.run_id, "no_change")
