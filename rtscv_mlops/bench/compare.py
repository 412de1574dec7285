"""What hiding classes showed: one line for each detector, and what the table comes to in words.

Knows records; knows nothing of how they came about, or of where they are shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from rtscv_mlops.bench.catalogue import PEERS, Peer
from rtscv_mlops.bench.ours import MonitorDetector
from rtscv_mlops.bench.trials import Case, Record, check_rate, hide_classes, judge
from rtscv_mlops.config.monitor import Monitor, RectifySettings
from rtscv_mlops.errors import Code, InputError
from rtscv_mlops.estimator.classifier import RTSCVClassifier
from rtscv_mlops.estimator.rows import MAX_CATEGORIES
from rtscv_mlops.judging.describe import Known, sample_known
from rtscv_mlops.judging.reference import BOOLEANS, find_training
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.refit import as_estimator
from rtscv_mlops.models.training import find_class, name_classes
from rtscv_mlops.text import counted, percent
from rtscv_mlops.tracking.client import connect

MONITOR = "monitor"
"""The detector that a monitor's own verdict comes from."""

FIGURES = ("recall", "precision", "known_lost", "auroc", "macro_f", "seconds")

BETTER = {"macro_f": "F", "recall": "recall", "precision": "precision", "auroc": "AUROC"}
"""Figures on which a detector may be told to be better than the monitor, and how it is called."""

PRICE = {"recall": ("known_lost", "known lost"), "precision": ("recall", "recall")}
"""Figures that are cheap at the cost of another one, which is then told beside them."""

LIMITS = (
    "What this cannot show: windows in deployment may be larger, which finds more; but here the "
    "hidden class was collected and labelled with the others, nothing drifted, and what really "
    "comes may lie nearer to a known class."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One detector over all cases: how often it was right, and its mean figures.

    `judged` are the cases that it could run on, `failed` the others; `problem` says why.
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


@dataclass(frozen=True, slots=True)
class Bench:
    """What hiding classes showed."""

    what: str
    rate: float
    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]

    @property
    def window_rows(self) -> str:
        """How many rows a window has: one number unless they differ by more than a tenth."""
        sizes = [len(case.truth) for case in self.cases]
        low, high = min(sizes), max(sizes)
        return f"{low} to {high}" if low < 0.9 * high else str(sizes[0])

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the table comes to, in words."""
        return tuple(_conclude(self))

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "what": self.what,
            "rate": self.rate,
            "notes": list(self.notes),
            "summary": [asdict(row) for row in self.rows],
            "sentences": list(self.sentences),
            "records": [record.as_json() for record in self.records],
        }


def summarize(key: str, peer: Peer, records: Sequence[Record]) -> Row:
    """Return one detector's line of the table."""
    own = [record for record in records if record.detector == key]
    ran = [record for record in own if not record.problem]
    failed = [record for record in own if record.problem]
    return Row(
        detector=key,
        title=peer.title,
        kind=peer.kind,
        judged=len(ran),
        failed=len(failed),
        found=sum(record.found is True for record in ran),
        quiet=sum(record.quiet is True for record in ran),
        **{name: _mean([getattr(record, name) for record in ran]) for name in FIGURES},
        problem=failed[0].problem if failed else "",
    )


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def _conclude(done: Bench) -> Iterator[str]:
    ours = next((row for row in done.rows if row.detector == MONITOR), None)
    if ours is not None and ours.judged:
        yield _monitor_words(done, ours)
        yield _peer_words(done.rows, ours)
    elif ours is not None:
        yield f"The monitor could not judge this data: {ours.problem}"
    yield LIMITS


def _monitor_words(done: Bench, ours: Row) -> str:
    where = f"at {percent(done.rate)} of a window of {done.window_rows} rows"
    if len(done.cases) == 1:
        name = done.cases[0].name
        heard = "would have found" if ours.found else "would not have found"
        calm = "was quiet" if ours.quiet else "raised a false alarm"
        return f"The monitor {heard} {name} {where}, and {calm} on the clean window."
    return (
        f"The monitor would have found what was hidden {where} in {ours.found} of {ours.judged} "
        f"cases, and was quiet on {ours.quiet} of {ours.judged} clean windows."
        f"{_unjudged(ours)}"
    )


def _unjudged(ours: Row) -> str:
    if not ours.failed:
        return ""
    cases = "case" if ours.failed == 1 else "cases"
    return f" It could not judge {ours.failed} further {cases}: {ours.problem}"


