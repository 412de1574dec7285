"""The pages in a real Airflow: who may see what, what they say, and how a decision gets through."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from urllib.parse import quote

import pytest
import requests

from benchmarks.deployments import EMPTY, MODEL, MOVED, NEW, QUIET
from rtscv_mlops.airflow.page.app import TEMPLATES
from rtscv_mlops.airflow.page.views import Rights, decide, record_rows, window_view
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.facts import TellingFeature
from rtscv_mlops.operations import overview
from rtscv_mlops.review.answers import question_id, review_challenger
from rtscv_mlops.text import plain
from rtscv_mlops.tracking import journal
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.promotion import History
from rtscv_mlops.tracking.registry import ModelRegistry, read_facts, write_facts
from rtscv_mlops.tracking.runs import WindowRun
from tests.airflow_site import ROLES, airflow_site
from tests.deployments import deployed, judged_copy, seal_again
from tests.hostile import CORPUS, hostile_cards, hostile_comparison, watched

DAG, THORNY_DAG, ROOTS_DAG, STONES_DAG = (
    f"rtscv__{name}" for name in ("leaves", "thorns", "roots", "stones")
)
MOST_RECORDS = 20
"""As many as the page shows."""
DAG_RUN, CONF_RUN, IDLE_RUN = "manual__2026-01-08T00:00:00+00:00", "by_conf", "idle"
OUR_SCRIPT = '<script src="/rtscv/static/page.js" defer>'
HOSTILE = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
ROUTES = """
import json
from rtscv_mlops.airflow.plugin import PAGES
routes = PAGES["app"].routes
table = [[r.path, type(r).__name__, sorted(getattr(r, "methods", "?"))] for r in routes]
print(json.dumps(table))
"""


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    """A deployment of which each day was judged, and whose challenger waits."""
    return judged_copy(tmp_path_factory.mktemp("leaves"))


@pytest.fixture(scope="module")
def thorns(tmp_path_factory):
    """A deployment whose data and reviewer wrote script wherever they could."""
    deployment = deployed(tmp_path_factory.mktemp("thorns"))
    monitor = deployment.monitor("thorns")
    version = deployment.run(NEW, monitor).version
    run = WindowRun(deployment.client, deployment.runs(NEW, "thorns")[0].run_id)
    write_facts(run, hostile_facts(read_facts(run)))
    seal_again(deployment, run.run_id)
    review_challenger(monitor, version, approve=False, reviewer=HOSTILE, reason=f"Not {HOSTILE}")
    write_hostile_records(deployment)
    return deployment


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A deployment whose challenger waits, and about which Airflow has not asked yet."""
    deployment = deployed(tmp_path_factory.mktemp("roots"))
    deployment.run(NEW, deployment.monitor("roots"))
    return deployment


@pytest.fixture(scope="module")
def stones(tmp_path_factory):
    """A deployment whose challenger is blocked."""
    deployment = deployed(tmp_path_factory.mktemp("stones"))
    deployment.run(NEW, deployment.monitor("stones", "review:\n  min_unknowns: 1000\n"))
    return deployment


def hostile_facts(facts):
    """Put script into every text that comes from data."""
    return facts.model_copy(
        update={
            "headline": HOSTILE,
            "blocked": HOSTILE,
            "findings": (HOSTILE, *CORPUS),
            "clusters": tuple(hostile_cards([HOSTILE, *CORPUS])),
            "comparison": hostile_comparison([HOSTILE, *CORPUS], HOSTILE),
        }
    )


def write_hostile_records(deployment):
    """Record decisions whose people are called like a string, and whose reasons hold many."""
    strings = [one for one in CORPUS if len(one) < 200]
    ledger = Ledger.open(deployment.client, MODEL)
    for place in range(MOST_RECORDS - 1):
        some = "\n".join(strings[place :: MOST_RECORDS - 1])
        entry = journal.Entry("stale", strings[place], "", strings[-place], some)
        journal.Journal(ledger).append(lambda _, entry=entry: entry)


@pytest.fixture(scope="module")
def site(tmp_path_factory, leaves, thorns):
    """Airflow with four monitors: two that work, one that cannot be read, one without MLflow."""
    with airflow_site(tmp_path_factory.mktemp("airflow")) as site:
        show(site, leaves, "leaves")
        show(site, thorns, "thorns")
        (site.monitors / "broken.yaml").write_text("model:\n  nam: leaves\n")
        (site.monitors / "absent.yaml").write_text(
            "model:\n  name: moss\n  tracking_uri: http://127.0.0.1:9\n"
            "source:\n  path: moss/\n  timestamp: seen_at\n"
        )
        site.ask(
            question(DAG_RUN, waiting_question(leaves)),
            question(CONF_RUN, "another question", conf={"window": EMPTY}, day=QUIET),
            question(IDLE_RUN, "another question", day="2026-03-01"),
        )
        yield site


