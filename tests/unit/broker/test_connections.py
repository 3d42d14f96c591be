"""Clients that break off, send rubbish, flood or do not read: they harm only themselves."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import socket
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.api import Api
from odradek.broker.connection import SCRATCH_BYTES, Connection
from odradek.broker.protocol import encode_request
from odradek.broker.running import BrokerThread
from odradek.errors import InvalidConfigError, LogError, ProtocolError
from odradek.records.kernels.objects import Record
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start, unsent_bytes
from peers.requests import ask, batch, fetch_message, message, produce_message, produced

VERSIONS = message("ApiVersions")
HOUR_MS = 3_600_000


def assert_served(client: WireClient) -> None:
    assert client.call(18, 3, VERSIONS).error_code == 0


def assert_closed(client: WireClient) -> None:
    with pytest.raises((ProtocolError, ConnectionError)):
        receive_all(client)


def receive_all(client: WireClient) -> None:
    while True:
        client.receive_frame()


def fill(client: WireClient, sent: bytes) -> int:
    """Send a request again and again until the socket takes no more; return how often it was sent as a whole."""
    count = 0
    try:
        while client.socket.send(sent) == len(sent):
            count += 1
    except BlockingIOError:
        pass
    return count


def connections(running: BrokerThread) -> int:
    return running.call(lambda: len(running.server.connections))


def serving(tmp_path: Path, **config: str | int) -> BrokerThread:
    return start(tmp_path / "limited", **{name.replace("_", "."): text for name, text in config.items()})


@pytest.fixture
def topic(running: BrokerThread) -> None:
    running.broker.logs.create_topic("events", config={"max.message.bytes": 1 << 26})


# -- rubbish


def rubbish() -> Iterator[bytes]:
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield bytes.fromhex("1603010200010001fc0303") + bytes(500)
    yield struct.pack(">i", -1)
    yield struct.pack(">i", 104_857_601)
    yield struct.pack(">i", 0)
    yield struct.pack(">ihhi", 8, 9999, 0, 1)
    yield struct.pack(">ihhi", 8, 3, 99, 1)
    yield struct.pack(">ihhih", 10, 3, 12, 1, 30000)
    generator = random.Random(12)
    for _ in range(40):
        # An API that there is, then anything.
        key, version = generator.choice([(0, 9), (0, 3), (1, 12), (2, 6), (3, 12), (3, 0), (18, 3), (17, 1), (36, 2)])
        body = struct.pack(">hhih", key, version, 1, -1) + b"\0" + generator.randbytes(generator.randrange(60))
        yield struct.pack(">i", len(body)) + body


def test_rubbish_closes_or_answers_but_harms_nobody_else(running: BrokerThread, client: WireClient) -> None:
    for sent in rubbish():
        with connect(running) as bad:
            bad.socket.sendall(sent)
            bad.socket.shutdown(socket.SHUT_WR)
            assert_closed(bad)
        assert_served(client)


def test_a_frame_that_never_comes_costs_no_memory(running: BrokerThread) -> None:
    with connect(running) as bad:
        assert_served(bad)
        bad.socket.sendall(struct.pack(">ih", 100_000_000, 0) + b"x" * 1000)
        [connection] = running.call(lambda: list(running.server.connections))
        eventually(lambda: running.call(connection.next_buffer) is not None)
        buffer = running.call(connection.next_buffer)
        assert buffer is not None
        # A batch of `max.message.bytes`, and what is around it.
        assert len(buffer) <= (1 << 20) + (1 << 16)


@pytest.mark.sampled
@pytest.mark.parametrize("size", [1, 999_999, 1 << 20, (1 << 20) + 1, 9_000_000])
def test_a_frame_of_any_size_arrives_whole(running: BrokerThread, client: WireClient, topic: None, size: int) -> None:
    value = random.Random(1).randbytes(size)
    assert produced(client.call(0, 9, produce_message(batch(value)))) == (0, 0)
    assert [record.value for record in running.broker.logs["events", 0].read()] == [value]


@pytest.mark.sampled
@pytest.mark.parametrize("size", [200_000, 3_000_000])
@pytest.mark.parametrize("rests", [[1], [100_000, 70_000, 1]])
def test_a_large_frame_arrives_however_it_is_cut(
    running: BrokerThread, client: WireClient, topic: None, size: int, rests: list[int]
) -> None:
    value = random.Random(2).randbytes(size)
    sent = encode_request(0, 9, 7, "cut", produce_message(batch(value)))
    # And a small one after it, which nothing may be awaited for any more.
    sent += encode_request(18, 3, 8, "cut", VERSIONS)
    position, received = 0, running.call(lambda: running.server.metrics.received_bytes)
    for rest in rests:
        end = len(sent) - rest
        client.socket.sendall(sent[position:end])
        position = end
        # Its beginning is taken at once, the rest when enough of it has come.
        eventually(lambda: running.call(lambda: running.server.metrics.received_bytes) > received)
    client.socket.sendall(sent[position:])
    assert produced(client.receive(0, 9, 7)) == (0, 0)
    assert client.receive(18, 3, 8).error_code == 0
    assert [record.value for record in running.broker.logs["events", 0].read()] == [value]


@pytest.mark.parametrize("size", [100, 100_000, 500_000])
def test_a_client_that_goes_in_the_middle_of_a_large_frame_is_closed(
    running: BrokerThread, topic: None, size: int
) -> None:
    with connect(running) as half:
        half.socket.sendall(encode_request(0, 9, 1, "half", produce_message(batch(bytes(900_000))))[:size])
        eventually(lambda: running.call(lambda: running.server.metrics.received_bytes))
        half.socket.shutdown(socket.SHUT_WR)
        assert_closed(half)
    assert connections(running) == 0
    assert running.broker.logs["events", 0].log_end_offset == 0


def test_requests_cut_anywhere_are_answered_in_order(running: BrokerThread, client: WireClient) -> None:
    sent = b"".join(encode_request(18, 3, number, "cut", VERSIONS) for number in range(50))
    for byte in sent[:200]:
        client.socket.sendall(bytes([byte]))
    client.socket.sendall(sent[200:])
    assert [client.receive(18, 3, number).error_code for number in range(50)] == [0] * 50


@pytest.mark.parametrize("last", [b"\0\0\0\1x", b"\xff" * 4, None])
def test_requests_before_one_that_closes_the_connection_are_answered(
    running: BrokerThread, client: WireClient, topic: None, last: bytes | None
) -> None:
    if last is None:
        # What fails and wants no answer.
        last = encode_request(0, 9, 3, "bad", produce_message(b"no batch" * 10, acks=0))
    good = encode_request(0, 9, 2, "good", produce_message(batch(b"a")))
    client.socket.sendall(good + good + last)
    for offset in range(2):
        assert produced(client.receive(0, 9, 2)) == (0, offset)
    assert_closed(client)


# -- clients that do not read, or send too much


@pytest.mark.slow
def test_who_does_not_read_is_not_read_from(running: BrokerThread, client: WireClient, topic: None) -> None:
    for _ in range(4):
        running.broker.logs["events", 0].append([Record(None, bytes(10_000_000))])
    with connect(running) as slow:
        slow.socket.setblocking(False)
        sent = encode_request(1, 11, 1, "slow", fetch_message(max_bytes=1 << 30))
        assert fill(slow, sent) > 0
        found = running.call(lambda: max(len(one._waiting) for one in running.server.connections))
        assert found * len(sent) <= SCRATCH_BYTES + len(sent)
        assert_served(client)


@pytest.mark.slow
def test_a_flood_behind_a_long_poll_waits(running: BrokerThread, client: WireClient, topic: None) -> None:
    with connect(running) as flooding:
        waiting = flooding.send(1, 12, fetch_message(max_wait_ms=HOUR_MS))
        flooding.socket.setblocking(False)
        sent = encode_request(18, 3, 2, "flood" * 5000, VERSIONS)
        count = fill(flooding, sent)
        assert_served(client)
        flooding.socket.settimeout(30)
        # On a busy machine the fetch may not wait yet.
        eventually(lambda: running.call(lambda: len(running.broker.partitions.get("events", 0)._waits)))
        advance(running, HOUR_MS / 1000)
        flooding.receive(1, 12, waiting)
        for _ in range(count):
            assert flooding.receive(18, 3, 2).error_code == 0


def test_many_requests_at_once_do_not_hold_up_others(running: BrokerThread, client: WireClient) -> None:
    assert_served(client)
    sent = encode_request(18, 3, 2, "many", VERSIONS)
    [connection] = running.call(lambda: list(running.server.connections))

    def receive() -> int:
        connection.received(memoryview(sent * 100))
        return len(connection._waiting)

    assert 0 < running.call(receive) < 100
    for _ in range(100):
        assert client.receive(18, 3, 2).error_code == 0


# -- clients that go


@pytest.mark.slow
def test_a_client_that_resets_in_the_middle_of_a_file_harms_nobody(
    running: BrokerThread, client: WireClient, topic: None
) -> None:
    running.broker.logs["events", 0].append([Record(None, bytes(30_000_000))])
    for read in (0, 1, 100_000):
        with connect(running) as bad:
            bad.send(1, 12, fetch_message(max_bytes=1 << 30))
            if read:
                bad.socket.recv(read)
            bad.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: connections(running) == 1)
    assert_served(client)


def test_a_client_that_ends_its_side_is_closed(running: BrokerThread) -> None:
    with connect(running) as half:
        half.send(1, 12, fetch_message(max_wait_ms=HOUR_MS))
        half.socket.shutdown(socket.SHUT_WR)
        assert_closed(half)
    assert connections(running) == 0


@pytest.mark.slow
def test_a_client_that_ends_its_side_gets_the_answers_that_it_waits_for(running: BrokerThread, topic: None) -> None:
    may_go_on = threading.Event()
    partition = running.call(lambda: running.broker.partitions.get("events", 0))

    def end_side(client: WireClient) -> None:
        client.socket.shutdown(socket.SHUT_WR)
        eventually(lambda: running.call(lambda: all(one.is_client_gone for one in running.server.connections)))
        # The loop sees it in its next turn.
        running.call(lambda: None)

    async def begin() -> None:
        await partition.in_order(lambda: may_go_on.wait(30))

    first = running.call(lambda: asyncio.ensure_future(begin()))
    with connect(running) as half:
        number = half.send(0, 9, produce_message(batch(b"x" * 900_000)))
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        end_side(half)
        may_go_on.set()
        assert produced(half.receive(0, 9, number)) == (0, 0)
        assert_closed(half)
    assert running.call(first.done)
    with connect(running) as half:
        for _ in range(10):
            half.call(0, 9, produce_message(batch(b"x" * 900_000)))
        number = half.send(1, 12, fetch_message(max_bytes=1 << 30))
        # It is more than sockets take before the client reads.
        eventually(lambda: running.call(lambda: any(one.out for one in running.server.connections)))
        end_side(half)
        [row] = half.receive(1, 12, number).responses[0].partitions
        assert len(row.records) > 9_900_000
        assert_closed(half)
    eventually(lambda: connections(running) == 0)


@pytest.mark.parametrize("size", [10, 700_000])
def test_who_wants_no_answer_and_goes_loses_nothing(running: BrokerThread, topic: None, size: int) -> None:
    with connect(running) as client:
        for number in range(20):
            client.send(0, 9, produce_message(batch(bytes([number]) * size), acks=0))
    log = running.broker.logs["events", 0]
    eventually(lambda: log.log_end_offset == 20)
    assert [record.value for record in log.read()] == [bytes([number]) * size for number in range(20)]


def test_what_was_begun_goes_on_when_its_client_goes(running: BrokerThread, topic: None) -> None:
    partition = running.call(lambda: running.broker.partitions.get("events", 0))
    may_go_on = threading.Event()
    done: list[int] = []

    def slow() -> None:
        assert may_go_on.wait(30)
        done.append(1)

    async def begin() -> None:
        await partition.in_order(slow)

    def start() -> asyncio.Task[None]:
        return asyncio.ensure_future(begin())

    first = running.call(start)
    with connect(running) as client:
        client.send(0, 9, produce_message(batch(b"x" * 700_000)))
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: connections(running) == 0)
    running.call(first.cancel)
    assert not partition.takes_at_once(memoryview(batch(b"y")))
    may_go_on.set()
    eventually(lambda: running.broker.logs["events", 0].log_end_offset == 1)
    assert done == [1]


@pytest.mark.slow
def test_a_fetch_whose_client_goes_at_once_waits_for_nothing(running: BrokerThread, topic: None) -> None:
    partition = running.call(lambda: running.broker.partitions.get("events", 0))

    def come_and_go() -> int:
        connection = Connection(running.server, "PLAINTEXT", "127.0.0.1", 1 << 20)
        connection.received(memoryview(encode_request(1, 12, 1, "tests", fetch_message(max_wait_ms=HOUR_MS))))
        waits = len(partition._waits)
        connection.close()
        return waits

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert running.call(come_and_go) == 1
        eventually(lambda: running.call(lambda: not partition._waits))
        gc.collect()
    assert not caught


# -- errors inside the broker


def test_an_error_of_an_api_is_answered_or_closes_the_connection(
    running: BrokerThread, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def cancelled(request: Any) -> Any:
        raise asyncio.CancelledError

    async def late(request: Any) -> Any:
        raise ZeroDivisionError

    def bad(request: Any) -> Any:
        raise ZeroDivisionError

    apis = running.server._apis
    for handle, code in ((cancelled, None), (late, -1), (bad, -1), (lambda request: {"api_keys": "text"}, -1)):
        broken = Api(18, "ApiVersions", range(5), handle)
        running.call(lambda broken=broken: setattr(running.server, "_apis", {18: broken}))  # type: ignore[misc]
        with connect(running) as victim:
            if code is None:
                victim.send(18, 0, {})
                assert_closed(victim)
            else:
                assert int(victim.call(18, 0, {}).error_code) == code
        running.call(lambda: setattr(running.server, "_apis", apis))
        assert_served(client)
    assert "ZeroDivisionError" in caplog.text


# -- limits


@pytest.mark.slow
def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=2) as running, ExitStack() as stack:
        first, second, third = (stack.enter_context(connect(running)) for _ in range(3))
        assert_served(first)
        assert_served(second)
        waiting = assert_waits(third)
        first.close()
        assert third.receive(18, 3, waiting).error_code == 0


def test_no_more_connections_of_an_address_than_allowed(tmp_path: Path) -> None:
    config: dict[str, str | int] = {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": "127.0.0.1:1"}
    with serving(tmp_path, **config) as running:
        with connect(running) as first:
            assert_served(first)
            with connect(running) as second:
                assert_closed(second)
            assert_served(first)
        eventually(lambda: connections(running) == 0)
        with connect(running) as third:
            assert_served(third)


def assert_waits(client: WireClient) -> int:
    """Return the number of a request that is not answered, as the connection is not accepted."""
    correlation_id = client.send(18, 3, VERSIONS)
    client.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.receive_frame()
    client.socket.settimeout(30)
    return correlation_id


@pytest.mark.slow
def test_a_listener_has_limits_of_its_own(tmp_path: Path) -> None:
    config: dict[str, str | int] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SMALL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SMALL:PLAINTEXT",
        "max.connections": 3,
        "listener.name.small.max.connections": 1,
    }
    with serving(tmp_path, **config) as running, ExitStack() as stack:
        first, second = (stack.enter_context(connect(running, listener="SMALL")) for _ in range(2))
        assert_served(first)
        waiting = assert_waits(second)
        others = [stack.enter_context(connect(running)) for _ in range(3)]
        assert_served(others[0])
        assert_served(others[1])
        of_all = assert_waits(others[2])
        others[0].close()
        assert others[2].receive(18, 3, of_all).error_code == 0
        first.close()
        assert second.receive(18, 3, waiting).error_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_come_no_faster_than_allowed(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, **{name: 1}) as running, ExitStack() as stack:
        # As many as in ten seconds may come at once.
        for _ in range(11):
            assert_served(stack.enter_context(connect(running)))
        one_more = stack.enter_context(connect(running))
        waiting = assert_waits(one_more)
        advance(running, 1)
        assert one_more.receive(18, 3, waiting).error_code == 0


def test_a_limit_that_is_lowered_closes_what_was_not_used_for_longest(tmp_path: Path) -> None:
    with serving(tmp_path) as running, ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(3)]
        for client in clients:
            assert_served(client)
        change = {"name": "max.connections", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        answer = ask(clients[0], "IncrementalAlterConfigs", 1, resources=[resource])
        assert answer.responses[0].error_code == 0
        for client in clients[1:]:
            assert_closed(client)
        assert_served(clients[0])


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with (
        serving(tmp_path, connections_max_idle_ms=600_000) as running,
        connect(running) as client,
        connect(running) as idle,
        connect(running) as waiting,
    ):
        running.broker.logs.create_topic("events")
        assert_served(idle)
        # The first request waits for the log to be opened, not for records.
        waiting.call(1, 12, fetch_message())
        correlation_id = waiting.send(1, 12, fetch_message(max_wait_ms=HOUR_MS))
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        advance(running, 400)
        assert_served(client)
        advance(running, 300)
        assert_closed(idle)
        assert_served(client)
        advance(running, HOUR_MS / 1000)
        waiting.receive(1, 12, correlation_id)


def test_a_large_frame_that_comes_slowly_is_no_idle_connection(tmp_path: Path) -> None:
    sent = encode_request(0, 9, 7, "slow", produce_message(batch(bytes(900_000))))
    parts = [sent[:200_000], sent[200_000:250_000], sent[250_000:300_000]]
    with serving(tmp_path, connections_max_idle_ms=10_000) as running, connect(running) as client:
        running.broker.logs.create_topic("events")
        for part in parts:
            client.socket.sendall(part)
            # The kernel has it, whoever is told of it.
            eventually(lambda: not unsent_bytes(client.socket))
            advance(running, 6)
        client.socket.sendall(sent[300_000:])
        assert produced(client.receive(0, 9, 7)) == (0, 0)
        client.socket.sendall(parts[0])
        eventually(lambda: not unsent_bytes(client.socket))
        advance(running, 6)
        advance(running, 11)
        advance(running, 11)
        assert_closed(client)


def test_without_descriptors_no_connection_is_accepted_for_a_while(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def accept(self: socket.socket) -> Any:
        calls.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", accept)
        client = connect(running)
        eventually(lambda: calls)
        for _ in range(20):
            running.call(lambda: None)
        assert len(calls) == 1
    with client:
        advance(running, 1)
        assert_served(client)


def test_connections_leave_descriptors_for_logs(running: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    running.broker.logs.create_topic("events")
    acceptor = running.server._acceptor
    with connect(running) as client:
        assert_served(client)
        with monkeypatch.context() as patched:
            # As if only these were left for connections.
            flood = [socket.socket() for _ in range(30)]
            free = os.dup(flood[0].fileno())
            os.close(free)
            patched.setattr(acceptor, "_descriptors", acceptor._descriptors._replace(share=3, end=free + 6))
            for one in flood:
                one.connect(running.endpoint()[1:])
            assert_served(client)
            assert produced(client.call(0, 9, produce_message(batch(b"a")))) == (0, 0)
            eventually(lambda: not acceptor._sockets["PLAINTEXT"].is_accepting)
            assert connections(running) <= 3 + 6
        for one in flood:
            one.close()
        advance(running, 1)
        with connect(running) as later:
            assert_served(later)


# -- addresses


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
@pytest.mark.parametrize(
    ("listener", "hosts"),
    [
        *(("[::1]", ["::1"]), ("localhost", ["127.0.0.1"])),
        *((any_address, ["127.0.0.1", "::1"]) for any_address in ("", "0.0.0.0", "[::]")),
    ],
)
def test_listens_where_it_is_told_to(tmp_path: Path, listener: str, hosts: list[str]) -> None:
    config = {"listeners": f"PLAINTEXT://{listener}:0", "advertised.listeners": "PLAINTEXT://kafka.example:1234"}
    with start(tmp_path / "data", **config) as running:
        assert running.endpoint() == ("PLAINTEXT", "kafka.example", 1234)
        sock = running.server._acceptor._sockets["PLAINTEXT"].sock
        for host in hosts:
            with WireClient(host, sock.getsockname()[1]) as client:
                assert_served(client)
                [connection] = running.call(lambda: list(running.server.connections))
                assert connection.peer == host
            eventually(lambda: connections(running) == 0)


METADATA_OF_TOPICS = struct.pack(">hhih", 3, 1, 1, -1)
"""The beginning of a request, up to the number of topics."""

JOIN = struct.pack(">hhih", 11, 0, 1, -1) + b"\0\1g" + struct.pack(">i", 6000) + b"\0\0" + b"\0\1c"
COMPACT_CREATE_TOPICS = struct.pack(">hhih", 19, 5, 1, -1) + b"\0"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(METADATA_OF_TOPICS + struct.pack(">i", (1 << 31) - 1), id="2^31-1 texts"),
        pytest.param(METADATA_OF_TOPICS + struct.pack(">i", 1 << 24) + bytes(100), id="2^24 texts"),
        pytest.param(METADATA_OF_TOPICS + struct.pack(">i", -2), id="-2 texts"),
        pytest.param(JOIN + struct.pack(">i", (1 << 31) - 1), id="2^31-1 structures"),
        pytest.param(JOIN + struct.pack(">i", -1), id="null, where it must not be"),
        pytest.param(COMPACT_CREATE_TOPICS + b"\xff\xff\xff\xff\x0f", id="2^32-2 structures"),
        pytest.param(COMPACT_CREATE_TOPICS + b"\2\2t" + bytes(6) + b"\xff\xff\xff\xff\x07", id="within another array"),
        pytest.param(COMPACT_CREATE_TOPICS + b"\0", id="null, compact"),
    ],
)
def test_an_array_that_cannot_be_ends_the_connection_only(
    running: BrokerThread, client: WireClient, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    with connect(running) as hostile:
        hostile.socket.sendall(struct.pack(">i", len(request_bytes)) + request_bytes)
        assert_closed(hostile)
    assert_served(client)
    assert [record for record in caplog.records if record.exc_info] == []


def test_what_no_client_can_connect_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"advertised\.listeners"):
        start(tmp_path / "data", listeners="PLAINTEXT://0.0.0.0:0")


def test_an_address_in_use_is_told_of(running: BrokerThread, tmp_path: Path) -> None:
    port = running.endpoint().port
    with pytest.raises(LogError, match=f"127.0.0.1:{port} cannot be opened: Address already in use"):
        start(tmp_path / "other", listeners=f"PLAINTEXT://127.0.0.1:{port}")
    # The directory is free again.
    start(tmp_path / "other").stop()


@pytest.mark.parametrize("key", [1, 3, 15])
def test_only_produce_may_send_frames_above_8_mb(client: WireClient, key: int) -> None:
    client.socket.sendall(struct.pack(">ih", (1 << 23) + 1, key) + bytes(16))
    assert_closed(client)


def test_produce_may_send_frames_up_to_the_limit_of_all(client: WireClient) -> None:
    size = (1 << 23) + 1
    client.socket.sendall(struct.pack(">ih", size, 0) + bytes(16))
    client.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.receive_frame()


@pytest.mark.slow
def test_a_large_request_is_answered_as_a_small_one_is(client: WireClient) -> None:
    names = [f"none-{number}" for number in range(4000)]
    groups = ask(client, "DescribeGroups", 5, groups=names).groups
    assert [group.group_id for group in groups] == names
    assert_served(client)
