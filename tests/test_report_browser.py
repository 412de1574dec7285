"""What the report promises in a real browser: it draws, asks for nothing, and runs no data."""

from dataclasses import dataclass, field

import pytest

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.report.page import write_page
from rtscv_mlops.text import caption
from tests.hostile import hostile
from tests.report_example import example, not_assessed

SETTINGS = DriftSettings()
WIDTHS = (1440, 800)

PAYLOADS = {
    "closing tag": "</script><script>window.ran=1</script>",
    "closing tag, spaced": "</script ><img src=x onerror=window.ran=1>",
    "capital closing tag": "</SCRIPT><svg/onload=window.ran=1>",
    "comment and script": "<!--<script>window.ran=1//",
    "image": "<img src=x onerror=alert(1)>",
    "image from afar": "<img src='https://evil.example/a.png'>",
    "vector graphic": "<svg><script>window.ran=1</script></svg>",
    "frame": "<iframe srcdoc='<script>parent.ran=1</script>'>",
    "string end": "\"};window.ran=1;var a={\"b\":\"",
    "template": "${window.ran=1}`;window.ran=1;`",
    "backslash": "\\\";window.ran=1;//",
    "entities": "&lt;img src=x onerror=window.ran=1&gt;",
    "Markdown image": "![a](https://evil.example/a.png)",
    "Markdown link": "[a](javascript:window.ran=1) <javascript:window.ran=1>",
    "Plotly link": "<a href='javascript:window.ran=1'>%{customdata}</a>",
    "line separator": "\u2028window.ran=1\u2029\x00\r\n</script>",
    "prototype": "__proto__",
}  # fmt: skip


@dataclass
class Visit:
    """What a browser saw of a page, and what the page tried."""

    text: str = ""
    blocked: str = ""
    plots: int = 0
    overflow: int = 0
    ran: object = None
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def visit(browser, path, width=WIDTHS[0], **options):
    """Open a page, wait until everything is drawn, and tell what happened."""
    seen = Visit()
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    page.set_default_timeout(120_000)  # a busy machine is no failure
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on(
        "console",
        lambda said: (
            seen.complaints.append(said.text) if said.type in ("error", "warning") else None
        ),
    )
    page.on("dialog", lambda dialog: (seen.complaints.append("dialog"), dialog.dismiss()))
    page.goto(path.as_uri())
    page.wait_for_selector("h1")
    page.wait_for_timeout(300)
    seen.text = page.inner_text("body")
    seen.blocked = "".join(page.locator("h2").all_inner_texts())
    seen.plots = page.locator(".js-plotly-plot .main-svg:first-child").count()
    seen.overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    seen.ran = page.evaluate("window.ran")
    page.close()
    return seen


@pytest.fixture(scope="module")
def digits():
    """A window with unknowns, as the pipeline would describe it."""
    return example()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_whole_report_is_drawn(browser, digits, width, tmp_path):
    """Every section is there and fits the screen; nothing is fetched, nothing complains."""
    facts, evidence = digits
    path = tmp_path / "report.html"
    write_page(facts, evidence, SETTINGS, path, links={"MLflow run": "https://mlflow.example/1"})

    seen = visit(browser, path, width)

    assert facts.headline in seen.text
    for title in ("What to know", "Group 1", "Recall by class", "Most moved columns"):
        assert title in seen.text
    assert seen.plots == 5
    assert seen.overflow <= 0
    assert seen.requests == [path.as_uri()]
    assert seen.complaints == []


@pytest.mark.parametrize("verdict", ["unknowns_and_drift", "not_assessed:no_champion"])
def test_a_report_of_facts_alone_is_drawn(browser, verdict, tmp_path):
    """No evidence, no clusters, no comparison, no drift: the verdict is still shown."""
    facts = not_assessed(verdict=verdict, headline="All that is known.", blocked="not reviewed")
    write_page(facts, None, SETTINGS, tmp_path / "report.html")

    seen = visit(browser, tmp_path / "report.html")

    assert "All that is known." in seen.text
    assert seen.blocked == "Challenger blocked: not reviewed"
    assert seen.complaints == []


def check_stays_text(browser, payloads, path):
    """Nothing of the payloads ran, and all of them can be read."""
    facts, evidence = hostile(payloads)
    links = {name: f"https://mlflow.example/{name}" for name in payloads}
    write_page(facts, evidence, SETTINGS, path, links=links)

    seen = visit(browser, path)

    assert seen.ran is None
    assert seen.requests == [path.as_uri()]
    assert seen.complaints == []
    assert [name for name in payloads if seen.text.count(caption(name)[:20]) < 4] == []
    assert seen.plots == 5
    assert "How this was obtained" in seen.text


def test_hostile_text_stays_text(browser, tmp_path):
    """Whatever a name, label or value holds is read by people and by nothing else."""
    check_stays_text(browser, list(PAYLOADS.values()), tmp_path / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_hostile_text_stays_text_in_every_place(browser, payload, tmp_path):
    """The same, with each payload in every text that a report has."""
    check_stays_text(browser, [payload], tmp_path / "report.html")


def test_a_script_that_got_in_reaches_nobody(browser, tmp_path):
    """The page's own policy stops a request even from a script within the page."""
    path = tmp_path / "report.html"
    write_page(not_assessed(), None, SETTINGS, path)
    script = "<script>fetch('https://evil.example/').catch(() => 0)</script></body>"
    path.write_text(path.read_text().replace("</body>", script))

    seen = visit(browser, path)

    assert [url for url in seen.requests if "evil" in url] == []
    assert any("Content Security Policy" in said for said in seen.complaints)
