"""One window's report: a single HTML file that asks nothing of any server."""

import hashlib
import html
import itertools
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.core.metric_types import (
    SingleValue,
    SingleValueCalculation,
    SingleValueMetric,
)
from evidently.core.report import Context
from evidently.legacy.model.widget import BaseWidgetInfo
from evidently.legacy.utils import NumpyEncoder

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.facts import Evidence, WindowFacts
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.report.sections import Sections
from rtscv_mlops.text import caption, inert

NO_LINKS: Mapping[str, str] = MappingProxyType({})

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The page may run what it holds, and ask for nothing."""

RANDOM_ID = re.compile(r'"id": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"')
RANDOM_NAME = re.compile(r'id="root_(metric_[0-9a-f]{32})"')


class Section(SingleValueMetric):  # type: ignore[misc]
    """One section of the report, with the number that it is about."""

    name: str
    number: float
    content: str
    """Its widgets as JSON."""


class SectionCalculation(SingleValueCalculation[Section]):  # type: ignore[misc]
    """Hands the section's widgets to Evidently; the numbers were computed before."""

    def calculate(
        self, context: Context, current_data: Dataset, reference_data: Dataset | None
    ) -> SingleValue:
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
    return _with_head(_with_fixed_ids(page, "page").strip(), facts)


def _section(name: str, number: float | None, widgets: list[BaseWidgetInfo]) -> Section:
    # Everything that came from data passes here, and nowhere else, on its way to Evidently.
    plain_data = json.loads(json.dumps([widget.dict() for widget in widgets], cls=NumpyEncoder))
    return Section(
        name=name,
        number=math.nan if number is None else float(number),
        content=_with_fixed_ids(json.dumps(inert(plain_data)), name),
    )


def _with_fixed_ids(text: str, name: str) -> str:
    numbers = itertools.count()
    return RANDOM_ID.sub(lambda _: f'"id": "{name} {next(numbers)}"', text)


def _with_head(page: str, facts: WindowFacts) -> str:
    edge, paper, ink = Verdict.of(facts.verdict).traits.colours
    style = (files("rtscv_mlops.report") / "page.css").read_text()
    for name, colour in (("EDGE", edge), ("PAPER", paper), ("INK", ink)):
        style = style.replace(f"VERDICT_{name}", colour)
    title = html.escape(
        f"{caption(facts.model)}, {caption(facts.verdict)}, {facts.window_start:%F}"
    )
    head = (
        f'<head>\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>"
    )
    return page.replace("<head>", head, 1)
