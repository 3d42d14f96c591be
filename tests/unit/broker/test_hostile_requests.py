"""Small hostile requests of every API: the broker keeps no memory, logs no traceback, and serves the others."""

from __future__ import annotations

import asyncio
import logging
import resource
import select
import socket
import struct
import time
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.connection import Connection
from odradek.broker.request_body import LARGE_BYTES
from odradek.broker.running import BrokerThread, serving
from odradek.testing.wire import WireClient
from peers.broker_thread import connect
from peers.hostile_requests import Hostile, hostile_requests
from peers.requests import ask, new_topic
from peers.sized_requests import all_keys
from unit.broker.conftest import LISTENERS

PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 2, 11, 14, 18
MAY_WAIT = (PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP)
"""What waits for records or for other clients; a Produce request may want no answer."""

EACH = 50
ANSWERED_WITHIN_S = 30
MOST_GROWN_BYTES = 50_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def is_answered(sock: socket.socket) -> bool:
    """Whether a request is answered; otherwise the connection was closed."""
    try:
        return bool(sock.recv(4))
    except ConnectionError:
        return False


def send(running: BrokerThread, requests: list[Hostile], other: WireClient) -> list[str]:
    """Sends requests, each on a connection of its own; returns what is wrong with their answers."""
    waiting, wrong = {}, []
    for request in requests:
        client = connect(running)
        client.socket.sendall(request.frame)
        waiting[client.socket] = request
    end = time.monotonic() + ANSWERED_WITHIN_S
    while time.monotonic() < end and any(one.key not in MAY_WAIT for one in waiting.values()):
        other.call(API_VERSIONS, 0, {})
        for sock in select.select(list(waiting), [], [], 0.1)[0]:
            request = waiting.pop(sock)
            if not is_answered(sock) and request.is_valid:
                wrong.append(f"{request.text}: the connection is closed")
            sock.close()
    other.call(API_VERSIONS, 0, {})
    wrong += [f"{request.text}: no answer" for request in waiting.values() if request.key not in MAY_WAIT]
    for sock in waiting:
        sock.close()
    return wrong


def attack(running: BrokerThread, seed: int) -> list[str]:
    with connect(running) as other:
        return [line for key in all_keys() for line in send(running, hostile_requests(key, EACH, seed), other)]


def test_a_name_too_long_for_an_error_message_is_answered(client: WireClient) -> None:
    (topic,) = ask(client, "CreateTopics", 2, topics=[new_topic("a" * 32767)]).topics
    assert topic.error_code == ErrorCode.invalid_topic_exception
    assert topic.error_message.startswith("Topic name is invalid: ")


def test_a_client_that_has_gone_leaves_no_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with serving(tmp_path / "data", LISTENERS, sync="off", background=False) as server:
            connection = Connection(server, "PLAINTEXT", "127.0.0.1", 1 << 20)
            # It is so large that it is read in another thread, while the client goes.
            request = struct.pack(">hh", LIST_OFFSETS, 2) + b"\xff" * LARGE_BYTES
            connection.received(memoryview(struct.pack(">i", len(request)) + request))
            connection.close()

    asyncio.run(run())
    assert [record.exc_info for record in caplog.records if "had gone" in record.getMessage()] == [None]


@pytest.mark.slow
def test_hostile_requests_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    config = {**LISTENERS, "auto.create.topics.enable": False}
    with BrokerThread(tmp_path / "data", config, sync="off", background=False) as running:
        with connect(running) as client:
            ask(client, "CreateTopics", 7, topics=[new_topic(f"t{number}", 2) for number in range(3)])
        wrong = attack(running, 1)
        before = resident_bytes()
        wrong += attack(running, 2)
        grown = resident_bytes() - before
    wrong += [caplog.handler.format(record) for record in caplog.records if record.exc_info]
    assert wrong == []
    assert grown < MOST_GROWN_BYTES
