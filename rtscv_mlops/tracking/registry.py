"""One registered model in MLflow, and what is kept of each window in its run."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from mlflow.tracking import MlflowClient

from rtscv_mlops.config.monitor import ModelSettings, Monitor
from rtscv_mlops.config.values import CHAMPION
from rtscv_mlops.errors import Code, ServiceError
from rtscv_mlops.facts import Finding, FindingCode, WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.text import markdown
from rtscv_mlops.tracking import tags
from rtscv_mlops.tracking.client import connect, open_client
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.promotion import Decisions
from rtscv_mlops.tracking.runs import RunLinks, Runs, RunSummary, WindowRun
from rtscv_mlops.tracking.seals import Seal, claim_seal, find_seal, is_valid_seal
from rtscv_mlops.tracking.versions import Versions
from rtscv_mlops.window import Interval, Window


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """A registered model: its versions, the decisions about them, and the runs of its windows."""

    client: MlflowClient
    model: str
    alias: str = CHAMPION

    @classmethod
    def connect(cls, settings: ModelSettings) -> Self:
        """Open the registry, and point MLflow's fluent functions at the same server."""
        return cls.of(connect(settings), settings)

    @classmethod
    def open(cls, settings: ModelSettings) -> Self:
        """Open the registry and leave global state alone, for threads that read several servers."""
        return cls.of(open_client(settings), settings)

    @classmethod
    def of(cls, client: MlflowClient, settings: ModelSettings) -> Self:
        """Return the registry behind a client that is open already."""
        return cls(client, settings.name, settings.alias)

    @property
    def versions(self) -> Versions:
        return Versions(self.client, self.model, self.alias)

    @property
    def decisions(self) -> Decisions:
        return Decisions(self.versions)

    @property
    def runs(self) -> Runs:
        return Runs(self.client, self.model)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.client, self.model)

    def find_seal(self, run_id: str) -> Seal | None:
        """Return the seal of a window; None if it was not judged to the end."""
        return find_seal(self.ledger.claims(is_valid_seal), run_id)

    def seal(self, run: WindowRun, facts: WindowFacts, report_sha256: str) -> Seal:
        """Seal what was judged; refuse if another process has sealed something else."""
        interval = Interval(facts.window_start, facts.window_end)
        ours = Seal(
            run_id=run.run_id,
            key=facts.key,
            monitor=facts.monitor,
            window=interval.id,
            window_start=interval.start.isoformat(),
            window_end=interval.end.isoformat(),
            champion_version=facts.champion_version,
            verdict=facts.verdict,
            facts_sha256=facts_digest(facts),
            report_sha256=report_sha256,
            model_id=facts.model_id,
            model_sha256=facts.model_sha256,
        )
        run.check_attempt()
        if claim_seal(self.ledger, ours) != ours:
            raise ServiceError(
                f"The run {run.run_id} is sealed with another result: another try of this window "
                "was faster, or a person has written to the ledger. Run the window again.",
                code=Code.TAKEN_OVER,
            )
        return ours

    def read_facts(self, run_id: str) -> WindowFacts:
        """Return the facts of a window; refuse them if they are not those that were sealed."""
        claims = self.ledger.claims(is_valid_seal)
        seal = find_seal(claims, run_id)
        run = self.run(run_id)
        if seal is None:
            return read_facts(run)
        facts = read_facts(run, (seal.facts_sha256, claims.get(f"{PURGED}{run_id}", "")))
        # What came to nothing after the verdict is in the tags: a challenger that cannot be used
        # leaves the verdict as it is, a champion that moved does not.
        named = run.tags()
        state, _, code = named.get(tags.STATE, "").partition(":")
        if state == tags.FAILED and code != Code.CHALLENGER_UNUSABLE:
            return facts.unassessed(code, named.get(tags.ERROR, ""))
        if tags.UNUSABLE in named:
            finding = Finding(FindingCode.CHALLENGER_UNUSABLE, named[tags.UNUSABLE])
            return facts.with_findings(after=[finding])
        return facts

    def check_sealed(self, seal: Seal) -> None:
        """Raise unless verdict, report and model of a window are those that were sealed."""
        run = self.run(seal.run_id)
        read_facts(run, (seal.facts_sha256,))
        read_sealed_report(run, seal)

    def run(self, run_id: str) -> WindowRun:
        """Return a run by its id."""
        return WindowRun(self.client, run_id)

    def claim(self, name: str, value: str) -> str:
        """Claim a name for a value in the model's ledger; return the value that holds."""
        return Ledger.open(self.client, self.model).claim(name, value)


PURGED = "purged."
"""Claim by run: the digest of the facts without the rows that were purged from them."""
VERDICT, CLUSTERS, REPORT, PLOTS = "verdict.json", "clusters.json", "report.html", "plots"


def first_facts(
    monitor: Monitor,
    interval: Interval,
    key: str,
    champion_version: str = "",
    window: Window | None = None,
) -> WindowFacts:
    """Return the facts of a window that is not judged yet, and may not have been read."""
    return WindowFacts(
        key=key,
        monitor=monitor.name,
        model=monitor.model.name,
        champion_version=champion_version,
        window_start=interval.start,
        window_end=interval.end,
        verdict=Verdict.unassessed(Code.UNFINISHED),
        headline="This window was not judged to the end.",
        rows=window.rows if window else 0,
        sampled=len(window.sample) if window else 0,
        copies=window.copies if window else 0,
        digest=window.digest if window else "",
    )


def is_assessed(run: RunSummary) -> bool:
    """Return whether a run came to a verdict on its window."""
    return Verdict.of(run.verdict).is_assessed


