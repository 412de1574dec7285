"""The commands of `rtscv-mlops`.

Heavy imports happen inside the commands, so that `--help` answers at once.
"""

import logging
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtscv_mlops.cli import output
from rtscv_mlops.errors import RtscvError, WindowError
from rtscv_mlops.outcomes import ReviewChannel, ReviewStatus, Verdict
from rtscv_mlops.process import prepare_process
from rtscv_mlops.text import counted

if TYPE_CHECKING:
    from rtscv_mlops.config.monitor import Monitor
    from rtscv_mlops.window import Interval

app = typer.Typer(
    help="Find out whether traffic holds classes that a deployed classifier was never taught.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
review = typer.Typer(help="Review challengers.", no_args_is_help=True)
app.add_typer(review, name="review")
audit = typer.Typer(help="Check the record of decisions.", no_args_is_help=True)
app.add_typer(audit, name="audit")

MonitorFile = Annotated[
    Path, typer.Argument(metavar="MONITOR", help="The monitor's YAML file.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Day = Annotated[
    str | None, typer.Option("--window", metavar="DAY", help="One day, such as 2026-01-05.")
]
Start = Annotated[str | None, typer.Option(metavar="TIME", help="Start of the window, ISO 8601.")]
End = Annotated[str | None, typer.Option(metavar="TIME", help="End of the window, not included.")]
Version = Annotated[
    str | None, typer.Option(help="Version. (default: the one that waits for review)")
]
SeenVersion = Annotated[
    str, typer.Option("--version", help="Version that you reviewed.", show_default=False)
]
Reviewer = Annotated[str | None, typer.Option(help="Who decides. (default: your user name)")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


def main() -> None:
    """Run a command; our own errors become one sentence, a bug keeps its traceback."""
    prepare_process()
    try:
        app()
    except RtscvError as error:
        output.print_error(error.code, str(error))
        raise SystemExit(1) from error


@app.callback()
def _set_up(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each stage.")] = False,
) -> None:
    logs = logging.StreamHandler()
    logs.setFormatter(output.PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[logs])
    logging.getLogger("rtscv_mlops").setLevel(logging.INFO if verbose else logging.ERROR)
    if not verbose:
        for vendor in ("mlflow", "alembic", "urllib3"):
            logging.getLogger(vendor).setLevel(logging.ERROR)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo"),
) -> None:
    """Monitor two weeks of handwritten digits: quiet days, drift, then unknown digits."""
    from rtscv_mlops.demo import run_demo

    run_demo(folder, output.console())


@app.command()
def init(
    model: Annotated[str, typer.Argument(help="Registered model.", show_default=False)],
    file: Annotated[Path | None, typer.Option(help="File to write. (default: MODEL.yaml)")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's address. (default: from the environment)")
    ] = None,
) -> None:
    """Write a commented monitor file from a registered model's signature.

    It also writes monitor.schema.json, which lets editors complete and check the file.
    """
    from rtscv_mlops.config.schema import SCHEMA_FILE
    from rtscv_mlops.operations.setup import write_monitor

    path = write_monitor(model, file or Path(f"{model}.yaml"), tracking_uri)
    output.console().print(
        f"Wrote {path} and, for editors, {SCHEMA_FILE} next to it.\n"
        f"Edit {path.name}, then: rtscv-mlops check {path}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def check(monitor: MonitorFile, as_json: AsJson = False) -> None:
    """Check that a run has everything it needs, and say what to fix."""
    from rtscv_mlops.operations.check import check_monitor

    checks = list(check_monitor(_load(monitor)))
    if as_json:
        output.print_json([{"what": c.what, "state": c.state, "found": c.found} for c in checks])
    else:
        output.print_checks(checks)
    if any(one.state == "problem" for one in checks):
        raise typer.Exit(1)


@app.command()
def run(
    monitor: MonitorFile,
    window: Day = None,
    start: Start = None,
    end: End = None,
    as_json: AsJson = False,
) -> None:
    """Judge one window. Exit code: 0 no change, 10 drift, 11 unknowns, 20 not assessed."""
    from rtscv_mlops.pipeline.run import run_window
    from rtscv_mlops.tracking.registry import find_report

    settings = _load(monitor)
    interval = _interval(window, start, end)
    with output.progress(f"{settings.name} {interval}") as report_stage:
        outcome = run_window(settings, interval, report_stage)
    facts, report = outcome.facts, find_report(settings, outcome.run_id)
    if as_json:
        extra = {"run_id": outcome.run_id, "version": outcome.version, "alert": outcome.alert}
        output.print_json({**facts.model_dump(mode="json"), **extra, "report": report})
    else:
        output.print_outcome(outcome, monitor, report)
    raise typer.Exit(Verdict.of(facts.verdict).traits.exit_code)


@app.command()
def bench(
    monitor: Annotated[
        Path | None, typer.Option(help="The monitor's YAML file (default: handwritten digits).")
    ] = None,
    hide_class: Annotated[
        list[str] | None,
        typer.Option(help="Class to hide; several are hidden together (default: each in turn)."),
    ] = None,
    detector: Annotated[
        list[str] | None, typer.Option(help="Detector to try; may be repeated (default: all).")
    ] = None,
    rate: Annotated[float, typer.Option(help="Hidden class's share of the window.")] = 0.1,
    seeds: Annotated[int, typer.Option(min=1, help="Random splits of each.")] = 1,
    max_rows: Annotated[int, typer.Option(min=100, help="Labelled rows, at most.")] = 5000,
    as_json: AsJson = False,
) -> None:
    """Hide a class that the model knows, and see which detector would have found it."""
    from rtscv_mlops.bench.compare import run_bench

    with output.progress_bar("loading") as progress:
        result = run_bench(
            _load(monitor) if monitor else None,
            hide_class or (),
            detectors=detector or (),
            rate=rate,
            seeds=seeds,
            max_rows=max_rows,
            progress=progress,
        )
    if as_json:
        output.print_json(result.as_json())
    else:
        output.print_bench(result)


@app.command()
def score(
    monitor: MonitorFile,
    window: Day = None,
    start: Start = None,
    end: End = None,
    as_json: AsJson = False,
) -> None:
    """Join labels that arrived later, and log how good an earlier verdict was."""
    from rtscv_mlops.operations.score import score_window

    settings = _load(monitor)
    result = score_window(settings, _interval(window, start, end))
    if as_json:
        about = {"run_id": result.run_id, "labelled": result.labelled, "note": result.note}
        output.print_json({**about, **result.figures})
        return
    rows = [[name.replace("_", " "), f"{value:.3f}"] for name, value in result.figures.items()]
    title = f"{result.labelled} of {result.sampled} rows have a label"
    output.print_table(title, ["figure", "value"], rows)
    if result.note:
        output.console().print(output.styled(result.note))


@app.command()
def register(
    model: Annotated[
        str, typer.Argument(help="Name for the registered model.", show_default=False)
    ],
    training: Annotated[
        Path, typer.Option(help="Training data, Parquet or CSV.", show_default=False)
    ],
    label: Annotated[str, typer.Option(help="Column with the label.", show_default=False)],
    estimator: Annotated[
        str,
        typer.Option(
            help="`package.module:function` that returns the model; it is fitted on the training "
            "data unless it is fitted already.",
            show_default=False,
        ),
    ],
    holdout: Annotated[Path | None, typer.Option(help="Held-out data for comparisons.")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's address. (default: from the environment)")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the champion if there is one.")] = False,
    allow_pickle: Annotated[bool, typer.Option(help="Save by pickle if skops cannot.")] = False,
) -> None:
    """Log a model with the training data and signature that a monitor needs; make it champion."""
    from rtscv_mlops.operations.setup import register_champion

    version = register_champion(
        model,
        training,
        label,
        estimator,
        holdout=holdout,
        tracking_uri=tracking_uri,
        replace=replace,
        allow_pickle=allow_pickle,
    )
    output.console().print(f"Version {version} of {model} is the champion.", highlight=False)


@review.command("list")
def list_reviews(monitor: MonitorFile, as_json: AsJson = False) -> None:
    """List the challengers of a model, the latest first."""
    from rtscv_mlops.review.answers import list_challengers

    challengers = list_challengers(_load(monitor))
    if as_json:
        names = ("version", "review", "answered", "window", "champion_version", "run_id")
        output.print_json([{name: getattr(one, name) for name in names} for one in challengers])
    else:
        output.print_challengers(challengers, monitor)


@review.command("show")
def show_review(monitor: MonitorFile, version: Version = None, as_json: AsJson = False) -> None:
    """Show what a reviewer needs to know about a challenger."""
    from rich.markdown import Markdown

    from rtscv_mlops.review.answers import show_challenger

    challenger = show_challenger(_load(monitor), version, file=str(monitor))
    if as_json:
        output.print_json(challenger.facts.model_dump(mode="json"))
    else:
        output.console().print(Markdown(challenger.description))
        output.print_answered(challenger.version, monitor)


@review.command()
def approve(
    monitor: MonitorFile, version: SeenVersion, reviewer: Reviewer = None, reason: Reason = ""
) -> None:
    """Approve a challenger: it becomes the champion."""
    _decide(monitor, version, True, reviewer, reason)


@review.command()
def reject(
    monitor: MonitorFile, version: SeenVersion, reviewer: Reviewer = None, reason: Reason = ""
) -> None:
    """Reject a challenger: the champion stays."""
    _decide(monitor, version, False, reviewer, reason)


@review.command()
def collect(monitor: MonitorFile) -> None:
    """Carry out an answer given by a tag in MLflow, if no Airflow run waits for it."""
    from rtscv_mlops.review.answers import carry_out_answer

    warnings: list[str] = []
    done = carry_out_answer(_load(monitor), warnings.append)
    if done is None:
        for sentence in warnings or ["There is no answer in MLflow."]:
            output.console().print(output.styled(sentence))
        return
    version, answer = done
    status = ReviewStatus(answer.status)
    if status.is_answer:
        what = f"{status.traits.effect} Answered by {answer.who}."
    else:
        what = f"was closed as {answer.status}: {answer.reason} The champion stays."
    output.console().print(output.styled(f"Version {version} {what}"))


@review.command()
def baseline(
    monitor: MonitorFile, window: Day = None, start: Start = None, end: End = None
) -> None:
    """Add a window to the baseline, regardless of its verdict."""
    from rtscv_mlops.review.answers import approve_as_baseline

    interval = _interval(window, start, end)
    run_id = approve_as_baseline(_load(monitor), interval)
    output.console().print(
        f"Window {interval} (run {run_id}) is part of the baseline.", highlight=False
    )


@app.command()
def rollback(
    monitor: MonitorFile,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last rollback instead.")] = False,
    reviewer: Reviewer = None,
    reason: Reason = "",
) -> None:
    """Restore the previous champion."""
    from rtscv_mlops.review.answers import roll_back, undo_roll_back

    move = undo_roll_back if undo else roll_back
    channel = ReviewChannel.COMMAND_LINE
    version = move(_load(monitor), reviewer or getuser(), reason, channel)
    output.console().print(f"Version {version} is the champion again.", highlight=False)


@audit.command()
def verify(
    monitor: MonitorFile,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Checkpoint that the record must still hold: a file, an address of an object "
            "store, or - for standard input. The last line counts.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that the record of decisions was not edited, and that it names the champion."""
    from rtscv_mlops.operations.checkpoint import read_checkpoint
    from rtscv_mlops.review.answers import verify_audit

    taken = read_checkpoint(checkpoint) if checkpoint else None
    history = verify_audit(_load(monitor), taken)
    if as_json:
        names = ("number", "at", "kind", "version", "who", "reason", "details")
        records = [{name: getattr(one, name) for name in names} for one in history.records]
        output.print_json({"records": records, "problems": list(history.problems)})
    else:
        output.print_audit(history)
    if history.problems:
        raise typer.Exit(1)


@audit.command()
def checkpoint(
    monitor: MonitorFile,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File, or address of an object store, that a line is added to. Default: standard "
            "output.",
        ),
    ] = None,
) -> None:
    """Write how far the record of decisions goes, to be kept outside of MLflow."""
    from rtscv_mlops.operations.checkpoint import write_checkpoint
    from rtscv_mlops.review.answers import take_checkpoint

    taken = take_checkpoint(_load(monitor))
    if file is None:
        typer.echo(taken.text)
    else:
        write_checkpoint(taken, file)
        output.console().print(
            f"Wrote the checkpoint of {counted(taken.records, 'record')} to {file}.",
            highlight=False,
        )


@audit.command()
def repair(monitor: MonitorFile, reason: Reason, reviewer: Reviewer = None) -> None:
    """Found a new ledger where the old one is gone or not signed; the record says so."""
    from rtscv_mlops.review.answers import repair_audit

    sentence = repair_audit(_load(monitor), reviewer or getuser(), reason)
    output.console().print(output.styled(sentence))


@app.command()
def purge(
    monitor: MonitorFile,
    before: Annotated[str, typer.Option(metavar="TIME", help="Purge windows that ended by then.")],
    baselines: Annotated[bool, typer.Option(help="Remove baseline rows as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rows, reports and cards of old windows from MLflow; their numbers stay."""
    from rtscv_mlops.operations.purge import purge_windows
    from rtscv_mlops.window import parse_time

    try:
        end = parse_time(before, "UTC")
    except WindowError as error:
        raise typer.BadParameter(str(error)) from error
    done = purge_windows(_load(monitor), end, baselines=baselines)
    if as_json:
        output.print_json([{"window": one.window, "removed": list(one.removed)} for one in done])
        return
    rows = [[one.window, ", ".join(one.removed) or "nothing was left"] for one in done]
    output.print_table("Purged", ["window", "removed"], rows)


def _load(path: Path) -> "Monitor":
    from rtscv_mlops.config.loading import load_monitor

    return load_monitor(path)


def _interval(day: str | None, start: str | None, end: str | None) -> "Interval":
    from rtscv_mlops.window import Interval

    try:
        if day and not (start or end):
            return Interval.day(day)
        if start and end and not day:
            return Interval.parse(start, end)
    except WindowError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.BadParameter("Name the window: --window DAY, or both --start and --end.")


def _decide(monitor: Path, version: str, approved: bool, reviewer: str | None, reason: str) -> None:
    from rtscv_mlops.review.answers import promote_challenger, review_challenger

    settings = _load(monitor)
    decided = review_challenger(
        settings,
        version,
        approve=approved,
        reviewer=reviewer or getuser(),
        reason=reason,
        channel=ReviewChannel.COMMAND_LINE,
    )
    if approved:
        promote_challenger(settings, decided.version)
    output.console().print(
        f"Version {decided.version} {ReviewStatus(decided.review).traits.effect}", highlight=False
    )