def _peer_words(rows: Sequence[Row], ours: Row) -> str:
    """Say which detector did best on what, where that is not the monitor."""
    tried = [row for row in rows if row.detector != MONITOR]
    others = [row for row in tried if row.judged]
    if not others:
        return "No other detector could run." if tried else "No other detector was tried."
    told = list(filter(None, (_best(others, ours, figure) for figure in BETTER)))
    finders = [row.title for row in others if row.found * ours.judged > ours.found * row.judged]
    if finders:
        told.insert(0, f"found more often by {', '.join(finders)}")
    if not told:
        return f"No other detector found it more often, or had more {', '.join(BETTER.values())}."
    return f"Others did better on some: {'; '.join(told)}."


def _best(others: Sequence[Row], ours: Row, figure: str) -> str:
    best = max(others, key=lambda row: _value(row, figure))
    mine, theirs = _value(ours, figure), _value(best, figure)
    # What the table shows as equal is told as equal.
    if round(theirs, 2) <= round(mine, 2):
        return ""
    return f"{BETTER[figure]} {theirs:.2f} by {best.title}{_price(best, ours, figure)}"


def _price(best: Row, ours: Row, figure: str) -> str:
    """Say what a figure was paid with: who flags every row has all hidden ones."""
    if figure not in PRICE:
        return f" (monitor {_value(ours, figure):.2f})"
    name, said = PRICE[figure]
    return (
        f" with {said} {_value(best, name):.2f} "
        f"(monitor {_value(ours, figure):.2f} with {_value(ours, name):.2f})"
    )


def _value(row: Row, figure: str) -> float:
    """Return a figure; one that is not defined, the precision of no flags, is as bad as 0."""
    value = getattr(row, figure)
    return 0.0 if value is None else float(value)


class TunedMonitor(MonitorDetector):
    """RTSCV as a monitor file says that it is to run; the seed is that of the case."""

    def __init__(self, estimator: Any, random_state: int, *, settings: RectifySettings) -> None:
        super().__init__(estimator, random_state)
        self.settings = settings

    def _rectify(self, X: Any, y: NDArray[Any], window: Any) -> None:
        self.model_ = RTSCVClassifier(
            self.estimator,
            sample_rate=self.settings.sample_rate,
            cv=self.settings.cv,
            alpha=self.settings.alpha,
            gate=self.settings.gate,
            random_state=self.random_state,
        ).fit(X, y, window)
        self.window_scores_ = self.model_.window_scores_


def tune(peer: Peer, settings: RectifySettings) -> Peer:
    """Return the monitor's entry with settings of its own."""
    return replace(peer, make=partial(TunedMonitor, settings=settings))


Tell = Callable[[str], None]

READERS = "; ".join(PEERS[key].title for key in ("pre_rectified", "paper_mode", "msp", "energy"))
"""Detectors that look at rows through the base model only."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labelled rows as the estimator takes them, and the unfitted estimator."""

    what: str
    rows: Any
    labels: NDArray[Any]
    estimator: Any
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> list[Any]:
        return list(np.unique(self.labels).tolist())


# -- from a monitor to rows


def run_bench(
    monitor: Monitor | None,
    hide: Sequence[str] = (),
    *,
    detectors: Sequence[str] = (),
    rate: float,
    seeds: int,
    max_rows: int,
    tell: Callable[[int], Tell] | None = None,
) -> Bench:
    """Hide classes of a monitor's champion, or of handwritten digits, and judge each detector.

    The classes in `hide` are hidden together; without any, each class is hidden in turn. `tell` is
    called with the number of steps, and returns what is called before each. More than `max_rows`
    labelled rows are sampled, since some detectors compare every row with every other.
    """
    check_rate(rate)
    peers = choose_peers(detectors)
    if monitor is None:
        data = digits(max_rows)
    else:
        data = load_labelled(monitor, max_rows)
        if MONITOR in peers:
            peers[MONITOR] = tune(peers[MONITOR], monitor.rectify)
    chosen = list(dict.fromkeys(find_class(text, data.classes) for text in hide))
    return bench(data, [chosen] if chosen else None, peers, rate=rate, seeds=seeds, tell=tell)


def load_labelled(monitor: Monitor, max_rows: int) -> Labelled:
    """Return what the champion was fitted on, and the recipe that a run refits."""
    client = connect(monitor.model)
    champion = load_champion(client, monitor.model)
    training = find_training(monitor, client, champion)
    known = training.known
    if BOOLEANS in training.findings:  # The words of whoever labelled them, not our numbers.
        known = replace(known, labels=known.labels.astype(bool))
    estimator = as_estimator(champion, monitor.model.fit)
    what = f"{champion.name} version {champion.version}"
    return _sample(what, known, estimator, max_rows)


def digits(max_rows: int) -> Labelled:
    """Return the digits that ship with scikit-learn, and a model of them."""
    from sklearn.datasets import load_digits
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    images, labels = load_digits(return_X_y=True, as_frame=True)
    known = Known(images, labels.to_numpy(), lambda frame: frame.to_numpy())
    return _sample("handwritten digits", known, make_pipeline(StandardScaler(), SVC()), max_rows)


