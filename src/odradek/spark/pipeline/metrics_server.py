"""The HTTP server of `/metrics`. Whatever its clients do, it leaves the job its threads, descriptors and terminal.

    a client that sends or takes nothing      is disconnected after some seconds
    more clients than `_MOST_CLIENTS`         wait; one that would wait for long is disconnected
    a client that disconnects                 is not logged
    a web page of another site                is refused, as by the broker's `/metrics` (`odradek.cross_site`)

An address is looked up in one place, for a run and for `pipeline check`.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from io import StringIO
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore
from typing import TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from odradek.cross_site import RefusedRequestError, check_site
from odradek.errors import JobError
from odradek.printable import printable

_MOST_CLIENTS = 32
_CLIENT_S = 5.0
_WAIT_S = 0.5


def open_server(host: str, port: int) -> MetricsServer:
    """Return a server that listens.

    Args:
        host: Where to listen; all addresses of this machine if empty.
        port: The port; 0 for any.

    Raises:
        JobError: The address cannot be listened on.
    """
    try:
        return MetricsServer(host, port)
    except OSError as error:
        reason = error.strerror or error
    except (ValueError, TypeError):
        # Python refuses some names before it looks for them.
        reason = "this is no name of a host"
    raise JobError(f"{printable(host)}:{port}: {reason}", "metrics.listen")


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Answers each client in a thread.

    Args:
        host: Where to listen; all addresses of this machine if empty.
        port: The port; 0 for any.

    Attributes:
        names: What this machine is called, in small letters.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # noqa: S104
        self.address_family, address = found[0][0], found[0][4]
        self.names = {name.lower() for name in (host, socket.gethostname()) if name}
        self._free = BoundedSemaphore(_MOST_CLIENTS)
        super().__init__((str(address[0]), port), _Handler)

    def server_bind(self) -> None:
        """Bind, without the question to DNS what the host is called, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether there is room for one more client."""
        return self._free.acquire(timeout=_WAIT_S)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer a client."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_S
    server: MetricsServer

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        try:
            check_site(self.headers.items(), self.server.names)
        except RefusedRequestError as error:
            self.send_error(error.status, explain=str(error))
            return False
        return True

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def get_stderr(self) -> TextIO:
        return StringIO()

    def log_message(self, *_: object) -> None:
        pass
