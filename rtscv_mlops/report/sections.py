"""The sections of a report, most important first, as Evidently's widgets.

Knows the facts and Evidently's widgets; knows nothing of files or of how the page is made safe.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
from evidently.legacy.model.widget import BaseWidgetInfo
from evidently.legacy.renderers.html_widgets import (
    ColumnDefinition,
    ColumnType,
    CounterData,
    RichTableDataRow,
    WidgetSize,
    counter,
    group_widget,
    plotly_figure,
    rich_table_data,
    table_data,
    text_widget,
)

from rtscv_mlops.facts import (
    ClusterCard,
    ColumnDrift,
    Comparison,
    DriftFacts,
    Evidence,
    WindowFacts,
)
from rtscv_mlops.report import figures
from rtscv_mlops.report.drift import ENOUGH_ROWS
from rtscv_mlops.report.figures import Bars, draw_bars, unique
from rtscv_mlops.text import (
    DASH,
    caption,
    commonmark,
    estimate,
    interval,
    number,
    percent,
    probability,
    quantity,
)
from rtscv_mlops.window import Interval

Widgets = list[BaseWidgetInfo]

SAFE_IN_URLS = ":/?#@!$&+,;=%~"
MAX_CARDS = 8
MAX_CELLS = 8
CARDS_EXPLAINED = (
    "Rows set apart that resemble each other. The difference is from the known rows that look "
    "most like them: in standard deviations for numbers, in shares for categories."
)
MAX_CLASSES = 50
PLURALS = {"number": "numbers", "category": "categories"}


def headline(facts: WindowFacts, links: Mapping[str, str]) -> Widgets:
    """Verdict in one sentence, what it is about, and where to go from here."""
    lines = [
        f"# {commonmark(facts.headline, 600)}",
        f"Verdict **{commonmark(facts.verdict)}**, model **{commonmark(facts.model)}** "
        f"version **{commonmark(facts.champion_version)}**, "
        f"window **{commonmark(Interval(facts.window_start, facts.window_end))}**, "
        f"monitor **{commonmark(facts.monitor)}**",
    ]
    web = {name: url for name, url in links.items() if url.startswith(("https://", "http://"))}
    if web:
        lines.append(
            " · ".join(
                f"[{commonmark(name)}]({quote(url, SAFE_IN_URLS)})" for name, url in web.items()
            )
        )
    return [text_widget(text="\n\n".join(lines))]


def blocked(facts: WindowFacts) -> Widgets:
    """Why the challenger may not be approved, where that is so."""
    if not facts.blocked:
        return []
    return [text_widget(text=f"## Challenger blocked: {commonmark(facts.blocked, 1000)}")]


def key_numbers(facts: WindowFacts) -> Widgets:
    """What a reviewer asks first."""
    found = []
    if facts.assessed:
        found += [
            (_rate_label(facts), estimate(facts.unknown_rate, DASH)),
            ("rows set apart", f"{facts.unknowns:,}"),
            ("chance if nothing were new", probability(facts.p_value)),
        ]
    if facts.drift and facts.drift.share is not None:
        compared = sum(not column.problem for column in facts.drift.columns)
        found.append(("columns moved", f"{facts.drift.drifted} of {compared}"))
    found.append(("rows in the window", f"{facts.rows:,}"))
    if facts.sampled:
        found.append(("rows looked at", f"{facts.sampled:,}"))
    counters = [CounterData(label, value) for label, value in found]
    return [counter(counters=counters)]


def _rate_label(facts: WindowFacts) -> str:
    if facts.unknown_rate_interval is None:
        return "unknown"
    return f"unknown ({interval(facts.unknown_rate_interval)})"


def findings(facts: WindowFacts) -> Widgets:
    """What was compared with what, and whatever was odd."""
    sentences: list[str] = list(facts.findings)
    if facts.null:
        sentences.insert(0, f"Compared with: {facts.null}.".replace("..", "."))
    if facts.copies:
        sentences.append(f"{facts.copies:,} rows of the window repeat another row.")
    if not sentences:
        return []
    return [text_widget(title="What to know", text=_bullets(sentences))]


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {commonmark(sentence, 1000)}" for sentence in sentences)


def pictures(evidence: Evidence | None) -> Widgets:
    """Scores against the threshold, and the rows on a plane."""
    if evidence is None or len(evidence.window_scores) == 0:
        return []
    widgets = [
        plotly_figure(
            title="How unknown the rows look",
            figure=figures.draw_scores(evidence),
            size=WidgetSize.HALF,
        )
    ]
    if len(evidence.window_points):
        unknown = np.asarray(evidence.unknown, dtype=bool)
        widgets.append(
            plotly_figure(
                title="The rows, flattened to a plane",
                figure=figures.draw_projection(evidence, unknown),
                size=WidgetSize.HALF,
            )
        )
    return widgets


def clusters(facts: WindowFacts) -> Widgets:
    """A card for each candidate class."""
    if not facts.clusters:
        return []
    title = f"Candidate new classes: {len(facts.clusters)}"
    if len(facts.clusters) > MAX_CARDS:
        title += f" (the first {MAX_CARDS} are shown)"
    intro = text_widget(title=title, text=CARDS_EXPLAINED)
    return [intro, *(_card(card) for card in facts.clusters[:MAX_CARDS])]


def _card(card: ClusterCard) -> BaseWidgetInfo:
    widgets = [text_widget(text=_card_text(card), size=WidgetSize.HALF)]
    if card.features:
        widgets.append(_features_table(card))
    if card.exemplars:
        widgets.append(_exemplars_table(card))
    return group_widget(title=f"Group {card.number}", widgets=widgets)


def _card_text(card: ClusterCard) -> str:
    lines = [f"**{card.size:,} rows**, {percent(card.share)} of those set apart."]
    if card.called:
        called = [
            f"{commonmark(name, 40)} ({percent(share)})" for name, share in card.called.items()
        ]
        lines.append(f"The champion calls them **{called[0]}**{_rest(called[1:4])}.")
    if card.confidence is not None:
        lines.append(f"Its confidence in that is {percent(card.confidence)} (median).")
    if card.quality is not None:
        lines.append(f"How well the group holds together: {card.quality:.2f} (1 is best).")
    return "\n\n".join(lines)


def _rest(called: list[str]) -> str:
    return f", then {', '.join(called)}" if called else ""


def _features_table(card: ClusterCard) -> BaseWidgetInfo:
    rows = [
        [caption(one.name, 40), caption(one.here, 24), caption(one.known, 24), f"{one.effect:+.1f}"]
        for one in card.features[:MAX_CELLS]
    ]
    return table_data(
        title="What tells them apart",
        column_names=["Feature", "Here", "Nearest known", "Difference"],
        data=rows,
        size=WidgetSize.HALF,
    )


def _exemplars_table(card: ClusterCard) -> BaseWidgetInfo:
    columns = list(dict.fromkeys(name for row in card.exemplars for name in row))
    telling = [one.name for one in card.features if one.name in columns]
    shown = list(dict.fromkeys([*telling, *columns]))[:MAX_CELLS]
    title = "Typical rows"
    if len(shown) < len(columns):
        title += f" ({len(shown)} of {len(columns)} columns)"
    return table_data(
        title=title,
        column_names=unique([caption(name, 24) for name in shown]),
        data=[[quantity(row.get(name)) for name in shown] for row in card.exemplars],
    )


def drift(facts: DriftFacts | None, evidence: Evidence | None, most: int) -> Widgets:
    """Which columns moved, and how far."""
    if facts is None or not facts.columns:
        return []
    compared = [column for column in facts.columns if not column.problem]
    widgets = [text_widget(title=_drift_title(facts, compared), text=_drift_text(facts))]
    if compared:
        bars = draw_bars(compared[:most], evidence) if evidence else {}
        widgets += _drift_pictures(compared, bars)
        widgets.append(_drift_table(compared[:most], len(compared), bars))
    problems = [column for column in facts.columns if column.problem]
    if problems:
        widgets.append(_problems_table(problems, most))
    return widgets


def _drift_title(facts: DriftFacts, compared: list[ColumnDrift]) -> str:
    if not compared:
        return "Columns: none could be compared"
    return f"Columns: {facts.drifted} of {len(compared)} moved ({percent(facts.share)})"


def _drift_text(facts: DriftFacts) -> str:
    text = (
        f"{facts.window_rows:,} rows of the window against {facts.reference_rows:,} of the "
        "training data. A column can move because known classes changed or because new ones came."
    )
    if methods := _methods(facts):
        text += f" Measured by {commonmark(methods)}."
    if facts.tested_rows:
        text += f" Tests saw {facts.tested_rows:,} rows of the window, distances all of them."
    if min(facts.window_rows, facts.reference_rows) < ENOUGH_ROWS:
        text += " Where so few rows may differ as much by chance, the threshold is raised."
    return text


def _methods(facts: DriftFacts) -> str:
    used = dict.fromkeys((one.method, one.kind) for one in facts.columns if one.method)
    return " and ".join(f"{method} for {PLURALS[kind]}" for method, kind in used)


def _drift_pictures(compared: list[ColumnDrift], bars: Mapping[str, Bars]) -> Widgets:
    pictures = {"Most moved columns": figures.draw_strengths(compared)}
    if bars:
        pictures["Before and now"] = figures.draw_distributions(bars)
    return [
        plotly_figure(title=title, figure=figure, size=WidgetSize.HALF)
        for title, figure in pictures.items()
    ]


def _drift_table(
    columns: list[ColumnDrift], compared: int, bars: Mapping[str, Bars]
) -> BaseWidgetInfo:
    title = "All compared columns" if len(columns) == compared else f"First {len(columns)} columns"
    definitions = [
        ColumnDefinition("Column", "name"),
        ColumnDefinition("Moved", "moved"),
        ColumnDefinition("Score", "score"),
        ColumnDefinition("Threshold", "threshold"),
    ]
    if bars:
        definitions[1:1] = [
            _bars_column("Training data", "known", figures.KNOWN),
            _bars_column("Window", "served", figures.WINDOW),
        ]
    rows = [RichTableDataRow(fields=_drift_fields(one, bars.get(one.name))) for one in columns]
    return rich_table_data(title=title, columns=definitions, data=rows)


def _bars_column(title: str, field: str, colour: str) -> ColumnDefinition:
    options = {"xField": "x", "yField": "y", "color": colour}
    return ColumnDefinition(title, field, ColumnType.HISTOGRAM, options=options)


def _drift_fields(column: ColumnDrift, bars: Bars | None) -> dict[str, Any]:
    bars = bars or Bars([], [], [])
    places = [quantity(place) for place in bars.places]
    return {
        "name": caption(column.name),
        "known": {"x": places, "y": bars.known},
        "served": {"x": places, "y": bars.served},
        "moved": "yes" if column.drifted else "no",
        "score": number(column.score, DASH),
        "threshold": quantity(column.threshold),
    }


def _problems_table(problems: list[ColumnDrift], most: int) -> BaseWidgetInfo:
    return table_data(
        title=f"Columns that could not be compared: {len(problems)}",
        column_names=["Column", "Why"],
        data=[[caption(column.name), caption(column.problem, 200)] for column in problems[:most]],
    )


def comparison(facts: WindowFacts) -> Widgets:
    """What the known classes win or lose with the challenger."""
    if facts.comparison is None:
        return []
    found = facts.comparison
    text = (
        f"{found.rows:,} known rows, {commonmark(found.how)}. Accuracy "
        f"**{percent(found.champion_accuracy)}** with the champion, "
        f"**{percent(found.challenger_accuracy)}** with the challenger; macro F "
        f"{found.champion_macro_f:.2f} and {found.challenger_macro_f:.2f}."
    )
    widgets = [text_widget(title="Champion against challenger, on known classes", text=text)]
    if found.classes:
        widgets += [
            plotly_figure(
                title="Recall by class, largest loss first",
                figure=figures.draw_recalls(found),
                size=WidgetSize.HALF,
            ),
            _classes_table(found),
        ]
    return widgets


def _classes_table(found: Comparison) -> BaseWidgetInfo:
    classes = sorted(found.classes, key=lambda one: (-one.loss, one.label))
    rows = [
        [
            caption(one.label, 24),
            f"{one.rows:,}",
            percent(one.champion),
            percent(one.challenger),
            f"{-100 * one.loss:+.1f}" if one.loss else "0",
            percent(one.unknown),
        ]
        for one in classes[:MAX_CLASSES]
    ]
    names = ["Class", "Rows", "Champion", "Challenger", "Change (points)", "Called unknown"]
    return table_data(title="In numbers", column_names=names, data=rows, size=WidgetSize.HALF)


def method(facts: WindowFacts) -> Widgets:
    """How the result was obtained."""
    used = [[caption(name, 40), _setting(value)] for name, value in _flat(facts.shown_settings())]
    if facts.reference_rows:
        used.append(["rows of training data", f"{facts.reference_rows:,}"])
    used.append(["key", caption(facts.key, 20)])
    return [
        table_data(
            title="How this was obtained",
            column_names=["Setting", "Value"],
            data=used,
            size=WidgetSize.FULL,
        )
    ]


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings within settings as `outer.inner`."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return caption(", ".join(map(str, value)), 80)
    return caption(value, 80) if isinstance(value, str) else quantity(value)
