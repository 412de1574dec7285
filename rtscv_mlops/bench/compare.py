"""The comparison: every detector on the same cases, one summary each, and what follows from it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from rtscv_mlops.bench.catalogue import DETECTORS, Entry
from rtscv_mlops.bench.ours import MonitorDetector
from rtscv_mlops.bench.trials import Case, Record, check_rate, hide_classes, judge
from rtscv_mlops.config.monitor import Monitor, RectifySettings
from rtscv_mlops.errors import Code, InputError
from rtscv_mlops.estimator.rows import MAX_CATEGORIES
from rtscv_mlops.judging.describe import sample_known
from rtscv_mlops.judging.judge import make_classifier
from rtscv_mlops.judging.reference import find_training
from rtscv_mlops.models.load import as_estimator, load_champion
from rtscv_mlops.models.training import find_class, name_classes
from rtscv_mlops.text import counted, percent
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.window import LabelledRows

MONITOR = "monitor"
"""The detector that gives a monitor its verdict."""

FIGURES = ("recall", "precision", "known_lost", "auroc", "macro_f", "seconds")

COMPARED = {"macro_f": "F", "recall": "recall", "precision": "precision", "auroc": "AUROC"}
"""Figures on which another detector may beat the monitor, and their names in a sentence."""

PRICE = {"recall": ("known_lost", "known lost"), "precision": ("recall", "recall")}
"""Figures that are easily raised at the expense of another one, which is then given too."""

LIMITS = (
    "What this cannot show: larger windows, as in deployment, make detection easier. But here the "
    "hidden class was collected and labelled with the others, nothing drifted, and real unknown "
    "rows may lie closer to a known class."
)

READERS = "; ".join(
    DETECTORS[name].title for name in ("pre_rectified", "paper_mode", "msp", "energy")
)
"""Detectors that see rows only through the base model."""

StartStep = Callable[[str], None]
"""Called with the description of a step before it starts."""


# -- what a comparison shows


@dataclass(frozen=True, slots=True)
class Summary:
    """One detector over all cases: how often it was right, and its mean figures.

    `judged` counts the cases that it could run on, `failed` the others; `problem` is the reason.
    """

    detector: str
    title: str
    kind: str
    judged: int
    failed: int
    found: int
    quiet: int
    recall: float | None
    precision: float | None
    known_lost: float | None
    auroc: float | None
    macro_f: float | None
    seconds: float | None
    problem: str = ""

    @classmethod
    def of(cls, entry: Entry, records: Sequence[Record]) -> Self:
        """Summarize the records of one detector."""
        own = [record for record in records if record.detector == entry.name]
        judged = [record for record in own if not record.problem]
        failed = [record for record in own if record.problem]
        defined = {
            figure: [value for record in judged if (value := getattr(record, figure)) is not None]
            for figure in FIGURES
        }
        return cls(
            detector=entry.name,
            title=entry.title,
            kind=entry.kind,
            judged=len(judged),
            failed=len(failed),
            found=sum(record.found is True for record in judged),
            quiet=sum(record.quiet is True for record in judged),
            **{
                name: float(np.mean(values)) if values else None for name, values in defined.items()
            },
            problem=failed[0].problem if failed else "",
        )

    def value(self, figure: str) -> float:
        """Return a figure; one that is not defined, the precision of no flags, is as bad as 0."""
        value = getattr(self, figure)
        return 0.0 if value is None else float(value)

    def lead_over(self, monitor: "Summary", figure: str) -> str:
        """Return by how much, and at what price, this detector beats the monitor on a figure."""
        ours, theirs = monitor.value(figure), self.value(figure)
        # What the table shows as equal is reported as equal.
        if round(theirs, 2) <= round(ours, 2):
            return ""
        lead = f"{COMPARED[figure]} {theirs:.2f} by {self.title}"
        if figure not in PRICE:
            return f"{lead} (monitor {ours:.2f})"
        # A detector that flags every row finds all hidden ones.
        price, name = PRICE[figure]
        return (
            f"{lead} with {name} {self.value(price):.2f} "
            f"(monitor {ours:.2f} with {monitor.value(price):.2f})"
        )


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All records of a comparison, and a summary of each detector, the best one first."""

    data: str
    rate: float
    cases: tuple[Case, ...]
    summaries: tuple[Summary, ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]

    @property
    def window_rows(self) -> str:
        """The size of a window: one number unless sizes differ by more than a tenth."""
        sizes = [len(case.truth) for case in self.cases]
        low, high = min(sizes), max(sizes)
        return f"{low} to {high}" if low < 0.9 * high else str(sizes[0])

    @property
    def title(self) -> str:
        """The data, the cases and the rate, in a line."""
        case = self.cases[0]
        if len(self.cases) > 1:
            about = "" if " to " in self.window_rows else "about "
            cases = f"{len(self.cases)} cases, windows of {about}{self.window_rows} rows"
        else:
            cases = f"{case.name} hidden, a window of {len(case.truth)} rows"
        return f"{self.data}: {cases}, {percent(self.rate)} of them hidden"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the table shows, in sentences."""
        monitor = next((one for one in self.summaries if one.detector == MONITOR), None)
        if monitor is None:
            return (LIMITS,)
        if not monitor.judged:
            return (f"The monitor could not judge this data: {monitor.problem}", LIMITS)
        return (self._describe(monitor), self._compare_with(monitor), LIMITS)

    def _describe(self, monitor: Summary) -> str:
        window = f"at {percent(self.rate)} of a window of {self.window_rows} rows"
        if len(self.cases) == 1:
            found = "would have found" if monitor.found else "would not have found"
            quiet = "was quiet" if monitor.quiet else "raised a false alarm"
            return (
                f"The monitor {found} {self.cases[0].name} {window}, and {quiet} on the clean "
                "window."
            )
        text = (
            f"The monitor would have found what was hidden {window} in {monitor.found} of "
            f"{monitor.judged} cases, and was quiet on {monitor.quiet} of {monitor.judged} clean "
            "windows."
        )
        if monitor.failed:
            cases = counted(monitor.failed, "further case")
            text += f" It could not judge {cases}: {monitor.problem}"
        return text

    def _compare_with(self, monitor: Summary) -> str:
        """Return which detector did best on what, if that is not the monitor."""
        tried = [one for one in self.summaries if one.detector != MONITOR]
        others = [one for one in tried if one.judged]
        if not others:
            return "No other detector could run." if tried else "No other detector was tried."
        leads = []
        finders = [
            one.title for one in others if one.found * monitor.judged > monitor.found * one.judged
        ]
        if finders:
            leads.append(f"found more often by {', '.join(finders)}")
        for figure in COMPARED:
            best = max(others, key=lambda one: one.value(figure))
            leads += filter(None, [best.lead_over(monitor, figure)])
        if leads:
            return f"Others did better on some: {'; '.join(leads)}."
        return f"No other detector found it more often, or had more {', '.join(COMPARED.values())}."

    def as_json(self) -> dict[str, Any]:
        """Return everything with values that JSON can hold."""
        return {
            "what": self.data,
            "rate": self.rate,
            "notes": list(self.notes),
            "summary": [asdict(summary) for summary in self.summaries],
            "sentences": list(self.sentences),
            "records": [record.as_json() for record in self.records],
        }


# -- from a monitor to rows


class TunedMonitor(MonitorDetector):
    """RTSCV with the settings of a monitor file; the seed is that of the case."""

    def __init__(self, estimator: Any, random_state: int, *, settings: RectifySettings) -> None:
        super().__init__(estimator, random_state)
        self.settings = settings

    def _rectify(self, X: Any, y: NDArray[Any], window: Any) -> None:
        model = make_classifier(self.estimator, self.settings, seed=self.random_state)
        self.model_ = model.fit(X, y, window)
        self.window_scores_ = self.model_.window_scores_


@dataclass(frozen=True, slots=True)
class BenchData:
    """Labelled rows, and the unfitted estimator."""

    name: str
    known: LabelledRows
    estimator: Any
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> list[Any]:
        return list(np.unique(self.known.labels).tolist())

    @classmethod
    def sample(cls, name: str, known: LabelledRows, estimator: Any, max_rows: int) -> Self:
        """Sample the known rows, and note what limits the detectors on them."""
        sampled = sample_known(known, max_rows, seed=0)
        features = sampled.features
        notes = []
        if len(sampled) < len(known):
            notes.append(
                f"{len(sampled):,} of {len(known):,} labelled rows take part; "
                "--max-rows lets more in."
            )
        # Text that mostly does not repeat gets no indicator columns.
        texts = [
            str(column)
            for column in features.columns
            if not is_numeric_dtype(features[column])
            and not is_datetime64_any_dtype(features[column])
            and features[column].astype(str).nunique() > max(MAX_CATEGORIES, len(features) / 2)
        ]
        if texts:
            more = f" like {counted(len(texts) - 1, 'other column')}" if len(texts) > 1 else ""
            notes.append(
                f"{texts[0]!r} is free text{more}, and most detectors turn it into almost no "
                f"numbers. Only those that ask the model itself can read it: {READERS}. The "
                "monitor does so with gate: estimator."
            )
        return cls(name, sampled, estimator, tuple(notes))


def load_data(monitor: Monitor, max_rows: int) -> BenchData:
    """Return the champion's training data, and the unfitted estimator that a run refits."""
    client = connect(monitor.model)
    champion = load_champion(client, monitor.model)
    training = find_training(monitor, client, champion)
    known = training.known
    if training.had_boolean_labels:  # Show true and false, not the numbers that replace them.
        known = replace(known, labels=known.labels.astype(bool))
    name = f"{champion.name} version {champion.version}"
    return BenchData.sample(name, known, as_estimator(champion, monitor.model.fit), max_rows)


