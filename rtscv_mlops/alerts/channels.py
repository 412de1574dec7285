"""The channels of an alert: log, webhook, e-mail, Airflow's notifiers.

A channel that fails does not stop the others. The detail of a delivery never holds the path of an
address, a user or a password.
"""

import logging
import os
import smtplib
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from rtscv_mlops.alerts.alert import Alert
from rtscv_mlops.config.inputs import resolve_options
from rtscv_mlops.config.monitor import AlertSettings, Email
from rtscv_mlops.config.scheduling import AirflowSettings
from rtscv_mlops.errors import Code, ConfigError, RtscvError, ServiceError

logger = logging.getLogger("rtscv_mlops.alerts")

LOG = "log"
LOCAL = ("localhost", "127.0.0.1", "::1")
TIMEOUT = (5.0, 15.0)
"""Seconds to connect, and to wait for an answer."""
PAUSES = (0.5, 2.0)
"""Seconds before the second and the third try."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of sending an alert to one channel; `detail` holds no secret."""

    channel: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel; `send` returns a sentence about the delivery, or raises an error of ours."""

    name: str
    send: Callable[[Alert], str]


def send_alert(alert: Alert, rule: AlertSettings, more: Iterable[Channel] = ()) -> list[Delivery]:
    """Send an alert to every channel that the rule names, and to more; the log always gets it."""
    links = ", ".join(f"{name}: {target}" for name, target in alert.links.items())
    logger.warning("%s%s%s", alert.subject, " | " if links else "", links)
    deliveries = [Delivery(LOG, True)]
    channels = [*more]
    if (email := rule.email) is not None:
        channels.insert(0, Channel("email", lambda alert: send_email(alert, email)))
    if rule.webhook_url or rule.webhook_url_env:
        channels.insert(0, Channel("webhook", lambda alert: post_webhook(alert, rule)))
    for channel in channels:
        try:
            deliveries.append(Delivery(channel.name, True, channel.send(alert)))
        except RtscvError as error:
            logger.warning("The alert could not be sent: %s", error)
            deliveries.append(Delivery(channel.name, False, str(error)))
    return deliveries


def was_delivered(deliveries: list[Delivery]) -> bool:
    """Return whether an alert reached people; if only the log has it, it may be sent again."""
    outward = [delivery for delivery in deliveries if delivery.channel != LOG]
    return any(delivery.ok for delivery in outward or deliveries)


def told_by(deliveries: list[Delivery]) -> str:
    """Return a sentence on which channels took an alert."""
    outward = [delivery for delivery in deliveries if delivery.channel != LOG]
    sent = ", ".join(delivery.channel for delivery in outward if delivery.ok)
    failed = ", ".join(delivery.channel for delivery in outward if not delivery.ok)
    if not outward:
        return "Only the log has it; no channel is set."
    if not sent:
        return f"It could not be delivered; {failed} failed, see alert.json."
    return f"Sent by {sent}; {failed} failed." if failed else f"Sent by {sent}."


def post_webhook(alert: Alert, rule: AlertSettings) -> str:
    """Post an alert, and retry errors that may pass; return the answer.

    The key in the header lets a receiver drop copies.
    """
    url = rule.webhook_url or _from_environment(rule.webhook_url_env)
    for pause in PAUSES:
        try:
            return _post_once(alert, url)
        except ServiceError as error:
            logger.info("Trying again in %s s: %s", pause, error)
            time.sleep(pause)
    return _post_once(alert, url)


def _post_once(alert: Alert, url: str) -> str:
    host = _public_part(url)
    try:
        # Streamed, and closed unread: only the status of the answer matters.
        with (
            _no_address_in_log(),
            requests.post(
                url,
                json=alert.payload(),
                headers={"Idempotency-Key": quote(alert.key, safe="")},
                timeout=TIMEOUT,
                allow_redirects=False,
                stream=True,
            ) as answer,
        ):
            status = answer.status_code
    except (requests.RequestException, ValueError) as error:
        # ValueError, since requests does not catch every malformed host. The error's own text is
        # left out: it holds the path of the address, which is the secret of most webhooks.
        raise ServiceError(
            f"The webhook at {host} could not be reached: {type(error).__name__}.",
            code=Code.WEBHOOK,
        ) from error
    if status >= 500:
        raise ServiceError(f"The webhook at {host} failed with {status}.", code=Code.WEBHOOK)
    if status >= 300:
        raise ConfigError(
            f"The webhook at {host} answered {status} and did not take the alert; redirects are "
            "not followed. Check the address in alert.webhook_url or its variable."
        )
    return f"{host} answered {status}"


def _public_part(url: str) -> str:
    """Return the part of an address that is not secret."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            port = f":{parts.port}" if parts.port else ""
            return f"{parts.scheme}://{parts.hostname}{port}"
    except ValueError:
        pass
    raise ConfigError("The webhook's address is not a valid http or https address. Correct it.")