def show(site, deployment, name):
    """Let Airflow see a monitor of a deployment."""
    text = deployment.write_monitor(name).read_text()
    text = text.replace("path: windows/", f"path: {deployment.folder}/windows/")
    (site.monitors / f"{name}.yaml").write_text(text)


def waiting_question(deployment):
    return question_id(ModelRegistry(deployment.client, MODEL).versions.pending())


def question(run_id, asked, day=NEW, conf=None, dag_id=DAG, reviewers=()):
    """A DAG run of a day whose task asks something."""
    end = date.fromisoformat(day) + timedelta(days=1)
    return {
        "dag_id": dag_id,
        "run_id": run_id,
        "start": f"{day}T00:00:00+00:00",
        "end": f"{end}T00:00:00+00:00",
        "conf": conf or {},
        "reviewers": list(reviewers),
        "params": {"question": {"value": asked, "schema": {}}, "reason": {"value": None}},
    }


@pytest.fixture(scope="module")
def runs(leaves):
    """The run of each day."""
    return {day: leaves.runs(day)[0].run_id for day in (QUIET, MOVED, NEW, EMPTY)}


@pytest.fixture(scope="module")
def paths(site, runs):
    """Every address of the app that answers, made from its own table of routes."""
    filled = {"dag_id": DAG, "run_id": runs[NEW], "dag_run_id": DAG_RUN, "name": "page.css"}
    table = json.loads(site.run("python", "-c", ROUTES).splitlines()[-1])
    assert {kind for _, kind, _ in table} == {"APIRoute"}, "a mount escapes the guard of the app"
    writing = [path for path, _, methods in table if methods != ["GET"]]
    assert writing == ["/dags/{dag_id}/answer"]
    return [f"/rtscv{path.format(**filled)}" for path, *_ in table if path not in writing]


def window(run_id, dag_id=DAG):
    return f"/rtscv/dags/{dag_id}/windows/{run_id}"


def test_nobody_sees_a_page_without_login(site, paths):
    """Every route of the table refuses who is not logged in, and who shows a wrong token."""
    assert len(paths) >= 5
    for path in paths:
        forged = requests.get(f"{site.address}{path}", cookies={"_token": "x.y.z"}, timeout=30)

        assert site.get(path, user=None).status_code == 401, path
        assert forged.status_code == 403, path


@pytest.mark.parametrize("user", ROLES)
def test_every_role_reads_and_none_writes(site, paths, user):
    """Each role sees each page; no address of a page takes anything but GET."""
    for path in paths:
        assert site.get(path, user).status_code == 200, path
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert site.get(path, user, method).status_code == 405, path


@pytest.mark.parametrize("name", ["docs", "redoc", "openapi.json", "static/../app.py", "static/x"])
def test_there_is_no_other_page(site, name):
    """No page describes the app, and no file but those of the page is sent."""
    assert site.get(f"/rtscv/{name}", "ada").status_code == 404


def test_a_page_may_run_its_own_script_only(site, runs):
    """Pages may load what this server sends, may be framed by it alone, and are not kept."""
    headers = site.get(window(runs[NEW])).headers

    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'self'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"


def test_no_page_shows_where_monitors_lie(tmp_path):
    """Who may see no monitor does not learn a path of the server either."""
    page = TEMPLATES.get_template("monitors.html")

    shown = page.render(cards=[], waiting=0, folder=str(tmp_path), legend=[], root="")

    assert "There is no monitor that you may see." in shown
    assert str(tmp_path) not in shown


