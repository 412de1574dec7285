"""When an alert is due, what it says, and that it arrives."""

import email
import json
import logging
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from itertools import pairwise

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from rtscv_mlops.alerts import channels
from rtscv_mlops.alerts.alert import AlertDecision, PastWindow, decide_alert, make_alert
from rtscv_mlops.alerts.channels import Delivery, send_alert, told_by, was_delivered
from rtscv_mlops.config.monitor import AlertSettings, Email
from rtscv_mlops.facts import ClusterCard, WindowFacts

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
DUE = AlertDecision(True, "This window counts.")
SECRET = "s3cr3t"
LINKS = {"run": "http://localhost:5000/#/runs/abc", "review": "rtscv-mlops review show pets.yaml"}
HOSTILE = [
    "cat\r\nBcc: victim@example.com\r\n\r\nbody",
    "cat\nERROR forged log line",
    "<!channel> <http://evil.example|click>",
    "<img src=http://evil.example/x.png>",
    "\x1b[2J\x00\u202e\u2028",
    "\ud800",
    "x" * 100_000,
]


def window_facts(day=10, verdict="unknowns", share=0.07, p_value=1e-9, **changes):
    """One daily window, with unknowns unless told otherwise."""
    facts = {
        "key": "0123abcd" * 8,
        "monitor": "pets",
        "model": "pets",
        "champion_version": "3",
        "window_start": START + day * DAY,
        "window_end": START + (day + 1) * DAY,
        "verdict": verdict,
        "headline": "About 7 % (4-10 %) of this window is new.",
        "rows": 1200,
        "sampled": 1000,
        "p_value": p_value,
        "unknowns": 37,
        "unknown_rate": share,
        "unknown_rate_interval": (0.04, 0.10),
    }
    return WindowFacts(**facts | changes)


def past(day, verdict="unknowns", share=0.07, p_value=1e-9, alerted=None):
    """A daily window that was processed before; `alerted` is the day of its alert."""
    alerted_at = None if alerted is None else START + alerted * DAY
    return PastWindow(
        START + day * DAY, START + (day + 1) * DAY, verdict, share, p_value, alerted_at
    )


def decide(facts, *history, day=11, review=False, **rule):
    """Decide on a window on a given day."""
    return decide_alert(facts, history, AlertSettings(**rule), START + day * DAY, review)


@pytest.mark.parametrize(
    ("facts", "rule", "due", "why"),
    [
        ({}, {}, True, "This window counts; the verdict is unknowns."),
        ({"verdict": "unknowns_and_drift"}, {}, True, "counts"),
        ({"verdict": "no_change"}, {}, False, "does not include the verdict no_change"),
        ({"verdict": "drift"}, {}, True, "counts"),
        ({"verdict": "drift"}, {"on": ["unknowns"]}, False, "does not include the verdict drift"),
        ({"verdict": "drift", "share": None}, {"on": ["drift"]}, True, "counts"),
        ({"verdict": "drift", "p_value": 0.2}, {"on": ["drift"]}, False, "p = 0.2 is above"),
        ({}, {"on": ["drift"]}, False, "does not include the verdict unknowns"),
        ({"share": 0.009}, {}, False, "An unknown rate of 0.9 % is below the minimum of 1 %"),
        ({"share": 0.01}, {}, True, "counts"),
        ({"share": None}, {}, False, "could not be estimated"),
        ({"share": float("nan")}, {}, False, "could not be estimated"),
        ({"p_value": 0.011}, {}, False, "p = 0.011 is above the limit of 0.01"),
        ({"p_value": 0.01}, {}, True, "counts"),
        ({"p_value": None}, {}, False, "There is no p-value"),
        ({"p_value": float("nan")}, {}, False, "There is no p-value"),
        ({"verdict": "not_assessed:too_few_rows", "p_value": None}, {}, True, "NOT ASSESSED"),
        ({"verdict": "not_assessed:empty_window", "p_value": None}, {}, True, "(empty_window)"),
        ({"verdict": "not_assessed:no_champion"}, {}, True, "(no_champion)"),
        ({"verdict": "not_assessed:window_open"}, {}, False, "only concerns the schedule"),
        ({"verdict": "not_assessed:empty_interval"}, {}, False, "only concerns the schedule"),
        ({"verdict": "not_assessed:no_champion"}, {"on": ["unknowns"]}, False, "does not include"),
    ],
)
def test_a_window_alone(facts, rule, due, why):
    """Verdict, effect and p-value decide on a first window; a refusal says which of them."""
    decision = decide(window_facts(**facts), **rule)

    assert decision.due is due
    assert why in decision.why