def load_digits(max_rows: int) -> BenchData:
    """Return the digits that ship with scikit-learn, and a model of them."""
    from sklearn import datasets
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    images, labels = datasets.load_digits(return_X_y=True, as_frame=True)
    known = LabelledRows(images, labels.to_numpy(), as_rows=lambda table: table.to_numpy())
    estimator = make_pipeline(StandardScaler(), SVC())
    return BenchData.sample("handwritten digits", known, estimator, max_rows)


def run_bench(
    monitor: Monitor | None,
    hide: Sequence[str] = (),
    *,
    detectors: Sequence[str] = (),
    rate: float,
    seeds: int,
    max_rows: int,
    progress: Callable[[int], StartStep] | None = None,
) -> BenchResult:
    """Hide classes of a monitor's champion, or of handwritten digits, and judge each detector.

    The classes in `hide` are hidden together; without any, each class is hidden in turn.
    `progress` is called once with the number of steps; what it returns is called before each step.
    More than `max_rows` labelled rows are sampled, because some detectors compare all pairs.
    """
    check_rate(rate)
    unknown = [name for name in detectors if name not in DETECTORS]
    if unknown:
        raise InputError(
            f"There is no detector {', '.join(map(repr, unknown))}. Choose among "
            f"{', '.join(DETECTORS)}.",
            code=Code.UNKNOWN_DETECTOR,
        )
    entries = {name: DETECTORS[name] for name in dict.fromkeys(detectors or DETECTORS)}
    if monitor is None:
        data = load_digits(max_rows)
    else:
        data = load_data(monitor, max_rows)
        if MONITOR in entries:
            make = partial(TunedMonitor, settings=monitor.rectify)
            entries[MONITOR] = replace(entries[MONITOR], make=make)
    hidden = list(dict.fromkeys(find_class(text, data.classes) for text in hide))
    return compare_detectors(
        data,
        [hidden] if hidden else None,
        list(entries.values()),
        rate=rate,
        seeds=seeds,
        progress=progress,
    )


