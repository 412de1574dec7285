"""Retention: the rows that a window left behind are removed; its numbers stay."""

from dataclasses import dataclass
from datetime import datetime

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.judging import reference
from rtscv_mlops.judging.evidence import HANDED_OVER, SCORES, UNKNOWNS
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.record import CLUSTERS, PLOTS, REPORT, VERDICT, read_facts
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.window_run import WindowRun

ROWS = (UNKNOWNS, SCORES, CLUSTERS, REPORT, PLOTS, HANDED_OVER)
"""Artifacts that hold rows of the source or a point for each, or pictures that show them."""
FITTED_ON = "training"
"""Folder of the rows that a challenger was fitted on."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed of one window."""

    window: str
    run_id: str
    removed: tuple[str, ...]


def purge_windows(monitor: Monitor, before: datetime, *, baselines: bool = False) -> list[Purged]:
    """Remove what windows that ended before this moment left of their rows.

    Rows that serve as a baseline are still in use, and go only if asked for.
    """
    names = (*ROWS, reference.ARTIFACT) if baselines else ROWS
    registry = ModelRegistry.connect(monitor.model)
    in_use = set(registry.versions.aliases().values())
    runs = registry.runs.find(monitor=monitor.name)
    old = [run for run in runs if run.window_end is not None and run.window_end <= before]
    return [
        # Who serves, served before or may serve next is still judged by what it was fitted on.
        _purge(
            registry.run(run.run_id),
            run.window,
            names if run.version in in_use else (*names, FITTED_ON),
        )
        for run in old
    ]


def _purge(run: WindowRun, window: str, names: tuple[str, ...]) -> Purged:
    removed = tuple(name for name in names if run.has(name))
    for name in removed:
        run.delete_artifacts(name)
    if run.has(VERDICT):
        facts = read_facts(run)
        cards = [card.model_copy(update={"exemplars": ()}) for card in facts.clusters]
        if any(card.exemplars for card in facts.clusters):
            kept = facts.model_copy(update={"clusters": tuple(cards)})
            run.write_json(VERDICT, kept.model_dump(mode="json"))
            removed = (*removed, "exemplars")
    if reference.ARTIFACT in removed:
        run.set_tags({tags.BASELINE: "purged"})
    return Purged(window, run.run_id, removed)
