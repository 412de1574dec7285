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

WINDOW_SHARE = 0.7
"""A window's size as a share of the half that it is taken from; the rest is compared with it."""

MIN_WINDOW = 30

MIN_HIDDEN = 5
"""Fewer hidden rows are found or missed by chance."""

NAMED_CLASSES = 20


Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Trial:
    """Places of rows: what is trained on, the window, and known rows that are in neither."""

    training: Places
    window: Places
    others: Places


@dataclass(frozen=True, slots=True)
class Case:
    """Labelled rows with some classes hidden, as two trials of which the second is clean.

    `codes` has the class of every row, a place in `known` or `UNKNOWN` for hidden classes.
    Each half of the known rows is trained on in one trial, and makes the window of the other: so
    both windows, which share no row and have the same size, are as large as the rows allow.
    """

    hidden: tuple[Any, ...]
    known: tuple[Any, ...]
    seed: int
    codes: Places
    trial: Trial
    clean: Trial
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return name_classes(self.hidden)

    @property
    def truth(self) -> Places:
        """The codes of the window's rows."""
        return self.codes[self.trial.window]


def hide_classes(
    labels: NDArray[Any], hidden: Sequence[Any], *, rate: float, seed: int = 0
) -> Case:
    """Hide classes: the window has them at this rate, the training data has none of them."""
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
    of_hidden = rng.permutation(np.flatnonzero(codes == UNKNOWN))
    first, second = _halve_each_class(np.flatnonzero(codes != UNKNOWN), place, rng)
    possible = int(WINDOW_SHARE * len(second))
    size = min(possible, int(len(of_hidden) / rate))
    n_hidden = round(rate * size)
    if size < MIN_WINDOW or n_hidden < MIN_HIDDEN:
        raise _too_few_rows(hidden, rate, (size, n_hidden), (possible, len(of_hidden)))
    notes = []
    if size < possible:
        notes.append(
            f"Only {len(of_hidden)} rows are {name_classes(hidden)}, so the window has {size} rows "
            f"where the other classes would allow {possible}."
        )
    n_known = size - n_hidden
    window = rng.permutation(np.concatenate([second[:n_known], of_hidden[:n_hidden]]))
    return Case(
        hidden=tuple(hidden),
        known=tuple(classes[~is_hidden].tolist()),
        seed=seed,
        codes=codes,
        trial=Trial(first, window, second[n_known:]),
        clean=Trial(second, first[:size], first[size:]),
        notes=tuple(notes),
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
    if len(found) > 1:
        raise InputError(
            f"The class {text!r} could be {name_classes(found)}. Write it exactly as one of them.",
            code="unknown_class",
        )
    if not found:
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


def _halve_each_class(
    rows: Places, place: Places, rng: np.random.Generator
) -> tuple[Places, Places]:
    """Return two halves of the rows in random order; the odd row of a class is in the first."""
    order = rng.permutation(rows)
    rank = pd.Series(place[order]).groupby(place[order]).cumcount().to_numpy()
    return order[rank % 2 == 0], order[rank % 2 == 1]


def _too_few_rows(
    hidden: Sequence[Any], rate: float, planned: tuple[int, int], there: tuple[int, int]
) -> InputError:
    (size, n_hidden), (possible, of_hidden) = planned, there
    return InputError(
        f"There are {of_hidden} rows of {name_classes(hidden)}, and enough of other classes for a "
        f"window of {possible} rows. At a rate of {percent(rate)} this makes a window of {size}, "
        f"{n_hidden} of them hidden; at least {MIN_WINDOW}, {MIN_HIDDEN} of them hidden, tell "
        "something. Hide a class with more rows, or change the rate.",
        code="too_few_rows",
    )