@pytest.mark.parametrize(
    ("history", "due"),
    [
        ([], False),
        ([past(9)], True),
        ([past(8)], True),
        ([past(7), past(8, "no_change"), past(9, "no_change")], False),
        ([past(8, "no_change"), past(9, p_value=0.5)], False),
        ([past(9, share=0.001)], False),
        ([past(9), past(9, "no_change")], False),  # processed again: the last record counts
        ([past(9, "no_change"), past(9)], True),
        ([past(8), past(7, "no_change"), past(9, "no_change")], True),  # by time, not by order
        ([past(10)], False),  # this window itself is no second window
        ([past(11)], False),  # nor is a later one
        ([past(9, "not_assessed:window_open")], False),
        ([past(9, "not_assessed:no_champion")], True),
    ],
)
def test_two_of_three_windows(history, due):
    """With 2 of 3, one more of the two windows before this one must count, each once."""
    decision = decide(window_facts(), *history, windows=2, of=3)

    assert decision.due is due
    assert ("2 of the last 3 windows count" in decision.why) is due
    assert ("Only 1 of the last 3 windows count; 2 must." in decision.why) is not due


@pytest.mark.parametrize(
    ("alerted", "due"), [(10.5, False), (10.01, False), (10, True), (3, True), (12, False)]
)
def test_cooldown(alerted, due):
    """After an alert, whichever window it was for, there is silence until the cooldown is over."""
    decision = decide(window_facts(), past(8, alerted=alerted), cooldown="1d")

    assert decision.due is due
    assert ("The last alert was sent at 2026-01-" in decision.why) is not due


def test_cooldown_lets_what_is_worse_through():
    """An alert of drift does not hold back one of unknowns; the reverse it does."""
    drift, unknowns = past(9, verdict="drift", alerted=10.5), past(9, alerted=10.5)

    assert decide(window_facts(), drift, cooldown="1d").due
    assert not decide(window_facts(verdict="drift"), unknowns, cooldown="1d").due
    assert not decide(window_facts(verdict="drift"), drift, cooldown="1d").due


@pytest.mark.parametrize("verdict", ["not_assessed:window_open", "not_assessed:too_few_rows"])
def test_a_later_window_without_a_verdict_shows_nothing(verdict):
    """A window of next month that was run by mistake does not make this one old news."""
    assert decide(window_facts(), past(40, verdict=verdict, share=None, p_value=None)).due


def test_trouble_of_one_kind_does_not_hide_another():
    """A source that broke one way is told again when it breaks another way, not the same way."""
    broken = past(9, verdict="not_assessed:no_timezone", alerted=10.5)

    assert decide(window_facts(verdict="not_assessed:empty_window"), broken, cooldown="1d").due
    assert not decide(window_facts(verdict="not_assessed:no_timezone"), broken, cooldown="1d").due
    assert decide(window_facts(verdict="drift"), broken, cooldown="1d").due


def test_never_twice_for_one_window():
    """A window that was alerted once stays silent, also when run again much later."""
    decision = decide(window_facts(), past(10, alerted=11), day=300)

    assert decision == AlertDecision(False, "This window was alerted at 2026-01-12 00:00.")


def test_an_open_review_speaks_for_the_unknowns():
    """Who was asked to review is not asked again by every further window."""
    decision = decide(window_facts(), review=True)

    assert decision == AlertDecision(
        False, "A challenger waits for review, and an alert has announced it."
    )


def test_an_open_review_does_not_hide_a_broken_source():
    """A review may wait two weeks; a source that goes silent meanwhile must be heard."""
    assert decide(window_facts(verdict="not_assessed:empty_window"), review=True).due