def test_a_report_is_sent_into_a_sandbox(site, runs, leaves):
    """The report is the sealed file, with a policy that keeps its script from everything."""
    answer = site.get(f"{window(runs[NEW])}/report", "vic")

    assert answer.headers["Content-Security-Policy"] == (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    monitor = load_monitor(leaves.folder / "leaves.yaml")
    assert answer.content == overview.read_report(monitor, runs[NEW])


@pytest.fixture
def changed_run(thorns, tmp_path):
    """A run whose report somebody has replaced, until the end of the test."""
    run = WindowRun(thorns.client, thorns.runs(NEW, "thorns")[0].run_id)
    report = run.download("report.html", tmp_path).read_text()
    run.write_text("report.html", "<p>All is well</p>")
    yield run.run_id
    run.write_text("report.html", report)


def test_a_report_that_was_changed_is_refused(site, changed_run):
    """A report that is not the one written with the verdict is not shown to a reviewer."""
    answer = site.get(f"{window(changed_run, THORNY_DAG)}/report")

    assert answer.status_code == 502
    assert "the file was changed" in answer.text


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/rtscv/dags/rtscv__nobody/windows/x", "No monitor belongs to the DAG rtscv__nobody"),
        ("/rtscv/dags/~/windows/x", "No monitor belongs to the DAG ~"),
        (window("0" * 32), "has no window with the run"),
        (f"{window('..%2f..%2fetc')}/report", "Not Found"),
        (f"/rtscv/dags/{DAG}/runs/never", "has no run"),
    ],
)
def test_what_is_not_there_is_said(site, path, sentence):
    """An id that belongs to nothing gives 404 and a sentence, no trace."""
    answer = site.get(path)

    assert answer.status_code == 404
    assert sentence in answer.text
    assert "Traceback" not in answer.text


def test_a_run_of_another_monitor_is_not_shown(site, thorns):
    """The id of a run opens nothing under a DAG that it does not belong to."""
    foreign = thorns.runs(NEW, "thorns")[0].run_id

    assert site.get(window(foreign)).status_code == 404
    assert site.get(f"{window(foreign)}/report").status_code == 404


def test_what_waits_comes_first_and_what_is_broken_is_said(site):
    """One page shows all monitors; neither a bad file nor a dead MLflow takes the others down."""
    page = site.get("/rtscv/", "vic").text

    names = re.findall(r'<h2 id="monitor-\d+">(leaves|absent|broken|thorns)</h2>', page)
    assert names == ["leaves", "absent", "broken", "thorns"]
    assert re.search(r"<strong>\d reviews? waiting</strong>", page)
    assert "did you mean name?" in page
    assert "MLflow could not read the aliases of &#39;moss&#39;" in page


def test_what_was_not_assessed_is_neither_zero_nor_healthy(site, runs):
    """A window without a verdict is hatched on the timeline, and has no number on its page."""
    index, page = site.get("/rtscv/").text, site.get(window(runs[EMPTY])).text

    (mark,) = re.findall(rf'<a class="mark (\w+)" href="[^"]*{runs[EMPTY]}"', index)
    assert mark == "blank"
    assert f'{EMPTY}: Not assessed: empty window"' in index
    assert "Not assessed: empty window" in page
    assert "neither that all is well" in page
    assert 'class="tile' not in page
    assert "badge calm" not in page


def test_a_reviewer_sees_what_to_decide_on(site, runs):
    """The page of a window holds the finding, its groups, both models, and the report."""
    page = text_of(site.get(window(runs[NEW])).text)

    for words in (
        "of this window belongs to something the model was never taught",
        "Unknown rate",
        "Group 1",
        "The champion called them",
        "Champion against challenger",
        "May version 2 serve in place of version 1?",
        "Approve makes version 2 the champion",
    ):
        assert words in page


def test_only_who_may_answer_gets_the_form(site, runs):
    """A viewer reads why there is no form; the others get one that is bound to what they saw."""
    page = {user: site.get(window(runs[NEW]), user).text for user in ROLES}

    assert "data-answer-to" not in page["vic"]
    assert "You can see this, but not decide" in page["vic"]
    for user in ("ann", "otto", "ada"):
        assert (
            f'data-close-at="/api/v2/dags/{DAG}/dagRuns/manual__2026-01-08T00%3A00%3A00%2B00%3A00'
            '/taskInstances/review_challenger/-1/hitlDetails"' in page[user]
        )
        assert 'data-question="version-2.champion-1.' in page[user]


