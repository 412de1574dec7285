"""Looks at many monitors at once; one whose MLflow does not answer holds up no other.

Knows threads and patience; knows nothing of what a summary holds.
"""

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import RtscvError, ServiceError

if TYPE_CHECKING:
    from rtscv_mlops.pipeline.overview import MonitorSummary

PATIENCE = 8.0
"""Seconds that a page waits for all of its monitors together."""
FRESH = 60.0
"""Seconds after which an answer that came too late for its page is too old for the next."""
THREADS = 16

log = logging.getLogger(__name__)


class Gatherer:
    """Asks about monitors, each at most once at a time however often its page is reloaded.

    An answer that comes too late for one page is kept for the next.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._late: dict[str, tuple[float, Future[MonitorSummary]]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rtscv-page")

    def look_at(self, monitors: Iterable[Monitor]) -> "dict[str, MonitorSummary | RtscvError]":
        """Return a summary of each monitor by name, or what went wrong with it."""
        asked = [(monitor, self._ask(monitor)) for monitor in monitors]
        wait_for([future for _, future in asked], self._patience)
        return {monitor.name: self._answer(monitor, future) for monitor, future in asked}

    def _ask(self, monitor: Monitor) -> "Future[MonitorSummary]":
        settings, now = monitor.model_dump_json(), time.monotonic()
        with self._lock:
            since, future = self._late.get(settings, (now, None))
            if future is None or (future.done() and now - since > FRESH):
                since, future = now, self._pool.submit(_summarize, monitor)
            self._late[settings] = since, future
        return future

    def _answer(
        self, monitor: Monitor, asked: "Future[MonitorSummary]"
    ) -> "MonitorSummary | RtscvError":
        if not asked.done():
            return ServiceError(
                f"MLflow has not answered about {monitor.model.name!r} within "
                f"{self._patience:.0f} seconds and is still being asked. Reload in a moment, or "
                "look whether its server is up.",
                code="slow",
            )
        with self._lock:
            self._late.pop(monitor.model_dump_json(), None)
        error = asked.exception()
        if error is None:
            return asked.result()
        if isinstance(error, RtscvError):
            return error
        # A mistake of ours about one monitor must not hide the others.
        log.error("The summary of %s failed", monitor.name, exc_info=error)
        return ServiceError(
            "This monitor cannot be shown, by a mistake in rtscv-mlops itself. "
            "The log of the api-server has the details."
        )


def _summarize(monitor: Monitor) -> "MonitorSummary":
    # MLflow takes seconds to load, and plugins are loaded by every process of Airflow.
    from rtscv_mlops.pipeline.overview import summarize_monitor

    return summarize_monitor(monitor)
