"""Where the work is done changes nothing: this process, several, or a Dask cluster of processes.

The cluster is real: its workers are processes, which can be killed.
"""

import logging
import os
import signal
import socket
import sys
import traceback
import warnings
from contextlib import contextmanager
from datetime import timedelta

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.deployments import NEW, leaves
from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.config.monitor import ComputeSettings
from rtscv_mlops.errors import ConfigError, ServiceError
from rtscv_mlops.estimator import gates, kernel
from rtscv_mlops.estimator.parallel import do_all
from rtscv_mlops.judging.contest import Contest, predict
from rtscv_mlops.operations.check import check_monitor
from rtscv_mlops.runtime import computing, on_one_thread
from rtscv_mlops.window import LabelledRows
from tests.clusters import (
    Killer,
    Murderer,
    SlowLearner,
    break_down,
    double,
    place,
    places,
    threads,
    warn,
)
from tests.deployments import deployed

LEAVES = {"oak": 120, "elm": 120, "ash": 120}
WINDOW = {"oak": 100, "elm": 100, "ash": 100, "fig": 50}
NOBODY = "tcp://127.0.0.1:9"
PATIENCE = timedelta(seconds=2)
SECRET = "canary-scheduler-6b1f"


@contextmanager
def start_cluster(workers=2, **more):
    """A scheduler in this process, and workers that are processes of their own."""
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
        **more,
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster():
    """Two workers, which use two threads for linear algebra unless they are told otherwise."""
    two = {"OMP_NUM_THREADS": 2, "OPENBLAS_NUM_THREADS": 2}
    with dask.config.set({"distributed.nanny.pre-spawn-environ": two}), start_cluster() as cluster:
        yield cluster


def dask_at(address, **more):
    return ComputeSettings(engine="dask", address=address, timeout=PATIENCE, **more)


def engines(cluster):
    """The settings of each engine, the plain one first."""
    return [
        ComputeSettings(),
        ComputeSettings(jobs=2),
        ComputeSettings(engine="dask", address=cluster.scheduler_address),
    ]


@on_one_thread
def judge(settings, learner, gate):
    """Judge a window with figs in it by models of leaves without, as a stage would."""
    X, y = leaves(0, LEAVES)
    window, _ = leaves(1, WINDOW)
    with computing(settings):
        return RTSCVClassifier(learner, gate=gate).fit(X, y, deployment=window)


def done_there(cluster):
    """How many pieces of each kind the workers have done."""
    prefixes = cluster.scheduler.task_prefixes.values()
    return {prefix.name: sum(prefix.state_counts.values()) for prefix in prefixes}


# -- the same result


@pytest.fixture
def small_pieces(monkeypatch):
    """Few rows make many pieces, as many rows would."""
    monkeypatch.setattr(gates, "CHUNK", 150)
    monkeypatch.setattr(kernel.KernelGate, "MAX_FEATURES", 1_000)


@pytest.mark.parametrize(
    ("gate", "learner", "pieces"),
    [
        ("kernel", SVC(), {"rtscv_kernel_scores"}),
        ("forest", SVC(), {"rtscv_grow"}),
        ("estimator", SVC(), {"rtscv_fit", "rtscv_class_scores"}),
    ],
)
def test_every_engine_finds_the_same(cluster, small_pieces, gate, learner, pieces):
    """Facts, scores and rows agree to the last bit, and the cluster did its part of the work."""
    rows, _ = leaves(2, WINDOW)

    plain, *others = [judge(settings, learner, gate) for settings in engines(cluster)]

    assert plain.assessment_.verdict == "unknowns"
    for other in others:
        assert np.array_equal(other.unknown_indices_, plain.unknown_indices_)
        assert np.array_equal(other.window_scores_, plain.window_scores_)
        assert np.array_equal(other.known_scores_, plain.known_scores_)
        assert np.array_equal(other.unknown_score(rows), plain.unknown_score(rows))
        assert other.assessment_.diagnostics == plain.assessment_.diagnostics
        assert other.assessment_.p_value == plain.assessment_.p_value
    assert pieces <= set(done_there(cluster))