@pytest.mark.parametrize(
    ("newest", "rule", "due"),
    [
        (11, {}, True),  # two tasks that finished out of order
        (12, {}, False),
        (300, {}, False),
        (12, {"of": 3}, True),
        (14, {"of": 3}, False),
        (13, {"cooldown": "3d"}, True),
        (14, {"cooldown": "3d"}, False),
    ],
)
def test_a_backfill_wakes_nobody(newest, rule, due):
    """An old window that is filled in after newer ones says nothing about the present."""
    decision = decide(window_facts(), past(newest, "no_change"), day=400, **rule)

    assert decision.due is due
    assert ("filled in later is recorded" in decision.why) is not due


def test_a_chronological_replay_alerts():
    """Old data that is processed in order is no backfill, however old it is."""
    assert decide(window_facts(), past(9, "no_change"), day=5_000).due


VERDICTS = st.sampled_from(
    [
        "no_change",
        "drift",
        "unknowns",
        "unknowns_and_drift",
        "not_assessed:empty_window",
        "not_assessed:window_open",
    ]
)
SHARES = st.none() | st.floats(0, 1)
QUIET = st.builds(past, st.integers(0, 20), st.just("no_change"), SHARES, SHARES)
HISTORIES = st.lists(
    st.builds(past, st.integers(0, 20), VERDICTS, SHARES, SHARES, st.none() | st.floats(0, 20)),
    max_size=12,
)
FACTS = st.builds(window_facts, st.integers(0, 20), VERDICTS, SHARES, SHARES)


@st.composite
def rules(draw):
    """Any rule that the settings allow."""
    of = draw(st.integers(1, 5))
    return AlertSettings(
        on=draw(
            st.sets(st.sampled_from(["unknowns", "unknowns_and_drift", "drift", "not_assessed"]))
        ),
        min_rate=draw(st.floats(0, 1)),
        max_p_value=draw(st.floats(1e-6, 1)),
        windows=draw(st.integers(1, of)),
        of=of,
        cooldown=draw(st.timedeltas(timedelta(0), timedelta(days=5))),
    )


@settings(deadline=None)
@given(FACTS, HISTORIES, rules(), st.booleans())
def test_every_decision_has_its_reason(facts, history, rule, review):
    """Every decision is a sentence, and no quiet window is ever due."""
    decision = decide_alert(facts, history, rule, START + 25 * DAY, review)

    assert decision.why.endswith(".")
    assert not (decision.due and facts.verdict == "no_change")


@settings(deadline=None)
@given(FACTS, HISTORIES, st.lists(QUIET, max_size=5), rules(), st.booleans())
def test_quiet_windows_never_make_an_alert_due(facts, history, quiet, rule, review):
    """Hearing of more quiet windows can only calm."""
    before = decide_alert(facts, history, rule, START + 25 * DAY, review)
    after = decide_alert(facts, [*history, *quiet], rule, START + 25 * DAY, review)

    assert before.due or not after.due


@settings(deadline=None)
@given(st.lists(FACTS, max_size=25), rules(), st.integers(1, 40))
def test_alerts_keep_their_distance(stream, rule, hours):
    """In any order, alerts of one kind are a cooldown apart, and never for the same window."""
    history, now = [], START
    for facts in stream:
        now += timedelta(hours=hours)
        due = decide_alert(facts, history, rule, now, False).due
        history.append(
            PastWindow(
                facts.window_start,
                facts.window_end,
                facts.verdict,
                facts.unknown_rate,
                facts.p_value,
                now if due else None,
            )
        )
    alerted = [window for window in history if window.alerted_at]
    kinds = {window.verdict.removesuffix("_and_drift") for window in alerted}
    for kind in kinds:
        times = [one.alerted_at for one in alerted if one.verdict.startswith(kind)]
        assert all(later - earlier >= rule.cooldown for earlier, later in pairwise(times))
    assert len({window.bounds for window in alerted}) == len(alerted)


