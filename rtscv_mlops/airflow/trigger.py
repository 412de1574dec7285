"""The wait for an answer in the MLflow registry, which holds no worker.

Airflow's own answer needs no trigger: the API server wakes the task by itself. Both sides close
the question in Airflow's database before the task goes on, and only one of them can.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.hitl import update_hitl_detail_response
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from rtscv_mlops.airflow.monitors import find_file
from rtscv_mlops.errors import ConfigError, RtscvError, ServiceError

if TYPE_CHECKING:
    from rtscv_mlops.review.answers import Answer

WORDS_LIMIT = 500


class ReviewTrigger(BaseTrigger):
    """Looks at the registry until the review of a version no longer waits."""

    def __init__(self, *, monitor_file: str, version: str, ti_id: str, poll: float) -> None:
        super().__init__()
        self.monitor_file, self.version, self.ti_id = monitor_file, version, ti_id
        self.poll = poll
        self.warned = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer makes this again from."""
        names = ("monitor_file", "version", "ti_id", "poll")
        kwargs = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield once, when there is something to record; the task looks for itself."""
        while not await self._is_answered():
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"version": self.version})

    async def _is_answered(self) -> bool:
        try:
            answer = await asyncio.to_thread(
                _look, self.monitor_file, self.version, self._warn_once
            )
        except (ConfigError, ServiceError) as error:
            # Both pass: somebody mends the file, or MLflow comes back.
            self.log.warning("review_challenger: %s", error)
            return False
        except RtscvError as error:
            self.log.warning("review_challenger: %s", error)
            return True
        if answer is not None:
            await self._tell_airflow(f"{answer.status} by {answer.who}", answer.reason)
        return answer is not None

    def _warn_once(self, sentence: str) -> None:
        """Write to the task's log, and not again at each look."""
        if sentence != self.warned:
            self.log.warning("review_challenger: %s", sentence)
        self.warned = sentence

    async def _tell_airflow(self, what: str, reason: str) -> None:
        """Close the question in Airflow, where somebody may be looking at it."""
        words = {"reason": reason[:WORDS_LIMIT]}
        try:
            await sync_to_async(update_hitl_detail_response)(
                UUID(self.ti_id), [what[:WORDS_LIMIT]], words
            )
        except AirflowRuntimeError as error:
            # Somebody answered here at the same moment, and Airflow goes on with that answer.
            self.log.warning("review_challenger: the question is closed already (%s)", error)


def _look(monitor_file: str, version: str, tell: Callable[[str], None]) -> "Answer | None":
    from rtscv_mlops.config.loading import load_monitor
    from rtscv_mlops.review.answers import find_answer

    return find_answer(load_monitor(find_file(monitor_file)), version, tell)
