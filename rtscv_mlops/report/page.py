"""One window's report: Evidently's widgets in a single HTML file that loads nothing."""

import hashlib
import html
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.core import metric_types
from evidently.core.report import Context
from evidently.legacy.model.widget import BaseWidgetInfo
from evidently.legacy.renderers import html_widgets as ui
from evidently.legacy.utils import NumpyEncoder

from rtscv_mlops import text
from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.facts import ClusterCard, ColumnDrift, DriftFacts, Evidence, WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.report import figures
from rtscv_mlops.report.drift import ENOUGH_ROWS
from rtscv_mlops.report.figures import Bars, draw_bars, unique
from rtscv_mlops.text import Label, caption, commonmark

Widgets = list[BaseWidgetInfo]

SAFE_IN_URLS = ":/?#@!$&+,;=%~"
MAX_CARDS = 8
MAX_CELLS = 8
MAX_CLASSES = 50
CARDS_EXPLAINED = (
    "Unknown rows that resemble each other. The difference is from the known rows that look "
    "most like them: in standard deviations for numbers, in shares for categories."
)
PLURALS = {"number": "numbers", "category": "categories"}


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections about one window; one that has nothing to show has no widgets."""

    facts: WindowFacts
    evidence: Evidence | None
    links: Mapping[str, str]
    max_columns: int

    def headline(self) -> Widgets:
        """Return the verdict in one sentence, what it is about, and links."""
        facts = self.facts
        about = {
            Label.VERDICT: facts.verdict,
            Label.MODEL: f"{facts.model}, version {facts.champion_version}",
            Label.WINDOW: text.window_name(facts),
            Label.MONITOR: facts.monitor,
        }
        lines = [
            f"# {commonmark(facts.headline, 600)}",
            " · ".join(f"{label} **{commonmark(value)}**" for label, value in about.items()),
        ]
        web = [
            f"[{commonmark(name)}]({quote(url, SAFE_IN_URLS)})"
            for name, url in self.links.items()
            if url.startswith(("https://", "http://"))
        ]
        if web:
            lines.append(" · ".join(web))
        return [ui.text_widget(text="\n\n".join(lines))]

    def blocked(self) -> Widgets:
        """Return why the challenger may not be approved."""
        if not self.facts.blocked:
            return []
        why = commonmark(self.facts.blocked, 1000)
        return [ui.text_widget(text=f"## Challenger blocked: {why}")]

    def key_numbers(self) -> Widgets:
        """Return the numbers that a reviewer looks at first."""
        facts, numbers = self.facts, {}
        if facts.assessed:
            limits = facts.told_interval
            rate_label = Label.UNKNOWN_RATE + (f" ({text.interval(limits)})" if limits else "")
            numbers = {
                rate_label: text.estimate(facts.told_rate, text.unknown_share(facts)),
                Label.UNKNOWNS: f"{facts.unknowns:,}",
                Label.P_VALUE: text.probability(facts.p_value),
            }
        if facts.drift and facts.drift.share is not None:
            numbers[Label.DRIFT] = text.columns_moved(facts.drift)
        numbers[Label.ROWS] = f"{facts.rows:,}"
        if facts.sampled:
            numbers[Label.SAMPLED] = f"{facts.sampled:,}"
        counters = [ui.CounterData(str(label), value) for label, value in numbers.items()]
        return [ui.counter(counters=counters)]

    def findings(self) -> Widgets:
        """Return what the window was compared with, and all findings."""
        facts = self.facts
        sentences: list[str] = list(facts.findings)
        if facts.null:
            sentences.insert(0, f"{Label.COMPARED_WITH}: {facts.null}.".replace("..", "."))
        if facts.copies:
            sentences.append(f"{facts.copies:,} rows of the window repeat another row.")
        if not sentences:
            return []
        bullets = "\n".join(f"- {commonmark(sentence, 1000)}" for sentence in sentences)
        return [ui.text_widget(title=str(Label.FINDINGS), text=bullets)]

    def pictures(self) -> Widgets:
        """Return the scores against the threshold, and the rows on a plane."""
        evidence = self.evidence
        if evidence is None or len(evidence.window_scores) == 0:
            return []
        drawn = {"How unknown the rows look": figures.draw_scores(evidence)}
        if len(evidence.window_points):
            unknown = np.asarray(evidence.unknown, dtype=bool)
            drawn["The rows, flattened to a plane"] = figures.draw_projection(evidence, unknown)
        return _pictures(drawn)

    def clusters(self) -> Widgets:
        """Return a card for each candidate class."""
        cards = self.facts.clusters
        if not cards:
            return []
        title = f"{Label.GROUPS}: {text.counted(len(cards), 'group')}"
        if len(cards) > MAX_CARDS:
            title += f" (the first {MAX_CARDS} are shown)"
        explained = ui.text_widget(title=title, text=CARDS_EXPLAINED)
        return [explained, *map(self._card, cards[:MAX_CARDS])]

    @staticmethod
    def _card(card: ClusterCard) -> BaseWidgetInfo:
        """Return a candidate class: its size, what the champion calls it, and typical rows."""
        lines = [
            f"**{text.counted(card.size, 'row')}**, {text.percent(card.share)} of the unknown rows."
        ]
        labels = text.called(card, commonmark, 4)
        if labels:
            others = f", then {', '.join(labels[1:])}" if labels[1:] else ""
            lines.append(f"The champion called them **{labels[0]}**{others}.")
        if card.confidence is not None:
            lines.append(f"Its median confidence was {text.percent(card.confidence)}.")
        if card.quality is not None:
            lines.append(f"How well the group holds together: {card.quality:.2f} (1 is best).")
        widgets = [ui.text_widget(text="\n\n".join(lines), size=ui.WidgetSize.HALF)]
        if card.features:
            columns = ("Feature", Label.HERE, Label.NEAREST, Label.DIFFERENCE)
            rows = [
                [
                    caption(one.name, 40),
                    caption(one.here, 24),
                    caption(one.known, 24),
                    text.effect(one),
                ]
                for one in card.features[:MAX_CELLS]
            ]
            widgets.append(_half_table(Label.FEATURE, columns, rows))
        if card.exemplars:
            names = text.exemplar_columns(card)
            shown = names[:MAX_CELLS]
            title = "Typical rows"
            if len(shown) < len(names):
                title += f" ({len(shown)} of {len(names)} columns)"
            rows = [[text.quantity(row.get(name)) for name in shown] for row in card.exemplars]
            header = unique([caption(name, 24) for name in shown])
            widgets.append(ui.table_data(title=title, column_names=header, data=rows))
        return ui.group_widget(title=f"Group {card.number}", widgets=widgets)

    def drift(self) -> Widgets:
        """Return which columns moved, and how far."""
        facts = self.facts.drift
        if facts is None or not facts.columns:
            return []
        compared = [column for column in facts.columns if not column.problem]
        problems = [column for column in facts.columns if column.problem]
        title = "Columns: none could be compared"
        if compared:
            title = f"{Label.DRIFT}: {text.columns_moved(facts)} ({text.percent(facts.share)})"
        widgets = [ui.text_widget(title=title, text=self._describe_drift(facts))]
        if compared:
            shown = compared[: self.max_columns]
            bars = draw_bars(shown, self.evidence) if self.evidence else {}
            drawn = {"Most moved columns": figures.draw_strengths(compared)}
            if bars:
                drawn["Before and now"] = figures.draw_distributions(bars)
            all_shown = len(shown) == len(compared)
            title = "All compared columns" if all_shown else f"First {len(shown)} columns"
            widgets += [*_pictures(drawn), self._drift_table(title, shown, bars)]
        if problems:
            rows = [
                [caption(column.name), caption(column.problem, 200)]
                for column in problems[: self.max_columns]
            ]
            title = f"Columns that could not be compared: {len(problems)}"
            header = [str(Label.COLUMN), "Why"]
            widgets.append(ui.table_data(title=title, column_names=header, data=rows))
        return widgets

    @staticmethod
    def _describe_drift(facts: DriftFacts) -> str:
        sentences = [
            f"{facts.window_rows:,} rows of the window against {facts.reference_rows:,} of the "
            "training data.",
            "A column can move because known classes changed or because new ones came.",
        ]
        methods = dict.fromkeys((one.method, one.kind) for one in facts.columns if one.method)
        if methods:
            names = " and ".join(f"{method} for {PLURALS[kind]}" for method, kind in methods)
            sentences.append(f"Measured by {commonmark(names)}.")
        if facts.tested_rows:
            tested = f"{facts.tested_rows:,} rows of the window"
            sentences.append(f"Tests saw {tested}, distances all of them.")
        if min(facts.window_rows, facts.reference_rows) < ENOUGH_ROWS:
            few = "So few rows can differ by chance; where they do, the threshold is raised."
            sentences.append(few)
        return " ".join(sentences)

    @staticmethod
    def _drift_table(
        title: str, columns: list[ColumnDrift], bars: Mapping[str, Bars]
    ) -> BaseWidgetInfo:
        """Return a table with small histograms of each column, where there are bars."""
        histograms = [
            ui.ColumnDefinition(
                *(title, side, ui.ColumnType.HISTOGRAM),
                options={"xField": "x", "yField": "y", "color": color},
            )
            for title, side, color in (
                ("Training data", "known", figures.KNOWN),
                ("Window", "served", figures.WINDOW),
            )
            if bars
        ]
        definitions = [
            ui.ColumnDefinition(str(Label.COLUMN), "name"),
            *histograms,
            ui.ColumnDefinition("Moved", "moved"),
            ui.ColumnDefinition(str(Label.SCORE), "score"),
            ui.ColumnDefinition(str(Label.THRESHOLD), "threshold"),
        ]
        rows = []
        for column in columns:
            drawn = bars.get(column.name, Bars([], [], []))
            positions = [text.quantity(position) for position in drawn.positions]
            fields = {
                "name": caption(column.name),
                "known": {"x": positions, "y": drawn.known},
                "served": {"x": positions, "y": drawn.served},
                "moved": "yes" if column.drifted else "no",
                "score": text.number(column.score, text.DASH),
                "threshold": text.number(column.threshold, text.DASH),
            }
            rows.append(ui.RichTableDataRow(fields=fields))
        return ui.rich_table_data(title=title, columns=definitions, data=rows)

    def comparison(self) -> Widgets:
        """Return what the known classes win or lose with the challenger."""
        comparison = self.facts.comparison
        if comparison is None:
            return []
        offer = self.facts.challenger
        kind = f"{commonmark(offer.why)}\n\n" if offer and offer.why else ""
        accuracy = (
            f"{kind}{comparison.rows:,} known rows, {commonmark(comparison.how)}. Accuracy "
            f"**{text.percent(comparison.champion_accuracy)}** with the champion, "
            f"**{text.percent(comparison.challenger_accuracy)}** with the challenger; macro F "
            f"{text.number(comparison.champion_macro_f)} and "
            f"{text.number(comparison.challenger_macro_f)}. Change by class: {text.NOISE}"
        )
        widgets = [ui.text_widget(title=f"{Label.COMPARISON}, on known classes", text=accuracy)]
        if comparison.classes:
            recalls = figures.draw_recalls(comparison)
            columns = (
                *(Label.CLASS, Label.CLASS_ROWS, Label.CHAMPION, Label.CHALLENGER),
                *(Label.CHANGE, Label.CALLED_UNKNOWN),
            )
            rows = [
                [
                    *(caption(row.known.label, 24), row.rows, row.champion, row.challenger),
                    *(row.change, row.unknown),
                ]
                for row in text.class_rows(comparison)[:MAX_CLASSES]
            ]
            widgets += [
                *_pictures({"Recall by class, largest loss first": recalls}),
                _half_table("In numbers", columns, rows),
            ]
        return widgets

    def method(self) -> Widgets:
        """Return how the result was obtained."""
        rows = []
        for name, value in _flat(self.facts.shown_settings()):
            if isinstance(value, list | tuple):
                value = ", ".join(map(str, value))
            cell = caption(value, 80) if isinstance(value, str) else text.quantity(value)
            rows.append([caption(name, 40), cell])
        if self.facts.reference_rows:
            rows.append(["rows of training data", f"{self.facts.reference_rows:,}"])
        rows.append(["key", caption(self.facts.key, 20)])
        return [
            ui.table_data(
                title="How this was obtained",
                column_names=["Setting", "Value"],
                data=rows,
                size=ui.WidgetSize.FULL,
            )
        ]


def _pictures(drawn: Mapping[str, Any]) -> Widgets:
    return [
        ui.plotly_figure(title=title, figure=figure, size=ui.WidgetSize.HALF)
        for title, figure in drawn.items()
    ]


def _half_table(title: str, columns: Iterable[str], rows: list[list[str]]) -> BaseWidgetInfo:
    names = [str(name) for name in columns]
    return ui.table_data(title=title, column_names=names, data=rows, size=ui.WidgetSize.HALF)


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings within settings as `outer.inner`."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


NO_LINKS: Mapping[str, str] = MappingProxyType({})

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The page may run what it holds, and ask for nothing.

Browsers ignore `frame-ancestors` in a page; who serves a report sends it as a header.
"""

