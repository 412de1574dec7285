"""A proxy before MLflow that loses answers, of chosen requests, as networks do.

What the server did is done: the proxy hurts the answer. `BEFORE` are faults of what stands in front
of a server, such as a login, and the server never sees the request.
"""

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import requests

from benchmarks.faults.failpoints import kind_of

AFTER = ("drop", "502", "delay", "half")
"""Faults after the server has committed: no answer, another's answer, a late one, half of one."""
BEFORE = ("401", "html", "500", "refuse")
TIMEOUT = 2
"""Seconds that a client waits where answers are late: its MLFLOW_HTTP_REQUEST_TIMEOUT."""
LATE = TIMEOUT + 0.5
LOGIN = b"<!doctype html><html><body><form>Please log in</form></body></html>"
SLOWEST_SERVER = 120


class Write(NamedTuple):
    """A request that writes: what it writes, and the how manieth of that kind it is."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}#{self.number}"


class LossyProxy(ThreadingHTTPServer):
    """Passes requests on, and hurts the answers it is told to; each once.

    `seen` are all writes since `begin`; `lost` those that were hurt. `everything` is a fault that
    meets each request, reads too, for as long as it is set; `first_of_each` one that meets the
    first write of each kind.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, server: str, first_of_each: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.server, self.first_of_each = server, first_of_each
        self.everything = ""
        self.lost: list[Write] = []
        self.seen: list[Write] = []
        self._losing: dict[Write, str] = {}
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def lose(self, how: str, writes: Iterable[Write]) -> None:
        """Hurt these writes when they come."""
        self._losing |= dict.fromkeys(writes, how)

    def begin(self) -> None:
        """Count writes anew, as at the beginning of a try."""
        with self._lock:
            self._counts.clear()
            self.seen.clear()

    def fault_of(self, method: str, path: str) -> str:
        """Count a request, and say what is to happen to it; nothing, mostly."""
        kind = kind_of(requests.Request(method, self.server + path).prepare())
        if not kind:
            return self.everything
        with self._lock:
            self._counts[kind] += 1
            write = Write(kind, self._counts[kind])
            self.seen.append(write)
            known = write.kind in [each.kind for each in self.lost]
            fault = self._losing.pop(write, "") or ("" if known else self.first_of_each)
            if fault:
                self.lost.append(write)
        return fault or self.everything


class _Passage(BaseHTTPRequestHandler):
    server: LossyProxy

    def _pass(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault_of(self.command, self.path)
        if fault in BEFORE:
            self._stand_in_front(fault)
            return
        try:
            answer = self._ask(body)
        except requests.RequestException:
            return  # The server is down, and so are we.
        if fault == "drop":
            return
        if fault == "502":
            self._answer(HTTPStatus.BAD_GATEWAY, b"")
            return
        if fault == "delay":
            time.sleep(LATE)
        size = len(answer.content)
        shown = answer.content[: size // 2] if fault == "half" else answer.content
        try:
            self._answer(answer.status_code, shown, answer.headers.get("Content-Type", ""), size)
        except ConnectionError:
            pass  # The client no longer waits for a late answer.

    def _ask(self, body: bytes) -> requests.Response:
        headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
        return requests.request(
            self.command,
            self.server.server + self.path,
            data=body,
            headers=headers,
            timeout=SLOWEST_SERVER,
            allow_redirects=False,
        )

    def _stand_in_front(self, fault: str) -> None:
        if fault == "refuse":  # A reset, and no orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault == "html":
            self._answer(HTTPStatus.OK, LOGIN, "text/html")
        else:
            self._answer(int(fault), b"no")

    def _answer(
        self, status: int, content: bytes, kind: str = "text/plain", size: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) if size is None else size))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
