"""The stages that look at rows: take_window, rectify_window and write_report.

What a stage makes goes to the window's MLflow run; every stage may be repeated, and leaves one
effect. `register_challenger` and `raise_alert`, which need no rows and load less, come after them.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed
from rtscv_mlops.facts import Evidence, WindowFacts
from rtscv_mlops.judging import reference
from rtscv_mlops.judging.evidence import of_all_rows, write_rows
from rtscv_mlops.judging.findings import volume_jump
from rtscv_mlops.judging.judge import Rectification, rectify, shown_columns
from rtscv_mlops.judging.reference import (
    Baseline,
    Training,
    disagreement,
    find_baseline,
    find_training,
)
from rtscv_mlops.models.load import Champion, load_champion
from rtscv_mlops.models.refit import as_estimator
from rtscv_mlops.models.register import log_fitted_on
from rtscv_mlops.models.save import save_rectified
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.review.question import one_line
from rtscv_mlops.runtime import computing, on_one_thread
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.text import counted
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.record import (
    PLOTS,
    REPORT,
    first_facts,
    open_window_run,
    write_facts,
)
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.window_run import WindowRun
from rtscv_mlops.window import Interval, Window

ALGORITHM = 4
"""Raised when the same window, champion and settings would give another result than before."""

NOT_KEPT = (
    "The rows that the challenger was fitted on are not kept, since report.columns does not let "
    "all columns of the model leave the source. Once it is the champion, its windows can be "
    "judged only after it is logged with its training data by rtscv_mlops.log_champion."
)

log = logging.getLogger(__name__)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A window that was taken: its rows, what they are compared with, the run it is written to.

    `profile` has the spread of all rows, of which `window` is a sample.
    """

    monitor: Monitor
    registry: ModelRegistry
    champion: Champion
    training: Training
    null: Baseline
    window: Window
    profile: Profile
    run: WindowRun
    facts: WindowFacts


def take_window(monitor: Monitor, interval: Interval, progress: Progress | None = None) -> Taken:
    """Read a sample of the window, and open the run that everything about it is written to."""
    registry = ModelRegistry.connect(monitor.model)
    if not interval.is_over:
        raise NotAssessed(
            Code.WINDOW_OPEN,
            f"The window {interval} is not over yet. "
            f"Run it after {interval.end:%Y-%m-%d %H:%M} UTC.",
        )
    champion = load_champion(registry.client, monitor.model)
    training = find_training(monitor, registry.client, champion)
    null = find_baseline(monitor, registry, champion, interval)
    known = training.known.features if null.rows is None else null.rows
    profile = Profile.on(known, champion.columns)
    settings = monitor.rectify
    window = read_window(
        monitor.source,
        interval,
        champion.columns,
        max_rows=settings.max_rows,
        seed=settings.seed,
        profile=profile,
        progress=progress,
    )
    if window.rows < settings.min_rows:
        raise NotAssessed(
            Code.TOO_FEW_ROWS,
            f"The window {interval} has {counted(window.rows, 'row')}, fewer than the "
            f"{settings.min_rows} that rectify.min_rows asks for. Take longer windows, or lower "
            "it.",
        )
    key = window_key(monitor, champion, window)
    facts = first_facts(monitor, interval, key).model_copy(
        update={
            "champion_version": champion.version,
            "rows": window.rows,
            "sampled": len(window.sample),
            "copies": window.copies,
            "digest": window.digest,
        }
    )
    run = open_window_run(registry, monitor, interval, facts)
    log.info("take_window: %s rows in %s, %s looked at", window.rows, interval, len(window.sample))
    return Taken(monitor, registry, champion, training, null, window, profile, run, facts)


def window_key(monitor: Monitor, champion: Champion, window: Window) -> str:
    """Return one word for everything that decides a window's result."""
    parts = [
        ALGORITHM,
        monitor.name,
        window.interval.id,
        window.digest,
        champion.version,
        monitor.result_settings(),
    ]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@on_one_thread
def rectify_window(taken: Taken) -> Rectification:
    """Run RTSCV, and write down what it showed; the verdict comes last."""
    monitor, champion, run = taken.monitor, taken.champion, taken.run
    training, null = taken.training, taken.null
    _log_inputs(taken)
    changed = _log_settings(taken)
    estimator = as_estimator(champion, monitor.model.fit)
    with computing(monitor.compute) as engine:
        log.info("rectify_window: the work is done by %s", engine.description)
        done = rectify(
            taken.facts, monitor, taken.window, champion.estimator, estimator, training, null
        )
        disagrees = disagreement(null, training.known, estimator, monitor, taken.registry, champion)
    findings = (
        *champion.findings,
        *taken.registry.decisions.history().problems,
        *changed,
        *engine.findings,
        *disagrees,
        *volume_jump(taken.window.rows, _usual_rows(taken)),
        *done.facts.findings,
    )
    facts = done.facts.model_copy(update={"findings": findings})
    done = replace(done, facts=facts, evidence=_of_all_rows(taken, done.evidence))
    write_rows(run, monitor, taken.window, done)
    if done.challenger is not None:
        example = training.known.features.head(5)
        run.check_attempt()
        saved = save_rectified(
            taken.registry.client, run.run_id, done.challenger, champion, example, run.check_attempt
        )
        run.set_tags({tags.MODEL_ID: saved.model_id, tags.MODEL_SHA256: saved.digest})
        done = _keep_fitted_on(taken, training, done)
    _keep_for_baseline(taken, done.facts)
    write_facts(run, done.facts)
    log.info("rectify_window: %s", one_line(done.facts))
    return done


