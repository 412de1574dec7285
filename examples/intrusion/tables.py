"""What was found, beside what is true: by day, by new attack, and the known types among it."""

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from examples.intrusion.story import BASELINE_DAYS, Judged, Story
from examples.intrusion.traffic import KEY, LABEL, Traffic
from examples.stories import estimate, percent

WORST_KNOWN = 6
"""Known types that the last table shows."""


def tabulate_days(story: Story) -> Table:
    """Return a row per day: the verdict, and what the labels say of it."""
    table = _table("The fortnight", left=("day", "compared with", "verdict", "unknowns"))
    for name in ("rows", "truth", "extracted", "precision", "recall"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in story.judged:
        has_new = bool(one.rows["is_new"].any())
        table.add_row(
            f"{one.day.interval}",
            "baseline" if one.facts.null.startswith("baseline") else "training",
            one.facts.verdict,
            estimate(one.facts) if one.facts.detected else "none",
            f"{one.facts.rows:,}",
            percent(one.figures["unknown_rate"]),
            f"{one.facts.unknowns}",
            _share(one.figures.get("extracted_precision")) if has_new else "-",
            _share(one.figures.get("extracted_recall")) if has_new else "-",
        )
    return table


def count_types(story: Story, nearest: pd.DataFrame) -> pd.DataFrame:
    """Return a row per new attack: how many came and were found, and what the others look like.

    `called` is what the champion says of it, `near_found` and `near_missed` the shares that lie as
    close to known rows as known rows do, `like` the type that the missed ones lie closest to.
    """
    rows = story.rows
    rows = rows[rows["is_new"]].join(nearest, on=KEY)
    found = {name: _count_type(of_type) for name, of_type in rows.groupby(LABEL)}
    return pd.DataFrame(found).T.sort_values("rows", ascending=False)


def _count_type(rows: pd.DataFrame) -> dict[str, object]:
    found, missed = rows[rows["is_unknown"]], rows[~rows["is_unknown"]]
    return {
        "category": rows["category"].iloc[0],
        "rows": len(rows),
        "arrives": rows["day"].min(),
        "found": len(found),
        "recall": rows["is_unknown"].mean(),
        "first": found["day"].min() if len(found) else None,
        "called": _commonest(rows["champion_called"]),
        "near_found": percent(found["near"].mean()) if len(found) else "",
        "near_missed": percent(missed["near"].mean()) if len(missed) else "",
        "like": _commonest(missed["closest"]) if len(missed) else "",
    }


def tabulate_types(types: pd.DataFrame) -> Table:
    """Return the new attacks, the commonest first."""
    table = _table("Attacks that were never taught", left=("attack", "category"))
    for name in ("rows", "found", "recall", "arrives", "first found"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("champion calls it")
    for name in ("found: near", "missed: near"):
        table.add_column(name, justify="right")
    table.add_column("missed: closest to")
    for name, one in types.iterrows():
        table.add_row(
            str(name),
            one["category"],
            f"{one['rows']:,}",
            f"{one['found']:,}",
            _share(one["recall"]),
            f"day {one['arrives']}",
            f"day {one['first']}" if one["found"] else "never",
            one["called"],
            one["near_found"],
            one["near_missed"],
            one["like"],
        )
    return table


def count_known(story: Story, traffic: Traffic) -> pd.DataFrame:
    """Return a row per known type: how many rows were taken for new, before the baseline and since.

    `right` is the share that the champion calls by its name.
    """
    rows = story.rows
    rows = rows[~rows["is_new"]].assign(right=rows["champion_called"] == rows[LABEL])
    is_early = rows["day"] <= BASELINE_DAYS
    counted = pd.DataFrame(
        {
            "taught": traffic.training[LABEL].value_counts(),
            "rows": rows.groupby(LABEL).size(),
            "early": rows[is_early].groupby(LABEL)["is_unknown"].sum(),
            "early_rows": rows[is_early].groupby(LABEL).size(),
            "late": rows[~is_early].groupby(LABEL)["is_unknown"].sum(),
            "late_rows": rows[~is_early].groupby(LABEL).size(),
            "right": rows.groupby(LABEL)["right"].mean(),
        }
    )
    counted = counted[counted["rows"].notna()].fillna(0)
    worst = (counted["early"] + counted["late"]).sort_values(ascending=False, kind="stable")
    return counted.loc[worst.index]


def tabulate_known(known: pd.DataFrame) -> Table:
    """Return the known types of which most rows were taken for new."""
    table = _table("Known types that were taken for new", left=("type",))
    for name in (
        "taught",
        "served",
        f"taken, days 1-{BASELINE_DAYS}",
        "taken since",
        "champion right",
    ):
        table.add_column(name, justify="right")
    for name, one in known.head(WORST_KNOWN).iterrows():
        table.add_row(
            str(name),
            f"{one['taught']:,.0f}",
            f"{one['rows']:,.0f}",
            f"{one['early']:,.0f} of {one['early_rows']:,.0f}",
            f"{one['late']:,.0f} of {one['late_rows']:,.0f}",
            percent(one["right"]),
        )
    return table


def summarise(story: Story, types: pd.DataFrame) -> list[str]:
    """Say in sentences what was found and what was missed."""
    rows = story.rows
    late = rows[rows["day"] > BASELINE_DAYS]
    taken, new = late["is_unknown"], late["is_new"]
    found = int((taken & new).sum())
    sentences = [
        f"Since day {BASELINE_DAYS + 1}: {int(taken.sum()):,} rows extracted, {found:,} of them of "
        f"new types (precision {_share(found / max(taken.sum(), 1))}); {int(new.sum()):,} rows of "
        f"new types came (recall {_share(found / max(new.sum(), 1))})."
    ]
    missed = types["rows"] - types["found"]
    most = missed.astype(int).sort_values(ascending=False, kind="stable").head(3)
    for name, count in most[most > 0].items():
        one = types.loc[name]
        sentences.append(
            f"Missed of {name}: {count:,} of {one['rows']:,}. {one['near_missed']} of those lie as "
            f"close to known rows as known rows do (found ones: {one['near_found'] or 'none'}), "
            f"most often to {one['like']}; the champion calls it {one['called']}."
        )
    return sentences


def shown_last(story: Story) -> Judged:
    """Return the last day that led to a version, or the last of all."""
    return next((one for one in reversed(story.judged) if one.version), story.judged[-1])


def _commonest(words: pd.Series) -> str:
    counts = words.value_counts(normalize=True)
    return f"{counts.index[0]} ({percent(counts.iloc[0])})"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def _table(title: str, left: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in left:
        table.add_column(name, no_wrap=True)
    return table
