"""Retention: delete the rows that a window left behind; its numbers stay."""

from dataclasses import dataclass
from datetime import datetime

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.judging import reference
from rtscv_mlops.judging.evidence import HANDED_OVER, SCORES, UNKNOWNS
from rtscv_mlops.tracking import registry, tags
from rtscv_mlops.tracking.runs import WindowRun

ROWS = (UNKNOWNS, SCORES, registry.CLUSTERS, registry.REPORT, registry.PLOTS, HANDED_OVER)
"""Artifacts that hold rows of the source or a point for each, or plots that show them."""
FITTED_ON = "training"
"""Folder of the rows that a challenger was fitted on."""


@dataclass(frozen=True, slots=True)
class PurgedWindow:
    """What was removed of one window."""

    window: str
    run_id: str
    removed: tuple[str, ...]


def purge_windows(
    monitor: Monitor, before: datetime, *, baselines: bool = False
) -> list[PurgedWindow]:
    """Remove the rows of windows that ended before this moment.

    Rows that serve as a baseline are still in use, and are removed only with `baselines`.
    """
    artifacts = (*ROWS, reference.ARTIFACT) if baselines else ROWS
    model, purged = registry.ModelRegistry.connect(monitor.model), []
    in_use = set(model.versions.aliases().values())
    for run in model.runs.find(monitor=monitor.name):
        if run.window_end is not None and run.window_end <= before:
            # A version with an alias is still compared with the rows that it was fitted on.
            names = artifacts if run.version in in_use else (*artifacts, FITTED_ON)
            removed = _purge(model, model.run(run.run_id), names)
            purged.append(PurgedWindow(run.window, run.run_id, removed))
    return purged


def _purge(
    model: registry.ModelRegistry, run: WindowRun, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Delete artifacts of a run, and the rows within its facts; return what was there."""
    removed = tuple(name for name in names if run.has(name))
    for name in removed:
        run.delete_artifacts(name)
    if reference.ARTIFACT in removed:
        run.set_tags({tags.BASELINE: "purged"})
    if run.has(registry.VERDICT):
        facts = model.read_facts(run.run_id)
        if any(card.exemplars for card in facts.clusters):
            purged = facts.without_exemplars()
            if model.find_seal(run.run_id) is not None:
                model.claim(f"{registry.PURGED}{run.run_id}", registry.facts_digest(purged))
            run.write_text(registry.VERDICT, registry.facts_text(purged))
            removed = (*removed, "exemplars")
    return removed