def test_every_engine_compares_the_same(cluster, small_pieces):
    """Champion and challenger have the same figures, and rows the same answers, whoever asks."""
    rows, kinds = leaves(0, LEAVES)
    known = LabelledRows(rows, kinds, as_rows=pd.DataFrame.to_numpy)
    figs, _ = leaves(2, {"fig": 30})
    model = SVC().fit(rows.to_numpy(), kinds)
    found = []

    for settings in engines(cluster):
        with computing(settings), threadpool_limits(limits=1):
            contest = Contest(model, SVC(), known, None, figs, "unknown", seed=0)
            comparison = contest.candidates(model, None)[0].comparison
            found.append((comparison, predict(model, rows.to_numpy()).tolist()))

    assert found[0] == found[1] == found[2]
    assert found[0][1] == model.predict(rows.to_numpy()).tolist()
    assert {"rtscv_fit_and_predict", "rtscv_predict"} <= set(done_there(cluster))


def test_a_window_has_one_result(cluster, tmp_path):
    """Facts, key and report of a whole window do not tell which engine it was judged by."""
    place = f"engine: dask\n  address: {cluster.scheduler_address}"
    rectify = "rectify:\n  gate: estimator\ncanary: {}\n"
    facts, reports, source = [], [], None

    for number, compute in enumerate(["jobs: 1", place]):
        deployment = deployed(tmp_path / str(number))
        monitor = deployment.monitor(more=f"compute:\n  {compute}\n{rectify}")
        source = source or monitor.source  # where the rows are is part of the key
        outcome = deployment.run(NEW, monitor.model_copy(update={"source": source}))
        own = {"timings": {}, "model_id": "", "model_sha256": ""}
        facts.append(outcome.facts.model_copy(update=own))
        reports.append(deployment.window_run(NEW).tags()["rtscv.report_sha256"])

    assert facts[0].verdict == "unknowns"
    assert facts[0].comparison is not None
    assert facts[0].canary is not None
    assert facts[0] == facts[1]
    assert reports[0] == reports[1]


def test_what_a_fit_warns_of_is_heard(cluster):
    """Warnings of work that is done elsewhere come back once each, and so become findings."""
    for settings in engines(cluster)[1:]:
        with computing(settings), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert do_all(warn, [(1,), (2,), (3,)]) == [1, 2, 3]

        assert [str(one.message) for one in caught] == ["about 1", "about 0"]
        assert {one.category for one in caught} == {UserWarning}


def test_what_a_fit_raises_is_raised(cluster):
    """An error of the work itself is what it would be here."""
    for settings in engines(cluster):
        with computing(settings), pytest.raises(ZeroDivisionError, match="of 7"):
            do_all(break_down, [(7,), (7,)])


def test_more_pieces_than_are_sent_at_once(cluster):
    """Results keep the order of the pieces, however many there are."""
    with computing(engines(cluster)[2]):
        assert do_all(double, ((number,) for number in range(100))) == list(range(0, 200, 2))


# -- one thread, one process


def test_a_stage_uses_one_thread():
    """Linear algebra runs on one thread within a stage, and as before after it."""
    with threadpool_limits(limits=2):
        assert set(on_one_thread(threads)()) == {1}
        assert set(threads()) == {2}


def test_workers_use_one_thread(cluster):
    """So it does on workers, whatever they were started with; they are left as they were."""
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        before = client.run(threads)
        with computing(engines(cluster)[2]):
            found = do_all(threads, [(number,) for number in range(4)])
        after = client.run(threads)

    assert all(set(one) == {1} for one in found)
    assert before == after
    if (os.cpu_count() or 1) > 1 and "OMP_NUM_THREADS" not in os.environ:
        assert all(set(one) == {2} for one in before.values())


def test_workers_start_no_helpers(cluster):
    """A learner with n_jobs keeps to its place: the work is shared out already."""
    for settings in engines(cluster)[1:]:
        with computing(settings):
            assert [len(found) for found in do_all(places, [(1,), (2,)])] == [1, 1]


