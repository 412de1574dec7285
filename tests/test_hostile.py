"""Whatever a name, label, value or reason holds stays text, wherever it is shown.

The corpus goes into every text field; what a trial is (one string in one field) is counted. The
pages that Airflow serves are tried in `test_airflow_page`, where an Airflow runs.
"""

import html
import io
import json
import os
import re
import subprocess
import sys
from email import message_from_bytes, policy

import pytest
from jinja2 import Environment
from markdown_it import MarkdownIt

from rtscv_mlops.alerts.alert import AlertDecision, make_alert
from rtscv_mlops.alerts.channels import make_email
from rtscv_mlops.cli import commands, output
from rtscv_mlops.config.monitor import DriftSettings, Email
from rtscv_mlops.errors import WindowError
from rtscv_mlops.facts import ColumnDrift, DriftFacts
from rtscv_mlops.operations.check import Check
from rtscv_mlops.pipeline.run import Outcome
from rtscv_mlops.report.page import write_page
from rtscv_mlops.review.question import ask, describe, one_line
from rtscv_mlops.text import caption, markdown
from rtscv_mlops.text import plain as one_plain_line
from tests.hostile import (
    CORPUS,
    hostile,
    hostile_cards,
    hostile_comparison,
    watched,
)
from tests.monitors import MINIMAL, write_monitor
from tests.report_example import not_assessed

ALL_COLUMNS = DriftSettings(max_columns=200)
ONCE = 32
"""Strings on one report: it shows eight groups, here with four strings each."""
LISTS = 14
"""Places of a report that show each string: see `hostile`; of values only the commonest."""
SINGLE = 10
"""Texts of which a report has one only."""
DUE = AlertDecision(True, "It is due.")


@pytest.fixture
def trials(record_property):
    """Count the trials of a test: strings times fields."""

    def count(strings, fields):
        record_property("trials", len(strings) * fields)

    return count


# -- that the corpus is worth something

PLACES = (
    "<p>{}</p>",
    "<p><input title='{}'></p>",
    '<script>var a = "{}";</script>',
    '<iframe src="{}"></iframe>',
)


def test_the_corpus_would_run(browser):
    """Written as they are, half of the strings run in one of a few places: they are seen."""
    assert len(set(CORPUS)) == len(CORPUS) >= 60
    with watched(browser) as seen:
        seen.page.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
        seen.page.goto("http://origin.example/")
        for place in PLACES:
            # All at once, each in a frame of its own: what one breaks, breaks no other.
            frames = [f"<!doctype html>{place.format(one)}" for one in CORPUS]
            seen.page.set_content(
                "".join(f'<iframe srcdoc="{html.escape(one)}"></iframe>' for one in frames)
            )
            seen.settle(1)
    assert len(seen.with_access) >= 50
    assert len([url for url in seen.requests if "evil.example" in url]) >= 5


# -- the report


@pytest.mark.parametrize("first", range(0, len(CORPUS), ONCE))
def test_a_report_runs_none_of_it(browser, tmp_path, trials, first):
    """Every text of a report, on a page with an origin of its own: nothing runs, all is read."""
    strings = CORPUS[first : first + ONCE]
    facts, evidence = hostile(strings)
    path = tmp_path / "report.html"
    links = {one: f"https://mlflow.example/{one}" for one in strings}
    write_page(facts, evidence, ALL_COLUMNS, path, links=links)

    with watched(browser) as seen:
        text = visit(seen, path.read_text())

        assert seen.armed() == []
        assert seen.page.locator(".js-plotly-plot .main-svg:first-child").count() == 5
    assert seen.calls == []
    assert seen.requests == ["http://origin.example/"]
    assert seen.complaints == []
    assert [one for one in strings if text.count(caption(one)[:20]) < 4] == []
    assert "How this was obtained" in text
    trials(strings, LISTS)


def visit(seen, page, wait_for="h1"):
    """Serve a page from an origin with a cookie, without the policy that our own server adds."""
    seen.page.context.add_cookies(
        [{"name": "session", "value": "s", "url": "http://origin.example"}]
    )
    seen.page.route(
        "**/*",
        lambda route: route.fulfill(body=page, content_type="text/html; charset=utf-8"),
    )
    seen.page.goto("http://origin.example/")
    seen.page.wait_for_selector(wait_for)
    seen.settle()
    return seen.page.inner_text("body")


