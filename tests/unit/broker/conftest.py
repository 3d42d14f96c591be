from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from odradek.testing.wire import WireClient
from peers.broker_thread import connect

LISTENERS: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    # Tests move the time by days, and keep their connections.
    "connections.max.idle.ms": -1,
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data", LISTENERS, sync="off", background=False) as running:
        yield running


@pytest.fixture
def client(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running) as client:
        yield client
