from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.monitoring import Monitoring
from odradek.broker.restrictions import STANDARD_AUTHORIZER
from odradek.broker.running import BrokerThread
from odradek.testing.wire import WireClient
from peers.broker_thread import connect, eventually, start
from peers.cpu import LongestCallback
from peers.group_requests import find_coordinator

LISTENERS: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    # Tests move the time by days, and keep their connections.
    "connections.max.idle.ms": -1,
}

_ACL_KEYS, _TOKEN_KEYS = (29, 30, 31), (38, 39, 40, 41)
_WITH_TOKENS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": "secret",
}
_OPEN = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}


def settings_for(key: int) -> dict[str, str]:
    """Returns the settings that an API needs so that it does anything: an authorizer, or a secret and logins."""
    return _OPEN if key in _ACL_KEYS else _WITH_TOKENS if key in _TOKEN_KEYS else {}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with start(tmp_path / "data", **LISTENERS) as running:
        yield running


@pytest.fixture
def client(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running) as client:
        yield client


@pytest.fixture
def events(running: BrokerThread, client: WireClient) -> None:
    """The coordinators are there, and the topic `events` of two partitions."""
    find_coordinator(client)
    running.broker.logs.create_topic("events", 2)


@pytest.fixture
def base(running: BrokerThread) -> Iterator[str]:
    """Where `/metrics` and `/healthz` are."""
    made = Monitoring(running.server)
    listening = running.call(lambda: asyncio.ensure_future(made.listen("127.0.0.1", 0)))
    eventually(lambda: running.call(listening.done))
    yield f"http://127.0.0.1:{listening.result()}"
    closing = running.call(lambda: asyncio.ensure_future(made.close()))
    eventually(lambda: running.call(closing.done))


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch, leftovers_frozen: None) -> LongestCallback:
    found, run = LongestCallback(), getattr(asyncio.Handle, "_run")  # noqa: B009 - it is private
    monkeypatch.setattr(asyncio.Handle, "_run", lambda handle: found.run(handle, run))
    return found