def _sample(what: str, known: Known, estimator: Any, max_rows: int) -> Labelled:
    some = sample_known(known, max_rows, seed=0)
    notes = []
    if len(some.labels) < len(known.labels):
        notes.append(
            f"{len(some.labels):,} of {len(known.labels):,} labelled rows take part; --max-rows "
            "lets more in."
        )
    if texts := _free_texts(some.features):
        notes.append(
            f"{texts[0]!r} is free text{_and_more(texts)}, of which numbers hold next to nothing. "
            f"Only detectors that ask the model itself can read it: {READERS}. The monitor does so "
            "with gate: estimator."
        )
    return Labelled(what, some.rows(), some.labels, estimator, tuple(notes))


def _free_texts(features: pd.DataFrame) -> list[str]:
    """Return the columns of words of which most are like no other, and have no indicator."""
    texts = [name for name in features.columns if not is_numeric_dtype(features[name])]
    return [
        str(name)
        for name in texts
        if not is_datetime64_any_dtype(features[name])
        and features[name].astype(str).nunique() > max(MAX_CATEGORIES, len(features) / 2)
    ]


def _and_more(texts: Sequence[str]) -> str:
    return f" like {counted(len(texts) - 1, 'other column')}" if len(texts) > 1 else ""


def choose_peers(keys: Sequence[str]) -> dict[str, Peer]:
    """Return the detectors of these keys, or all of them."""
    strangers = [key for key in keys if key not in PEERS]
    if strangers:
        raise InputError(
            f"There is no detector {', '.join(map(repr, strangers))}. Choose among "
            f"{', '.join(PEERS)}.",
            code=Code.UNKNOWN_DETECTOR,
        )
    return {key: PEERS[key] for key in dict.fromkeys(keys or PEERS)}


# -- from rows to a table


def bench(
    data: Labelled,
    hidden: Sequence[Sequence[Any]] | None,
    peers: dict[str, Peer],
    *,
    rate: float,
    seeds: int,
    tell: Callable[[int], Tell] | None = None,
) -> Bench:
    """Judge each detector on the same cases; without `hidden`, each class is hidden in turn."""
    if len(data.classes) < 3:
        raise InputError(
            f"The training data has {len(data.classes)} classes: {name_classes(data.classes)}. "
            "With one hidden fewer than two are left, so there is nothing to try; use a model of "
            "three classes or more.",
            code=Code.TOO_FEW_CLASSES,
        )
    cases, skipped = _make_cases(data, hidden, rate, seeds)
    step = tell(len(cases) * len(peers)) if tell else _tell_nobody
    records = tuple(_judge_all(data, cases, peers, step))
    rows = [summarize(key, peer, records) for key, peer in peers.items()]
    _check_any_ran(rows)
    said = (note for case in cases for note in case.notes)
    return Bench(
        what=data.what,
        rate=rate,
        cases=tuple(cases),
        rows=tuple(
            sorted(rows, key=lambda row: -1.0 if row.macro_f is None else row.macro_f, reverse=True)
        ),
        records=records,
        notes=tuple(dict.fromkeys([*data.notes, *skipped, *said])),
    )


def _make_cases(
    data: Labelled, hidden: Sequence[Sequence[Any]] | None, rate: float, seeds: int
) -> tuple[list[Case], list[str]]:
    """Return the cases, and why some classes could not be hidden in their turn."""
    cases, skipped = [], []
    for classes in hidden or [[label] for label in data.classes]:
        try:
            cases += [hide_classes(data.labels, classes, rate=rate, seed=s) for s in range(seeds)]
        except InputError as error:
            if hidden:
                raise
            skipped.append(f"{name_classes(classes)} could not be hidden. {error}")
    if not cases:
        raise InputError(f"No class can be hidden. {skipped[0]}", code=Code.TOO_FEW_ROWS)
    return cases, skipped


def _check_any_ran(rows: Sequence[Row]) -> None:
    """Refuse to show a table without a figure, which scripts would take for an answer."""
    if rows and not any(row.judged for row in rows):
        reasons = dict.fromkeys(f"{row.title}: {row.problem.rstrip('.')}." for row in rows)
        raise InputError(
            f"No detector could run on this data. {' '.join(reasons)}", code=Code.NOTHING_RAN
        )


def _judge_all(
    data: Labelled, cases: list[Case], peers: dict[str, Peer], tell: Tell
) -> Iterator[Record]:
    for case in cases:
        for key, peer in peers.items():
            tell(f"{case.name} hidden: {peer.title}")
            yield judge(key, peer, data.estimator, data.rows, case)


def _tell_nobody(_: str) -> None:
    """Take the place of a progress bar."""
