"""What a reviewer reads on the registry page and in Airflow, and one line for logs and tables."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rtscv_mlops import text
from rtscv_mlops.facts import ClusterCard, WindowFacts
from rtscv_mlops.outcomes import REASON_TAG, REVIEW_TAG, REVIEWER_TAG, ReviewStatus
from rtscv_mlops.text import Label, markdown

# MLflow's database keeps 5,000 characters of a description.
DESCRIPTION_LIMIT = 4_700
NUMBERS, DRIFT, METHOD = "Numbers", "Drift", "How it was obtained"
CUT = "Left out for length: {}. The report has all of it."
BREAK = "\n\n"
# MLflow's page draws tables without any space between columns.
GAP = "&emsp; | "
MAX_ROWS = 6
# Fewer, since their rows are long and must leave room for the comparison of classes.
MAX_GROUPS, FEWER_GROUPS = 4, 3
MAX_LINKS = 5
LONGEST_LINK = 250
# Characters of a value that tells a group apart: usually, and if room is short.
WIDE_VALUE, NARROW_VALUE = 60, 30
NOT_BY_HAND = (
    'Do not use "Promote model" and do not move aliases by hand: the record would not show it.'
)


def one_line(facts: WindowFacts) -> str:
    """Return the window in one line, for logs and tables."""
    parts = [text.window_name(facts), text.verdict_text(facts.verdict)]
    if not facts.assessed:
        return "  ".join([*parts, text.plain(facts.headline, 200)])
    if facts.detected:
        groups = text.counted(len(facts.clusters), "group")
        parts.append(text.unknown_share(facts))
        parts.append(f"{text.counted(facts.unknowns, 'row')} in {groups}")
    else:
        parts.append(f"nothing new in {text.counted(facts.sampled, 'row')}")
    if facts.drift and facts.drift.drifted:
        parts.append(f"{text.counted(facts.drift.drifted, 'column')} moved")
    return "  ".join([*parts, text.probability(facts.p_value)])


def describe(
    facts: WindowFacts, links: Mapping[str, str], version: str = "N", file: str = ""
) -> str:
    """Return the Markdown that a reviewer decides on, in fewer than `DESCRIPTION_LIMIT` characters.

    `links` are names and web addresses or paths. `version` and `file` are for the commands: the
    registered version, and the monitor's file as the reader types it. The description in MLflow
    is read anywhere, so it has no such path and names the file after the monitor. The first line
    has no markup, since MLflow's list of versions shows it raw.
    """
    review = _ReviewText(facts, links)
    first = [review.headline(), review.warning(), review.question()]
    last = [review.links_line(), review.commands(version, file)]
    sections = review.sections()
    room = DESCRIPTION_LIMIT - len(_joined([*first, *last, CUT, *sections]))
    if len(_joined(sections.values())) > room:
        sections[Label.GROUPS] = _titled(Label.GROUPS, review.groups(NARROW_VALUE, FEWER_GROUPS))
    fitting = set()
    # The comparison of classes decides most, so it gets room before all else.
    for title in sorted(sections, key=lambda title: title != Label.COMPARISON):
        if len(sections[title]) + len(BREAK) <= room:
            room -= len(sections[title]) + len(BREAK)
            fitting.add(title)
    shown = [section for title, section in sections.items() if title in fitting]
    left_out = [title.lower() for title in sections if title not in fitting]
    cut = CUT.format(", ".join(left_out)) if left_out else ""
    return _joined([*first, *shown, cut, *last])


def ask(facts: WindowFacts, links: Mapping[str, str], question: str) -> str:
    """Return the Markdown of a question that is answered right below it, whole.

    `question` is the `question_id` of what is decided on.
    """
    review = _ReviewText(facts, links)
    bound = f"Your answer counts for exactly this: {markdown(question, 200)}"
    return _joined(
        [
            f"**{review.headline()}**",
            review.question(),
            review.links_line(),
            *review.sections().values(),
            f"---\n\n{bound}",
        ]
    )


@dataclass(frozen=True, slots=True)
class _ReviewText:
    """The paragraphs and sections about one window, in Markdown; empty where there is nothing."""

    facts: WindowFacts
    links: Mapping[str, str]

    def headline(self) -> str:
        # Begins with our own text: a headline that begins with a sign would begin a list.
        sentence = f"Window {text.window_name(self.facts)}: {markdown(self.facts.headline, 400)}"
        if self.facts.assessed:
            return sentence
        return f"{self.verdict()}. {sentence} This does not mean that all is well."

    def verdict(self) -> str:
        return markdown(text.verdict_text(self.facts.verdict), 120)

    def warning(self) -> str:
        if not self.facts.detected:
            return ""
        return NOT_BY_HAND if self.facts.blocked else f"Answer as described below. {NOT_BY_HAND}"

    def question(self) -> str:
        facts = self.facts
        if not facts.detected:
            return "There is nothing to decide: this window has no challenger."
        if facts.blocked:
            return f"**Blocked, cannot be approved.** {markdown(facts.blocked, 500)}"
        champion = f"version {markdown(facts.champion_version, 20)} of {markdown(facts.model, 100)}"
        label = markdown(facts.unknown_label or "unknown", 60)
        return "\n".join(
            [
                f"Decide: may this model replace {champion}?\n",
                f'- **Yes:** it becomes the champion. It calls rows like those below "{label}", '
                "and recognises the known classes as shown below. `rtscv-mlops rollback` undoes "
                "it.",
                "- **No:** the champion stays, and this version is kept as rejected.",
                "- **No answer** means no.",
            ]
        )

    def sections(self) -> dict[str, str]:
        """Return all sections by title, in the order of the page."""
        bodies = {
            NUMBERS: self.numbers(),
            Label.GROUPS: self.groups(WIDE_VALUE, MAX_GROUPS),
            Label.COMPARISON: self.comparison(),
            DRIFT: self.drift(),
            Label.FINDINGS: self.findings(),
            METHOD: self.method(),
        }
        return {title: _titled(title, body) for title, body in bodies.items()}

    def numbers(self) -> str:
        facts = self.facts
        copies = f"; {facts.copies:,} repeat another row" if facts.copies else ""
        groups = text.counted(len(facts.clusters), "group")
        values = {
            Label.VERDICT: self.verdict(),
            Label.WINDOW: text.window_name(facts),
            Label.ROWS: f"{facts.rows:,}{copies}",
            Label.SAMPLED: f"{facts.sampled:,}",
            Label.UNKNOWNS: f"{facts.unknowns:,} in {groups}" if facts.assessed else "",
            Label.UNKNOWN_RATE: text.unknown_share(facts),
            Label.P_VALUE: text.probability(facts.p_value),
            Label.FALSE_RATE: text.percent(facts.told_false_rate, ""),
            Label.COMPARED_WITH: markdown(facts.null or text.NOT_KNOWN, 200),
        }
        return _table(["What", "Value"], (row for row in values.items() if row[1]))

    def groups(self, width: int, most: int) -> str:
        if not self.facts.clusters:
            return ""

        def row(card: ClusterCard) -> list[str]:
            labels = text.called(card, markdown, 3)
            if card.confidence is not None:
                labels[2:] = [f"median confidence {text.percent(card.confidence)}"]
            telling = "; ".join(
                f"{markdown(one.name, 40)}: {markdown(one.here, width)}, "
                f"known rows {markdown(one.known, width)}"
                for one in card.features[:2]
            )
            size, share = f"{card.size:,}", text.percent(card.share)
            return [str(card.number), size, share, ", ".join(labels), telling]

        header = ["Group", "Rows", "Share", "The champion called them", Label.FEATURE]
        cards = sorted(self.facts.clusters, key=lambda card: -card.size)
        return _capped(_table(header, map(row, cards[:most])), len(cards) - most, "group")

    def comparison(self) -> str:
        if not (comparison := self.facts.comparison):
            return ""
        champion, challenger = (
            f"accuracy {text.percent(accuracy)}, macro F {text.number(macro_f)}"
            for accuracy, macro_f in (
                (comparison.champion_accuracy, comparison.champion_macro_f),
                (comparison.challenger_accuracy, comparison.challenger_macro_f),
            )
        )
        rows = f"{text.counted(comparison.rows, 'known row')} ({markdown(comparison.how, 120)})"
        header = [
            *(Label.CLASS, Label.CLASS_ROWS, Label.CHAMPION, Label.CHALLENGER),
            *(Label.CHANGE, Label.CALLED_UNKNOWN),
        ]
        classes = text.class_rows(comparison)
        cells = (
            [
                *(markdown(row.known.label, 40), row.rows, row.champion, row.challenger),
                *(row.change, row.unknown),
            ]
            for row in classes[:MAX_ROWS]
        )
        table = _capped(_table(header, cells), len(classes) - MAX_ROWS, "class", "classes")
        offer = self.facts.challenger
        kind = f"{markdown(offer.why, 400)}{BREAK}" if offer and offer.why else ""
        return (
            f"{kind}On {rows}: champion {champion}; challenger {challenger}. Largest loss first; "
            f"{text.NOISE}\n\n{table}"
        )

    def drift(self) -> str:
        if not (drift := self.facts.drift):
            return ""
        moved = [column for column in drift.columns if column.drifted]
        most = ", ".join(
            f"{markdown(one.name, 40)} ({text.number(one.score)}, threshold "
            f"{text.number(one.threshold)})"
            for one in moved[:MAX_ROWS]
        )
        share = f"{text.percent(drift.share)} of those compared"
        columns = f"{text.counted(len(moved), 'column')} moved ({share})"
        return f"{columns}: {most}" if most else f"{columns}."

    def findings(self) -> str:
        findings = self.facts.findings
        shown = "\n".join(f"- {markdown(finding, 200)}" for finding in findings[:MAX_ROWS])
        return _capped(shown, len(findings) - MAX_ROWS, "finding")

    def method(self) -> str:
        facts = self.facts
        parts = ["Random test sampling and cross-validation"]
        if facts.reference_rows:
            parts.append(text.counted(facts.reference_rows, "reference row"))
        flat = [
            (name, one) for name, one in facts.shown_settings().items() if not isinstance(one, dict)
        ]
        parts += [f"{markdown(name, 30)} {markdown(str(value), 30)}" for name, value in flat[:12]]
        return ", ".join(parts)

    def links_line(self) -> str:
        """Return web addresses as links, and paths as code, where no renderer looks for links."""
        web, paths = [], []
        for name, address in self.links.items():
            link, path = text.safe_link(address), text.safe_path(address)
            if link and len(link) <= LONGEST_LINK:
                web.append(f"[{markdown(name, 40)}]({link})")
            if path and len(path) <= LONGEST_LINK:  # whole, or not at all
                paths.append(f"{markdown(name, 40)}: `{path}`")
        return f"See: {', '.join([*web, *paths][:MAX_LINKS])}" if web or paths else ""

    def commands(self, version: str, file: str) -> str:
        """Return how to answer; a blocked challenger was answered already, for good."""
        if not self.facts.detected or self.facts.blocked:
            return ""
        monitor = text.shell_word(self.facts.monitor, "monitor")
        file = shlex.quote(file) if file else f"{monitor}.yaml"
        commands = "\n".join(
            f"rtscv-mlops review {verb} {file} --version {text.shell_word(version, 'N')} "
            "--reviewer YOUR-NAME --reason WHY"
            for verb in ("approve", "reject")
        )
        answers = " or ".join(f"`{answer}`" for answer in ReviewStatus.answers())
        by_tag = (
            f"Or set three tags on this page in MLflow: `{REVIEWER_TAG}` to your name, "
            f"`{REASON_TAG}` to why, and last `{REVIEW_TAG}` to {answers}. It counts once "
            "a waiting Airflow run has seen it or, if none waits, after "
            f"`rtscv-mlops review collect {file}`."
        )
        return f"To answer, run one of:\n\n```\n{commands}\n```\n\n{by_tag}"


def _joined(paragraphs: Iterable[str]) -> str:
    return BREAK.join(filter(None, paragraphs))


def _titled(title: str, body: str) -> str:
    return f"---\n\n**{title}**\n\n{body}" if body else ""


def _table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [GAP.join(row) for row in (header, *rows)]
    lines.insert(1, " | ".join([":---"] * len(header)))
    return "\n".join(f"| {line} |" for line in lines)


def _capped(body: str, more: int, one: str, many: str = "") -> str:
    if more <= 0:
        return body
    left_out = text.counted(more, f"more {one}", many and f"more {many}")
    return f"{body}\n\nand {left_out}, in the report."
