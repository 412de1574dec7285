"""What hiding classes showed: one line for each detector, and what the table comes to in words.

Knows records; knows nothing of how they came about, or of where they are shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rtscv_mlops.peers import Peer
from rtscv_mlops.pipeline.bench.hiding import Case
from rtscv_mlops.pipeline.bench.judging import Record
from rtscv_mlops.review import percent

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
