"""The wait for an answer in the MLflow registry, which holds no worker.

Airflow's own answer needs no trigger: the API server wakes the task by itself.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from rtscv_mlops.errors import ConfigError, RtscvError, ServiceError


class ReviewTrigger(BaseTrigger):
    """Looks at the registry until the review of a version no longer waits."""

    def __init__(self, *, monitor_file: str, version: str, poll: float) -> None:
        super().__init__()
        self.monitor_file, self.version, self.poll = monitor_file, version, poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"monitor_file": self.monitor_file, "version": self.version, "poll": self.poll}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield once, when there is something to look at; the task looks for itself."""
        while not await self._is_answered():
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"version": self.version})

    async def _is_answered(self) -> bool:
        try:
            return await asyncio.to_thread(_has_answer, Path(self.monitor_file), self.version)
        except (ConfigError, ServiceError) as error:
            # Both pass: somebody mends the file, or MLflow comes back.
            self.log.warning("review_challenger: %s", error)
            return False
        except RtscvError as error:
            self.log.warning("review_challenger: %s", error)
            return True


def _has_answer(monitor_file: Path, version: str) -> bool:
    from rtscv_mlops.config import load_monitor
    from rtscv_mlops.pipeline import find_answer

    return find_answer(load_monitor(monitor_file), version) is not None
