"""Where the work of a window is done: in this process, in several, or by a Dask cluster.

The one place that speaks to Dask, which is loaded only if a monitor names it. Knows how work gets
to where it is done; knows nothing of what it is.
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
from rtscv_mlops.estimator.parallel import Crew, Piece, working

if TYPE_CHECKING:
    from distributed import Client, Future

P = ParamSpec("P")
T = TypeVar("T")
Warned = tuple[str, type[Warning], str, int]

PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "distributed", "rtscv-mlops")
"""Where a cluster has other versions of these, it has other results or none."""

AHEAD = 32
"""Pieces at least that a cluster is sent before their results are asked for."""

_alone = Lock()


@dataclass(frozen=True, slots=True)
class Engine:
    """Who does the work, in words, and what is to be said about that."""

    words: str
    findings: tuple[str, ...] = ()


def on_one_thread(stage: Callable[P, T]) -> Callable[P, T]:
    """Let the linear algebra of a stage use one thread.

    Threads that wait for each other spin, so where cores are shared two can be slower than one.
    And sums on several threads are rounded as the number of cores has it.
    """
    pinned: Callable[P, T] = threadpool_limits.wrap(limits=1)(stage)
    return pinned


@contextmanager
def computing(settings: ComputeSettings) -> Iterator[Engine]:
    """Have the work of a window done as the monitor says."""
    with ExitStack() as stack:
        crew, engine = _here(settings.jobs)
        if settings.engine == "dask":
            try:
                crew, engine = stack.enter_context(_cluster(settings))
            except ServiceError as error:
                if not settings.fallback:
                    raise
                said = f"{error} Until then compute.fallback has the work done on this machine."
                engine = Engine(engine.words, (said,))
        if settings.jobs > 1:
            stack.callback(_end_processes)
        stack.enter_context(working(crew))
        yield engine


# -- this machine


def _here(jobs: int) -> tuple[Crew | None, Engine]:
    if jobs == 1:
        return None, Engine("this process")

    def crew(function: Callable[..., Any], pieces: Iterable[Piece], shared: Piece) -> list[Any]:
        # "c": a learner may write to the rows it is given, and sees them as its own.
        parallel = Parallel(n_jobs=jobs, mmap_mode="c")
        return _results(parallel(delayed(_do)(function, *shared, *piece) for piece in pieces))

    return crew, Engine(f"{jobs} processes on this machine")


def _end_processes() -> None:
    """End what joblib keeps for later calls: it would outlive a task of Airflow for minutes."""
    get_reusable_executor().shutdown(wait=True)


# -- what another process does


def _do(function: Callable[..., T], *given: Any) -> tuple[T, list[Warned]]:
    """Do one piece of work on one thread; return what it warned of, too.

    One at a time, since threads of a worker would share what is set here.
    """
    with _alone, parallel_config("sequential"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with threadpool_limits(limits=1):
            result = function(*given)
    warned = [(str(one.message), one.category, one.filename, one.lineno) for one in caught]
    return result, list(dict.fromkeys(warned))


def _results(done: Iterable[tuple[T, list[Warned]]]) -> list[T]:
    """Return what came back, and warn here of what was warned of there."""
    results, warned = [], dict[Warned, None]()
    for result, some in done:
        results.append(result)
        warned |= dict.fromkeys(some)
    for one in warned:
        warnings.warn_explicit(*one)
    return results


# -- a Dask cluster


@contextmanager
def _cluster(settings: ComputeSettings) -> Iterator[tuple[Crew, Engine]]:
    where = settings.address or f"the address in {settings.address_env}"
    try:
        import dask
        import distributed  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"compute.engine is dask, but {error.name} is not installed here. Install "
            "rtscv-mlops[dask], or use engine: local."
        ) from error
    # The arrays that a fit needs are part of its message on purpose: see `_send`.
    quiet = {"distributed.admin.large-graph-warning-threshold": "1 TB"}
    with dask.config.set(quiet), _connected(settings, where) as client:
        with _asking(where):
            n_workers = _wait_for_workers(client, settings, where)
            _check_versions(client, settings, where)

        def crew(function: Callable[..., Any], pieces: Iterable[Piece], shared: Piece) -> list[Any]:
            with _asking(where):
                return _results(_send(client, function, pieces, shared))

        workers = f"{n_workers} worker{'s' if n_workers > 1 else ''}"
        yield crew, Engine(f"{workers} of the Dask cluster at {where}")


@contextmanager
def _connected(settings: ComputeSettings, where: str) -> Iterator["Client"]:
    client = _connect(settings, where)
    try:
        yield client
    finally:
        # The work is done; a scheduler that does not say goodbye changes nothing.
        with suppress(TimeoutError):
            client.close()


def _connect(settings: ComputeSettings, where: str) -> "Client":
    from distributed import Client

    address = settings.address or os.environ.get(settings.address_env or "")
    if not address:
        raise ConfigError(
            f"compute.address_env names the environment variable {settings.address_env}, which is "
            "not set. Set it where the monitor runs."
        )
    seconds = settings.timeout.total_seconds()
    # Dask's own words hold the address, which may hold a password: they are left out, twice.
    try:
        return _within(seconds, lambda: Client(address, timeout=seconds, set_as_default=False))
    except OSError:  # a timeout is one
        raise ServiceError(
            f"The Dask scheduler at {where} did not answer within {seconds:g} seconds. See that it "
            "runs, that the address is right and can be reached from here, then try again.",
            code=Code.COMPUTE_UNREACHABLE,
        ) from None
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"Dask cannot use {where}. Write tcp://host:port; tls:// and wss:// need certificates, "
            "which Dask's own configuration names (distributed.comm.tls)."
        ) from None


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Return an answer, or raise TimeoutError.

    Dask itself waits for ever for the first words of a process that was stopped, or that is no
    part of Dask. The thread that asks is left behind then.
    """
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    Thread(target=wait, daemon=True).start()
    return answer.result(seconds + 1)