# -- from rows to a table


def compare_detectors(
    data: BenchData,
    hidden: Sequence[Sequence[Any]] | None,
    detectors: Sequence[Entry],
    *,
    rate: float,
    seeds: int,
    progress: Callable[[int], StartStep] | None = None,
) -> BenchResult:
    """Judge each detector on the same cases; without `hidden`, each class is hidden in turn."""
    if len(data.classes) < 3:
        raise InputError(
            f"The training data has {len(data.classes)} classes: {name_classes(data.classes)}. "
            "With one of them hidden, fewer than two are left, and a model needs two. Use a model "
            "of three classes or more.",
            code=Code.TOO_FEW_CLASSES,
        )
    cases, skipped = _make_cases(data, hidden, rate, seeds)
    start_step = progress(len(cases) * len(detectors)) if progress else lambda step: None
    records, rows = [], data.known.rows()
    for case in cases:
        for entry in detectors:
            start_step(f"{case.name} hidden: {entry.title}")
            records.append(judge(entry, data.estimator, rows, case))
    summaries = [Summary.of(entry, records) for entry in detectors]
    # A script would take a table without a figure for a result.
    if summaries and not any(summary.judged for summary in summaries):
        reasons = dict.fromkeys(f"{one.title}: {one.problem.rstrip('.')}." for one in summaries)
        raise InputError(
            f"No detector could run on this data. {' '.join(reasons)}", code=Code.NOTHING_RAN
        )
    summaries.sort(key=lambda one: -1.0 if one.macro_f is None else one.macro_f, reverse=True)
    of_cases = (note for case in cases for note in case.notes)
    return BenchResult(
        data=data.name,
        rate=rate,
        cases=tuple(cases),
        summaries=tuple(summaries),
        records=tuple(records),
        notes=tuple(dict.fromkeys([*data.notes, *skipped, *of_cases])),
    )


def _make_cases(
    data: BenchData, hidden: Sequence[Sequence[Any]] | None, rate: float, seeds: int
) -> tuple[list[Case], list[str]]:
    """Return the cases, and why some classes could not be hidden in turn."""
    cases, skipped = [], []
    for classes in hidden or [[label] for label in data.classes]:
        try:
            cases += [
                hide_classes(data.known.labels, classes, rate=rate, seed=seed)
                for seed in range(seeds)
            ]
        except InputError as error:
            if hidden:
                raise
            skipped.append(f"{name_classes(classes)} could not be hidden. {error}")
    if not cases:
        raise InputError(f"No class can be hidden. {skipped[0]}", code=Code.TOO_FEW_ROWS)
    return cases, skipped
