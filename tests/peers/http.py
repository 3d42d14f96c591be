"""What a test asks of a server of ours by HTTP, and a server that is sent something."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

OWN_HOSTS = ["localhost", "LOCALHOST:9404", "127.0.0.1:1", "[::1]:9404", "10.1.2.3", socket.gethostname()]
"""What each server is called."""

FOREIGN_HEADERS = [
    ("Host: evil.example",),
    ("Host: evil.example:9404",),
    ("Host: localhost.evil.example",),
    ("Host: 127.0.0.1.evil.example",),
    ("Host:",),
    ("Host: localhost", "Host: evil.example"),
    ("Host: localhost", "Origin: http://evil.example"),
    ("Host: localhost", "Origin: null"),
    ("Host: localhost", "Origin: http://localhost:81"),
    ("Host: localhost", "Sec-Fetch-Site: cross-site"),
    ("Host: localhost", "sec-fetch-site: same-site"),
]
"""What a page of another site has a browser send."""


def get(address: str) -> tuple[int, str]:
    """Returns the status and the text of an answer."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def answered(port: int, *headers: str, request: str = "GET /metrics HTTP/1.1") -> bytes:
    """Returns the whole answer to a request with these headers."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join([request, *headers, "", ""]).encode())
        with connection.makefile("rb") as answer:
            return answer.read()


def metrics(base: str) -> dict[str, float]:
    """Returns the samples of `/metrics`."""
    status, text = get(f"{base}/metrics")
    assert status == 200
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


class Collector:
    """A server on loopback that keeps what is posted to it, a context manager.

    Args:
        statuses: What it answers first; afterwards 200.
    """

    def __init__(self, *statuses: int) -> None:
        self.bodies: list[bytes] = []
        waiting = list(statuses)
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = waiting.pop(0) if waiting else 200
                if status == 200:
                    bodies.append(body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
