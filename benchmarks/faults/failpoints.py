"""Named failpoints before and after every outside write, armed by an environment variable.

They sit in the HTTP client that every write to MLflow and every webhook goes through, not in the
product, so that a write which is added later has its points too. A point is named by the request,
its number among requests of that kind, and the side: `runs/log-batch#3 after`.
"""

import os
import re
import signal
from collections import Counter
from typing import Any

import requests

VARIABLE = "RTSCV_FAILPOINT"
"""The point at which this process hurts itself."""
SIGNAL = "RTSCV_FAILPOINT_SIGNAL"
"""What it does there: `SIGKILL` (default) or `SIGSTOP`."""
TRACE = "RTSCV_FAILPOINT_TRACE"
"""A file to which every point that is passed is written."""
READS = ("search", "get-download-uri")
KIND = re.compile(r".*?/mlflow(?:-artifacts)?/(.*)")
PARTS = re.compile(r"(?<=/)(m-)?[0-9a-f]{32}(?=/|$)|(?<=artifacts/)\d+(?=/)|[^/]*\d{6}[^/]*")
"""What differs from trial to trial: ids of runs, models and experiments, numbered files."""

_unarmed_send = requests.Session.send


def arm() -> None:
    """Put the points into this process; without the variable they only leave their names."""
    counts: Counter[str] = Counter()

    def send(session: requests.Session, request: requests.PreparedRequest, **given: Any) -> Any:
        kind = kind_of(request)
        if not kind:
            return _unarmed_send(session, request, **given)
        counts[kind] += 1
        _pass(f"{kind}#{counts[kind]} before")
        answer = _unarmed_send(session, request, **given)
        _pass(f"{kind}#{counts[kind]} after")
        return answer

    requests.Session.send = send


def kind_of(request: requests.PreparedRequest) -> str:
    """Return what a request writes; nothing if it only reads."""
    path = str(request.url).partition("?")[0]
    if request.method == "GET" or path.endswith(READS):
        return ""
    found = KIND.match(path)
    kind = PARTS.sub("*", found.group(1)) if found else "webhook"
    return f"{str(request.method).lower()} {kind}"


def _pass(point: str) -> None:
    if trace := os.environ.get(TRACE):
        with open(trace, "a") as file:
            file.write(f"{point}\n")
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), getattr(signal, os.environ.get(SIGNAL, "SIGKILL")))
