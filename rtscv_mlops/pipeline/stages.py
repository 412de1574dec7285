"""The stages of one window, in order, one function each.

take_window -> rectify_window -> write_report -> register_challenger -> raise_alert. What a stage
makes goes to the window's MLflow run; every stage may be repeated, and leaves one effect.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from rtscv_mlops import registry
from rtscv_mlops.compute import computing, on_one_thread
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import NotAssessed
from rtscv_mlops.facts import NOT_ASSESSED, Evidence, WindowFacts
from rtscv_mlops.pipeline import baseline
from rtscv_mlops.pipeline.baseline import Baseline, disagreement, find_baseline
from rtscv_mlops.pipeline.evidence import of_all_rows, write_rows
from rtscv_mlops.pipeline.oddities import volume_jump
from rtscv_mlops.pipeline.rectification import Rectification, Training, rectify, shown_columns
from rtscv_mlops.pipeline.training import find_training
from rtscv_mlops.registry import Champion, MlflowClient, RunSummary, WindowRun, tags
from rtscv_mlops.review import counted, describe, markdown, one_line
from rtscv_mlops.sources import Profile, read_window
from rtscv_mlops.window import Interval, Window

ALGORITHM = 3
"""Raised when the same window, champion and settings would give another result than before."""

VERDICT, CLUSTERS, REPORT, PLOTS = "verdict.json", "clusters.json", "report.html", "plots"

NOT_KEPT = (
    "The rows that the challenger was fitted on are not kept, since report.columns does not let "
    "all columns of the model leave the source. Once it is the champion, its windows can be "
    "judged only after it is logged with its training data by rtscv_mlops.log_champion."
)

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

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A window that was taken: its rows, what they are compared with, the run it is written to.

    `profile` has the spread of all rows, of which `window` is a sample.
    """

    monitor: Monitor
    client: MlflowClient
    champion: Champion
    training: Training
    null: Baseline
    window: Window
    profile: Profile
    run: WindowRun
    facts: WindowFacts


def take_window(monitor: Monitor, interval: Interval, progress: Progress | None = None) -> Taken:
    """Read a sample of the window, and open the run that everything about it is written to."""
    client = registry.connect(monitor.model)
    if not interval.is_over:
        raise NotAssessed(
            "window_open",
            f"The window {interval} is not over yet. "
            f"Run it after {interval.end:%Y-%m-%d %H:%M} UTC.",
        )
    champion = registry.load_champion(client, monitor.model)
    training = find_training(monitor, client, champion)
    null = find_baseline(monitor, client, champion, interval)
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
            "too_few_rows",
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
    run = open_window_run(client, monitor, interval, facts)
    log.info("take_window: %s rows in %s, %s looked at", window.rows, interval, len(window.sample))
    return Taken(monitor, client, champion, training, null, window, profile, run, facts)


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


def first_facts(monitor: Monitor, interval: Interval, key: str) -> WindowFacts:
    """Return what is known of a window before it was looked at."""
    return WindowFacts(
        key=key,
        monitor=monitor.name,
        model=monitor.model.name,
        champion_version="",
        window_start=interval.start,
        window_end=interval.end,
        verdict="not_assessed:unfinished",
        headline="This window was not judged to the end.",
    )


def is_assessed(run: RunSummary) -> bool:
    """Tell whether a run came to a verdict on its window."""
    return bool(run.verdict) and not run.verdict.startswith(NOT_ASSESSED)


