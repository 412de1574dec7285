"""`python -m examples.intrusion`: the fortnight, its tables, its picture, and what waits."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from examples.intrusion.likeness import find_nearest
from examples.intrusion.picture import draw_fortnight
from examples.intrusion.story import BASELINE_DAYS, Story, is_begun, tell_story
from examples.intrusion.tables import (
    count_known,
    count_types,
    shown_last,
    summarise,
    tabulate_days,
    tabulate_known,
    tabulate_types,
)
from examples.intrusion.traffic import KEY, Day, Traffic, load_traffic, make_days
from examples.stories import say
from rtscv_mlops import RtscvError, list_challengers, save_report


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> Story:
    """Run the example as the command line asks; return what was found."""
    asked = _parse(arguments)
    console = console or Console()
    traffic = load_traffic(asked.training_rows)
    days = list(make_days(traffic, asked.rows_a_day))
    say(
        console,
        f"A model of {len(traffic.known_types)} types of traffic serves, {_taught(asked, traffic)}"
        f". {sum(len(day.rows) for day in days):,} rows follow in two weeks, with "
        f"{len(traffic.new_types)} attacks that it was never taught.",
    )
    with console.status("Reading") as status:
        story = tell_story(
            asked.folder,
            traffic,
            days,
            with_baseline=not asked.no_baseline,
            tell=lambda words: status.update(words[0].upper() + words[1:]),
        )
        types = count_types(story, _nearest(story, traffic, days))
    known = count_known(story, traffic)
    for table in (tabulate_days(story), tabulate_types(types), tabulate_known(known)):
        console.print(table)
    for sentence in summarise(story, types):
        say(console, sentence)
    picture = draw_fortnight(story, types, asked.folder / "fortnight.png")
    say(console, f"Picture: {picture}")
    _tell_what_next(story, asked.folder.resolve(), console)
    return story


def _taught(asked: argparse.Namespace, traffic: Traffic) -> str:
    if not is_begun(asked.folder):
        return f"taught from {len(traffic.training):,} rows"
    ignored = "" if asked.training_rows is None else ", and --training-rows does not change it"
    return (
        f"which an earlier run left in {asked.folder}{ignored}; name another --folder to teach a "
        "new one"
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.intrusion", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo/intrusion"))
    parser.add_argument("--rows-a-day", type=int, help="at most this many (default: all)")
    parser.add_argument("--training-rows", type=int, help="about this many, for a new folder")
    parser.add_argument("--no-baseline", action="store_true", help="never compare with days 1-3")
    return parser.parse_args(arguments)


def _nearest(story: Story, traffic: Traffic, days: list[Day]) -> pd.DataFrame:
    """Compare new rows with all that was labelled by then: training rows and the first days."""
    features = pd.concat([day.rows for day in days])
    served = story.rows.merge(features, on=KEY, validate="one_to_one").set_index(KEY)
    is_early, columns = served["day"] <= BASELINE_DAYS, traffic.training.columns
    known = pd.concat([traffic.training, served.loc[is_early, columns]], ignore_index=True)
    usual = served.loc[~is_early & ~served["is_new"], columns]
    return find_nearest(known, usual, served.loc[served["is_new"], columns])


def _tell_what_next(story: Story, folder: Path, console: Console) -> None:
    shown, file = shown_last(story), story.file
    page = save_report(story.monitor, shown.run_id, folder)
    for one in list_challengers(story.monitor):
        if one.is_pending:
            say(console, f"Version {one.version} waits: rtscv-mlops review show {file}")
            for word, command in (("yes", "approve"), ("no", "reject")):
                say(
                    console,
                    f"  {word}: rtscv-mlops review {command} {file} --version {one.version} "
                    "--reason …",
                )
    if shown.facts.blocked:
        say(console, f"Version {shown.version} is blocked: {shown.facts.blocked}")
    say(console, f"Report of {shown.day.interval}: {page}")
    say(console, f"MLflow: mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db")


if __name__ == "__main__":
    for library in ("rtscv_mlops", "mlflow", "alembic"):  # an alert is a warning in the log
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        main()
    except RtscvError as error:
        raise SystemExit(str(error)) from error
