"""The wait for a reviewer: one task that asks in Airflow, and takes an answer in MLflow as well.

The first answer wins, on whichever side it is given.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rtscv_mlops.airflow.monitors import (
    APPROVE,
    QUESTION,
    REJECT,
    Task,
    reviewer_name,
    shared_name,
    use_signing_key,
)
from rtscv_mlops.airflow.trigger import ReviewTrigger
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ReviewError, ServiceError
from rtscv_mlops.outcomes import Answer, ReviewChannel, ReviewStatus

REASON = "reason"
ANSWER = ("responded_by_user", "chosen_options", "params_input")
"""The fields of Airflow's answer that are needed."""


class ReviewOperator(HITLOperator):
    """Ask whether a challenger may serve. No answer means no, and so does a stale question.

    The task succeeds however the review ended: a rejection is a result. It returns the version
    and the status of its review; the reviewer's reason goes to the record only.
    """

    def __init__(self, *, monitor: Monitor, monitor_file: Path, **kwargs: Any) -> None:
        super().__init__(
            # Fixed text, since Airflow renders the subject as a Jinja template.
            subject="May the challenger serve?",
            options=[APPROVE, REJECT],
            # No defaults: a timeout would choose them.
            defaults=None,
            assigned_users=[{"id": name, "name": name} for name in monitor.airflow.reviewers],
            # Only review.expires bounds the wait.
            execution_timeout=None,
            **kwargs,
        )
        self.monitor, self.monitor_file = monitor, monitor_file

    def execute(self, context: Any) -> dict[str, str]:
        """Ask, unless the review has ended already."""
        from rtscv_mlops.review.answers import ask_reviewer

        use_signing_key()
        version = context["ti"].xcom_pull(task_ids=Task.REGISTER.value)
        if version is None:
            raise AirflowSkipException(
                "There is no version: register_challenger was marked by hand."
            )
        answer = self._collect(version)
        if answer is not None:
            return self._ended(answer, version)
        question = ask_reviewer(self.monitor, version)
        if not self._ask(context["ti"].id, question.subject, question.body, question.id):
            return self._ended(Answer.stale("Airflow shows an older question here."), version)
        self._wait(context["ti"].id, version, question.id)

    def _ask(self, ti_id: Any, subject: str, body: str, question: str) -> bool:
        """Put the question; return whether it is the one that people see.

        If a task is cleared, Airflow keeps the first text, whatever it is given later.
        """
        from airflow.sdk.api.datamodels._generated import HITLUser
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        # Set here and not in the constructor: text from data must not be rendered by Jinja.
        self.subject, self.body = subject, body
        self.params = ParamsDict(
            {
                REASON: Param(None, **self._reason_schema(), title="Reason", format="multiline"),
                QUESTION: Param(
                    question,
                    type=["null", "string"],
                    title="What you decide on",
                    description="Leave this as it is: it binds your answer to what you saw.",
                ),
            }
        )
        shown: Any = SUPERVISOR_COMMS.send(
            CreateHITLDetailPayload(
                ti_id=ti_id,
                options=self.options,
                subject=subject,
                body=body,
                params=self.serialized_params,
                assigned_users=[HITLUser(**user) for user in self.assigned_users or ()],
            )
        )
        return (shown.subject, shown.body) == (subject, body)

    def _reason_schema(self) -> dict[str, Any]:
        """Return what Airflow's form must ask for."""
        if self.monitor.review.reason == "required":
            return {"type": "string", "minLength": 1}
        return {"type": ["null", "string"]}

    def _wait(self, ti_id: Any, version: str, question: str) -> NoReturn:
        self.log.info("review_challenger: version %s waits for a reviewer", version)
        self.defer(
            trigger=ReviewTrigger(
                monitor_file=shared_name(self.monitor_file),
                version=version,
                ti_id=str(ti_id),
                poll=self.monitor.airflow.poll.total_seconds(),
            ),
            method_name="execute_complete",
            kwargs={"version": version, "question": question},
        )
        raise AssertionError("defer() always raises")

    def execute_complete(
        self, context: Any, event: dict[str, Any], version: str = "", question: str = ""
    ) -> dict[str, str]:
        """Record the answer, whichever side it came from."""
        answer = {name: event.get(name) for name in ANSWER}
        return self._record(
            answer, version, question, datetime.now(UTC).isoformat(), context["ti"].id
        )

    def record_later(
        self, context: Any, event: Any, answer: dict[str, Any], version: str, question: str, at: str
    ) -> dict[str, str]:
        """Record an answer that MLflow could not take when it was given."""
        return self._record(answer, version, question, at, context["ti"].id)

    def _record(
        self, answer: dict[str, Any], version: str, question: str, at: str, ti_id: Any
    ) -> dict[str, str]:
        use_signing_key()
        try:
            if answer["responded_by_user"]:
                return self._answered_here(answer, version, question, ti_id)
            return self._answered_elsewhere(version)
        except ServiceError as error:
            # A failed task would be retried, and would ask a reviewer who has answered.
            if datetime.now(UTC) - datetime.fromisoformat(at) > self.monitor.review.expires:
                raise
            self.log.warning("review_challenger: %s The answer is kept meanwhile.", error)
            kept = {"answer": answer, "version": version, "question": question, "at": at}
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        self.defer(
            trigger=TimeDeltaTrigger(self.monitor.airflow.poll),
            method_name="record_later",
            kwargs=kept,
        )
        raise AssertionError("defer() always raises")

    def _answered_here(
        self, event: Mapping[str, Any], version: str, question: str, ti_id: Any
    ) -> dict[str, str]:
        from rtscv_mlops.review.answers import review_challenger

        user, given = event["responded_by_user"], event["params_input"] or {}
        try:
            decided = review_challenger(
                self.monitor,
                version,
                approve=event["chosen_options"] == [APPROVE],
                reviewer=reviewer_name(user["name"], user["id"]),
                reason=str(given.get(REASON) or ""),
                question=str(given.get(QUESTION) or question),
                channel=ReviewChannel.REQUIRED_ACTIONS,
            )
        except ReviewError as error:
            if error.code == Code.DIGEST_MISMATCH:
                raise AirflowFailException(str(error)) from error
            self.log.warning("review_challenger: %s", error)
            if error.code == Code.NO_REASON:
                # Airflow takes one answer. The page, MLflow and the command still take another.
                self._wait(ti_id, version, question)
            answer = self._collect(version) or Answer.stale("")
            return self._ended(replace(answer, reason=str(error)), version)
        return self._ended(Answer(decided.review, reason=decided.reason), version)

    def _answered_elsewhere(self, version: str) -> dict[str, str]:
        # Without an answer a new question is needed: that in Airflow is closed by now.
        withdrawn = Answer.stale("The answer in the registry was withdrawn.")
        return self._ended(self._collect(version) or withdrawn, version)

    def _collect(self, version: str) -> Answer | None:
        """Record the answer, if any; a version that can no longer be reviewed fails the task."""
        from rtscv_mlops.review.answers import collect_answer

        try:
            return collect_answer(
                self.monitor, version, partial(self.log.warning, "review_challenger: %s")
            )
        except ReviewError as error:
            if error.code == Code.STALE:
                return None
            raise AirflowFailException(str(error)) from error

    def _ended(self, answer: Answer, version: str) -> dict[str, str]:
        status, why = answer.status, answer.reason
        self.log.info("review_challenger: version %s is %s. %s", version, status, why)
        if not ReviewStatus(status).is_asked:
            raise AirflowSkipException(f"Version {version} is {status}, so no one is asked: {why}")
        return {"version": version, "status": str(status)}
