"""Airflow's notifiers as channels of an alert."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from rtscv_mlops.alerts.alert import Alert
from rtscv_mlops.alerts.channels import Channel
from rtscv_mlops.config.inputs import resolve_options
from rtscv_mlops.config.scheduling import AirflowSettings
from rtscv_mlops.errors import Code, ServiceError


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
