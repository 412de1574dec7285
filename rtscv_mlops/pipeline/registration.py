"""The rectified model as a version of the registry, offered for review."""

import logging

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed
from rtscv_mlops.facts import WindowFacts
from rtscv_mlops.models.load import find_champion
from rtscv_mlops.models.save import verify_version
from rtscv_mlops.review.question import describe
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import MlflowClient
from rtscv_mlops.tracking.record import find_links
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.window_run import WindowRun

VERSION_TAGS = (
    tags.MONITOR,
    tags.WINDOW,
    tags.WINDOW_START,
    tags.WINDOW_END,
    tags.CHAMPION_VERSION,
    tags.REPORT_SHA256,
    tags.MODEL_SHA256,
)
"""What a version repeats of its window's run."""

log = logging.getLogger(__name__)


def register_challenger(monitor: Monitor, run: WindowRun, facts: WindowFacts) -> str:
    """Register the rectified model, see that it answers, and offer it for review."""
    client = run.client
    _check_champion(monitor, client, facts.champion_version)
    model, known = monitor.model.name, run.tags()
    versions = ModelRegistry.of(client, monitor.model).versions
    named = {name: known[name] for name in VERSION_TAGS if name in known}
    check = run.check_attempt
    version = versions.register(
        facts.key,
        run.run_id,
        known[tags.MODEL_ID],
        named=named,
        description="",
        check=check,
    )
    # The version may be of an earlier try or of a rival, who saved the same model as other files.
    sealed = versions.get(version).model_sha256
    run.set_tags({tags.MODEL_SHA256: sealed})
    verify_version(client, f"models:/{model}/{version}", digest=sealed)
    links = find_links(run, model, version).labelled()
    check()
    versions.describe(version, describe(facts, links, version))
    versions.offer(version, blocked=facts.blocked, check=check)
    log.info("register_challenger: version %s of %s", version, model)
    return version


def _check_champion(monitor: Monitor, client: MlflowClient, compared_with: str) -> None:
    """Stop if the champion is not the one that the window was compared with."""
    try:
        now = str(find_champion(client, monitor.model).version)
    except NotAssessed as error:
        raise NotAssessed(
            Code.CHAMPION_GONE,
            f"Version {compared_with}, the champion that this window was compared with, "
            "is gone. Nothing is offered; set a champion and run the window again.",
        ) from error
    if now != compared_with:
        raise NotAssessed(
            Code.STALE,
            f"The champion moved from version {compared_with} to {now} while this window "
            "was looked at. Nothing is offered; run the window again to compare with the new one.",
        )
