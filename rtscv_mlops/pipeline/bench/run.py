"""Would it have been found? A known class hidden from the champion's data, and who finds it.

The champion's training rows and its recipe are read; nothing is written anywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from rtscv_mlops import registry
from rtscv_mlops.assess import Known, sample_known
from rtscv_mlops.config import Monitor
from rtscv_mlops.errors import InputError
from rtscv_mlops.peers import PEERS, Peer
from rtscv_mlops.pipeline.bench.hiding import (
    Case,
    check_rate,
    find_class,
    hide_classes,
    name_classes,
)
from rtscv_mlops.pipeline.bench.judging import Record, judge
from rtscv_mlops.pipeline.bench.summary import MONITOR, Bench, Row, summarize
from rtscv_mlops.pipeline.bench.tuned import tune
from rtscv_mlops.pipeline.training import BOOLEANS, find_training
from rtscv_mlops.rectify.rows import MAX_CATEGORIES
from rtscv_mlops.review import counted

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
    client = registry.connect(monitor.model)
    champion = registry.load_champion(client, monitor.model)
    training = find_training(monitor, client, champion)
    known = training.known
    if BOOLEANS in training.findings:  # The words of whoever labelled them, not our numbers.
        known = replace(known, labels=known.labels.astype(bool))
    estimator = registry.as_estimator(champion, monitor.model.fit)
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
            code="unknown_detector",
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
            code="too_few_classes",
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
        raise InputError(f"No class can be hidden. {skipped[0]}", code="too_few_rows")
    return cases, skipped


def _check_any_ran(rows: Sequence[Row]) -> None:
    """Refuse to show a table without a figure, which scripts would take for an answer."""
    if rows and not any(row.judged for row in rows):
        reasons = dict.fromkeys(f"{row.title}: {row.problem.rstrip('.')}." for row in rows)
        raise InputError(
            f"No detector could run on this data. {' '.join(reasons)}", code="nothing_ran"
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
