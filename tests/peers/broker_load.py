"""Loads a broker with frames that were made before, so that the client costs next to nothing; for the benchmark."""

from __future__ import annotations

import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias
from uuid import UUID

from odradek.broker.protocol import encode_request
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.testing.wire import WireClient
from peers.process import PATIENCE
from peers.scram import ScramLogin

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
_IN_FLIGHT = 5


def produce_frame(topic_id: UUID, partition: int, record_bytes: int, batch_bytes: int) -> tuple[bytes, int]:
    """Return a Produce request, and how many bytes its records' values have."""
    count = max(1, (batch_bytes - 100) // (record_bytes + 12))
    now_ms = time.time_ns() // 1_000_000
    records = bytes(build_batch([Record(value=bytes(record_bytes), timestamp=now_ms) for _ in range(count)]))
    topic = {"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
    message = {"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": [topic]}
    return encode_request(PRODUCE, 13, 0, "load", message), count * record_bytes


Connect: TypeAlias = Callable[[int], socket.socket]


def plain(port: int) -> socket.socket:
    """Connect to a port."""
    return socket.create_connection(("127.0.0.1", port))


def logged_in(name: str, password: str) -> Connect:
    """Return a function that connects to a port, and logs in by SCRAM."""

    def connect(port: int) -> socket.socket:
        client, steps = WireClient("127.0.0.1", port), ScramLogin("SCRAM-SHA-256", name, password)
        client.call(17, 1, {"mechanism": "SCRAM-SHA-256"})
        first = client.call(36, 2, {"auth_bytes": steps.first()})
        assert client.call(36, 2, {"auth_bytes": steps.final(first.auth_bytes)}).error_code == 0
        return client.socket

    return connect


class _Connection:
    def __init__(self, port: int, connect: Connect = plain) -> None:
        self.socket = connect(port)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def answers(self) -> int:
        """Receive; return how many answers are complete."""
        self._received += self.socket.recv(1 << 16)
        count = 0
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                break
            # Correlation id, tags, one topic, its id, one partition, its number, then the error.
            (error,) = struct.unpack_from(">h", self._received, 4 + 4 + 1 + 1 + 16 + 1 + 4)
            assert error == 0, f"a Produce request failed with error {error}"
            del self._received[: 4 + size]
            count += 1
        return count


def produce(port: int, frame: bytes, count: int, connections: int, connect: Connect = plain) -> float:
    """Send a request so many times, by all connections in turn; return how many seconds it took."""
    selector = selectors.DefaultSelector()
    sent = answered = 0
    with ExitStack() as stack:
        begun = time.perf_counter()
        for _ in range(connections):
            connection = _Connection(port, connect)
            stack.callback(connection.socket.close)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            for _ in range(_IN_FLIGHT if connections == 1 else 1):
                connection.socket.sendall(frame)
                sent += 1
        while answered < sent:
            for key, _ in selector.select():
                for _ in range(key.data.answers()):
                    answered += 1
                    if sent < count:
                        key.data.socket.sendall(frame)
                        sent += 1
        return time.perf_counter() - begun


def latencies_ms(port: int, frame: bytes, per_s: int, seconds: int) -> tuple[float, float]:
    """Send a request at a fixed rate; return the 50th and the 99th percentile of the times to the answers, in ms.

    A time counts from when the request was due, not from when it could be sent.
    """
    connection = _Connection(port)
    taken = []
    begun = time.perf_counter()
    for number in range(per_s * seconds):
        due = begun + number / per_s
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        connection.socket.sendall(frame)
        while not connection.answers():
            pass
        taken.append((time.perf_counter() - due) * 1000)
    connection.socket.close()
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98]


def fetch(
    port: int, topic_id: UUID, offsets: Sequence[int], most_bytes: int = 1 << 20, connect: Connect = plain
) -> tuple[float, int]:
    """Fetch from each of some offsets of a partition, by one connection.

    Returns:
        How many seconds it took, and how many bytes came.
    """
    wanted = {"partition": 0, "partition_max_bytes": most_bytes}
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "session_id": 0, "session_epoch": -1}
    frames = []
    for offset in offsets:
        topics = [{"topic_id": topic_id, "partitions": [{**wanted, "fetch_offset": offset}]}]
        message = {**limits, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}
        frames.append(encode_request(FETCH, 17, 0, "load", message))
    memory, received = memoryview(bytearray(1 << 22)), 0
    with connect(port) as sock:
        begun = time.perf_counter()
        for frame in frames:
            sock.sendall(frame)
            size, filled = 4, 0
            while filled < size:
                filled += sock.recv_into(memory[filled:])
                if filled >= 4:
                    size = 4 + struct.unpack_from(">i", memory)[0]
            received += size
        return time.perf_counter() - begun, received


