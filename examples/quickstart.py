"""`make quickstart`: a model of seven handwritten digits meets three windows of deployment data.

The first window holds nothing new, the second the same digits drawn with a darker ink, the third
three digits that the model was never taught. No label of a window is used, except to say
afterwards what is true. Writes `unknowns.png` into a folder: `python -m examples.quickstart demo`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from examples.pictures import draw_unknowns
from rtscv_mlops import Assessment, RTSCVClassifier, Verdict, open_set_scores

HIDDEN = (0, 4, 6)
UNKNOWN_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class Rows:
    """Images as rows of 64 pixels, and the digit each shows."""

    X: NDArray
    y: NDArray

    @property
    def is_hidden(self) -> NDArray:
        return np.isin(self.y, HIDDEN)


@dataclass(frozen=True, slots=True)
class Story:
    """Training rows of the known digits, three windows, and labelled rows that came later."""

    training: Rows
    windows: dict[str, Rows]
    later: Rows


def main(folder: Path = Path("demo"), console: Console | None = None) -> dict[str, RTSCVClassifier]:
    """Tell the story; return the model that each window led to."""
    console = console or Console()
    story = draw_story()
    known = np.unique(story.training.y)
    console.print(
        f"\nA support vector machine knows the digits {_join(known)}. "
        f"Nobody taught it {_join(HIDDEN)}. Three windows arrive, without labels.\n"
    )
    models = {
        name: RTSCVClassifier(SVC()).fit(story.training.X, story.training.y, deployment=window.X)
        for name, window in story.windows.items()
    }
    console.print(tabulate_windows(story, models))
    for name, model in models.items():
        console.print(f"[bold]{name}[/]: {headline(model.assessment_)}")
    name, model = list(models.items())[-1]
    console.print()
    console.print(tabulate_candidates(story.windows[name], model))
    console.print(compare_answers(story, model))
    path = draw_unknowns(model, story.windows[name], story.later, folder / "unknowns.png")
    console.print(f"Picture: {path}", soft_wrap=True)
    return models


def draw_story(seed: int = 0) -> Story:
    """Deal scikit-learn's digits out; no row is in two places but those of the drifted window."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    hidden = order[np.isin(y[order], HIDDEN)]
    known = order[~np.isin(y[order], HIDDEN)]
    training, ordinary, busy, later = np.split(known, [550, 800, 1_100])
    n_busy, n_later = (
        round(len(rows) * UNKNOWN_SHARE / (1 - UNKNOWN_SHARE)) for rows in (busy, later)
    )
    busy = np.sort(np.concatenate([busy, hidden[:n_busy]]))
    later = np.concatenate([later, hidden[n_busy:][:n_later]])
    return Story(
        training=Rows(X[training], y[training]),
        windows={
            "nothing new": Rows(X[ordinary], y[ordinary]),
            "darker ink": Rows(darken(X[ordinary]), y[ordinary]),
            "hidden digits": Rows(X[busy], y[busy]),
        },
        later=Rows(X[later], y[later]),
    )


def darken(rows: NDArray) -> NDArray:
    """Draw every stroke a fifth darker; ink is full at 16."""
    return np.minimum(1.2 * rows, 16)


def headline(facts: Assessment) -> str:
    """Say in a sentence what a window showed."""
    low, high = (f"{100 * limit:.0f}" for limit in facts.unknown_rate_interval)
    match facts.verdict:
        case Verdict.NO_CHANGE:
            return "nothing here that the training data does not have. The model stays as it is."
        case Verdict.DRIFT:
            return (
                "the known classes no longer look as they did in training. Nothing new is "
                "claimed, and the model stays as it is: look at what feeds it."
            )
        case _:
            drift = " The known classes have moved, too." * (facts.verdict != Verdict.UNKNOWNS)
            return (
                f"about {100 * facts.unknown_rate:.0f} % ({low}-{high} %) of this window belongs "
                f"to something the model was never taught.{drift}"
            )


def tabulate_windows(story: Story, models: dict[str, RTSCVClassifier]) -> Table:
    """Return a row per window: what was found, and what is true."""
    table = Table(title="Three windows", title_justify="left", box=SIMPLE_HEAD)
    table.caption = "Rate: estimate and 95 % interval; beside drift it can only be bounded."
    table.caption_justify = "left"
    for column in ("window", "verdict"):
        table.add_column(column, no_wrap=True)
    for column in ("p", "unknown rate", "truth", "extracted"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, model in models.items():
        facts, is_hidden = model.assessment_, story.windows[name].is_hidden
        low, high = facts.unknown_rate_interval
        extracted = model.unknown_indices_
        table.add_row(
            name,
            facts.verdict.value,
            f"{facts.p_value:.1g}",
            f"{100 * facts.unknown_rate:.0f} % ({100 * low:.0f}-{100 * high:.0f} %)",
            f"{100 * is_hidden.mean():.0f} %",
            f"{len(extracted)} ({is_hidden[extracted].sum()} hidden)" if len(extracted) else "0",
        )
    return table


def tabulate_candidates(window: Rows, model: RTSCVClassifier) -> Table:
    """Return a row per candidate class: its size and quality, and the digits it really holds."""
    table = Table(
        title="Candidate classes among the extracted rows", title_justify="left", box=SIMPLE_HEAD
    )
    for column in ("candidate", "rows", "quality"):
        table.add_column(column, justify="right")
    table.add_column("truly")
    for number, cluster in enumerate(model.clusters_, start=1):
        digits, counts = np.unique(window.y[cluster.rows], return_counts=True)
        truth = sorted(zip(counts, digits, strict=True), reverse=True)
        table.add_row(
            str(number),
            str(cluster.size),
            "no structure" if np.isnan(cluster.quality) else f"{cluster.quality:.2f}",
            ", ".join(f"{count} x {digit}" for count, digit in truth),
        )
    return table


def compare_answers(story: Story, model: RTSCVClassifier) -> str:
    """Say how well the model answers on rows that came later, before and after."""
    X, y = story.later.X, story.later.y
    plain = RTSCVClassifier(SVC()).fit(story.training.X, story.training.y)
    known, unknown = plain.classes_, model.unknown_label_
    before = open_set_scores(y, plain.predict(X), None, known, unknown)
    after = open_set_scores(y, model.predict(X), model.unknown_score(X), known, unknown)
    return (
        f"On {len(y)} rows that came later, hidden digits among them, the macro F rises from "
        f"{before.macro_f:.2f} to {after.macro_f:.2f}: {100 * after.detection_accuracy:.0f} % of "
        f"the hidden digits are called unknown, and {100 * after.classification_accuracy:.0f} % "
        f"of the known ones by their name (before: 0 % and "
        f"{100 * before.classification_accuracy:.0f} %).\n"
    )


def _join(digits: NDArray | tuple[int, ...]) -> str:
    *most, last = (str(digit) for digit in digits)
    return f"{', '.join(most)} and {last}"


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