RANDOM_ID = re.compile(r'"id": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"')
RANDOM_NAME = re.compile(r'id="root_(metric_[0-9a-f]{32})"')


class Section(metric_types.SingleValueMetric):  # type: ignore[misc]
    """One section of the report, with the number that it is about."""

    name: str
    number: float
    content: str
    """Its widgets as JSON."""


class SectionCalculation(metric_types.SingleValueCalculation[Section]):  # type: ignore[misc]
    """Hands the section's widgets to Evidently; the numbers were computed before."""

    def calculate(
        self, context: Context, current_data: Dataset, reference_data: Dataset | None
    ) -> metric_types.SingleValue:
        result = self.result(self.metric.number)
        widgets = json.loads(self.metric.content)
        result.widget = [BaseWidgetInfo.parse_obj(widget) for widget in widgets]
        return result

    def display_name(self) -> str:
        return str(self.metric.name)


def write_page(
    facts: WindowFacts,
    evidence: Evidence | None,
    settings: DriftSettings,
    path: Path,
    *,
    links: Mapping[str, str] = NO_LINKS,
) -> str:
    """Write the page; return its SHA-256, which is the same for the same facts and evidence."""
    page = render_report(facts, evidence, settings, links).encode()
    path.write_bytes(page)
    return hashlib.sha256(page).hexdigest()