def fetch_of_many(port: int, topic_id: UUID, partitions: int, rounds: int) -> float:
    """Fetch from a topic as one consumer does whose partitions are mostly idle; return the ms that each fetch took."""
    frames = [produce_frame(topic_id, number, 100, 1000)[0] for number in range(min(rounds, partitions))]
    wanted = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in range(partitions)]
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20}
    producer = _Connection(port)
    with WireClient("127.0.0.1", port, timeout_s=120 * PATIENCE) as client:

        def fetch(session_id: int, epoch: int, partitions: list[dict[str, Any]]) -> Any:
            topics = [{"topic_id": topic_id, "partitions": partitions}] if partitions else []
            message = {**limits, "session_id": session_id, "session_epoch": epoch, "topics": topics}
            return client.call(FETCH, 17, {**message, "forgotten_topics_data": [], "rack_id": ""})

        session_id, seconds = fetch(0, 0, wanted).session_id, 0.0
        read: list[dict[str, Any]] = []
        for number, frame in enumerate(frames):
            producer.socket.sendall(frame)
            while not producer.answers():
                pass
            begun = time.perf_counter()
            answer = fetch(session_id, number + 1, read)
            seconds += time.perf_counter() - begun
            found = [one.partition_index for topic in answer.responses for one in topic.partitions if one.records]
            assert found == [number], found
            end = answer.responses[0].partitions[0].high_watermark
            read = [{**wanted[number], "fetch_offset": end}]
    producer.socket.close()
    return seconds / len(frames) * 1000


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """Have so many connections that were used once."""
    request = encode_request(API_VERSIONS, 0, 0, "idle", {})
    with ExitStack() as stack:
        for _ in range(count):
            opened = socket.create_connection(("127.0.0.1", port))
            stack.callback(opened.close)
            opened.sendall(request)
            assert opened.recv(1 << 16)
        yield


def call_ms(port: int, calls: int) -> float:
    """Return the median time of the smallest request, in ms."""
    taken = []
    with WireClient("127.0.0.1", port) as client:
        for _ in range(calls):
            begun = time.perf_counter()
            client.call(API_VERSIONS, 0, {})
            taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def metadata(port: int) -> Any:
    """Ask for all topics.

    Raises:
        OSError: The broker is not there, or not ready.
    """
    asks = ("include_cluster_authorized_operations", "include_topic_authorized_operations", "allow_auto_topic_creation")
    with WireClient("127.0.0.1", port, timeout_s=30 * PATIENCE) as client:
        return client.call(METADATA, 12, {"topics": None, **dict.fromkeys(asks, False)})


def topic_id_of(port: int, name: str, timeout_s: float = 60 * PATIENCE) -> UUID:
    """Return the id of a topic; Apache Kafka tells of a topic of 1,000 partitions some time after it made it."""
    deadline = time.monotonic() + timeout_s
    while True:
        for topic in metadata(port).topics:
            if topic.name == name and topic.partitions and all(part.leader_id >= 0 for part in topic.partitions):
                assert isinstance(topic.topic_id, UUID)
                return topic.topic_id
        assert time.monotonic() < deadline, f"the broker does not tell of {name}"
        time.sleep(0.1)


def produce_beside_fetches(
    port: int, topic_id: UUID, frame: bytes, fetches: int, min_bytes: int, seconds: float
) -> tuple[int, int]:
    """Send a request again and again by one connection, while fetches wait at the end of its partition.

    A fetch that is answered goes on where its answer ended, as a consumer does.

    Returns:
        How many requests, and how many fetches, were answered.
    """
    placeholder = 0x1122334455667788
    wanted = {"partition": 0, "partition_max_bytes": 1 << 20, "fetch_offset": placeholder}
    limits = {"max_wait_ms": 60_000, "min_bytes": min_bytes, "max_bytes": 50 << 20, "session_id": 0}
    topics = [{"topic_id": topic_id, "partitions": [wanted]}]
    message = {**limits, "session_epoch": -1, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}
    before, after = encode_request(FETCH, 17, 0, "load", message).split(placeholder.to_bytes(8, "big"))
    selector, buffer, produced, answered = selectors.DefaultSelector(), memoryview(bytearray(1 << 21)), 0, 0
    with ExitStack() as stack:
        producer = _Connection(port)
        stack.callback(producer.socket.close)
        for _ in range(fetches):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(before + bytes(8) + after)
            selector.register(connection, selectors.EVENT_READ)
        selector.register(producer.socket, selectors.EVENT_READ, producer)
        deadline = time.perf_counter() + seconds
        for _ in range(_IN_FLIGHT):
            producer.socket.sendall(frame)
        while time.perf_counter() < deadline:
            for key, _ in selector.select(timeout=1):
                if key.data is producer:
                    for _ in range(producer.answers()):
                        produced += 1
                        producer.socket.sendall(frame)
                    continue
                connection = key.fileobj  # type: ignore[assignment]
                size, filled = 4, 0
                while filled < size:
                    filled += connection.recv_into(buffer[filled:])
                    if filled >= 4:
                        size = 4 + struct.unpack_from(">i", buffer)[0]
                answered += 1
                # Size, correlation id, tags, throttling, error, session, one topic, its id, one partition, its error.
                connection.sendall(before + bytes(buffer[43:51]) + after)
        return produced, answered