def open_window_run(
    client: MlflowClient, monitor: Monitor, interval: Interval, facts: WindowFacts
) -> WindowRun:
    """Open the run of a window: the one it has, or one more that names its forerunner.

    A window that could not be assessed keeps its run when it is tried again. Rows that came late,
    another champion or other settings make another run, which points at the one before.
    """
    model = monitor.model.name
    runs = registry.find_runs(client, model, monitor=monitor.name, window=interval.id)
    unassessed = [run for run in runs if not is_assessed(run)]
    if unassessed and facts.key not in [run.key for run in runs]:
        again = WindowRun(client, unassessed[0].run_id)
        again.set_tags({tags.KEY: facts.key})
        # Who heard that the window could not be judged has not heard what it holds.
        again.drop_tags((tags.ALERT, tags.ALERT_DUE))
    before = [run for run in runs if is_assessed(run) and run.key != facts.key]
    named = {
        "mlflow.runName": f"{monitor.name} {interval}",
        tags.MONITOR: monitor.name,
        tags.WINDOW: interval.id,
        tags.WINDOW_START: interval.start.isoformat(),
        tags.WINDOW_END: interval.end.isoformat(),
        tags.CHAMPION_VERSION: facts.champion_version,
    }
    if before:
        latest = max(before, key=lambda run: run.ended.timestamp() if run.ended else 0.0)
        named[tags.RERUN_OF] = latest.run_id
    run = registry.open_run(client, model, facts.key, named)
    # A run that is tried again may have been made before there was a champion. One who was held up
    # in between may find that another one has completed it.
    for begin in (partial(run.set_tags, named), run.reopen):
        if run.is_complete:
            return run
        begin()
    # Last, so that one of two who open it at once goes on: who took over last stops nowhere here.
    return run if run.is_complete else run.take_over()