def open_window_run(
    registry: ModelRegistry, monitor: Monitor, interval: Interval, facts: WindowFacts
) -> WindowRun:
    """Open the run of a window: the one it has, or one more that names the run before it.

    A window that could not be assessed keeps its run when it is tried again. Rows that came late,
    another champion or other settings make another run, which points at the one before.
    """
    runs = registry.runs.find(monitor=monitor.name, window=interval.id)
    sealed = registry.ledger.claims(is_valid_seal)
    unassessed = [
        run for run in runs if not is_assessed(run) and find_seal(sealed, run.run_id) is None
    ]
    if unassessed and facts.key not in [run.key for run in runs]:
        again = registry.run(unassessed[0].run_id)
        again.set_tags({tags.KEY: facts.key})
        # An alert that the window could not be judged does not say what it holds, and what a
        # judgement against another champion left behind is not part of the next one.
        again.drop_tags((*tags.OF_ALERTS, *tags.OF_JUDGEMENT))
    before = [run for run in runs if is_assessed(run) and run.key != facts.key]
    named = {
        "mlflow.runName": f"{monitor.name} {interval}",
        tags.MONITOR: monitor.name,
        tags.WINDOW: interval.id,
        tags.WINDOW_START: interval.start.isoformat(),
        tags.WINDOW_END: interval.end.isoformat(),
        tags.CHAMPION_VERSION: facts.champion_version,
        tags.TRY: str(1 + max((run.tried for run in runs), default=0)),
    }
    if before:
        named[tags.RERUN_OF] = max(before, key=lambda run: run.age).run_id
    run = registry.runs.open(facts.key, named)
    # A run that is tried again may have been created before there was a champion. A process that
    # was held up in between may find that another one has completed it.
    for begin in (partial(run.set_tags, named), run.reopen):
        if run.is_complete:
            return run
        begin()
    # Last, so that of two processes that open it at once the one that took over last goes on.
    return run if run.is_complete else run.take_over()


def write_facts(run: WindowRun, facts: WindowFacts) -> None:
    """Write the facts as metrics, as tags, and as the file that they are read back from."""
    run.log_metrics(facts.metrics())
    run.write_text(VERDICT, facts_text(facts))
    if facts.clusters:
        run.write_json(CLUSTERS, [card.model_dump(mode="json") for card in facts.clusters])
    # MLflow shows a tag of this name as the run's description.
    run.set_tags(
        {"mlflow.note.content": markdown(facts.headline, 400), tags.VERDICT: facts.verdict}
    )


def facts_text(facts: WindowFacts) -> str:
    """Return the file that facts are kept in."""
    return json.dumps(facts.model_dump(mode="json"), ensure_ascii=False, indent=2, allow_nan=False)


def facts_digest(facts: WindowFacts) -> str:
    """Return the SHA-256 of the file that facts are kept in."""
    return sha256(facts_text(facts).encode("utf-8", "replace")).hexdigest()


def read_facts(run: WindowRun, digests: Collection[str] = ()) -> WindowFacts:
    """Read the facts of a run back; if digests are given, the file must have one of them."""
    if not run.has(VERDICT):
        raise ServiceError(
            f"The run {run.run_id} has no {VERDICT}, so what its window showed is lost. "
            "Restore the run's artifacts, or run the window again.",
            code=Code.ARTIFACT_MISSING,
        )
    with TemporaryDirectory() as folder:
        content = run.download(VERDICT, folder).read_bytes()
    if digests and sha256(content).hexdigest() not in digests:
        raise ServiceError(
            f"The file {VERDICT} of the run {run.run_id} is not the one that was sealed when the "
            "window was judged: it was changed. Do not decide on it. Run the window again, and "
            "find out who writes to the run.",
            code=Code.DIGEST_MISMATCH,
        )
    return WindowFacts.model_validate_json(content)


def read_sealed_report(run: WindowRun, seal: Seal) -> bytes:
    """Return the report of a window; refuse one that is not the one that was sealed."""
    if not seal.report_sha256:
        return b""
    with TemporaryDirectory() as folder:
        page = run.download(REPORT, folder).read_bytes()
    if sha256(page).hexdigest() != seal.report_sha256:
        raise ServiceError(
            f"The report of run {run.run_id} is not the one that was written with the verdict: "
            "the file was changed. Do not decide on it; run the window again.",
            code=Code.DIGEST_MISMATCH,
        )
    return page


def add_finding(run: WindowRun, facts: WindowFacts, finding: Finding) -> WindowFacts:
    """Write a finding that came up after the verdict, unless the facts have it already."""
    if finding in facts.findings:
        return facts
    facts = facts.with_findings(after=[finding])
    write_facts(run, facts)
    return facts


def find_report(monitor: Monitor, run_id: str) -> str:
    """Return the report of a run: a web address, or a path; empty if there is none."""
    run = ModelRegistry.connect(monitor.model).run(run_id)
    return find_links(run).report if run.has(REPORT) else ""


def find_links(run: WindowRun, model: str = "", version: str | None = None) -> RunLinks:
    """Return where a run, its report and its version are; without a server, the report's path."""
    links = run.links(model, version)
    return links if links.run else RunLinks(report=run.address(REPORT).removeprefix("file://"))


def save_report(monitor: Monitor, run_id: str, folder: Path) -> Path:
    """Download the report of a run into a local folder.

    Parameters
    ----------
    monitor : Monitor
        The monitor that judged the window.
    run_id : str
        The window's MLflow run, as in `Outcome.run_id`.
    folder : Path
        Where to write the file; must exist.

    Returns
    -------
    Path
        The HTML file.
    """
    return ModelRegistry.connect(monitor.model).run(run_id).download(REPORT, folder)
