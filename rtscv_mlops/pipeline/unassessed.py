"""Windows that could not be judged: that is written down too, and never looks like all is well."""

import logging
from contextlib import suppress
from hashlib import sha256

from rtscv_mlops import registry
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import RtscvError, ServiceError
from rtscv_mlops.facts import NOT_ASSESSED, WindowFacts
from rtscv_mlops.pipeline.record import first_facts, is_assessed, open_window_run, write_facts
from rtscv_mlops.registry import WindowRun
from rtscv_mlops.window import Interval

log = logging.getLogger(__name__)


def record_unassessed(
    monitor: Monitor, interval: Interval, error: RtscvError
) -> tuple[WindowRun, WindowFacts]:
    """Write down that a window could not even be taken, and why."""
    client = registry.connect(monitor.model)
    key = sha256(f"{monitor.name} {monitor.model.name} {interval.id}".encode()).hexdigest()[:32]
    facts = first_facts(monitor, interval, key)
    run = open_window_run(client, monitor, interval, facts)
    return run, write_unassessed(run, facts, error)


def as_failure(error: Exception) -> ServiceError:
    """Return an error that nobody foresaw as one that can be recorded; others as they are.

    Its own words stay in the log: nobody knows what they hold.
    """
    if isinstance(error, ServiceError):
        return error
    words = error.strerror if isinstance(error, OSError) else None
    return ServiceError(
        f"This window stopped at an error that was not foreseen: {words or type(error).__name__}. "
        "The log of this try says where. Mend that and run the window again.",
        code="unexpected",
    )


def record_failure(monitor: Monitor, interval: Interval, error: ServiceError) -> None:
    """Write down that a service failed before a window was taken, as far as that can be done.

    MLflow itself may be what failed, and was waited for already. A verdict from before stands, and
    needs no run beside it that says no more than that somebody looked again in vain.
    """
    with suppress(ServiceError), registry.single_attempt():
        client, model = registry.connect(monitor.model), monitor.model.name
        runs = registry.find_runs(client, model, monitor=monitor.name, window=interval.id)
        if not any(is_assessed(run) for run in runs):
            record_unassessed(monitor, interval, error)


def write_unassessed(run: WindowRun, facts: WindowFacts, error: RtscvError) -> WindowFacts:
    """Write to a window's run why it could not be judged."""
    facts = facts.model_copy(
        update={"verdict": f"{NOT_ASSESSED}:{error.code}", "headline": str(error)}
    )
    # A rival may have finished the window meanwhile, and its verdict stands.
    if not run.is_complete:
        try:
            write_facts(run, facts)
        finally:  # The place for files may be what failed.
            # Not finished for good: the same window may be tried again, and then keeps this run.
            run.fail(error.code, str(error))
    log.warning("run_window: %s: %s", facts.verdict, error)
    return facts
