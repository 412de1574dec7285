"""Three years of gas sensors: drift, a gas that was never taught, and both, told apart or not.

A champion is trained at three times, each time without toluene, and meets windows of its own
months and of all later ones, with toluene and without; one gets a clean baseline instead of a new
training. No label of a window is used, except to say afterwards what is true.
"""

from pathlib import Path

from rich.console import Console

from examples.gas_drift.data import HIDDEN, Chapter, Period, load_periods, tell_chapters
from examples.gas_drift.picture import draw_story
from examples.stories import (
    CAPTION,
    Judged,
    count_right,
    judge,
    prepare,
    say,
    tabulate,
    tell_what_next,
)

MISSING = "Batches 7 and 10 are not in the file, so months 21 and 36 are missing."


def run_story(
    folder: Path, console: Console, periods: list[Period] | None = None
) -> list[tuple[Chapter, list[Judged]]]:
    """Judge all windows of all champions, and tell what was found beside what is true."""
    chapters = list(tell_chapters(periods or load_periods()))
    say(console, f"Champions learn five gases, never {HIDDEN}. {MISSING}", "")
    told = [(chapter, _tell(folder, chapter, console)) for chapter in chapters]
    every = [one for _, judged in told for one in judged]
    say(console, CAPTION, "", count_right(every))
    path = draw_story(told, folder / "story-gas-drift.png")
    say(
        console,
        f"Picture: {path}",
        f"MLflow: mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db",
    )
    return told


def _tell(folder: Path, chapter: Chapter, console: Console) -> list[Judged]:
    clean = () if chapter.baseline is None else (chapter.baseline,)
    monitor = prepare(folder, chapter.champion, (*clean, *chapter.windows))
    judged = judge(monitor, chapter.windows, console)
    console.print(tabulate(f"Champion {chapter.title}", judged))
    tell_what_next(folder, monitor, judged, console)
    say(console, "")
    return judged