@contextmanager
def _no_address_in_log() -> Iterator[None]:
    """Keep this thread's requests out of urllib3's debug log, which names whole addresses."""
    this_thread = threading.get_ident()
    vendor = logging.getLogger("urllib3.connectionpool")

    def is_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != this_thread

    vendor.addFilter(is_other_thread)
    try:
        yield
    finally:
        vendor.removeFilter(is_other_thread)


def send_email(alert: Alert, email: Email) -> str:
    """Send an alert by e-mail; return how many recipients the server took it for."""
    server_name = f"{email.host}:{email.port}"
    credentials = None
    if email.user_env is not None:
        if not email.tls and email.host not in LOCAL:
            raise ConfigError(
                f"The password for {email.host} would be sent unencrypted. Set alert.email.tls to "
                "true."
            )
        credentials = _from_environment(email.user_env), _from_environment(email.password_env)
    try:
        message = make_email(alert, email)
        with smtplib.SMTP(email.host, email.port, timeout=TIMEOUT[1]) as server:
            if email.tls:
                server.starttls(context=ssl.create_default_context())
            if credentials:
                server.login(*credentials)
            refused = server.send_message(message)
    except (smtplib.SMTPException, OSError, ValueError) as error:
        # A server may quote the login in its answer, so only the kind of failure is reported.
        status = getattr(error, "smtp_code", "")
        raise ServiceError(
            f"{server_name} did not take the e-mail: {type(error).__name__} {status}".rstrip()
            + ".",
            code=Code.EMAIL,
        ) from error
    taken = len(email.to) - len(refused)
    return f"{server_name} took it for {taken} of {len(email.to)} recipients"


def make_email(alert: Alert, email: Email) -> EmailMessage:
    """Return the e-mail of an alert."""
    message = EmailMessage()
    message["Subject"] = alert.subject
    message["From"] = email.sender
    message["To"] = ", ".join(email.to)
    message["Date"] = datetime.now(UTC)
    message["Message-ID"] = f"<{quote(alert.key, safe='')}@rtscv-mlops>"
    # Asks automatic responders not to answer.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(alert.text, cte="quoted-printable")
    return message


def _from_environment(name: str | None) -> str:
    value = os.environ.get(name or "", "")
    if not value:
        raise ConfigError(
            f"The environment variable {name} is not set. Set it where alerts are sent."
        )
    return value


def notifier_channels(settings: AirflowSettings, context: Mapping[str, Any]) -> tuple[Channel, ...]:
    """Return a channel for each notifier that a monitor names."""

    def notify(path: str, arguments: Mapping[str, Any], alert: Alert) -> str:
        module, _, name = path.rpartition(".")
        options = resolve_options(arguments)
        try:
            notifier = getattr(import_module(module), name)(**options)
            notifier({**context, "rtscv": alert})
        except Exception as error:  # a notifier is any code, and its message may hold a secret
            raise ServiceError(
                f"{path} did not take the alert: {type(error).__name__}. Check its arguments and "
                "its connection in Airflow.",
                code=Code.NOTIFIER,
            ) from error
        return f"{name} took it"

    return tuple(
        Channel(path, partial(notify, path, arguments))
        for path, arguments in settings.notifiers.items()
    )
