"""The wait for an answer in the MLflow registry, without a worker.

An answer in Airflow needs no trigger: the API server wakes the task by itself. Both sides close
the question in Airflow's database before the task goes on, and only one of them can.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.hitl import update_hitl_detail_response
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from rtscv_mlops.airflow.monitors import find_file
from rtscv_mlops.errors import ConfigError, RtscvError, ServiceError

if TYPE_CHECKING:
    from rtscv_mlops.outcomes import Answer

TEXT_LIMIT = 500


class ReviewTrigger(BaseTrigger):
    """Polls the registry until the review of a version no longer waits."""

    def __init__(self, *, monitor_file: str, version: str, ti_id: str, poll: float) -> None:
        super().__init__()
        self.monitor_file, self.version, self.ti_id = monitor_file, version, ti_id
        self.poll = poll
        self.warned = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer recreates this trigger from."""
        names = ("monitor_file", "version", "ti_id", "poll")
        kwargs = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield once, when there is something to record; the task reads the answer itself."""
        while not await self._is_answered():
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"version": self.version})

    async def _is_answered(self) -> bool:
        try:
            answer = await asyncio.to_thread(self._find_answer)
        except (ConfigError, ServiceError) as error:
            # Both can pass: the file is corrected, or MLflow comes back.
            self.log.warning("review_challenger: %s", error)
            return False
        except RtscvError as error:
            self.log.warning("review_challenger: %s", error)
            return True
        if answer is not None:
            await self._close_question(f"{answer.status} by {answer.who}", answer.reason)
        return answer is not None

    def _find_answer(self) -> "Answer | None":
        from rtscv_mlops.config.loading import load_monitor
        from rtscv_mlops.review.answers import find_answer

        return find_answer(
            load_monitor(find_file(self.monitor_file)), self.version, self._warn_once
        )

    def _warn_once(self, sentence: str) -> None:
        """Write a warning to the task's log once, not at each poll."""
        if sentence != self.warned:
            self.log.warning("review_challenger: %s", sentence)
        self.warned = sentence

    async def _close_question(self, chosen: str, reason: str) -> None:
        """Close the question in Airflow, where a reviewer may be looking at it."""
        params = {"reason": reason[:TEXT_LIMIT]}
        try:
            await sync_to_async(update_hitl_detail_response)(
                UUID(self.ti_id), [chosen[:TEXT_LIMIT]], params
            )
        except AirflowRuntimeError as error:
            # A reviewer answered in Airflow at the same time, and Airflow goes on with that.
            self.log.warning("review_challenger: the question is closed already (%s)", error)
