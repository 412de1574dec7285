"""The ways out: log, webhook, e-mail. One that fails stops no other.

Knows the network; a detail of a delivery never holds an address' path, a user or a password.
"""

import logging
import os
import smtplib
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from functools import partial
from urllib.parse import quote, urlsplit

import requests

from rtscv_mlops.alerts.message import Alert
from rtscv_mlops.config.monitor import AlertSettings, Email
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
    """What became of an alert on one channel; `detail` holds no secret."""

    channel: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Channel:
    """One more way out: `send` returns what became of it in words, or raises an error of ours."""

    name: str
    send: Callable[[Alert], str]


def send_alert(alert: Alert, rule: AlertSettings, more: Iterable[Channel] = ()) -> list[Delivery]:
    """Send an alert to every channel that the rule names, and to more; the log always gets it."""
    deliveries = [_write_log(alert)]
    if rule.webhook_url or rule.webhook_url_env:
        deliveries.append(_delivered("webhook", lambda: _post(alert, _webhook_url(rule))))
    if (email := rule.email) is not None:
        deliveries.append(_delivered("email", lambda: _mail(alert, email)))
    deliveries += [_delivered(one.name, partial(one.send, alert)) for one in more]
    return deliveries


def was_delivered(deliveries: list[Delivery]) -> bool:
    """Tell whether somebody can know: where only the log took the alert, it may be sent again."""
    outward = [delivery for delivery in deliveries if delivery.channel != LOG]
    return any(delivery.ok for delivery in outward or deliveries)


def told_by(deliveries: list[Delivery]) -> str:
    """Say who got an alert, for the person who reads what became of a window."""
    outward = [delivery for delivery in deliveries if delivery.channel != LOG]
    sent = ", ".join(delivery.channel for delivery in outward if delivery.ok)
    failed = ", ".join(delivery.channel for delivery in outward if not delivery.ok)
    if not outward:
        return "Only the log has it; no channel is set."
    if not sent:
        return f"It could not be delivered; {failed} failed, see alert.json."
    return f"Sent by {sent}; {failed} failed." if failed else f"Sent by {sent}."


def _delivered(channel: str, send: Callable[[], str]) -> Delivery:
    try:
        return Delivery(channel, True, send())
    except RtscvError as error:
        logger.warning("The alert could not be sent: %s", error)
        return Delivery(channel, False, str(error))


def _write_log(alert: Alert) -> Delivery:
    links = ", ".join(f"{name}: {target}" for name, target in alert.links.items())
    logger.warning("%s%s%s", alert.subject, " | " if links else "", links)
    return Delivery(LOG, True)


def _webhook_url(rule: AlertSettings) -> str:
    return rule.webhook_url or _from_environment(rule.webhook_url_env)


def _from_environment(name: str | None) -> str:
    value = os.environ.get(name or "", "")
    if not value:
        raise ConfigError(
            f"The environment variable {name} is not set. Set it where alerts are sent."
        )
    return value


def _post(alert: Alert, url: str) -> str:
    """Post, and try again what may pass; the key in the header lets a receiver drop copies."""
    for pause in PAUSES:
        try:
            return _post_once(alert, url)
        except ServiceError as error:
            logger.info("Trying again in %s s: %s", pause, error)
            time.sleep(pause)
    return _post_once(alert, url)


def _post_once(alert: Alert, url: str) -> str:
    place = _place(url)
    headers = {"Idempotency-Key": quote(alert.key, safe="")}
    try:
        # Streamed, and closed unread: nothing is wanted of the answer but its status.
        with (
            _quiet_about_addresses(),
            requests.post(
                url,
                json=alert.payload(),
                headers=headers,
                timeout=TIMEOUT,
                allow_redirects=False,
                stream=True,
            ) as answer,
        ):
            status = answer.status_code
    except (requests.RequestException, ValueError) as error:
        # A ValueError: not every malformed host is caught by the vendor's own check. Texts
        # are not told on: they hold the path of the address, the secret of most webhooks.
        raise ServiceError(
            f"The webhook at {place} could not be reached: {type(error).__name__}.",
            code=Code.WEBHOOK,
        ) from error
    return _judged(status, place)


def _judged(status: int, place: str) -> str:
    if status >= 500:
        raise ServiceError(f"The webhook at {place} failed with {status}.", code=Code.WEBHOOK)
    if status >= 300:
        raise ConfigError(
            f"The webhook at {place} answered {status} and did not take the alert; redirects are "
            "not followed. Check the address in alert.webhook_url or its variable."
        )
    return f"{place} answered {status}"


def _place(url: str) -> str:
    """Return the part of an address that is no secret."""
    try:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        parts, place = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("The webhook's address is no http or https address. Correct it.")
    return place


@contextmanager
def _quiet_about_addresses() -> Iterator[None]:
    """Keep this thread's requests out of the vendor's debug log, which names whole addresses."""
    this_thread = threading.get_ident()
    vendor = logging.getLogger("urllib3.connectionpool")

    def from_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != this_thread

    vendor.addFilter(from_elsewhere)
    try:
        yield
    finally:
        vendor.removeFilter(from_elsewhere)


def _mail(alert: Alert, email: Email) -> str:
    place = f"{email.host}:{email.port}"
    credentials = _credentials(email)
    try:
        message = _message(alert, email)
        with smtplib.SMTP(email.host, email.port, timeout=TIMEOUT[1]) as server:
            if email.tls:
                server.starttls(context=ssl.create_default_context())
            if credentials:
                server.login(*credentials)
            refused = server.send_message(message)
    except (smtplib.SMTPException, OSError, ValueError) as error:
        # A server may quote the login in its answer, so only the kind of failure is told.
        status = getattr(error, "smtp_code", "")
        raise ServiceError(
            f"{place} did not take the e-mail: {type(error).__name__} {status}".rstrip() + ".",
            code=Code.EMAIL,
        ) from error
    return f"{place} took it for {len(email.to) - len(refused)} of {len(email.to)} recipients"


def _credentials(email: Email) -> tuple[str, str] | None:
    if email.user_env is None:
        return None
    if not email.tls and email.host not in LOCAL:
        raise ConfigError(
            f"The password for {email.host} would travel unencrypted. Set alert.email.tls to true."
        )
    return _from_environment(email.user_env), _from_environment(email.password_env)


def _message(alert: Alert, email: Email) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = alert.subject
    message["From"] = email.sender
    message["To"] = ", ".join(email.to)
    message["Date"] = datetime.now(UTC)
    message["Message-ID"] = f"<{quote(alert.key, safe='')}@rtscv-mlops>"
    # Asks holiday responders for silence.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(alert.text, cte="quoted-printable")
    return message
