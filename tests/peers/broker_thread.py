"""What tests do with a broker of ours in their own process."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from odradek.broker.connection import Connection
from odradek.broker.running import BrokerThread
from odradek.broker.server import Server
from odradek.testing.wire import WireClient
from peers.process import PATIENCE


def start(path: Path, /, **config: Any) -> BrokerThread:
    """Returns a broker that has started, with settings; nothing is synced, and nothing runs by itself."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **config}
    return BrokerThread(path, settings, sync="off", background=False)


def connect(running: BrokerThread, listener: str = "PLAINTEXT", **options: Any) -> WireClient:
    """Returns a connection to it; see `WireClient` for the options."""
    endpoint = running.endpoint(listener)
    return WireClient(endpoint.host, endpoint.port, **options)


async def answered(server: Server, frame: bytearray, timeout_s: float | None = None) -> Any:
    """Has a server without a socket answer a request; returns the encoded answer."""
    connection = Connection(server, "PLAINTEXT", "127.0.0.1", 1 << 20)
    try:
        found = server.handle(connection, frame)
        return await asyncio.wait_for(found, timeout_s) if isinstance(found, Awaitable) else found
    finally:
        connection.close()


def advance(running: BrokerThread, seconds: float) -> None:
    """Moves its time."""
    running.call(lambda: running.broker.clock.advance(seconds))


def eventually(condition: Callable[[], Any]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + 10 * PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def unsent_bytes(sock: socket.socket) -> int:
    """Return how many bytes the other end has not acknowledged."""
    (count,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(count)