@on_one_thread
def rectify_window(taken: Taken) -> Rectification:
    """Run RTSCV, and write down what it showed; the verdict comes last."""
    monitor, champion, run = taken.monitor, taken.champion, taken.run
    training, null = taken.training, taken.null
    _log_inputs(taken)
    changed = _log_settings(taken)
    estimator = registry.as_estimator(champion, monitor.model.fit)
    with computing(monitor.compute) as engine:
        log.info("rectify_window: the work is done by %s", engine.words)
        done = rectify(
            taken.facts, monitor, taken.window, champion.estimator, estimator, training, null
        )
        disagrees = disagreement(null, training.known, estimator, monitor, taken.client, champion)
    findings = (
        *champion.findings,
        *registry.history(taken.client, monitor.model.name, alias=monitor.model.alias).problems,
        *changed,
        *engine.findings,
        *disagrees,
        *volume_jump(taken.window.rows, _usual_rows(taken)),
        *done.facts.findings,
    )
    facts = done.facts.model_copy(update={"findings": findings})
    done = replace(done, facts=facts, evidence=_of_all_rows(taken, done.evidence))
    write_rows(run, monitor, taken.window.sample, done)
    if done.challenger is not None:
        example = training.known.features.head(5)
        run.check_attempt()
        saved = registry.save_rectified(
            taken.client, run.run_id, done.challenger, champion, example, run.check_attempt
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
    registry.log_fitted_on(taken.client, run.run_id, rows, labels, run.check_attempt)
    return done


def _keep_for_baseline(taken: Taken, facts: WindowFacts) -> None:
    """Keep a quiet window where the monitor still collects a baseline."""
    wanted = baseline.wanted_windows(taken.monitor)
    if not wanted or facts.verdict != "no_change":
        return
    kept = baseline.kept_runs(taken.monitor, taken.client, taken.champion, taken.window.interval)
    if len(kept) < wanted:
        seed = taken.monitor.rectify.seed
        baseline.keep_for_baseline(taken.run, taken.window, baseline.QUIET, seed)


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
    runs = registry.find_runs(taken.client, taken.monitor.model.name, monitor=taken.monitor.name)
    return [
        int(run.metrics["window_rows"])
        for run in runs
        if run.window_end is not None
        and run.window_end <= taken.window.interval.start
        and run.metrics.get("window_rows")
    ]


def write_facts(run: WindowRun, facts: WindowFacts) -> None:
    """Write the facts as metrics, as tags, and as the file that they are read back from."""
    run.log_metrics(facts.metrics())
    run.write_json(VERDICT, facts.model_dump(mode="json"))
    if facts.clusters:
        run.write_json(CLUSTERS, [card.model_dump(mode="json") for card in facts.clusters])
    # MLflow shows a tag of this name as the run's description.
    run.set_tags({"mlflow.note.content": markdown(facts.headline), tags.VERDICT: facts.verdict})


def read_facts(run: WindowRun) -> WindowFacts:
    """Read the facts of a run back."""
    return WindowFacts.model_validate(run.read_json(VERDICT))


def add_finding(run: WindowRun, facts: WindowFacts, finding: str) -> WindowFacts:
    """Write down something odd that came up after the verdict; saying it twice adds nothing."""
    if finding in facts.findings:
        return facts
    facts = facts.model_copy(update={"findings": (*facts.findings, finding)})
    write_facts(run, facts)
    return facts


@on_one_thread
def write_report(
    monitor: Monitor, run: WindowRun, facts: WindowFacts, evidence: Evidence
) -> WindowFacts:
    """Compare the columns, and write the page for people; return the facts with the drift."""
    from rtscv_mlops import report  # Evidently takes seconds to load, and only this needs it.

    drift = report.compare_columns(
        evidence.window, evidence.reference, monitor.drift, evidence.counted
    )
    facts = facts.model_copy(update={"drift": drift})
    write_facts(run, facts)
    with TemporaryDirectory() as folder:
        page = Path(folder, REPORT)
        # Seconds differ from try to try; the page, and so its digest, must not.
        timeless = facts.model_copy(update={"timings": {}})
        digest = report.write_report(timeless, evidence, monitor.drift, page)
        run.write_file(page)
        for plot in report.draw_plots(facts, evidence, Path(folder)):
            run.write_file(plot, PLOTS)
    run.set_tags({tags.REPORT_SHA256: digest})
    log.info("write_report: %s", _drift_words(facts))
    return facts


def find_report(monitor: Monitor, run_id: str) -> str:
    """Return where the report of a run is: a web page, or a file; nothing if there is none."""
    client = registry.connect(monitor.model)
    run = WindowRun(client, run_id)
    if not run.has(REPORT):
        return ""
    return registry.links(client, run_id).get("Report") or run.place(REPORT).removeprefix("file://")


def save_report(monitor: Monitor, run_id: str, folder: Path) -> Path:
    """Bring the report of a run into a local folder."""
    return WindowRun(registry.connect(monitor.model), run_id).download(REPORT, folder)


def _drift_words(facts: WindowFacts) -> str:
    if facts.drift is None or facts.drift.share is None:
        return "no column could be compared"
    return f"{facts.drift.drifted} of {len(facts.drift.columns)} columns moved"


def register_challenger(monitor: Monitor, run: WindowRun, facts: WindowFacts) -> str:
    """Register the rectified model, see that it answers, and offer it for review."""
    client = run.client
    _check_champion(monitor, client, facts.champion_version)
    model, known = monitor.model.name, run.tags()
    named = {name: known[name] for name in VERSION_TAGS if name in known}
    check = run.check_attempt
    version = registry.register_version(
        client,
        model,
        facts.key,
        run.run_id,
        known[tags.MODEL_ID],
        named=named,
        description="",
        check=check,
    )
    # The version may be of an earlier try or of a rival, who saved the same model as other files.
    sealed = registry.find_version(client, model, version).model_sha256
    run.set_tags({tags.MODEL_SHA256: sealed})
    registry.verify_version(client, f"models:/{model}/{version}", digest=sealed)
    links = registry.links(client, run.run_id, model, version)
    check()
    registry.describe_version(client, model, version, describe(facts, links, version))
    registry.offer_version(
        client, model, version, alias=monitor.model.alias, blocked=facts.blocked, check=check
    )
    log.info("register_challenger: version %s of %s", version, model)
    return version


def _check_champion(monitor: Monitor, client: MlflowClient, compared_with: str) -> None:
    """Stop if the champion is not the one that the window was compared with."""
    try:
        now = str(registry.find_champion(client, monitor.model).version)
    except NotAssessed as error:
        raise NotAssessed(
            "champion_gone",
            f"Version {compared_with}, the champion that this window was compared with, "
            "is gone. Nothing is offered; set a champion and run the window again.",
        ) from error
    if now != compared_with:
        raise NotAssessed(
            "stale",
            f"The champion moved from version {compared_with} to {now} while this window "
            "was looked at. Nothing is offered; run the window again to compare with the new one.",
        )