def _of_all_rows(taken: Taken, evidence: Evidence) -> Evidence:
    """Let the columns that are compared stand for all rows, where those were not all looked at."""
    columns, null = taken.champion.columns, taken.null.rows
    known = taken.training.known.features if null is None else null
    return of_all_rows(evidence, taken.monitor.drift, taken.window, known, taken.profile, columns)


def _keep_fitted_on(taken: Taken, training: Training, done: Rectification) -> Rectification:
    """Keep what the challenger was fitted on: windows are judged by it once it is the champion."""
    sample, known = taken.window.sample, training.known
    if shown_columns(taken.monitor, sample) != list(sample.columns):
        findings = (*done.facts.findings, NOT_KEPT)
        return replace(done, facts=done.facts.model_copy(update={"findings": findings}))
    unknowns = sample[done.evidence.unknown]
    labels = [*known.labels.tolist(), *[done.model.unknown_label_] * len(unknowns)]
    rows = pd.concat([known.features, unknowns[known.features.columns]], ignore_index=True)
    run = taken.run
    log_fitted_on(taken.registry.client, run.run_id, rows, labels, run.check_attempt)
    return done


def _keep_for_baseline(taken: Taken, facts: WindowFacts) -> None:
    """Keep a quiet window where the monitor still collects a baseline."""
    wanted = reference.wanted_windows(taken.monitor)
    if not wanted or not Verdict.of(facts.verdict).is_quiet:
        return
    kept = reference.kept_runs(taken.monitor, taken.registry, taken.champion, taken.window.interval)
    if len(kept) < wanted:
        seed = taken.monitor.rectify.seed
        reference.keep_for_baseline(taken.run, taken.window, reference.QUIET, seed)


def _log_settings(taken: Taken) -> tuple[str, ...]:
    """Write the settings down; say so where those of an earlier try stand there for good."""
    changed = taken.run.log_params(taken.monitor.rectify.model_dump(mode="json"))
    if not changed:
        return ()
    return (
        f"An earlier try of this window had other settings ({', '.join(changed)}). MLflow shows "
        "the params of that try for good; the result is of the settings of now.",
    )


def _log_inputs(taken: Taken) -> None:
    source, window, training = taken.monitor.source, taken.window, taken.training
    taken.run.log_dataset(
        "window",
        "deployment",
        source=source.path or source.table or "query",
        digest=window.digest,
        frame=window.sample,
        profile={"num_rows": window.rows, "sampled": len(window.sample)},
    )
    taken.run.log_dataset(
        "reference",
        "reference",
        source=training.source,
        digest=training.digest,
        frame=training.known.features,
        profile={"num_rows": len(training.known.labels)},
    )


def _usual_rows(taken: Taken) -> list[int]:
    """Return the sizes of the windows before this one."""
    runs = taken.registry.runs.find(monitor=taken.monitor.name)
    return [
        int(run.metrics["window_rows"])
        for run in runs
        if run.window_end is not None
        and run.window_end <= taken.window.interval.start
        and run.metrics.get("window_rows")
    ]


@on_one_thread
def write_report(
    monitor: Monitor, run: WindowRun, facts: WindowFacts, evidence: Evidence
) -> WindowFacts:
    """Compare the columns, and write the page for people; return the facts with the drift."""
    from rtscv_mlops.report.drift import compare_columns
    from rtscv_mlops.report.figures import (
        draw_plots,  # Evidently takes seconds to load, and only this needs it.
    )
    from rtscv_mlops.report.page import write_page

    drift = compare_columns(evidence.window, evidence.reference, monitor.drift, evidence.counted)
    facts = facts.model_copy(update={"drift": drift})
    write_facts(run, facts)
    with TemporaryDirectory() as folder:
        page = Path(folder, REPORT)
        links = replace(run.links(), report="").labelled()  # The page need not lead to itself.
        digest = write_page(facts, evidence, monitor.drift, page, links=links)
        run.write_file(page)
        for plot in draw_plots(facts, evidence, Path(folder)):
            run.write_file(plot, PLOTS)
    run.set_tags({tags.REPORT_SHA256: digest})
    log.info("write_report: %s", _drift_words(facts))
    return facts


def _drift_words(facts: WindowFacts) -> str:
    if facts.drift is None or facts.drift.share is None:
        return "no column could be compared"
    return f"{facts.drift.drifted} of {len(facts.drift.columns)} columns moved"