def hostile_alert(text):
    """An alert in which everything that data or people can name is `text`."""
    card = ClusterCard(
        number=1, size=9, share=1.0, quality=None, called={text: 1.0}, confidence=None
    )
    names = {"monitor": text, "model": text, "champion_version": text, "headline": text}
    facts = window_facts(**names, clusters=(card,) * 9, blocked=text)
    return make_alert(facts, AlertDecision(True, text), LINKS, text)


def test_the_alert_says_what_was_found():
    """Subject, text and payload carry verdict, rate with interval, counts, reason and links."""
    alert = make_alert(window_facts(), DUE, LINKS)

    assert alert.subject == "[rtscv] pets 2026-01-11: unknowns: about 7 % (4-10 %)"
    for line in (
        "About 7 % (4-10 %) of this window is new.",
        "Model: pets, version 3",
        "Window: 2026-01-11",
        "Rows in the window: 1,200",
        "Chance if nothing were new: p < 0.0001",
        "Unknown rows: 37",
        "Unknown rate: about 7 % (4-10 %)",
        "Why this alert: This window counts.",
        "run: http://localhost:5000/#/runs/abc",
        "review: rtscv-mlops review show pets.yaml",
    ):
        assert line in alert.text.splitlines()
    payload = json.loads(json.dumps(alert.payload(), allow_nan=False))
    assert payload["schema_version"] == 1
    assert payload["idempotency_key"] == window_facts().key
    assert payload["severity"] == "error"
    assert payload["verdict"] == "unknowns"
    assert payload["unknown_rate_interval"] == [0.04, 0.10]
    assert (payload["rows"], payload["unknowns"]) == (1200, 37)
    assert payload["links"] == LINKS


@pytest.mark.parametrize(
    ("verdict", "version", "step"),
    [
        ("unknowns", "4", "rtscv-mlops review show pets.yaml --version 4"),
        ("not_assessed:no_champion", "", "rtscv-mlops check pets.yaml"),
        ("drift", "", ""),
    ],
)
def test_an_alert_says_what_to_do_next(verdict, version, step):
    """Who is woken up gets the version and the command to go on with, where there is one."""
    alert = make_alert(window_facts(verdict=verdict), DUE, {}, version)

    lines, payload = alert.text.splitlines(), alert.payload()

    assert [line for line in lines if line.startswith("Next")] == (
        [f"Next: {step}"] if step else []
    )
    assert ("Challenger: version 4" in lines) == bool(version)
    assert (payload["challenger_version"], payload["next"]) == (version, step)


def test_an_alert_on_what_was_not_assessed_is_no_comfort():
    """Neither numbers nor words of such an alert look like a quiet window."""
    bare = {"share": None, "p_value": None, "unknowns": 0, "unknown_rate_interval": None}
    facts = window_facts(verdict="not_assessed:no_champion", headline="No champion.", **bare)

    alert = make_alert(facts, DUE, LINKS)

    assert alert.subject == "[rtscv] pets 2026-01-11: NOT ASSESSED (no_champion)"
    assert alert.severity == "warning"
    assert alert.payload()["unknowns"] is None
    assert "nknowns" not in alert.text
    assert "Evidence" not in alert.text


def test_numbers_that_json_lacks_become_null():
    """A receiver with a strict parser can read every alert."""
    facts = window_facts(share=float("nan"), p_value=float("inf"))

    payload = json.loads(json.dumps(make_alert(facts, DUE, {}).payload(), allow_nan=False))

    assert payload["unknown_rate"] is None
    assert payload["p_value"] is None


@pytest.mark.parametrize("text", HOSTILE)
def test_names_cannot_change_an_alert(text):
    """Names add no line, no header, no tag, no address, and fill no mailbox."""
    alert = hostile_alert(text)

    assert len(alert.subject.splitlines()) == 1
    assert len(alert.text.splitlines()) == len(hostile_alert("cat").text.splitlines())
    assert alert.text.count("- group ") == 5
    assert len(alert.subject) < 200
    assert len(json.dumps(alert.payload())) < 10_000
    written = alert.subject + alert.text.replace(LINKS["run"], "")
    for sign in ("<!", "<img", "<http", "://", "\x1b", "\x00", "\u202e", "\u2028", "\ud800"):
        assert sign not in written