def render_report(
    facts: WindowFacts, evidence: Evidence | None, settings: DriftSettings, links: Mapping[str, str]
) -> str:
    """Return the page, the most important section first."""
    sections = Sections(facts, evidence, links, settings.max_columns)
    drift, compared = facts.drift, facts.comparison
    report = Report(
        [
            _section("verdict", facts.unknown_rate, sections.headline()),
            _section("blocked", float(bool(facts.blocked)), sections.blocked()),
            _section("rows", facts.rows, sections.key_numbers()),
            _section("findings", len(facts.findings), sections.findings()),
            _section("unknowns", facts.unknowns, sections.pictures()),
            _section("groups", len(facts.clusters), sections.clusters()),
            _section(
                "challenger accuracy",
                compared.challenger_accuracy if compared else None,
                sections.comparison(),
            ),
            _section("drift share", drift.share if drift else None, sections.drift()),
            _section("key", facts.schema_version, sections.method()),
        ]
    )
    # The sections are made of facts already; Evidently only demands that there be some data.
    numbers = pd.DataFrame([{"rows": float(facts.rows)}])
    data = Dataset.from_pandas(numbers, DataDefinition(numerical_columns=["rows"]))
    page = report.run(data, None).get_html_str(as_iframe=False)
    # Evidently draws random names; with fixed ones the digest of a page means something.
    drawn = RANDOM_NAME.search(page)
    page = page.replace(drawn[1], "report") if drawn else page
    style = (files("rtscv_mlops.report") / "page.css").read_text()
    colours = Verdict.of(facts.verdict).traits.colours
    for name, colour in zip(("EDGE", "PAPER", "INK"), colours, strict=True):
        style = style.replace(f"VERDICT_{name}", colour)
    title = html.escape(
        f"{caption(facts.model)}, {caption(facts.verdict)}, {facts.window_start:%F}"
    )
    head = (
        f'<head>\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>"
    )
    return _with_fixed_ids(page, "page").strip().replace("<head>", head, 1)


def _section(name: str, number: float | None, widgets: list[BaseWidgetInfo]) -> Section:
    # Everything that came from data passes here, and nowhere else, on its way to Evidently.
    plain_data = json.loads(json.dumps([widget.dict() for widget in widgets], cls=NumpyEncoder))
    return Section(
        name=name,
        number=math.nan if number is None else float(number),
        content=_with_fixed_ids(json.dumps(text.inert(plain_data)), name),
    )


def _with_fixed_ids(content: str, name: str) -> str:
    numbers = itertools.count()
    return RANDOM_ID.sub(lambda _: f'"id": "{name} {next(numbers)}"', content)
