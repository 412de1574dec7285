"""A class that a model knows, hidden: what its monitor would meet had it never been taught.

Knows labels and places of rows; knows nothing of detectors, models or registries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rtscv_mlops.errors import InputError
from rtscv_mlops.peers import UNKNOWN
from rtscv_mlops.review import percent

MIN_WINDOW = 50
"""A monitor does not assess fewer rows unless its `rectify.min_rows` is lowered."""

MIN_HIDDEN = 5
"""Fewer hidden rows are found or missed by chance."""

NAMED_CLASSES = 20


Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Case:
    """Labelled rows with some classes hidden. All arrays but `codes` are places of rows.

    `codes` has the class of every row, 0, 1, … for known classes and `UNKNOWN` for hidden ones.
    No row is both in `training` and in a window. `clean` is a window without hidden rows; its rows
    are others than those of `window`, unless `shares_rows`.
    """

    hidden: tuple[Any, ...]
    seed: int
    codes: Places
    training: Places
    window: Places
    clean: Places
    shares_rows: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return name_classes(self.hidden)

    @property
    def known_of_window(self) -> Places:
        is_known: NDArray[np.bool_] = self.codes[self.window] != UNKNOWN
        return self.window[is_known]


def hide_classes(
    labels: NDArray[Any], hidden: Sequence[Any], *, rate: float, seed: int = 0
) -> Case:
    """Hide classes: half of each class is held out, and makes a window and a clean window.

    Both windows have the same size, the largest that the held-out rows allow. Where they do not
    allow two windows of `MIN_WINDOW` rows, the clean window is the known rows of the other one.
    """
    check_rate(rate)
    classes, place = np.unique(labels, return_inverse=True)
    is_hidden = np.array([label in hidden for label in classes.tolist()])
    if (~is_hidden).sum() < 2:
        raise InputError(
            f"The training data has {len(classes)} classes, so hiding {name_classes(hidden)} "
            f"leaves {(~is_hidden).sum()}; a model needs two. Hide fewer classes, or use a model "
            "of more.",
            code="too_few_classes",
        )
    codes = np.where(is_hidden, UNKNOWN, np.cumsum(~is_hidden) - 1)[place]
    rng = np.random.default_rng(seed)
    training, held_out = _halve_each_class(place, rng)
    is_known = codes[held_out] != UNKNOWN
    of_known, of_hidden = held_out[is_known], held_out[~is_known]
    plan = _plan_windows(len(of_known), len(of_hidden), rate)
    if plan.size < MIN_WINDOW or plan.n_hidden < MIN_HIDDEN:
        raise _too_few_rows(hidden, rate, plan, len(of_known), len(of_hidden))
    known_of_window = of_known[: plan.n_known]
    clean = known_of_window if plan.shares_rows else of_known[plan.n_known :][: plan.size]
    return Case(
        hidden=tuple(hidden),
        seed=seed,
        codes=codes,
        training=training[codes[training] != UNKNOWN],
        window=rng.permutation(np.concatenate([known_of_window, of_hidden[: plan.n_hidden]])),
        clean=clean,
        shares_rows=plan.shares_rows,
        notes=tuple(_notes(hidden, plan, len(of_hidden))),
    )


def check_rate(rate: float) -> None:
    """Refuse a share of hidden rows that no window can have."""
    if not 0 < rate < 1:
        raise InputError(
            f"The rate is {rate:g}, but it is the hidden class's share of the window: more than 0 "
            "and less than 1. Write ten percent as 0.1.",
            code="bad_rate",
        )


def find_class(text: str, classes: Sequence[Any]) -> Any:
    """Return the class that a word of the command line means, whatever type its label has."""
    exact = [label for label in classes if str(label) == text]
    found = exact or [label for label in classes if _spelling(label) == _spelling(text)]
    if len(found) != 1:
        raise InputError(
            f"The model was not taught a class {text!r}. Its classes are {name_classes(classes)}.",
            code="unknown_class",
        )
    return found[0]


def name_classes(classes: Sequence[Any]) -> str:
    """Name classes in a sentence."""
    named = ", ".join(repr(label) for label in classes[:NAMED_CLASSES])
    more = len(classes) - NAMED_CLASSES
    return f"{named} and {more} more" if more > 0 else named


def _spelling(label: Any) -> float | str:
    """Return what makes two spellings equal: `3` and `3.0`, `Cat` and `cat`."""
    text = str(label).strip()
    try:
        return float(text)
    except ValueError:
        return text.casefold()


@dataclass(frozen=True, slots=True)
class _Plan:
    """How many rows each window gets; `possible` is the size if hidden rows were no limit."""

    size: int
    n_hidden: int
    possible: int
    shares_rows: bool

    @property
    def n_known(self) -> int:
        return self.size - self.n_hidden


def _plan_windows(n_known: int, n_hidden: int, rate: float) -> _Plan:
    apart, shared = int(n_known / (2 - rate)), int(n_known / (1 - rate))
    shares_rows = apart < MIN_WINDOW
    possible = shared if shares_rows else apart
    size = min(possible, int(n_hidden / rate))
    return _Plan(size, round(rate * size), possible, shares_rows)


def _halve_each_class(place: Places, rng: np.random.Generator) -> tuple[Places, Places]:
    """Return two halves of the rows in random order; the odd row of a class is in the first."""
    order = rng.permutation(len(place))
    rank = pd.Series(place[order]).groupby(place[order]).cumcount().to_numpy()
    return order[rank % 2 == 0], order[rank % 2 == 1]


def _notes(hidden: Sequence[Any], plan: _Plan, n_hidden: int) -> list[str]:
    notes = []
    if plan.size < plan.possible:
        notes.append(
            f"Only {n_hidden} held-out rows are {name_classes(hidden)}, so the window has "
            f"{plan.size} rows where the other classes would allow {plan.possible}."
        )
    if plan.shares_rows:
        notes.append(
            "There are too few rows for two windows, so the clean window is the known rows of the "
            "other one; whether a detector without a test of its own stays quiet cannot be told."
        )
    return notes


def _too_few_rows(
    hidden: Sequence[Any], rate: float, plan: _Plan, n_known: int, n_hidden: int
) -> InputError:
    return InputError(
        f"Half of the rows are held out: {n_hidden} of {name_classes(hidden)} and {n_known} of "
        f"other classes. At a rate of {percent(rate)} they make a window of {plan.size} rows, "
        f"{plan.n_hidden} of them hidden; at least {MIN_WINDOW}, {MIN_HIDDEN} of them hidden, "
        "tell something. Hide a class with more rows, or change the rate.",
        code="too_few_rows",
    )