def test_links_lose_their_password():
    """A tracking server's password does not travel with its address."""
    alert = make_alert(window_facts(), DUE, {"run": f"https://me:{SECRET}@mlflow.example/#/r"})

    assert alert.links == {"run": "https://mlflow.example/#/r"}
    alert = make_alert(window_facts(), DUE, {"Report": f"sftp://me:{SECRET}@host/report.html"})
    assert alert.links == {"Report": "sftp://host/report.html"}


@pytest.fixture
def webhook(monkeypatch):
    """A web server that answers with the statuses it is given, then 200, and keeps what it got."""
    monkeypatch.setattr(channels, "PAUSES", (0.0, 0.0))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.statuses, server.received = [], []
    server.url = f"http://127.0.0.1:{server.server_port}/hooks/{SECRET}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Receiver(BaseHTTPRequestHandler):
    """Keeps each request; status 0 means: hang up without an answer."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers, json.loads(body)))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status:
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST

    def log_message(self, *_):
        """Keep the tests' output clean."""


def test_the_webhook_gets_the_payload_and_its_key(webhook):
    """One request, with the payload as JSON and the window's key in the header."""
    alert = make_alert(window_facts(), DUE, LINKS)

    deliveries = send_alert(alert, AlertSettings(webhook_url=webhook.url))

    assert [(delivery.channel, delivery.ok) for delivery in deliveries] == [
        ("log", True),
        ("webhook", True),
    ]
    [(path, headers, payload)] = webhook.received
    assert path == f"/hooks/{SECRET}"
    assert headers["Idempotency-Key"] == alert.key
    assert headers["Content-Type"] == "application/json"
    assert payload == json.loads(json.dumps(alert.payload()))


def test_the_webhook_address_may_come_from_the_environment(webhook, monkeypatch):
    """The file names a variable, and the secret stays outside of it."""
    monkeypatch.setenv("PETS_WEBHOOK", f"{webhook.url}?token={SECRET}")

    deliveries = send_alert(hostile_alert("cat"), AlertSettings(webhook_url_env="PETS_WEBHOOK"))

    assert deliveries[1].ok
    assert SECRET not in deliveries[1].detail
    assert [path for path, _, _ in webhook.received] == [f"/hooks/{SECRET}?token={SECRET}"]


@pytest.mark.parametrize(
    ("statuses", "requests", "ok", "detail"),
    [
        ([503], 2, True, "answered 200"),
        ([0, 500], 3, True, "answered 200"),
        ([500, 502, 503], 3, False, "failed with 503"),
        ([0, 0, 0], 3, False, "could not be reached: ConnectionError"),
        ([400], 1, False, "answered 400"),
        ([404], 1, False, "answered 404"),
        ([429], 1, False, "answered 429"),
        ([302], 1, False, "answered 302 and did not take the alert; redirects are not followed"),
        ([204], 1, True, "answered 204"),
    ],
)
def test_what_may_pass_is_tried_again(webhook, caplog, statuses, requests, ok, detail):
    """Failures of the server are tried three times, refusals once; no secret is told."""
    caplog.set_level(logging.DEBUG)
    webhook.statuses = statuses

    delivery = send_alert(hostile_alert("cat"), AlertSettings(webhook_url=webhook.url))[1]

    assert delivery.ok is ok
    assert detail in delivery.detail
    assert len(webhook.received) == requests
    assert len({headers["Idempotency-Key"] for _, headers, _ in webhook.received}) == 1
    assert SECRET not in delivery.detail + caplog.text


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/hooks/{SECRET}",
        f"http://me:{SECRET}@127.0.0.1:1/",
        f"http://nowhere.invalid/{SECRET}",
        f"file:///{SECRET}",
        f"//{SECRET}",
        f"http://[{SECRET}",
        f"http://host:{SECRET}/",
        f"http://a..b/{SECRET}",
        f"http://*/{SECRET}",
        f"http://127.0.0.1:1/{SECRET}\n\r",
    ],
)
def test_a_bad_address_is_told_without_its_secret(monkeypatch, caplog, url):
    """An address that is wrong or answers nothing is a failed delivery, not a crash or a leak."""
    monkeypatch.setattr(channels, "PAUSES", ())
    caplog.set_level(logging.DEBUG)

    delivery = send_alert(
        hostile_alert("cat"),
        AlertSettings.model_construct(**vars(AlertSettings()) | {"webhook_url": url}),
    )[1]

    assert not delivery.ok
    assert delivery.detail
    assert SECRET not in delivery.detail + caplog.text


