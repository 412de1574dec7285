"""What the how-to shows can be copied: settings exist, code runs, and alerts arrive."""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from airflow.sdk import BaseNotifier

from rtscv_mlops.alerts.alert import AlertDecision, make_alert
from rtscv_mlops.alerts.channels import notifier_channels, send_alert
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import ModelSettings, Monitor
from rtscv_mlops.models.load import as_estimator, load_champion
from rtscv_mlops.tracking.client import connect
from rtscv_mlops.tracking.registry import first_facts
from rtscv_mlops.window import Interval
from tests.registries import new_database

PAGE = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()
REST = {
    "model": "model:\n  name: wine\n",
    "source": "source:\n  path: served/\n  timestamp: served_at\n",
}
"""What a monitor needs besides, where a snippet does not say it."""


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def block_with(kind: str, words: str) -> str:
    (found,) = [block for block in blocks(kind) if words in block]
    return found


def monitor_of(snippet: str, folder: Path) -> Monitor:
    """Return the monitor that a snippet makes, with a model and a source where it names none."""
    rest = [text for name, text in REST.items() if f"{name}:\n" not in snippet]
    file = folder / "wine.yaml"
    file.write_text("".join([*rest, snippet]))
    return load_monitor(file)


@pytest.fixture
def alert(tmp_path):
    """An alert about a window."""
    facts = first_facts(monitor_of("", tmp_path), Interval.day("2026-01-05"), "key")
    return make_alert(facts, AlertDecision(True, "This window counts."), {})


@pytest.mark.parametrize("snippet", blocks("yaml"))
def test_settings_make_a_monitor(tmp_path, snippet):
    """Each snippet, with a model and a source, is a monitor without mistakes."""
    assert monitor_of(snippet, tmp_path).name == "wine"


@pytest.mark.parametrize("snippet", blocks("python"))
def test_code_can_be_compiled(snippet):
    """No snippet of Python has a slip of the pen."""
    compile(snippet, "how-to", "exec")


@pytest.mark.parametrize(("library", "made"), [("xgboost", "XGB"), ("lightgbm", "LGBM")])
def test_trees_can_be_logged_and_refitted(tmp_path, monkeypatch, library, made):
    """The recipe runs for both libraries; what it logged loads without pickle and can be cloned."""
    pytest.importorskip(library, reason="needs the extra [boosting]")
    monkeypatch.chdir(tmp_path)
    place = new_database(tmp_path)
    snippet = block_with("python", "# train_trees.py").replace("sqlite:///mlflow.db", place)
    if library == "lightgbm":
        snippet = re.sub("from xgboost .* or: ", "", snippet)
    snippet = snippet.replace("XGBClassifier(n_estimators=50", f"{made}Classifier(n_estimators=5")

    exec(compile(snippet, "train_trees.py", "exec"), {})

    settings = ModelSettings(name="digits-trees", tracking_uri=place)
    champion = load_champion(connect(settings), settings)
    assert type(as_estimator(champion)).__name__ == f"{made}Classifier"


class Receiver(BaseHTTPRequestHandler):
    """Stands in for Slack: keeps what is posted."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        """Keep the tests' output clean."""


def test_slack_gets_a_text_to_show(tmp_path, monkeypatch, alert):
    """The webhook's recipe posts to the address in its variable, with the text that Slack shows."""
    rule = monitor_of(block_with("yaml", "SLACK_WEBHOOK_URL"), tmp_path).alert
    with HTTPServer(("127.0.0.1", 0), Receiver) as slack:
        slack.received = []
        thread = threading.Thread(target=slack.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{slack.server_port}/services/T0/B0/secret"
        monkeypatch.setenv("SLACK_WEBHOOK_URL", address)

        sent = send_alert(alert, rule)

        slack.shutdown()
        thread.join()
    assert [one.ok for one in sent] == [True, True]
    ((path, posted),) = slack.received
    assert path == "/services/T0/B0/secret"
    assert posted["text"] == f"{alert.subject}\n{alert.text}"


def test_a_notifier_gets_the_alert_in_its_templates(tmp_path, monkeypatch, alert):
    """The notifier's recipe names its connection, and fills in subject and text."""
    posted = []

    class SlackWebhookNotifier(BaseNotifier):
        """Takes the arguments of Airflow's own, and keeps what that would post."""

        template_fields = ("text",)

        def __init__(self, *, slack_webhook_conn_id, text):
            super().__init__()
            self.connection, self.text = slack_webhook_conn_id, text

        def notify(self, context):
            posted.append((self.connection, self.text))

    settings = monitor_of(block_with("yaml", "SlackWebhookNotifier"), tmp_path).airflow
    ((path, _),) = settings.notifiers.items()
    stand_in = ModuleType("slack_webhook")
    stand_in.SlackWebhookNotifier = SlackWebhookNotifier
    monkeypatch.setitem(sys.modules, path.rpartition(".")[0], stand_in)

    (channel,) = notifier_channels(settings, {})
    channel.send(alert)

    assert posted == [("slack", f"{alert.subject}\n{alert.text}")]