def test_a_form_needs_a_question_about_this_version_to_this_user(site, roots):
    """Without a question, with one about something else, or for others, there is a sentence."""
    show(site, roots, "roots")
    path = window(roots.runs(NEW, "roots")[0].run_id, ROOTS_DAG)

    not_asked = site.get(path).text
    site.ask(question("early", "version-9.champion-1.none.none", dag_id=ROOTS_DAG))
    changed = site.get(path).text
    asked = waiting_question(roots)
    site.ask(question("late", asked, "2026-01-08", dag_id=ROOTS_DAG, reviewers=["ada"]))
    for_others, for_ada = site.get(path, "ann").text, site.get(path, "ada").text

    assert "Airflow does not ask about this version" in not_asked
    assert "rtscv-mlops review approve roots.yaml --version 2" in not_asked
    assert "the question has changed. Reload the page" in text_of(changed)
    assert "Only the named reviewers may decide on this: ada." in for_others
    assert "data-answer-to" not in not_asked + changed + for_others
    assert f'data-question="{asked}"' in for_ada


def test_what_is_blocked_cannot_be_approved(site, stones):
    """A blocked challenger says why, and has no form, though Airflow asks about it."""
    show(site, stones, "stones")
    run = stones.runs(NEW, "stones")[0]
    (version,) = stones.versions(NEW)
    site.ask(question("asked", question_id(version), dag_id=STONES_DAG))

    page = site.get(window(run.run_id, STONES_DAG), "ada").text

    assert "Version 2 is blocked and cannot be approved" in page
    assert "fewer than the 1000 that review.min_unknowns asks for" in page
    assert "data-answer-to" not in page


def test_a_rollback_names_the_version_that_serves_again():
    """The history says which version was restored, and which one was taken back for it."""
    move = journal.Record(
        "rolled_back", "1", "", "ada", "", {"from": "4"}, at="2026-01-05T00:00:00+00:00"
    )

    (row,) = record_rows(History((move,), ()), "4", "UTC")

    assert f"Version {row.version} {row.what}" == "Version 1 restored (was 4)"


def test_the_tab_of_a_dag_run_shows_its_window(site):
    """A DAG run leads to the window of its interval, or to the one that it was asked for."""
    by_interval = site.get(f"/rtscv/dags/{DAG}/runs/{DAG_RUN}").text
    by_conf = site.get(f"/rtscv/dags/{DAG}/runs/{CONF_RUN}").text
    idle = site.get(f"/rtscv/dags/{DAG}/runs/{IDLE_RUN}").text

    assert "was never taught" in by_interval
    assert "data-answer-to" in by_interval
    assert "Not assessed: empty window" in by_conf
    assert "The window 2026-03-01 was not judged yet" in idle


def test_text_of_others_stays_text(site, thorns):
    """Script in labels, columns, values, findings, names and reasons is shown, and never run."""
    run_id = thorns.runs(NEW, "thorns")[0].run_id

    page = site.get(window(run_id, THORNY_DAG)).text

    assert "<script>window" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") >= 8
    assert "rejected by &lt;script&gt;" in page
    assert re.findall("<script[^>]*>", page) == [OUR_SCRIPT]


