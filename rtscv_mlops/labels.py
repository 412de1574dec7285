"""What the facts are called, and the cells that several surfaces show.

Report, description, page, alert and console take their labels and cells from here: one fact has
one name and the same digits wherever it appears. Names that come from data are returned as they
are; each surface escapes them for its own markup.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

from rtscv_mlops.facts import ClassComparison, ClusterCard, Comparison, DriftFacts, TellingFeature
from rtscv_mlops.text import NOT_KNOWN, number, percent

LEAST_CHANGE = 0.0005
"""Recalls that differ by less are the same: one decimal would not show it."""


class Label(StrEnum):
    """The name of a fact about a window."""

    VERDICT = "Verdict"
    MONITOR = "Monitor"
    MODEL = "Model"
    WINDOW = "Window"
    ROWS = "Rows in the window"
    SAMPLED = "Rows sampled"
    UNKNOWN_RATE = "Unknown rate"
    UNKNOWNS = "Unknown rows"
    P_VALUE = "Chance if nothing were new"
    FALSE_RATE = "Known rows called unknown"
    DRIFT = "Columns moved"
    ACCURACY = "Accuracy on known rows"
    COMPARED_WITH = "Compared with"

    # Sections
    GROUPS = "What is new"
    COMPARISON = "Champion against challenger"
    FINDINGS = "What to know"

    # Columns of tables
    FEATURE = "What tells them apart"
    HERE = "Here"
    NEAREST = "Nearest known"
    DIFFERENCE = "Difference"
    COLUMN = "Column"
    SCORE = "Score"
    THRESHOLD = "Threshold"
    CLASS = "Class"
    CLASS_ROWS = "Rows"
    CHAMPION = "Champion finds"
    CHALLENGER = "Challenger finds"
    CHANGE = "Change"
    CALLED_UNKNOWN = "Called unknown"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The cells of one known class in the comparison of champion and challenger."""

    known: ClassComparison

    @property
    def rows(self) -> str:
        return f"{self.known.rows:,}"

    @property
    def champion(self) -> str:
        return percent(self.known.champion)

    @property
    def challenger(self) -> str:
        return percent(self.known.challenger)

    @property
    def change(self) -> str:
        if not isfinite(self.known.loss):
            return NOT_KNOWN
        if abs(self.known.loss) < LEAST_CHANGE:
            return "same"
        return f"{-100 * self.known.loss:+.1f} points"

    @property
    def unknown(self) -> str:
        return percent(self.known.unknown)

    @property
    def is_worse(self) -> bool:
        return isfinite(self.known.loss) and self.known.loss > LEAST_CHANGE


def class_rows(comparison: Comparison) -> list[ClassRow]:
    """Return the known classes, those that lose most first.

    Classes that lose the same come in the order of what the challenger finds of them, the least
    first. A class without held-out rows has lost nothing that is known, and comes last.
    """

    def order(known: ClassComparison) -> tuple[float, float, str]:
        loss = -known.loss if isfinite(known.loss) else inf
        return loss, known.challenger if isfinite(known.challenger) else inf, known.label

    return [ClassRow(known) for known in sorted(comparison.classes, key=order)]


def called(card: ClusterCard, escape: Callable[[str, int], str], most: int) -> list[str]:
    """Return what the champion called the rows of a group, such as `cat (70 %)`."""
    return [f"{escape(label, 40)} ({percent(part)})" for label, part in card.called.items()][:most]


def effect(feature: TellingFeature) -> str:
    """Return how far a feature lies from the nearest known rows, with its sign."""
    return f"{'+' if feature.effect > 0 else ''}{number(feature.effect)}"


def exemplar_columns(card: ClusterCard) -> list[str]:
    """Return the columns of the typical rows of a group; those that tell it apart come first."""
    columns = dict.fromkeys(name for row in card.exemplars for name in row)
    telling = [feature.name for feature in card.features if feature.name in columns]
    return list(dict.fromkeys([*telling, *columns]))


def columns_moved(drift: DriftFacts) -> str:
    """Return how many of the compared columns moved, such as `3 of 61`."""
    return f"{drift.drifted} of {sum(not column.problem for column in drift.columns)}"
