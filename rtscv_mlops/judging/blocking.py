"""When a challenger may not be approved, and the states of a review.

Knows recalls and limits; knows nothing of who decides or where it is recorded.
"""

from rtscv_mlops.facts import ClassComparison, Comparison
from rtscv_mlops.text import counted, percent, plain

FEWEST_LOST_ROWS = 2
# Recalls are quotients: 1 - 0.95 is a little more than 0.05 in binary.
ROUNDING = 1e-9


def too_few_because(unknowns: int, least: int) -> str:
    """Say that a challenger was taught from too few unknown rows; empty if it was not."""
    if unknowns >= least:
        return ""
    return (
        f"Only {counted(unknowns, 'row')} could be told apart as unknown, fewer than the {least} "
        "that review.min_unknowns asks for: too few to teach a class from. A longer window would "
        "show more."
    )


def blocked_because(comparison: Comparison, max_class_loss: float) -> str:
    """Say which known class the challenger loses too much of; empty if none.

    A class counts when its recall falls by more than the limit and at least two of its held-out
    rows are lost: one row is chance, however large a share of a small class it is.
    """
    lost = [known for known in comparison.classes if _loses_too_much(known, max_class_loss)]
    if not lost:
        return ""
    worst = max(lost, key=lambda known: known.loss)
    others = f" {counted(len(lost) - 1, 'more class', 'more classes')} too." if lost[1:] else ""
    return (
        f"Class {plain(worst.label)!r} loses too much: the champion finds "
        f"{percent(worst.champion)} of its {counted(worst.rows, 'held-out row')}, the challenger "
        f"{percent(worst.challenger)}, which is {_lost_rows(worst):,} fewer; a class may lose "
        f"{percent(max_class_loss)}, and a single row does not count.{others}"
    )


def _loses_too_much(known: ClassComparison, limit: float) -> bool:
    return known.loss > limit + ROUNDING and _lost_rows(known) >= FEWEST_LOST_ROWS


def _lost_rows(known: ClassComparison) -> int:
    return round(known.loss * known.rows)