@pytest.fixture
def visitor(browser, site):
    """Open pages as a user; what the browser complained of is in `complaints`."""
    contexts = []

    def visit(path, user="ann", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        cookie = {"name": "_token", "value": site.token(user), "url": site.address}
        context.add_cookies([cookie])
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda said: page.complaints.append(said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(f"{site.address}{path}")
        return page

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def watch(browser, site):
    """Open pages as a user, with the detector of the hostile strings in place."""

    @contextmanager
    def watching(path):
        with watched(browser) as seen:
            token = {"name": "_token", "value": site.token("ann"), "url": site.address}
            seen.page.context.add_cookies([token])
            seen.page.goto(f"{site.address}{path}")
            seen.settle()
            yield seen

    return watching


def test_hostile_text_runs_nowhere_in_a_browser(watch, thorns, record_property):
    """A browser that shows the page runs none of it, asks for nothing, and can read all of it."""
    path = window(thorns.runs(NEW, "thorns")[0].run_id, THORNY_DAG)
    with watch(path) as seen:
        seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        seen.settle()
        text = " ".join(seen.page.inner_text("body").split())
        assert seen.armed() == []
        assert seen.page.evaluate("window.ran") is None
        assert seen.page.locator("article.cluster").count() == -(-(len(CORPUS) + 1) // 4)
    assert (seen.calls, seen.sent, seen.complaints) == ([], [], [])
    # Names, values and labels of groups, classes, findings; here and there cut for length.
    assert [one for one in CORPUS if text.count(plain(one, 40)[:20]) < 6] == []
    record_property("trials", 8 * len(CORPUS))


@pytest.mark.parametrize(
    "path",
    ["/rtscv/dags/{}/windows/x", "/rtscv/dags/x/windows/{}", f"/rtscv/dags/{DAG}/runs/{{}}"],
)
def test_hostile_addresses_are_quoted_as_text(site, watch, path, record_property):
    """What an address says comes back as text: no status but 404, no trace, nothing runs."""
    asked = [path.format(quote(one[:500], safe="")) for one in CORPUS]
    answers = [site.get(one) for one in asked[::6]]
    with watch(asked[0]) as seen:
        pass

    for answer in answers:
        # A slash at the end is left out by a redirect, which stays on this server.
        assert answer.status_code == 404 or answer.headers["Location"].startswith(site.address)
        assert re.findall("<script[^>]*>", answer.text) in ([], [OUR_SCRIPT])
        assert "Traceback" not in answer.text
    assert (seen.calls, seen.sent) == ([], [])
    record_property("trials", len(answers))


@pytest.fixture
def armed_run(thorns, tmp_path):
    """A run whose sealed report holds every string as live script, until the end of the test."""
    run = WindowRun(thorns.client, thorns.runs(NEW, "thorns")[0].run_id)
    report = run.download("report.html", tmp_path).read_text()
    page = f"<!doctype html><body>{''.join(armed_frames())}</body>"
    run.write_text("report.html", page)
    seal_again(thorns, run.run_id)
    yield run.run_id
    run.write_text("report.html", report)
    seal_again(thorns, run.run_id)


def armed_frames():
    """Every string as it is: on the page itself, and in a frame of its own."""
    yield "".join(f"<script>Z({number})</script>" for number in range(1000, 1010))
    yield from (f'<iframe srcdoc="{escape(one)}"></iframe>' for one in CORPUS)


def test_a_hostile_report_has_no_access(watch, armed_run, record_property):
    """Script in a report runs by itself or in our page, and gets neither cookie nor an answer."""
    path = window(armed_run, THORNY_DAG)
    for shown in (f"{path}/report", path):
        with watch(shown) as seen:
            if frames := seen.page.query_selector_all("iframe.report"):
                frames[0].scroll_into_view_if_needed()
            for _ in range(60):  # each string in a frame of its own takes its time
                seen.settle()
                if len(seen.ran) >= 40:
                    break
        assert len(seen.ran) >= 40
        assert seen.with_access == set()
        assert seen.sent == []
    record_property("trials", 2 * len(CORPUS))


@pytest.mark.parametrize("width", [800, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_width(visitor, runs, width, scheme):
    """Nothing is wider than the page, by day and by night, and the browser complains of nothing."""
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    for path in ("/rtscv/", window(runs[NEW])):
        page = visitor(path, **options)

        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints == []


def wide_page(deployment):
    """The page of a window whose groups differ in long category values, with its style in it."""
    monitor = deployment.monitor()
    page = overview.show_window(monitor, deployment.runs(NEW)[0].run_id)
    wide = (
        "delivery to a neighbour, signed for (34%)",
        "collected_by_the_customer_at_the_depot (51%)",
    )
    features = [
        TellingFeature(name="kind_of_last_transaction", here=wide[0], known=wide[1], effect=0.345),
        TellingFeature(name="weight", here="10.7", known="0.0191", effect=-2.14),
    ]
    card = page.facts.clusters[0].model_copy(update={"features": tuple(features)})
    facts = page.facts.model_copy(update={"clusters": (card,) * 2})
    decision = decide(page, [], Rights(False, frozenset()), "UTC")
    view = window_view(monitor, DAG, replace(page, facts=facts, has_report=False), decision)
    html = TEMPLATES.get_template("window.html").render(
        root="", view=view, close_at="", runs_at="", reason_is_required=True
    )
    style = (files("rtscv_mlops.airflow.page") / "static/page.css").read_text()
    return html.replace("</head>", f"<style>{style}</style></head>")


@pytest.mark.parametrize("width", [800, 1440])
def test_wide_values_hide_no_effect(browser, leaves, width):
    """Long values are broken into lines, so that the last column of a group needs no scrolling."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(wide_page(leaves))

    hidden = "each => each.map(one => one.scrollWidth - one.clientWidth)"
    assert page.eval_on_selector_all(".cluster > .scroll", hidden) == [0, 0]
    heights = "each => each.map(one => one.offsetHeight)"
    words, numbers = page.eval_on_selector_all(".cluster:first-child .telling tbody tr", heights)
    assert numbers < min(words, 40)  # A number stays on its line.
    page.close()


def test_windows_can_be_reached_by_keyboard(visitor, runs):
    """Each window of a timeline takes the focus, says what it is, and opens by Enter."""
    page = visitor("/rtscv/")

    marks = page.locator("a.mark")
    marks.first.focus()
    assert marks.first.get_attribute("aria-label") == f"{EMPTY}: Not assessed: empty window"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{window(runs[EMPTY])}")


def send_answer(site, user="ann", **changes):
    """Send an answer as the page does, or otherwise."""
    headers = {"Content-Type": changes.pop("content_type", "application/json")}
    headers |= {"Sec-Fetch-Site": changes.pop("sent_from", "same-origin")}
    body = {"version": "2", "option": "Reject", "reason": "not ours", **changes}
    return requests.post(
        f"{site.address}/rtscv/dags/{DAG}/answer",
        data=json.dumps(body),
        headers=headers,
        cookies={"_token": site.token(user)} if user else {},
        timeout=60,
    )


def test_an_answer_is_taken_from_reviewers_on_this_page_only(site, leaves):
    """No login, no right, another site, no JSON, no reason, other question: nothing is decided."""
    question = waiting_question(leaves)

    refused = {
        "nobody": send_answer(site, None, question=question),
        "viewer": send_answer(site, "vic", question=question),
        "other site": send_answer(site, question=question, sent_from="cross-site"),
        "form": send_answer(site, question=question, content_type="text/plain"),
        "no reason": send_answer(site, question=question, reason=" "),
        "other question": send_answer(site, question="version-9.champion-1.none.none"),
    }

    statuses = {name: answer.status_code for name, answer in refused.items()}
    assert statuses == {
        "nobody": 401,
        "viewer": 403,
        "other site": 403,
        "form": 403,
        "no reason": 409,
        "other question": 409,
    }
    assert "A decision needs a reason" in refused["no reason"].json()["detail"]
    assert [one.review for one in leaves.versions(NEW)] == ["pending"]


def test_a_window_without_a_verdict_can_be_judged_again(site, runs):
    """Who may start runs gets a button, bound to the window; no one else does."""
    pages = {user: site.get(window(runs[EMPTY]), user).text for user in ("ann", "vic")}

    assert f'data-runs-at="/api/v2/dags/{DAG}/dagRuns"' in pages["ann"]
    assert f'data-window="{EMPTY}T00:00:00+00:00/' in pages["ann"]
    assert "Judge again" not in pages["vic"] + site.get(window(runs[NEW])).text


def test_a_decision_is_looked_at_twice_and_recorded_at_once(visitor, site, runs, leaves):
    """Approve asks for a reason and a second look; the record has it before the page says so."""
    early, late = visitor(window(runs[NEW])), visitor(window(runs[NEW]), "otto")

    early.click("text=Approve")
    assert "A decision needs a reason" in early.inner_text("#status")
    early.fill("#reason", f"Fig leaves. {HOSTILE}")
    early.click("text=Approve")
    second_look = early.inner_text("#confirm")
    assert "Approve version 2?" in second_look
    assert "becomes the champion and serves in place of version 1" in second_look
    assert f"Fig leaves. {HOSTILE}" in second_look
    assert [one.review for one in leaves.versions(NEW)] == ["pending"]
    early.click("#confirm-yes")
    early.wait_for_selector("text=was approved by ann")
    late.fill("#reason", "not ours")
    late.click("text=Reject")
    late.click("#confirm-yes")
    late.wait_for_selector("#status.failed")

    assert "was approved by ann" in late.inner_text("#status")
    (decided,) = leaves.versions(NEW)
    assert (decided.review, decided.reviewer) == ("approved", "ann")
    assert decided.reason == f"Fig leaves. {HOSTILE}"
    (kept,) = open_details(site, DAG_RUN)
    assert kept["responded_by_user"]["name"] == "ann"
    assert kept["chosen_options"] == ["Approve"]


def open_details(site, dag_run_id):
    path = f"/api/v2/dags/{DAG}/dagRuns/{dag_run_id.replace('+', '%2B')}/hitlDetails"
    return site.get(path).json()["hitl_details"]


class Text(HTMLParser):
    """Collects what a page says."""

    def __init__(self):
        super().__init__()
        self.said = []

    def handle_data(self, data):
        self.said.append(data)


def text_of(page):
    """What a reader of a page reads, on one line."""
    parser = Text()
    parser.feed(page)
    return " ".join("".join(parser.said).split())