def test_a_missing_variable_is_named():
    """The failure says which variable to set."""
    delivery = send_alert(hostile_alert("cat"), AlertSettings(webhook_url_env="NOT_SET_HERE"))[1]

    assert delivery == Delivery(
        "webhook",
        False,
        "The environment variable NOT_SET_HERE is not set. Set it where alerts are sent.",
    )


class Mailbox:
    """Keeps each message; refuses recipients at refused.example."""

    def __init__(self):
        self.messages = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.endswith("refused.example"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=modern)
        self.messages.append((envelope.rcpt_tos, message))
        return "250 OK"


@pytest.fixture
def mail_server():
    """A real SMTP server on a free port; give it options to start it."""
    running = []

    def start(**options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        mailbox = Mailbox()
        server = Controller(mailbox, hostname="127.0.0.1", port=port, **options)
        server.start()
        running.append(server)
        return mailbox, port

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, and its key, as one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - DAY)
        .not_valid_after(datetime.now(UTC) + DAY)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(pem)
    )
    return file


def mail_settings(port, **changes):
    """A rule that sends e-mail to a local server."""
    to = changes.pop("to", ("team@example.com", "boss@example.com"))
    return AlertSettings(email=Email(to=to, host="127.0.0.1", port=port, **changes))


def test_the_e_mail_arrives(mail_server):
    """Every recipient gets subject and text, under an id that is the same at every try."""
    mailbox, port = mail_server()
    alert = make_alert(window_facts(headline="Über 7 % sind neu: 猫."), DUE, LINKS)

    deliveries = send_alert(alert, mail_settings(port))

    assert deliveries[1] == Delivery(
        "email", True, f"127.0.0.1:{port} took it for 2 of 2 recipients"
    )
    [(recipients, message)] = mailbox.messages
    assert recipients == ["team@example.com", "boss@example.com"]
    assert message["Subject"] == alert.subject
    assert message["Message-ID"] == f"<{alert.key}@rtscv-mlops>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime.tzinfo
    assert message.get_content().splitlines() == alert.text.splitlines()


@pytest.mark.parametrize("text", HOSTILE)
def test_names_cannot_write_headers(mail_server, text):
    """A label with line breaks adds no recipient, no header and no body."""
    mailbox, port = mail_server()

    assert send_alert(hostile_alert(text), mail_settings(port))[1].ok

    [(recipients, message)] = mailbox.messages
    assert recipients == ["team@example.com", "boss@example.com"]
    assert set(message.keys()) == {
        "Subject",
        "From",
        "To",
        "Date",
        "Message-ID",
        "Auto-Submitted",
        "Content-Type",
        "Content-Transfer-Encoding",
        "MIME-Version",
    }


def test_one_refused_recipient_keeps_no_other_waiting(mail_server):
    """The others get their mail, and the delivery tells how many."""
    mailbox, port = mail_server()

    rule = mail_settings(port, to=("team@example.com", "x@refused.example"))
    delivery = send_alert(hostile_alert("cat"), rule)[1]

    assert delivery == Delivery("email", True, f"127.0.0.1:{port} took it for 1 of 2 recipients")
    assert len(mailbox.messages) == 1


