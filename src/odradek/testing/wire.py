"""A client that sends single requests of any API and version, for tests of brokers; it retries and hides nothing."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from odradek.broker.protocol import Message, decode_response, encode_request
from odradek.closing import Closing
from odradek.errors import ProtocolError

_TIMEOUT_S = 30.0


class WireClient(Closing):
    """One connection to a broker. It belongs to one thread; a context manager that closes it.

    Args:
        host: The broker's host.
        port: Its port.
        client_id: What the client calls itself.
        timeout_s: How long to wait for an answer.

    Raises:
        OSError: The broker cannot be reached.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "odradek-wire", timeout_s: float = _TIMEOUT_S
    ) -> None:
        try:
            self.socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            error.filename = f"{host}:{port}"  # else the error names nothing
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._address = f"{host}:{port}"
        self._correlation_ids = itertools.count(1)

    def call(self, api_key: int, version: int, message: Message) -> Any:
        """Send a request and return its answer, an object of kio's class.

        Raises:
            ProtocolError: The broker closed the connection, or its answer cannot be read.
            TimeoutError: No answer came in time.
        """
        correlation_id = self.send(api_key, version, message)
        return self.receive(api_key, version, correlation_id)

    def send(self, api_key: int, version: int, message: Message) -> int:
        """Send a request; return its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.socket.sendall(encode_request(api_key, version, correlation_id, self.client_id, message))
        return correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        """Return the next answer, which must be that of a request."""
        found, body = decode_response(api_key, version, self.receive_frame())
        if found != correlation_id:
            raise ProtocolError(f"the answer to request {correlation_id} has the number {found}")
        return body

    def receive_frame(self) -> bytes:
        """Return the next answer as bytes, without its size."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except TimeoutError:
                raise TimeoutError(f"{self._address} has not answered for {self.socket.gettimeout():g} s") from None
            if not part:
                raise ProtocolError(f"{self._address} closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