def test_processes_end_with_the_work():
    """What was started for a window does not outlive it."""
    with computing(ComputeSettings(jobs=2)):
        pids = {pid for pid, _ in do_all(place, [(1,), (2,), (3,)])}

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# -- what may become of a cluster


def test_a_killed_worker_is_survived(cluster, tmp_path):
    """A worker that is killed in the middle of a fit costs time, and changes nothing."""
    plain = judge(ComputeSettings(), GaussianNB(), "estimator")
    slow = SlowLearner(str(tmp_path), seconds=0.5)
    killer = Killer(tmp_path)
    killer.start()

    found = judge(engines(cluster)[2], slow, "estimator")

    at_work = {int(file.name) for file in tmp_path.iterdir()} - {os.getpid()}
    assert killer.killed in at_work
    assert len(at_work) > 1
    assert np.array_equal(found.window_scores_, plain.window_scores_)
    assert np.array_equal(found.unknown_indices_, plain.unknown_indices_)


def test_work_that_kills_workers_is_an_error():
    """Work that no worker survives ends with a sentence, not with an endless try."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        start_cluster(workers=1) as cluster,
        pytest.raises(ServiceError, match="The same task killed several workers") as caught,
    ):
        judge(dask_at(cluster.scheduler_address), Murderer(os.getpid()), "estimator")

    assert caught.value.code == "compute_lost"


def test_a_module_that_workers_lack_is_named(cluster, tmp_path, monkeypatch):
    """A model whose package is not installed on the workers is no broken model."""
    (tmp_path / "only_here.py").write_text("def answer(number):\n    return number\n")
    monkeypatch.syspath_prepend(tmp_path)
    from only_here import answer

    with (
        computing(engines(cluster)[2]),
        pytest.raises(ServiceError, match=r"lacks a package .* needs: No module named 'only_here'"),
    ):
        do_all(answer, [(1,), (2,)])


def test_other_versions_are_refused(tmp_path):
    """Workers with another scikit-learn would give other results; the error names both versions."""
    preload = tmp_path / "older.py"
    preload.write_text(
        "from distributed import versions\n"
        "real = versions.version\n"
        "versions.version = lambda name: '1.2.3' if name == 'scikit-learn' else real(name)\n"
        "versions._version_cached.cache_clear()\n"
    )

    with (
        start_cluster(workers=1, preload=[str(preload)]) as cluster,
        pytest.raises(ServiceError, match=r"scikit-learn 1\.2\.3 \(here 1\.9") as caught,
        computing(dask_at(cluster.scheduler_address)),
    ):
        pass

    assert caught.value.code == "compute_versions"


def test_a_scheduler_without_workers_is_not_waited_for_long():
    """Nobody who could do the work is as bad as nobody who answers."""
    with (
        start_cluster(workers=0) as cluster,
        pytest.raises(ServiceError, match="has no worker, and got none within 2 seconds"),
        computing(dask_at(cluster.scheduler_address)),
    ):
        pass


def test_something_else_at_the_address_is_not_waited_for_long():
    """A port that takes connections and says nothing is no scheduler."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with (
            pytest.raises(ServiceError, match="did not answer within 2 seconds"),
            computing(dask_at(address)),
        ):
            pass


def test_a_worker_that_hangs_is_not_waited_for_long():
    """A worker that was stopped cannot say what it has installed, and would never give a result."""
    with start_cluster(workers=1) as cluster:
        (worker,) = cluster.workers.values()
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            with (
                pytest.raises(ServiceError, match=r"Not every worker .* within 2 seconds"),
                computing(dask_at(cluster.scheduler_address)),
            ):
                pass
        finally:
            os.kill(worker.pid, signal.SIGKILL)


# -- nobody there


def unreachable(more=""):
    return f"compute:\n  engine: dask\n  address: {NOBODY}\n  timeout: 1s\n{more}"