def tls_server(mail_server, certificate):
    """A server that wants STARTTLS and the user `pets` with our password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def check(server, session, envelope, mechanism, data):
        known = (data.login, data.password) == (b"pets", SECRET.encode())
        return AuthResult(success=known, handled=False)

    return mail_server(
        tls_context=context, require_starttls=True, auth_required=True, authenticator=check
    )


@pytest.mark.parametrize(
    ("password", "trusted", "detail"),
    [
        (SECRET, True, "took it for 2 of 2 recipients"),
        (f"wrong-{SECRET}", True, "did not take the e-mail: SMTPAuthenticationError 535."),
        (SECRET, False, "did not take the e-mail: SSLCertVerificationError."),
    ],
)
def test_login_over_tls(mail_server, certificate, monkeypatch, caplog, password, trusted, detail):
    """User and password come from the environment and go to a server that proves its name."""
    caplog.set_level(logging.DEBUG)
    mailbox, port = tls_server(mail_server, certificate)
    monkeypatch.setenv("MAIL_USER", "pets")
    monkeypatch.setenv("MAIL_PASSWORD", password)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    rule = mail_settings(port, tls=True, user_env="MAIL_USER", password_env="MAIL_PASSWORD")
    delivery = send_alert(hostile_alert("cat"), rule)[1]

    assert detail in delivery.detail
    assert len(mailbox.messages) == delivery.ok
    assert SECRET not in delivery.detail
    assert not [record for record in caplog.records if SECRET in record.getMessage()]


def test_no_password_travels_in_the_open():
    """To another machine a password goes encrypted or not at all."""
    remote = Email(to=("a@b.c",), host="mail.invalid", user_env="U", password_env="P")

    delivery = send_alert(hostile_alert("cat"), AlertSettings(email=remote))[1]

    assert not delivery.ok
    assert "would be sent unencrypted. Set alert.email.tls to true." in delivery.detail


@pytest.mark.parametrize("sender", ["a@b.c\nBcc: victim@example.com", "\ud800@b.c"])
def test_a_bad_sender_is_a_failed_delivery(mail_server, sender):
    """An address that no header can hold is told, not raised."""
    mailbox, port = mail_server()
    rule = mail_settings(port)
    forged = Email.model_construct(**vars(rule.email) | {"sender": sender})

    delivery = send_alert(hostile_alert("cat"), rule.model_copy(update={"email": forged}))[1]

    assert not delivery.ok
    assert mailbox.messages == []


def test_one_channel_does_not_stop_another(webhook, mail_server):
    """The e-mail goes out although the webhook fails; both results are told."""
    webhook.statuses = [404]
    mailbox, port = mail_server()
    rule = mail_settings(port).model_copy(update={"webhook_url": webhook.url})

    deliveries = send_alert(hostile_alert("cat"), rule)

    assert [(delivery.channel, delivery.ok) for delivery in deliveries] == [
        ("log", True),
        ("webhook", False),
        ("email", True),
    ]
    assert len(mailbox.messages) == 1
    assert was_delivered(deliveries)


@pytest.mark.parametrize(
    ("outcomes", "delivered"),
    [
        ([("log", True)], True),
        ([("log", True), ("webhook", False)], False),
        ([("log", True), ("webhook", False), ("email", False)], False),
        ([("log", True), ("webhook", False), ("email", True)], True),
    ],
)
def test_a_log_line_alone_reaches_nobody_where_more_was_asked(outcomes, delivered):
    """If every way out failed the caller may send the alert again."""
    assert was_delivered([Delivery(channel, ok) for channel, ok in outcomes]) is delivered


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"log": True}, "Only the log has it; no channel is set."),
        ({"log": True, "webhook": True, "email": True}, "Sent by webhook, email."),
        ({"log": True, "webhook": True, "email": False}, "Sent by webhook; email failed."),
        ({"log": True, "webhook": False}, "It could not be delivered; webhook failed"),
    ],
)
def test_who_got_the_alert_is_said(outcomes, said):
    """Whoever looks at a run sees whether a person was reached, and how."""
    assert told_by([Delivery(name, ok) for name, ok in outcomes.items()]).startswith(said)


def test_the_log_gets_one_line(caplog):
    """The log holds the subject and the links, whatever the names are."""
    alert = hostile_alert(HOSTILE[1])

    assert send_alert(alert, AlertSettings()) == [Delivery("log", True)]

    [record] = caplog.records
    assert record.name == "rtscv_mlops.alerts"
    assert record.levelno == logging.WARNING
    assert len(record.getMessage().splitlines()) == 1
    assert LINKS["run"] in record.getMessage()
