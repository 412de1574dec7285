"""The stages that look at rows: take_window, rectify_window and write_report.

A stage writes its results to the window's MLflow run. Every stage may be repeated, and leaves one
effect. The stages that need no rows are in `run.py`, which loads less.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rtscv_mlops.alerts.sending import find_bad_times
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, NotAssessed
from rtscv_mlops.facts import Evidence, Finding, FindingCode, WindowFacts
from rtscv_mlops.judging import reference
from rtscv_mlops.judging.evidence import spread_as_all_rows, write_rows
from rtscv_mlops.judging.findings import find_volume_jump
from rtscv_mlops.judging.judge import Rectification, WindowJudge, check_baseline, shown_columns
from rtscv_mlops.judging.reference import Baseline, TrainingData, find_baseline, find_training
from rtscv_mlops.models.load import Champion, as_estimator, load_champion
from rtscv_mlops.models.register import log_fitted_on
from rtscv_mlops.models.save import save_rectified
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.review.question import one_line
from rtscv_mlops.runtime import computing, on_one_thread
from rtscv_mlops.sources.profile import Profile
from rtscv_mlops.sources.read import read_window
from rtscv_mlops.text import counted
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.registry import (
    PLOTS,
    REPORT,
    ModelRegistry,
    first_facts,
    open_window_run,
    write_facts,
)
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval, Window

ALGORITHM = 5
"""Raise this if the same window, champion and settings would give another result than before."""

log = logging.getLogger(__name__)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class WindowContext:
    """A window's rows, what they are compared with, and the run that results are written to.

    `profile` has the spread of all rows, of which `window` is a sample.
    """

    monitor: Monitor
    registry: ModelRegistry
    champion: Champion
    training: TrainingData
    baseline: Baseline
    window: Window
    profile: Profile
    run: WindowRun
    facts: WindowFacts

    @property
    def known_rows(self) -> pd.DataFrame:
        """The rows that the window is compared with."""
        rows = self.baseline.rows
        return self.training.known.features if rows is None else rows

    def log_inputs(self) -> None:
        """Log window and training data as datasets of the run."""
        source, window, known = self.monitor.source, self.window, self.training.known
        self.run.log_dataset(
            "window",
            "deployment",
            source=source.path or source.table or "query",
            digest=window.digest,
            frame=window.sample,
            profile={"num_rows": window.rows, "sampled": len(window.sample)},
        )
        self.run.log_dataset(
            "reference",
            "reference",
            source=known.source,
            digest=known.digest,
            frame=known.features,
            profile={"num_rows": len(known)},
        )

    def earlier_sizes(self) -> list[int]:
        """Return the numbers of rows of the windows before this one."""
        return [
            int(run.metrics["window_rows"])
            for run in self.registry.runs.find(monitor=self.monitor.name)
            if run.window_end is not None
            and run.window_end <= self.window.interval.start
            and run.metrics.get("window_rows")
        ]

    def keep_training(self, done: Rectification) -> Rectification:
        """Store what the challenger was fitted on: as champion, it is compared with these rows."""
        sample, known = self.window.sample, self.training.known
        if shown_columns(self.monitor, sample) != list(sample.columns):
            not_kept = Finding(
                FindingCode.TRAINING_NOT_KEPT,
                "The rows that the challenger was fitted on are not kept, since report.columns "
                "does not let all columns of the model leave the source. Once it is the champion, "
                "its windows can be judged only after it is logged with its training data by "
                "rtscv_mlops.log_champion.",
            )
            return replace(done, facts=done.facts.with_findings(after=[not_kept]))
        unknowns = sample[done.evidence.unknown]
        labels = [*known.labels.tolist(), *[done.model.unknown_label_] * len(unknowns)]
        rows = pd.concat([known.features, unknowns[known.features.columns]], ignore_index=True)
        log_fitted_on(self.registry.client, self.run.run_id, rows, labels, self.run.check_attempt)
        return done

    def keep_for_baseline(self, facts: WindowFacts) -> None:
        """Keep a quiet window if the monitor still collects a baseline."""
        monitor, window = self.monitor, self.window
        wanted = reference.wanted_windows(monitor)
        if not wanted or not Verdict.of(facts.verdict).is_quiet:
            return
        kept = reference.find_kept_runs(monitor, self.registry, self.champion, window.interval)
        if len(kept) < wanted:
            reference.keep_for_baseline(self.run, window, reference.QUIET, monitor.rectify.seed)


def take_window(
    monitor: Monitor, interval: Interval, progress: Progress | None = None
) -> WindowContext:
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
    baseline = find_baseline(monitor, registry, champion, interval)
    known = training.known.features if baseline.rows is None else baseline.rows
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
    facts = first_facts(monitor, interval, key, champion.version, window)
    run = open_window_run(registry, monitor, interval, facts)
    log.info("take_window: %s rows in %s, %s sampled", window.rows, interval, len(window.sample))
    return WindowContext(
        monitor, registry, champion, training, baseline, window, profile, run, facts
    )


def window_key(monitor: Monitor, champion: Champion, window: Window) -> str:
    """Return a digest of everything that decides a window's result."""
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
def rectify_window(context: WindowContext) -> Rectification:
    """Run RTSCV, and write what it showed; the verdict comes last."""
    monitor, registry, champion = context.monitor, context.registry, context.champion
    training, baseline = context.training, context.baseline
    window, run = context.window, context.run
    context.log_inputs()
    changed = run.log_params(monitor.rectify.model_dump(mode="json"))
    estimator = as_estimator(champion, monitor.model.fit)
    with computing(monitor.compute) as engine:
        log.info("rectify_window: the work is done by %s", engine.description)
        judge = WindowJudge(monitor, window, champion.estimator, estimator, training, baseline)
        done = judge.rectify(context.facts)
        on_baseline = check_baseline(
            baseline, training.known, estimator, monitor, registry, champion
        )
    changes = [
        f"An earlier try of this window had other settings ({', '.join(changed)}). MLflow keeps "
        "the params of that try; the result is of the present settings."
    ]
    findings = [
        *Finding.all_of(FindingCode.CHAMPION, champion.findings),
        *Finding.all_of(FindingCode.DECISION_RECORD, registry.decisions.history().problems),
        *Finding.all_of(FindingCode.SETTINGS_CHANGED, changes if changed else ()),
        *Finding.all_of(FindingCode.COMPUTE, engine.findings),
        *on_baseline,
        *find_bad_times(registry.runs.find(monitor=monitor.name), datetime.now(UTC)),
        *find_volume_jump(window.rows, context.earlier_sizes()),
    ]
    evidence = spread_as_all_rows(
        done.evidence,
        monitor.drift,
        window,
        context.known_rows,
        context.profile,
        champion.columns,
    )
    done = replace(done, facts=done.facts.with_findings(before=findings), evidence=evidence)
    write_rows(run, monitor, window, done)
    if done.challenger is not None:
        example = training.known.features.head(5)
        run.check_attempt()
        saved = save_rectified(
            registry.client, run.run_id, done.challenger, champion, example, run.check_attempt
        )
        run.set_tags({tags.MODEL_ID: saved.model_id, tags.MODEL_SHA256: saved.digest})
        done = replace(done, facts=done.facts.with_model(saved.model_id, saved.digest))
        done = context.keep_training(done)
    context.keep_for_baseline(done.facts)
    write_facts(run, done.facts)
    log.info("rectify_window: %s", one_line(done.facts))
    return done


@on_one_thread
def write_report(
    monitor: Monitor, run: WindowRun, facts: WindowFacts, evidence: Evidence
) -> tuple[WindowFacts, str]:
    """Compare the columns, and write the report; return facts with drift, and the digest."""
    # Evidently takes seconds to load, and only this needs it.
    from rtscv_mlops.report.drift import compare_columns
    from rtscv_mlops.report.figures import draw_plots
    from rtscv_mlops.report.page import write_page

    drift = compare_columns(evidence.window, evidence.reference, monitor.drift, evidence.counted)
    facts = facts.with_drift(drift)
    write_facts(run, facts)
    with TemporaryDirectory() as folder:
        page = Path(folder, REPORT)
        links = replace(run.links(), report="").labelled()  # The report need not link to itself.
        digest = write_page(facts, evidence, monitor.drift, page, links=links)
        run.write_file(page)
        for plot in draw_plots(facts, evidence, Path(folder)):
            run.write_file(plot, PLOTS)
    run.set_tags({tags.REPORT_SHA256: digest})
    summary = f"{drift.drifted} of {len(drift.columns)} columns drifted"
    log.info("write_report: %s", "no column could be compared" if drift.share is None else summary)
    return facts, digest
