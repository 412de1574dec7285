"""Where the tasks of a window run: in this process, in several, or on a Dask cluster.

The only module that uses Dask, which is imported only if a monitor asks for it.
"""

import concurrent.futures
import os
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import uuid4

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

from rtscv_mlops.config.monitor import ComputeSettings
from rtscv_mlops.errors import Code, ConfigError, ServiceError
from rtscv_mlops.estimator.parallel import Executor, Task, using_executor

if TYPE_CHECKING:
    from distributed import Client, Future

P = ParamSpec("P")
T = TypeVar("T")
Warned = tuple[str, type[Warning], str, int]
"""Message, category, file and line of a warning."""

PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "distributed", "rtscv-mlops")
"""A cluster with other versions of these returns other results, or none."""

AHEAD = 32
"""Least number of tasks sent to a cluster before their results are awaited."""

_one_task = Lock()


@dataclass(frozen=True, slots=True)
class Engine:
    """Where tasks run, as text, and what the window's findings should say about it."""

    description: str
    findings: tuple[str, ...] = ()


def on_one_thread(stage: Callable[P, T]) -> Callable[P, T]:
    """Limit the linear algebra of a stage to one thread.

    Threads of these libraries spin while they wait, so on shared cores two can be slower than one.
    The number of threads also changes how sums are rounded.
    """
    pinned: Callable[P, T] = threadpool_limits.wrap(limits=1)(stage)
    return pinned


@contextmanager
def computing(settings: ComputeSettings) -> Iterator[Engine]:
    """Run the tasks of a window where the monitor's `compute` settings say."""
    executor: Executor | None = None
    engine = Engine("this process")
    with ExitStack() as stack:
        if settings.jobs > 1:
            executor = _local_executor(settings.jobs)
            engine = Engine(f"{settings.jobs} processes on this machine")
            # joblib keeps its processes for later calls; they would outlive an Airflow task.
            stack.callback(lambda: get_reusable_executor().shutdown(wait=True))
        if settings.engine == "dask":
            try:
                cluster = stack.enter_context(DaskCluster.connect(settings))
                executor, engine = cluster.execute, Engine(cluster.description)
            except ServiceError as error:
                if not settings.fallback:
                    raise
                finding = f"{error} Until then, compute.fallback runs the work on this machine."
                engine = Engine(engine.description, (finding,))
        stack.enter_context(using_executor(executor))
        yield engine


def _local_executor(jobs: int) -> Executor:
    def execute(function: Callable[..., Any], tasks: Iterable[Task], shared: Task) -> list[Any]:
        # "c": a learner may write to its rows, so it gets a private copy of each page it changes.
        parallel = Parallel(n_jobs=jobs, mmap_mode="c")
        return _collect(parallel(delayed(_run)(function, *shared, *task) for task in tasks))

    return execute


