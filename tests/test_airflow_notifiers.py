"""Notifiers of Airflow as channels: a real one, to a real mail server, and ones that fail."""

from email import message_from_bytes

import pytest
from aiosmtpd.controller import Controller

from rtscv_mlops.alerts.alert import AlertDecision, make_alert
from rtscv_mlops.alerts.channels import notifier_channels, send_alert, was_delivered
from rtscv_mlops.config.monitor import AlertSettings
from rtscv_mlops.config.scheduling import AirflowSettings
from tests.report_example import example
from tools.stack import free_port

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
ARGUMENTS = {
    "to": "on-call@example.com",
    "from_email": "rtscv@example.com",
    "subject": "{{ rtscv.subject }}",
    "html_content": "<pre>{{ rtscv.text }}</pre>",
}
SECRET = "canary-password"


@pytest.fixture
def alert():
    """An alert about a window with unknowns."""
    facts, _ = example()
    return make_alert(facts, AlertDecision(True, "This window counts."), {})


@pytest.fixture
def mailbox(monkeypatch):
    """What a mail server got; Airflow's default connection leads there."""
    letters = []

    class Keeper:
        async def handle_DATA(self, server, session, envelope):
            letters.append(message_from_bytes(envelope.content))
            return "250 OK"

    server = Controller(Keeper(), hostname="127.0.0.1", port=free_port())
    server.start()
    place = f"smtp://127.0.0.1:{server.port}?disable_ssl=true&disable_tls=true"
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", place)
    yield letters
    server.stop()


def channels(notifiers):
    return notifier_channels(AirflowSettings(notifiers=notifiers), {})


def test_a_letter_arrives(alert, mailbox):
    """Airflow's own notifier for mail sends the alert's subject and text."""
    sent = send_alert(alert, AlertSettings(), channels({SMTP: ARGUMENTS}))

    assert [(one.channel, one.ok) for one in sent] == [("log", True), (SMTP, True)]
    (letter,) = mailbox
    assert letter["Subject"] == alert.subject
    (part,) = letter.get_payload()
    assert part.get_payload(decode=True).decode() == f"<pre>{alert.text}</pre>"


@pytest.mark.parametrize("path", [SMTP, "airflow.no_such.Notifier", "json.JSONDecoder"])
def test_one_that_fails_stops_no_other(alert, monkeypatch, path):
    """The failure is told without its words, which may hold a secret; the alert is still owed."""
    place = f"smtp://user:{SECRET}@127.0.0.1:{free_port()}?retry_limit=1"
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", place)

    sent = send_alert(alert, AlertSettings(), channels({path: ARGUMENTS}))

    assert not was_delivered(sent)
    assert f"{path} did not take the alert" in sent[1].detail
    assert SECRET not in str(sent)


def test_a_variable_that_is_not_set_is_named(alert):
    """An argument that the environment lacks is told as that, not as the notifier's fault."""
    arguments = {**ARGUMENTS, "to_env": "NOT_SET_X"}
    del arguments["to"]

    sent = send_alert(alert, AlertSettings(), channels({SMTP: arguments}))

    assert not sent[1].ok
    assert "to_env names the environment variable NOT_SET_X, which is not set" in sent[1].detail