@pytest.mark.slow
@pytest.mark.parametrize("text", CORPUS, ids=range(len(CORPUS)))
def test_a_report_runs_none_of_it_in_any_place(browser, tmp_path, trials, text):
    """The same, with one string in every text that a report has."""
    facts, evidence = hostile([text])
    # What is given as a link is one if it is a web address, as here some of the strings are.
    links = {text: OURS if text.startswith("https://") else text}
    write_page(facts, evidence, ALL_COLUMNS, tmp_path / "report.html", links=links)

    with watched(browser) as seen:
        visit(seen, (tmp_path / "report.html").read_text())
        assert seen.armed() == []
    assert (seen.calls, len(seen.requests)) == ([], 1)
    trials([text], LISTS + SINGLE)


# -- Markdown: MLflow's description and note, Airflow's question


def all_of(text):
    """Facts in which every text is the same."""
    column = ColumnDrift(name=text, kind="number", score=0.3, threshold=0.1, drifted=True)
    names = ("monitor", "model", "champion_version", "headline", "null", "unknown_label", "blocked")
    return not_assessed(
        **dict.fromkeys(names, text),
        verdict="unknowns",
        findings=(text,),
        clusters=tuple(hostile_cards([text])),
        drift=DriftFacts(share=0.2, columns=(column,)),
        comparison=hostile_comparison([text], text),
        settings={text: text},
    )