def _wait_for_workers(client: "Client", settings: ComputeSettings, where: str) -> int:
    """Return how many workers there are, at least one."""
    seconds = settings.timeout.total_seconds()
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        raise ServiceError(
            f"The Dask scheduler at {where} has no worker, and got none within {seconds:g} "
            "seconds. Start workers, then try again.",
            code=Code.COMPUTE_UNREACHABLE,
        ) from None
    return len(client.nthreads())


def _check_versions(client: "Client", settings: ComputeSettings, where: str) -> None:
    seconds = settings.timeout.total_seconds()
    try:
        found: Any = _within(seconds, lambda: client.get_versions(packages=list(PACKAGES)))
    except TimeoutError:
        raise ServiceError(
            f"Not every worker of the Dask cluster at {where} answered within {seconds:g} seconds. "
            "End those that hang, then try again.",
            code=Code.COMPUTE_UNREACHABLE,
        ) from None
    here = _versions(found["client"])
    others = {
        f"{name} {version or 'is missing'} (here {here[name]})"
        for there in (found["scheduler"], *found["workers"].values())
        for name, version in _versions(there).items()
        if version != here[name]
    }
    if others:
        raise ServiceError(
            f"The Dask cluster at {where} has other packages than this process: "
            f"{', '.join(sorted(others))}. Fits there would give other results or fail. Install "
            "the same versions for its scheduler, its workers and here, then try again.",
            code=Code.COMPUTE_VERSIONS,
        )


def _versions(told: dict[str, Any]) -> dict[str, str | None]:
    packages = told["packages"]
    # What a patch of Python changes is no matter of results.
    python = ".".join(packages["python"].split(".")[:2])
    return {"python": python, **{name: packages.get(name) for name in PACKAGES}}


def _send(
    client: "Client", function: Callable[..., T], pieces: Iterable[Piece], shared: Piece
) -> Iterator[tuple[T, list[Warned]]]:
    """Send pieces to the cluster; yield what comes back, in their order.

    Whatever is sent is part of a task, so that the scheduler can have it done again where a worker
    died. What is scattered, as joblib's Dask backend does, is lost with the worker that holds it.
    It is sent as bytes: a worker that cannot read them says so, where one that is sent an object
    of a module that it lacks stops to listen.
    """
    from cloudpickle import dumps

    name = f"rtscv_{function.__name__.strip('_')}"
    kept = [client.submit(_same, dumps(one), key=_key(f"{name}_shared")) for one in shared]
    ahead = max(AHEAD, 2 * sum(client.nthreads().values()))
    waiting: deque[Future[Any]] = deque()
    for piece in pieces:
        if len(waiting) == ahead:
            yield waiting.popleft().result()
        packed = dumps((function, piece))
        waiting.append(client.submit(_unpack_and_do, packed, *kept, key=_key(name)))
    while waiting:
        yield waiting.popleft().result()


def _same(packed: bytes) -> bytes:
    return packed


def _unpack_and_do(packed: bytes, *shared: bytes) -> tuple[Any, list[Warned]]:
    function, piece = pickle.loads(packed)
    return _do(function, *map(pickle.loads, shared), *piece)


def _key(name: str) -> str:
    return f"{name}-{uuid4().hex}"


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """Turn what may become of a cluster into our errors; those of the work itself pass."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise ServiceError(
            f"Workers of the Dask cluster at {where} died one after the other of the same piece of "
            "work, most likely for want of memory. Give them more, or lower rectify.max_rows.",
            code=Code.COMPUTE_LOST,
        ) from error
    except (concurrent.futures.CancelledError, CommClosedError):
        raise ServiceError(
            f"The Dask scheduler at {where} was stopped or restarted while work was done there. "
            "See why, then run the window again.",
            code=Code.COMPUTE_LOST,
        ) from None
    except ImportError as error:
        raise ServiceError(
            f"A worker of the Dask cluster at {where} lacks what the work needs: {error}. Install "
            "on the workers what the model needs here.",
            code=Code.COMPUTE_VERSIONS,
        ) from error
