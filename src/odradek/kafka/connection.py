"""A bare connection for large responses: they bypass kafka-python, over the socket that it has logged in on.

kafka-python finds the brokers, speaks TLS and SASL, and knows every request. What it does not do is move hundreds of
megabytes a second: its transport reads 4 KB at a time, and copies a response four times.

    size int32 | correlation_id int32 | body       read into one buffer, which the next response is read into again
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from kafka import errors

from odradek.errors import ProtocolError
from odradek.kafka.stopping import LOOK_S, check_not_stopped

MAX_RESPONSE_BYTES = 1 << 30
_INT32 = struct.Struct(">i")


class BareConnection:
    """A socket on which the login is done. Its requests use versions without tagged fields in the header.

    Args:
        connected: The socket.
        node_id: The broker's node id.
        versions: The versions of requests that the broker supports.
        client_id: What this client calls itself.
        timeout_s: How long to wait for bytes.

    Attributes:
        awaited: How many responses are still to come.
    """

    def __init__(self, connected: socket.socket, node_id: int, versions: Any, client_id: str, timeout_s: float) -> None:
        self.node_id = node_id
        self.awaited = 0
        self._socket = connected
        self._timeout_s = timeout_s
        self._versions = versions
        self._client_id = client_id
        self._correlation_id = 0
        self._size = bytearray(_INT32.size)
        self._buffer = bytearray(1 << 16)

    def send(self, request: Any) -> int:
        """Send a request, and return the version that it was sent in.

        Raises:
            OSError: The broker took nothing for `timeout_s`, or the connection broke.
        """
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.API_VERSION = self._versions.api_version(request)
        request.with_header(self._correlation_id, self._client_id)
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(request.encode(framed=True, header=True))
        self.awaited += 1
        return int(request.API_VERSION)

    def receive(self) -> memoryview:
        """Return the body of the next response. The next call overwrites it.

        Raises:
            OSError: Nothing came in time, or the connection broke.
            KafkaConnectionError: The broker closed it.
            ProtocolError: What came is no response to the request.
            StoppedError: The thread is to end.
        """
        self._socket.settimeout(LOOK_S)
        self._fill(memoryview(self._size))
        (size,) = _INT32.unpack(self._size)
        if not _INT32.size <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolError(f"a response claims a size of {size} bytes")
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        response = memoryview(self._buffer)[:size]
        self._fill(response)
        self.awaited -= 1
        (correlation_id,) = _INT32.unpack_from(response)
        if correlation_id != (self._correlation_id - self.awaited) & 0x7FFFFFFF:
            raise ProtocolError(f"a response out of order, to request {correlation_id}")
        return response[_INT32.size :]

    def _fill(self, view: memoryview) -> None:
        filled = 0
        waits_until = time.monotonic() + self._timeout_s
        while filled < len(view):
            try:
                count = self._socket.recv_into(view[filled:])
            except TimeoutError:
                check_not_stopped()
                if time.monotonic() > waits_until:
                    raise
                continue
            if not count:
                raise errors.KafkaConnectionError("the broker closed the connection")
            filled += count
            waits_until = time.monotonic() + self._timeout_s

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