def test_an_unreachable_cluster_is_a_failure(tmp_path):
    """The window is not judged elsewhere in silence; its run says why, and can be tried again."""
    deployment = deployed(tmp_path)

    with pytest.raises(ServiceError, match=f"The Dask scheduler at {NOBODY} did not answer within"):
        deployment.run(NEW, deployment.monitor(more=unreachable()))

    assert deployment.runs(NEW)[0].verdict == "not_assessed:compute_unreachable"
    assert deployment.run(NEW, deployment.monitor()).facts.verdict == "unknowns"


def test_a_fallback_says_so(tmp_path):
    """With compute.fallback the window is judged here, and its findings say why."""
    deployment = deployed(tmp_path)

    facts = deployment.run(NEW, deployment.monitor(more=unreachable("  fallback: true\n"))).facts

    (said,) = [finding for finding in facts.findings if "Dask" in finding]
    assert facts.verdict == "unknowns"
    assert said.startswith(f"The Dask scheduler at {NOBODY} did not answer within 1 seconds.")
    assert said.endswith("compute.fallback runs the work on this machine.")


def test_the_doctor_looks(cluster, tmp_path):
    """`check` says who does the work, warns of a fallback, and says which cluster is not there."""
    deployment = deployed(tmp_path)
    there = f"compute:\n  engine: dask\n  address: {cluster.scheduler_address}\n"
    found = {
        more: [
            (one.state, one.found)
            for one in check_monitor(deployment.monitor(more=more))
            if one.what == "compute"
        ]
        for more in ("", there, unreachable(), unreachable("  fallback: true\n"))
    }

    assert found[""] == [("ok", "the work is done by this process")]
    ((state, words),) = found[there]
    assert state == "ok"
    assert f"workers of the Dask cluster at {cluster.scheduler_address}" in words
    assert [state for state, _ in found[unreachable()]] == ["problem"]
    assert [state for state, _ in found[unreachable("  fallback: true\n")]] == ["ok", "warning"]


def test_dask_is_asked_for_by_name(monkeypatch):
    """Without the extra, a monitor that wants a cluster says what to install; no other needs it."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with computing(ComputeSettings(jobs=2)):
        assert do_all(double, [(1,), (2,)]) == [2, 4]
    with (
        pytest.raises(ConfigError, match=r"Install rtscv-mlops\[dask\], or use engine: local"),
        computing(dask_at(NOBODY, fallback=True)),
    ):
        pass


# -- secrets


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        (None, ConfigError, "environment variable SCHEDULER, which is not set"),
        (f"ws://ann:{SECRET}@127.0.0.1:9", ServiceError, "at the address in SCHEDULER did not"),
        (f"tcp://ann:{SECRET}@127.0.0.1:9", ConfigError, "cannot use the address in SCHEDULER"),
        (f"nonsense://{SECRET}", ConfigError, "cannot use the address in SCHEDULER"),
    ],
)
def test_an_address_from_the_environment_stays_there(
    address, error, words, monkeypatch, caplog, capfd
):
    """No error, log line or traceback has the address, which may hold a password."""
    monkeypatch.delenv("SCHEDULER", raising=False)
    if address:
        monkeypatch.setenv("SCHEDULER", address)
    # What Dask refuses at once it may still refuse late on a busy machine.
    timeout = PATIENCE if error is ServiceError else "60s"
    settings = ComputeSettings(engine="dask", address_env="SCHEDULER", timeout=timeout)

    with caplog.at_level(logging.INFO), pytest.raises(error, match=words) as caught:
        with computing(settings):
            pass

    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert SECRET not in told + "".join(capfd.readouterr())
    assert SECRET not in repr(settings)


def test_a_cluster_may_be_named_by_the_environment(cluster, monkeypatch):
    """The variable is read where the work is done, and named instead of its value."""
    monkeypatch.setenv("SCHEDULER", cluster.scheduler_address)

    with computing(ComputeSettings(engine="dask", address_env="SCHEDULER")) as engine:
        assert do_all(double, [(1,), (2,)]) == [2, 4]

    assert engine.description.endswith("of the Dask cluster at the address in SCHEDULER")
