"""Pieces of work that do not depend on each other, such as the fits of folds.

They are done one after the other, unless the caller of an algorithm names a crew for them. Knows
functions and their arguments; knows nothing of clusters, or of what is worked on.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

Piece = tuple[Any, ...]
Crew = Callable[[Callable[..., Any], Iterable[Piece], Piece], list[Any]]
"""Calls a function with what all pieces share and with each piece; keeps the order of pieces."""

_crew: ContextVar[Crew | None] = ContextVar("crew", default=None)


@contextmanager
def working(crew: Crew | None) -> Iterator[None]:
    """Let a crew do the pieces of work that come up meanwhile; None leaves them to `n_jobs`."""
    before = _crew.set(crew)
    try:
        yield
    finally:
        _crew.reset(before)


def do_all(
    function: Callable[..., Any],
    pieces: Iterable[Piece],
    *,
    shared: Piece = (),
    n_jobs: int | None = None,
) -> list[Any]:
    """Return `function(*shared, *piece)` for each piece; the result does not depend on who does it.

    The function must be one of a module, since it may be called in another process.
    """
    crew = _crew.get()
    if crew is not None:
        return crew(function, pieces, shared)
    # "c": a learner may write to the rows it is given, and sees them as its own.
    parallel = Parallel(n_jobs=n_jobs, mmap_mode="c")
    return list(parallel(delayed(_on_one_thread)(function, *shared, *piece) for piece in pieces))


def _on_one_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function; sums on several threads are rounded as the number of threads has it."""
    with threadpool_limits(limits=1):
        return function(*given)