def _run(function: Callable[..., T], *args: Any) -> tuple[T, list[Warned]]:
    """Call a function on one thread of another process; return its result and its warnings.

    One call at a time: the settings made here belong to the whole process, and a Dask worker may
    have several threads.
    """
    with _one_task, parallel_config("sequential"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with threadpool_limits(limits=1):
            result = function(*args)
    warned = [(str(one.message), one.category, one.filename, one.lineno) for one in caught]
    return result, list(dict.fromkeys(warned))


def _collect(outcomes: Iterable[tuple[T, list[Warned]]]) -> list[T]:
    """Return the results of other processes, and repeat each of their warnings once."""
    results, warned = [], dict[Warned, None]()
    for result, some in outcomes:
        results.append(result)
        warned |= dict.fromkeys(some)
    for one in warned:
        warnings.warn_explicit(*one)
    return results


# -- a Dask cluster


class DaskCluster:
    """A connected Dask cluster with at least one worker, and the same packages as this process."""

    def __init__(self, client: "Client", name: str, seconds: float) -> None:
        self.client, self.name, self.seconds = client, name, seconds
        self.description = f"the Dask cluster at {name}"

    @classmethod
    @contextmanager
    def connect(cls, settings: ComputeSettings) -> Iterator["DaskCluster"]:
        """Connect to the cluster that the settings name."""
        try:
            import dask
            from distributed import Client
        except ImportError as error:
            raise ConfigError(
                f"compute.engine is dask, but {error.name} is not installed here. Install "
                "rtscv-mlops[dask], or use engine: local."
            ) from error
        name = settings.address or f"the address in {settings.address_env}"
        address = settings.address or os.environ.get(settings.address_env or "")
        if not address:
            raise ConfigError(
                f"compute.address_env names the environment variable {settings.address_env}, which "
                "is not set. Set it where the monitor runs."
            )
        seconds = settings.timeout.total_seconds()
        # Tasks carry the arrays that they need on purpose: see `_send`.
        quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        with quiet:
            # Dask's messages contain the address, which may contain a password: "from None".
            try:
                client = _within(
                    seconds, lambda: Client(address, timeout=seconds, set_as_default=False)
                )
            except OSError:  # includes TimeoutError
                raise ServiceError(
                    f"The Dask scheduler at {name} did not answer within {seconds:g} seconds. "
                    "Check that it runs, that the address is right and that it can be reached from "
                    "here, then try again.",
                    code=Code.COMPUTE_UNREACHABLE,
                ) from None
            except (TypeError, ValueError, RuntimeError):
                raise ConfigError(
                    f"Dask cannot use {name}. Write tcp://host:port; tls:// and wss:// need "
                    "certificates, which Dask's own configuration names (distributed.comm.tls)."
                ) from None
            cluster = cls(client, name, seconds)
            try:
                with cluster._translating_errors():
                    cluster._check_workers()
                    cluster._check_versions()
                yield cluster
            finally:
                # The work is done, so a scheduler that does not confirm the end is ignored.
                with suppress(TimeoutError):
                    client.close()

    def execute(
        self, function: Callable[..., Any], tasks: Iterable[Task], shared: Task
    ) -> list[Any]:
        """Run tasks on the cluster; this is an `Executor`."""
        with self._translating_errors():
            return _collect(self._send(function, tasks, shared))

    def _send(
        self, function: Callable[..., T], tasks: Iterable[Task], shared: Task
    ) -> Iterator[tuple[T, list[Warned]]]:
        """Send tasks to the cluster; yield their outcomes in order.

        All data is part of a task, so the scheduler can repeat the task if its worker dies. Data
        that is scattered, as joblib's Dask backend does, is lost with the worker that holds it.
        Data is sent as bytes: a worker that cannot unpickle them reports it, but a worker that
        receives an object from a missing module stops responding.
        """
        from cloudpickle import dumps

        name = f"rtscv_{function.__name__.strip('_')}"
        submit = self.client.submit
        kept = [submit(bytes, dumps(one), key=_new_key(f"{name}_shared")) for one in shared]
        ahead = max(AHEAD, 2 * sum(self.client.nthreads().values()))
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            if len(waiting) == ahead:
                yield waiting.popleft().result()
            packed = dumps((function, task))
            waiting.append(submit(_unpack_and_run, packed, *kept, key=_new_key(name)))
        while waiting:
            yield waiting.popleft().result()

    def _check_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=self.seconds)
        except TimeoutError:
            raise ServiceError(
                f"The Dask scheduler at {self.name} has no worker, and got none within "
                f"{self.seconds:g} seconds. Start workers, then try again.",
                code=Code.COMPUTE_UNREACHABLE,
            ) from None
        n_workers = len(self.client.nthreads())
        workers = f"{n_workers} worker{'s' if n_workers > 1 else ''}"
        self.description = f"{workers} of the Dask cluster at {self.name}"

    def _check_versions(self) -> None:
        ask: Any = self.client.get_versions
        try:
            answers = _within(self.seconds, lambda: ask(packages=list(PACKAGES)))
        except TimeoutError:
            raise ServiceError(
                f"Not every worker of the Dask cluster at {self.name} answered within "
                f"{self.seconds:g} seconds. Stop those that hang, then try again.",
                code=Code.COMPUTE_UNREACHABLE,
            ) from None
        answering = (answers["client"], answers["scheduler"], *answers["workers"].values())
        here, *others = [
            # Python patch releases do not affect results.
            {**packages, "python": ".".join(packages["python"].split(".")[:2])}
            for packages in (answer["packages"] for answer in answering)
        ]
        differing = {
            f"{name} {other.get(name) or 'is missing'} (here {here.get(name)})"
            for other in others
            for name in ("python", *PACKAGES)
            if other.get(name) != here.get(name)
        }
        if differing:
            raise ServiceError(
                f"The Dask cluster at {self.name} has other versions than this process: "
                f"{', '.join(sorted(differing))}. Results would differ, or tasks would fail. "
                "Install the same versions for its scheduler, its workers and here, then try "
                "again.",
                code=Code.COMPUTE_VERSIONS,
            )

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Translate Dask failures into ServiceError; exceptions raised by a task propagate."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ServiceError(
                f"The same task killed several workers of the Dask cluster at {self.name}, most "
                "likely because they ran out of memory. Give them more, or lower "
                "rectify.max_rows.",
                code=Code.COMPUTE_LOST,
            ) from error
        except (concurrent.futures.CancelledError, CommClosedError):
            raise ServiceError(
                f"The Dask scheduler at {self.name} stopped or restarted while tasks were running. "
                "Find out why, then run the window again.",
                code=Code.COMPUTE_LOST,
            ) from None
        except ImportError as error:
            raise ServiceError(
                f"A worker of the Dask cluster at {self.name} lacks a package that the work "
                f"needs: {error}. Install on the workers what the model needs here.",
                code=Code.COMPUTE_VERSIONS,
            ) from error


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Return an answer, or raise TimeoutError.

    Dask waits forever for the first message of a process that was stopped, or that is not part of
    Dask. The thread that asks is then abandoned.
    """
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    Thread(target=wait, daemon=True).start()
    return answer.result(seconds + 1)


def _unpack_and_run(packed: bytes, *shared: bytes) -> tuple[Any, list[Warned]]:
    function, task = pickle.loads(packed)
    return _run(function, *map(pickle.loads, shared), *task)


def _new_key(name: str) -> str:
    return f"{name}-{uuid4().hex}"
