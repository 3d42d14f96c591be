"""What tests do with a broker of ours in their own process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from odradek.broker.running import BrokerThread
from odradek.testing.wire import WireClient
from peers.process import PATIENCE


def connect(running: BrokerThread, listener: str = "PLAINTEXT", **options: Any) -> WireClient:
    """Returns a connection to it; see `WireClient` for the options."""
    endpoint = running.endpoint(listener)
    return WireClient(endpoint.host, endpoint.port, **options)


def advance(running: BrokerThread, seconds: float) -> None:
    """Moves its time."""
    running.call(lambda: running.broker.clock.advance(seconds))


def eventually(condition: Callable[[], Any]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + 10 * PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