FACTS = tuple(map(all_of, CORPUS))
MARK = "QQQ"
"""How often it is shown says in how many places a text is: not all show every field."""
OURS = "https://mlflow.example/"
WRITTEN = {
    "description": lambda facts, text: describe(facts, {text: OURS}, text),
    "question": lambda facts, text: ask(facts.model_copy(update={"blocked": ""}), {}, text),
    "note": lambda facts, text: f"x {markdown(facts.headline)}",
    "error": lambda facts, text: describe(
        facts.model_copy(update={"verdict": f"not_assessed:{text}"}), {}
    ),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_markdown_runs_none_of_it(browser, trials, kind):
    """Also where raw HTML is allowed and bare addresses become links, all stays text."""
    renderer = MarkdownIt("gfm-like", {"html": True})
    pages = [WRITTEN[kind](facts, text) for facts, text in zip(FACTS, CORPUS, strict=True)]
    body = "".join(f"<section>{renderer.render(page)}</section>" for page in pages)

    with watched(browser) as seen:
        visit(seen, f"<!doctype html><body>{body}</body>", "section")
        assert seen.armed() == []
        assert seen.page.locator("section").count() == len(CORPUS)
        assert seen.page.locator(f"a:not([href='{OURS}']), img, script, style, svg").count() == 0
        texts = seen.page.locator("section").all_text_contents()
    assert (seen.calls, len(seen.requests)) == ([], 1)
    for text, shown in zip(CORPUS, texts, strict=True):
        assert one_plain_line(text, 400)[:12] in shown.replace("\u200b", "")
    trials(CORPUS, WRITTEN[kind](all_of(MARK), MARK).count(MARK))


@pytest.mark.parametrize("kind", WRITTEN)
def test_jinja_finds_nothing_in_markdown(trials, kind):
    """A template engine that is given our Markdown by mistake returns it as it is."""
    engine = Environment(autoescape=False, keep_trailing_newline=True)
    for facts, text in zip(FACTS, CORPUS, strict=True):
        written = WRITTEN[kind](facts, text)

        assert engine.from_string(written).render() == written
    trials(CORPUS, WRITTEN[kind](all_of(MARK), MARK).count(MARK))


OPERATORS = """
import json, sys
from pathlib import Path
from rtscv_mlops.airflow.dags import build_dag
from rtscv_mlops.config.loading import load_monitor
path = Path(sys.argv[1])
tasks = build_dag(load_monitor(path), path).tasks
fields = {f"{task.task_id}.{name}": str(getattr(task, name, "")) for task in tasks
          for name in task.template_fields}
print(json.dumps(fields))
"""


def test_no_template_of_a_task_holds_a_name(tmp_path):
    """Airflow runs Jinja over some fields of a task; the model's name stands in none of them."""
    model = "leaves {{ 7*7 }} {% boom"
    file = write_monitor(tmp_path, MINIMAL.replace("name: digits", f"name: '{model}'"))
    done = subprocess.run(
        [sys.executable, "-c", OPERATORS, str(file)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow")},
        capture_output=True,
        text=True,
        check=True,
    )
    fields = json.loads(done.stdout.splitlines()[-1])

    assert fields["review_challenger.subject"] == "May the challenger serve?"
    assert [name for name, text in fields.items() if "{" in text and text != "{}"] == []


# -- alerts


def test_an_alert_is_text(browser, trials):
    """Subject, text and JSON have one shape whatever data says; as HTML nothing in them runs."""
    harmless = make_alert(all_of(MARK), AlertDecision(True, MARK), {MARK: MARK})
    shown = []
    for facts, text in zip(FACTS, CORPUS, strict=True):
        alert = make_alert(facts, AlertDecision(True, text), {text: text})
        payload = alert.payload()

        assert alert.subject.isprintable()
        assert len(alert.text.splitlines()) == len(harmless.text.splitlines())
        assert payload.keys() == harmless.payload().keys()
        assert "<" not in json.dumps(payload).replace("p < 0", "")
        shown.append(f"<section>{payload['text']} {alert.subject}</section>")
    with watched(browser) as seen:
        visit(seen, "<!doctype html>" + "".join(shown), "section")
        assert seen.armed() == []
        assert seen.page.locator("section").count() == len(CORPUS)
    assert (seen.calls, len(seen.requests)) == ([], 1)
    trials(CORPUS, json.dumps(harmless.payload()).count(MARK))


def test_an_e_mail_has_no_html(trials):
    """One part of plain text, and no header but ours, whoever chose the names."""
    ours = {"Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version"}
    for facts in FACTS:
        message = make_email(make_alert(facts, DUE, {}), Email(to=("team@example.com",)))
        read = message_from_bytes(bytes(message), policy=policy.default)

        assert (read.get_content_type(), read.is_multipart()) == ("text/plain", False)
        assert set(read) - {"Content-Type", "Content-Transfer-Encoding"} == ours
        assert read["To"] == "team@example.com"
    shown = make_email(make_alert(all_of(MARK), DUE, {}), Email(to=("team@example.com",)))
    trials(CORPUS, str(shown).count(MARK))


# -- the terminal


@pytest.fixture
def terminal(monkeypatch):
    """Return what a command writes to a screen without colours: it has no escapes of its own."""
    out = io.StringIO()
    made = output.console

    def console(*, stderr=False):
        plain_console = made(stderr=stderr)
        plain_console.file, plain_console.width = out, 20_000
        return plain_console

    monkeypatch.setattr(output, "console", console)
    return out


def test_a_terminal_is_not_steered(terminal, monkeypatch, capsys, trials):
    """Escapes, and Rich's own markup, are printed as text by each way that a command prints."""
    versions = [hostile_version(text) for text in CORPUS]
    for facts, text in zip(FACTS, CORPUS, strict=True):
        outcome = Outcome(facts, "run", None, repeated=False, alert=text)
        output.print_outcome(outcome, "m.yaml", text)
        output.print_checks([Check(text, "warning", text)])
        output.print_table(text, [text], [[text]])
        print(one_line(facts), file=terminal)
        raise_from_command(monkeypatch, text)
    output.print_challengers(versions, "m.yaml")

    written = terminal.getvalue() + "".join(capsys.readouterr())
    assert not re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", written.replace("\r\n", "\n"))
    assert "[bold red]Z(" in written
    assert written.count("[link=javascript") >= 6
    trials(CORPUS, 14)


def hostile_version(text):
    """A challenger about which somebody wrote."""
    from datetime import UTC, datetime

    from rtscv_mlops.tracking.seals import Seal
    from rtscv_mlops.tracking.versions import VersionSummary

    fields = dict.fromkeys(VersionSummary.__dataclass_fields__, text)
    day = "2026-01-05T00:00:00+00:00"
    parts = dict.fromkeys(Seal.__dataclass_fields__, text)
    seal = Seal(**parts | {"window_start": day, "window_end": "2026-01-06T00:00:00+00:00"})
    made = {"seal": seal, "created": datetime(2026, 1, 5, tzinfo=UTC)}
    return VersionSummary(**fields | made)


def raise_from_command(monkeypatch, text):
    """Let a command end with an error whose sentence and code hold the text."""

    def fail():
        raise WindowError(f"Column {text} is missing.", code=text)

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit):
        commands.main()
