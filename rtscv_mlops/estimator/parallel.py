"""Run independent tasks, such as the fits of folds, one after the other or on an executor."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

Task = tuple[Any, ...]
"""The arguments of one call."""

Executor = Callable[[Callable[..., Any], Iterable[Task], Task], list[Any]]
"""Calls a function with the shared arguments and those of each task; keeps the order of tasks."""

_executor: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def using_executor(executor: Executor | None) -> Iterator[None]:
    """Run the tasks of `do_all` on this executor; None leaves them to `n_jobs`."""
    token = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(token)


def do_all(
    function: Callable[..., Any],
    tasks: Iterable[Task],
    *,
    shared: Task = (),
    n_jobs: int | None = None,
) -> list[Any]:
    """Return `function(*shared, *task)` for each task. The result does not depend on where it runs.

    The function must be importable from a module: it may be called in another process.
    """
    executor = _executor.get()
    if executor is not None:
        return executor(function, tasks, shared)
    # "c": a learner may write to its rows, so it gets a private copy of each page it changes.
    parallel = Parallel(n_jobs=n_jobs, mmap_mode="c")
    return list(parallel(delayed(_on_one_thread)(function, *shared, *task) for task in tasks))


def _on_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with one thread: the number of threads changes how sums are rounded."""
    with threadpool_limits(limits=1):
        return function(*args)
