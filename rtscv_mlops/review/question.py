"""What a reviewer reads on the registry page, and one line for logs and tables.

Knows the facts of one window; renders them and decides nothing.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite

from rtscv_mlops.facts import ClassComparison, ClusterCard, ColumnDrift, TellingFeature, WindowFacts
from rtscv_mlops.outcomes import REASON_TAG, REVIEW_TAG, REVIEWER_TAG, ReviewStatus
from rtscv_mlops.text import (
    NOT_KNOWN,
    counted,
    markdown,
    number,
    percent,
    plain,
    probability,
    rate,
    safe_link,
    safe_path,
    shell_word,
    verdict_text,
    window_name,
)

# MLflow's database keeps 5,000 characters of a description.
DESCRIPTION_LIMIT = 4_700
GROUPS = "What is new"
COMPARISON = "Champion against challenger"
CUT = "Left out for length: {}. The report has all of it."
BREAK = "\n\n"
# MLflow's page draws tables without any space between columns.
GAP = "&emsp; | "
MAX_ROWS = 6
# Fewer, since their rows are wordy and must leave room for the comparison of classes.
MAX_GROUPS, FEWER_GROUPS = 4, 3
MAX_LINKS = 5
LONGEST_LINK = 250
# Characters of a value that tells a group apart: as it is shown, and where room is short.
WIDE_VALUE, NARROW_VALUE = 60, 30
PAST_THE_RECORD = (
    'Do not use "Promote model" and do not move aliases by hand: that goes past the record.'
)


def one_line(facts: WindowFacts) -> str:
    """Return the window in one line, for logs and tables."""
    return "  ".join([window_name(facts), verdict_text(facts.verdict), *_findings_in_short(facts)])


def _findings_in_short(facts: WindowFacts) -> list[str]:
    if not facts.assessed:
        return [plain(facts.headline, 200)]
    if facts.detected:
        rows, groups = counted(facts.unknowns, "row"), counted(len(facts.clusters), "group")
        found = [rate(facts.unknown_rate, facts.unknown_rate_interval), f"{rows} in {groups}"]
    else:
        found = [f"nothing new in {counted(facts.sampled, 'row')}"]
    if facts.drift and facts.drift.drifted:
        found.append(f"{counted(facts.drift.drifted, 'column')} moved")
    return [*found, probability(facts.p_value)]


def describe(facts: WindowFacts, links: Mapping[str, str], version: str = "N") -> str:
    """Return the Markdown that a reviewer decides on, in fewer than `DESCRIPTION_LIMIT` characters.

    `links` are names and web addresses or paths; `version` is the registered one, for the
    commands. The first line has no markup, since MLflow's list of versions shows it raw.
    """
    first = [_headline(facts), _warning(facts), _question(facts)]
    last = [_links(links), _commands(facts, version)]
    room = DESCRIPTION_LIMIT - len(_joined([*first, *last, CUT, *SECTIONS]))
    shown, left_out = _fitting_sections(facts, room)
    cut = CUT.format(", ".join(left_out)) if left_out else ""
    return _joined([*first, *shown, cut, *last])


def ask(facts: WindowFacts, links: Mapping[str, str], question: str) -> str:
    """Return the Markdown of a question that is answered right below it, whole.

    `question` is one word for what is decided on.
    """
    sections = [_titled(title, section(facts)) for title, section in SECTIONS.items()]
    bound = f"Your answer counts for exactly this: {markdown(question, 200)}"
    return _joined(
        [f"**{_headline(facts)}**", _question(facts), _links(links), *sections, f"---\n\n{bound}"]
    )


def _fitting_sections(facts: WindowFacts, room: int) -> tuple[list[str], list[str]]:
    """Return the sections for which there is room, and the titles of the others, in page order."""
    texts = {title: _titled(title, section(facts)) for title, section in SECTIONS.items()}
    if len(_joined(texts.values())) > room:
        texts[GROUPS] = _titled(GROUPS, _clusters(facts, NARROW_VALUE, FEWER_GROUPS))
    fitting = set()
    # The comparison of classes decides most, so it gets room before all else.
    for title in sorted(SECTIONS, key=lambda title: title != COMPARISON):
        if len(texts[title]) + len(BREAK) <= room:
            room -= len(texts[title]) + len(BREAK)
            fitting.add(title)
    shown = [text for title, text in texts.items() if title in fitting]
    return shown, [title.lower() for title in texts if title not in fitting]


def _titled(title: str, body: str) -> str:
    return f"---\n\n**{title}**\n\n{body}" if body else ""


def _joined(paragraphs: Iterable[str]) -> str:
    return BREAK.join(filter(None, paragraphs))


def _headline(facts: WindowFacts) -> str:
    # Its own words first: a sentence that begins with a sign would begin a list or a heading.
    sentence = f"Window {window_name(facts)}: {markdown(facts.headline, 400)}"
    if facts.assessed:
        return sentence
    return f"{_verdict(facts)}. {sentence} This does not say that all is well."


def _warning(facts: WindowFacts) -> str:
    if not facts.detected:
        return ""
    return PAST_THE_RECORD if facts.blocked else f"Answer as described below. {PAST_THE_RECORD}"


def _verdict(facts: WindowFacts) -> str:
    return markdown(verdict_text(facts.verdict), 120)


def _question(facts: WindowFacts) -> str:
    if not facts.detected:
        return "Nothing is to be decided: no challenger was made of this window."
    if facts.blocked:
        return f"**Blocked, cannot be approved.** {markdown(facts.blocked, 500)}"
    champion = f"version {markdown(facts.champion_version, 20)} of {markdown(facts.model, 100)}"
    label = markdown(facts.unknown_label or "unknown", 60)
    return "\n".join(
        [
            f"Decide: may this model take the place of {champion}?\n",
            f'- **Yes:** it becomes the champion. It calls rows like those below "{label}", and '
            "knows the old classes as shown below. `rtscv-mlops rollback` undoes it.",
            "- **No:** the champion stays, and this version is kept as rejected.",
            "- **No answer** means no.",
        ]
    )


def _numbers(facts: WindowFacts) -> str:
    looked_at = f"{counted(facts.rows, 'row')}, {facts.sampled:,} of them looked at"
    copies = f"; {facts.copies:,} repeat another row" if facts.copies else ""
    groups = counted(len(facts.clusters), "group")
    shown = {
        "Verdict": _verdict(facts),
        "Window": window_name(facts),
        "Size": looked_at + copies,
        "Unknowns": f"{facts.unknowns:,} in {groups}" if facts.assessed else "",
        "Share of unknowns": rate(facts.unknown_rate, facts.unknown_rate_interval),
        "Chance of this if nothing were new": probability(facts.p_value),
        "Known rows wrongly called unknown": percent(facts.known_false_rate),
        "Compared with": markdown(facts.null or NOT_KNOWN, 200),
    }
    return _table(["What", "Value"], ((what, value) for what, value in shown.items() if value))


def _clusters(facts: WindowFacts, width: int = WIDE_VALUE, most: int = MAX_GROUPS) -> str:
    if not facts.clusters:
        return ""
    header = ["Group", "Rows", "Share", "The champion called them", "What tells them apart"]
    cards = sorted(facts.clusters, key=lambda card: -card.size)
    table = _table(header, (_cluster_row(card, width) for card in cards[:most]))
    return _capped(table, len(cards) - most, "group")


def _cluster_row(card: ClusterCard, width: int) -> list[str]:
    called = [f"{markdown(label, 40)} ({percent(part)})" for label, part in card.called.items()]
    if card.confidence is not None:
        called[2:] = [f"median confidence {percent(card.confidence)}"]
    telling = "; ".join(_telling(feature, width) for feature in card.features[:2])
    return [str(card.number), f"{card.size:,}", percent(card.share), ", ".join(called[:3]), telling]


def _telling(feature: TellingFeature, width: int) -> str:
    here, known = markdown(feature.here, width), markdown(feature.known, width)
    return f"{markdown(feature.name, 40)}: {here}, known rows {known}"


def _comparison(facts: WindowFacts) -> str:
    if not (comparison := facts.comparison):
        return ""
    champion, challenger = (
        f"accuracy {percent(accuracy)}, macro F {number(macro_f)}"
        for accuracy, macro_f in (
            (comparison.champion_accuracy, comparison.champion_macro_f),
            (comparison.challenger_accuracy, comparison.challenger_macro_f),
        )
    )
    rows = f"{counted(comparison.rows, 'known row')} ({markdown(comparison.how, 120)})"
    classes = sorted(comparison.classes, key=_loss, reverse=True)
    header = ["Class", "Rows", "Champion finds", "Challenger finds", "Called unknown"]
    table = _table(header, map(_class_row, classes[:MAX_ROWS]))
    table = _capped(table, len(classes) - MAX_ROWS, "class", "classes")
    return (
        f"On {rows}: champion {champion}; challenger {challenger}. Largest loss first.\n\n{table}"
    )


def _loss(known: ClassComparison) -> float:
    """Return what to sort by; a class without held-out rows has lost nothing that is known."""
    return known.loss if isfinite(known.loss) else -inf


def _class_row(known: ClassComparison) -> list[str]:
    shares = (percent(share) for share in (known.champion, known.challenger, known.unknown))
    return [markdown(known.label, 40), f"{known.rows:,}", *shares]


def _drift(facts: WindowFacts) -> str:
    if not (drift := facts.drift):
        return ""
    moved = [column for column in drift.columns if column.drifted]
    compared = f"{counted(len(moved), 'column')} moved ({percent(drift.share)} of those compared)"
    most = ", ".join(_column(column) for column in moved[:MAX_ROWS])
    return f"{compared}{': ' if most else '.'}{most}"


def _column(column: ColumnDrift) -> str:
    return f"{markdown(column.name, 40)} ({number(column.score)}, limit {number(column.threshold)})"


def _odd(facts: WindowFacts) -> str:
    found = [f"- {markdown(finding, 200)}" for finding in facts.findings[:MAX_ROWS]]
    return _capped("\n".join(found), len(facts.findings) - MAX_ROWS, "finding")


def _method(facts: WindowFacts) -> str:
    shown = facts.shown_settings().items()
    flat = [(name, value) for name, value in shown if not isinstance(value, dict)]
    settings = [f"{markdown(name, 30)} {markdown(str(value), 30)}" for name, value in flat[:12]]
    reference = f"{counted(facts.reference_rows, 'reference row')}" if facts.reference_rows else ""
    return ", ".join(
        filter(None, ["Random test sampling and cross-validation", reference, *settings])
    )


SECTIONS = {
    "Numbers": _numbers,
    GROUPS: _clusters,
    COMPARISON: _comparison,
    "Drift": _drift,
    "Also noticed": _odd,
    "How it was obtained": _method,
}


def _links(links: Mapping[str, str]) -> str:
    safe = ((markdown(name, 40), safe_link(address)) for name, address in links.items())
    kept = [f"[{name}]({link})" for name, link in safe if link and len(link) <= LONGEST_LINK]
    paths = ((markdown(name, 40), safe_path(address)) for name, address in links.items())
    # In code no renderer looks for links; a path is shown whole or not at all.
    kept += [f"{name}: `{path}`" for name, path in paths if path and len(path) <= LONGEST_LINK]
    return f"See: {', '.join(kept[:MAX_LINKS])}" if kept else ""


def _commands(facts: WindowFacts, version: str) -> str:
    """Return how to answer; what is blocked has its answer already, and takes no other."""
    if not facts.detected or facts.blocked:
        return ""
    monitor, version = shell_word(facts.monitor, "monitor"), shell_word(version, "N")
    commands = "\n".join(
        f"rtscv-mlops review {verb} {monitor}.yaml --version {version} --reviewer YOUR-NAME"
        for verb in ("approve", "reject")
    )
    by_tag = (
        f"Or set three tags on this page in MLflow: `{REVIEWER_TAG}` to your name, `{REASON_TAG}` "
        f"to why, and last `{REVIEW_TAG}` to `{ReviewStatus.APPROVED}` or "
        f"`{ReviewStatus.REJECTED}`. It counts once a waiting Airflow run has seen it or, where "
        f"none waits, after `rtscv-mlops review collect {monitor}.yaml`."
    )
    return f"To answer, run one of:\n\n```\n{commands}\n```\n\n{by_tag}"


def with_file(description: str, monitor: str, file: str) -> str:
    """Return a description whose commands name the monitor's file as its reader does."""
    command = re.compile(
        rf"(rtscv-mlops review \w+ ){re.escape(shell_word(monitor, 'monitor'))}\.yaml"
    )
    return command.sub(lambda found: found[1] + shlex.quote(file), description)


def _table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [GAP.join(row) for row in (header, *rows)]
    lines.insert(1, " | ".join([":---"] * len(header)))
    return "\n".join(f"| {line} |" for line in lines)


def _capped(text: str, more: int, one: str, many: str = "") -> str:
    if more <= 0:
        return text
    return f"{text}\n\nand {counted(more, f'more {one}', many and f'more {many}')}, in the report."
