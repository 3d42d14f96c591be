"""Produce and Fetch over the wire, at every version; Apache Kafka answers the same (see the conformance checks)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from threading import Event, Thread, current_thread
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.api import k01_fetch
from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.errors import ProtocolError
from odradek.records.batch import read_records
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.segment.active_segment import ActiveSegment
from odradek.storage.segment.file_records import FileRecords
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually

FETCH_VERSIONS = range(4, 19)
PRODUCE_VERSIONS = range(3, 14)


def batch(*values: bytes) -> bytes:
    records = [Record(offset=number, timestamp=1_700_000_000_000, value=value) for number, value in enumerate(values)]
    return bytes(build_batch(records))


def produce(client: WireClient, version: int, records: bytes | None, *, acks: int = 1, topic_id: UUID) -> Any:
    topic = {"name": "events", "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}
    message = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": [topic]}
    return client.call(0, version, message).responses[0].partition_responses[0]


def fetch_message(topic_id: UUID, offset: int, **fields: Any) -> Mapping[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topic = {"topic": "events", "topic_id": topic_id, "partitions": [partition]}
    limits = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return {**limits, "topics": [topic], "forgotten_topics_data": [], **fields}


def values(records: bytes | None) -> list[bytes | None]:
    data = records or b""
    return [record.value for header in scan_batches(data) for record in read_records(data, header)]


@pytest.fixture
def topic_id(running: BrokerThread) -> UUID:
    topic_id = running.broker.logs.create_topic("events").topic_id
    assert topic_id is not None
    return topic_id


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_what_is_produced_is_in_the_log(
    running: BrokerThread, client: WireClient, topic_id: UUID, version: int
) -> None:
    first = produce(client, version, batch(b"a", b"b"), topic_id=topic_id)
    second = produce(client, version, batch(b"c"), topic_id=topic_id)
    assert (int(first.error_code), first.base_offset) == (0, 0)
    assert (int(second.error_code), second.base_offset) == (0, 2)
    assert [record.value for record in running.broker.logs["events", 0].read()] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_what_is_in_the_log_is_fetched(running: BrokerThread, client: WireClient, topic_id: UUID, version: int) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a", b"b"))
    log.append_batches(batch(b"c"))
    answer = client.call(1, version, fetch_message(topic_id, 1))
    partition = answer.responses[0].partitions[0]
    assert (int(partition.error_code), partition.high_watermark) == (0, 3)
    # The whole batch that holds the offset.
    assert values(partition.records) == [b"a", b"b", b"c"]


def test_a_fetch_waits_for_records(running: BrokerThread, client: WireClient, topic_id: UUID) -> None:
    message = fetch_message(topic_id, 0, max_wait_ms=20_000)
    waiting = client.send(1, 12, message)
    with connect(running) as producer:
        produce(producer, 9, batch(b"a"), topic_id=topic_id)
    answer = client.receive(1, 12, waiting)
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


def test_a_fetch_without_records_is_answered_when_its_time_is_over(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    waiting = client.send(1, 12, fetch_message(topic_id, 0, max_wait_ms=60_000))
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.receive_frame()
    client.socket.settimeout(10)
    advance(running, 60)
    answer = client.receive(1, 12, waiting)
    assert answer.throttle_time == timedelta(0)
    assert values(answer.responses[0].partitions[0].records) == []


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (1, 17, {"fetch_offset": 0, "partition_max_bytes": 1 << 20}),
        (1, 12, {"fetch_offset": 0, "partition_max_bytes": 1 << 20}),
        (2, 10, {"timestamp": -1}),
        (23, 4, {"current_leader_epoch": -1, "leader_epoch": 0}),
    ],
)
def test_others_have_their_turn_while_many_logs_are_opened(
    running: BrokerThread, client: WireClient, key: int, version: int, fields: dict[str, int]
) -> None:
    count, partitions = 20, running.broker.partitions
    topic_id = running.broker.logs.create_topic("many", partitions=count).topic_id
    turns: Future[list[int]] = Future()

    async def watch() -> None:
        opened = [0]
        while opened[-1] < count:
            await asyncio.sleep(0)
            opened.append(len(list(partitions)))
        turns.set_result(opened)

    running.call(lambda: asyncio.ensure_future(watch()))
    numbers = [{"partition": number, "partition_index": number, **fields} for number in range(count)]
    topic = {"topic": "many", "name": "many", "topic_id": topic_id, "partitions": numbers}
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
    others = {"timeout_ms": 30_000, "replica_id": -1, "isolation_level": 0, "forgotten_topics_data": [], "rack_id": ""}
    answer = client.call(key, version, {**limits, **others, "topics": [topic]})
    answered = (answer.responses if key == 1 else answer.topics)[0].partitions
    assert [int(one.error_code) for one in answered] == [0] * count
    opened = turns.result(30)
    assert max(after - before for before, after in pairwise(opened)) == 1


@pytest.mark.parametrize("key", [0, 1, 2])
def test_many_requests_that_open_logs_let_others_have_their_turn(
    running: BrokerThread, client: WireClient, key: int
) -> None:
    clients, count, partitions = 12, 2, running.broker.partitions
    topic_id = running.broker.logs.create_topic("many", partitions=clients * count).topic_id
    turns: Future[list[int]] = Future()

    async def watch() -> None:
        opened = [0]
        while opened[-1] < clients * count:
            await asyncio.sleep(0)
            opened.append(len(list(partitions)))
        turns.set_result(opened)

    with ExitStack() as stack:
        others = [stack.enter_context(connect(running)) for _ in range(clients)]
        sent = []

        def send() -> asyncio.Future[None]:
            # In one turn of the loop, so that all requests are there in the next one.
            for place, other in enumerate(others):
                numbers = range(count * place, count * (place + 1))
                sent.append(other.send(key, *request_for(key, topic_id, numbers)))
            return asyncio.ensure_future(watch())

        running.call(send)
        for other, one in zip(others, sent, strict=True):
            answer = other.receive(key, request_for(key, topic_id, ())[0], one)
            answered = (answer.topics if key == 2 else answer.responses)[0]
            found = answered.partition_responses if key == 0 else answered.partitions
            assert [int(partition.error_code) for partition in found] == [0] * count
    opened = turns.result(30)
    assert max(after - before for before, after in pairwise(opened)) <= 4 + 1


def request_for(key: int, topic_id: UUID | None, numbers: Iterable[int]) -> tuple[int, dict[str, Any]]:
    """Return the version and the message of a request that uses partitions of the topic `many`."""
    if key == 0:
        data = [{"index": number, "records": batch(b"a")} for number in numbers]
        topic: dict[str, Any] = {"name": "many", "topic_id": topic_id, "partition_data": data}
        return 12, {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": [topic]}
    if key == 1:
        wanted = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in numbers]
        topic = {"topic": "many", "partitions": wanted}
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
        return 12, {**limits, "isolation_level": 0, "topics": [topic], "forgotten_topics_data": [], "rack_id": ""}
    asked = [{"partition_index": number, "timestamp": -1} for number in numbers]
    return 10, {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout_ms": 30_000,
        "topics": [{"name": "many", "partitions": asked}],
    }


def test_who_has_many_logs_opened_is_answered_before_the_broker_stops(
    running: BrokerThread, client: WireClient
) -> None:
    count, partitions = 100, running.broker.partitions
    running.broker.logs.create_topic("many", partitions=count)

    async def stop() -> None:
        while len(list(partitions)) < 2:
            await asyncio.sleep(0)
        running.stop()

    running.call(lambda: asyncio.ensure_future(stop()))
    numbers = [{"partition_index": number, "timestamp": -1} for number in range(count)]
    message = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "many", "partitions": numbers}]}
    answer = client.call(2, 10, {**message, "timeout_ms": 30_000})
    assert [(one.partition_index, int(one.error_code)) for one in answer.topics[0].partitions] == [
        (number, 0) for number in range(count)
    ]


def test_a_session_tells_only_what_is_new(running: BrokerThread, client: WireClient, topic_id: UUID) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a"))
    full = client.call(1, 13, fetch_message(topic_id, 0, session_id=0, session_epoch=0))
    assert full.session_id > 0
    nothing = {"topics": [], "session_id": full.session_id}
    # The offset has not been changed: the records come again.
    again = client.call(1, 13, fetch_message(topic_id, 0, **nothing, session_epoch=1))
    assert values(again.responses[0].partitions[0].records) == [b"a"]
    moved = {**fetch_message(topic_id, 1), "session_id": full.session_id, "session_epoch": 2}
    assert client.call(1, 13, moved).responses == ()
    log.append_batches(batch(b"b"))
    news = client.call(1, 13, fetch_message(topic_id, 0, **nothing, session_epoch=3))
    assert values(news.responses[0].partitions[0].records) == [b"b"]
    wrong = client.call(1, 13, fetch_message(topic_id, 0, **nothing, session_epoch=7))
    assert int(wrong.error_code) == 71


def test_a_session_that_waits_for_records_tells_of_other_news_at_the_end(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a", b"b"))
    full = client.call(1, 13, fetch_message(topic_id, 2, session_id=0, session_epoch=0))
    log.delete_records(1)
    nothing = {"topics": [], "session_id": full.session_id, "max_wait_ms": 60_000}
    for epoch, expected in ((1, [1]), (2, [])):
        waiting = client.send(1, 13, fetch_message(topic_id, 0, **nothing, session_epoch=epoch))
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        advance(running, 60)
        answer = client.receive(1, 13, waiting)
        assert [one.log_start_offset for topic in answer.responses for one in topic.partitions] == expected


def test_a_session_looks_only_at_partitions_that_changed(running: BrokerThread, client: WireClient) -> None:
    logs = running.broker.logs
    topic_id = logs.create_topic("many", 20).topic_id
    assert topic_id is not None
    partitions = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in range(20)]
    first = {**fetch_message(topic_id, 0), "topics": [{"topic_id": topic_id, "partitions": partitions}]}
    full = client.call(1, 13, {**first, "session_id": 0, "session_epoch": 0})
    epoch = 0

    def next_fetch(**fields: Any) -> Any:
        nonlocal epoch
        epoch += 1
        nothing = {"topics": [], "session_id": full.session_id, "session_epoch": epoch, "min_bytes": 1}
        waiting = client.send(1, 13, {**fetch_message(topic_id, 0), **nothing, **fields})
        return lambda: client.receive(1, 13, waiting)

    def numbers(answer: Any) -> list[int]:
        return [one.partition_index for topic in answer.responses for one in topic.partitions]

    assert numbers(full) == list(range(20))
    assert numbers(next_fetch()()) == []
    looked_at: list[int] = []
    fetch = Partition.fetch

    def noted(self: Partition, *arguments: Any, **options: Any) -> FileRecords | None:
        looked_at.append(self.topic_partition.partition)
        return fetch(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "fetch", noted)
        waiting = next_fetch(max_wait_ms=60_000)
        running.call(lambda: running.broker.partitions.get("many", 7).append(bytearray(batch(b"a"))))
        assert numbers(waiting()) == [7]
        logs["many", 3].append_batches(batch(b"b"))
        # What the client does not ask for further on is told again, after what was not told yet.
        assert numbers(next_fetch()()) == [7, 3]
    assert set(looked_at) == {7, 3}
    read = {"topic_id": topic_id, "partitions": [{**partitions[number], "fetch_offset": 1} for number in (7, 3)]}
    assert numbers(next_fetch(topics=[read])()) == []
    logs["many", 5].delete_records(0)
    logs["many", 3].delete_records(1)
    gone = {"topic_id": topic_id, "partitions": [9]}
    assert numbers(next_fetch(forgotten_topics_data=[gone])()) == [3]
    logs["many", 9].append_batches(batch(b"c"))
    assert numbers(next_fetch()()) == []
    client.call(20, 6, {"topics": [{"name": "many", "topic_id": None}], "timeout_ms": 1000})
    answer = next_fetch(max_wait_ms=60_000)()
    assert len(numbers(answer)) == 19
    assert {int(one.error_code) for topic in answer.responses for one in topic.partitions} == {100}


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_batch_that_does_not_fit_is_left_for_the_next_fetch(
    running: BrokerThread, client: WireClient, isolation_level: int
) -> None:
    logs = running.broker.logs
    topic_id = logs.create_topic("large", 2).topic_id
    assert topic_id is not None
    for number in range(2):
        logs["large", number].append_batches(batch(b"a" * 5000))
        logs["large", number].roll()
        logs["large", number].append_batches(batch(b"b"))
    partitions = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in range(2)]
    limits = {"max_bytes": 8000, "isolation_level": isolation_level}
    first = {**fetch_message(topic_id, 0, **limits), "topics": [{"topic_id": topic_id, "partitions": partitions}]}
    full = client.call(1, 13, {**first, "session_id": 0, "session_epoch": 0})
    assert [values(one.records) for one in full.responses[0].partitions] == [[b"a" * 5000], []]
    read = {"topic_id": topic_id, "partitions": [{**partitions[0], "fetch_offset": 2}]}
    after = {"topics": [read], "session_id": full.session_id, "session_epoch": 1}
    news = client.call(1, 13, {**fetch_message(topic_id, 0, **limits), **after})
    assert [(one.partition_index, values(one.records)) for one in news.responses[0].partitions] == [(1, [b"a" * 5000])]


def transactional(value: bytes, producer_id: int, *, key: bytes | None = None, sequence: int = 0) -> bytes:
    record = Record(offset=0, timestamp=1_700_000_000_000, key=key, value=value)
    return bytes(
        build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    )


@pytest.mark.parametrize("look", range(5))
def test_what_is_appended_during_a_fetch_is_not_taken_for_committed(
    running: BrokerThread, client: WireClient, topic_id: UUID, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a"))
    looks = iter(range(100))

    def watched(kind: Any, name: str) -> property:
        original = getattr(kind, name)

        def get(one: Any) -> Any:
            if next(looks, 100) == look:
                # As a thread does that appends what is compressed.
                log.append_batches(transactional(b"open", 7))
            return original.fget(one)

        return property(get)

    monkeypatch.setattr(ActiveSegment, "size_bytes", watched(ActiveSegment, "size_bytes"))
    monkeypatch.setattr(WritableLog, "log_end_offset", watched(WritableLog, "log_end_offset"))
    answer = client.call(1, 12, fetch_message(topic_id, 0, isolation_level=1))
    monkeypatch.undo()
    assert log.log_end_offset == 2
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


def test_transactions_that_take_long_to_read_are_read_in_another_thread(
    running: BrokerThread, client: WireClient, topic_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(transactional(b"aborted", 7))
    log.end_transaction(7, 0, commit=False)
    log.append_batches(batch(b"a"))
    threads: list[Thread] = []
    aborted_transactions = WritableLog.aborted_transactions

    def watched(self: WritableLog, *offsets: int) -> Any:
        threads.append(current_thread())
        return aborted_transactions(self, *offsets)

    monkeypatch.setattr(WritableLog, "aborted_transactions", watched)
    monkeypatch.setattr(k01_fetch, "_QUICKLY_READ_BYTES", 0)
    loop_thread = running.call(current_thread)
    for is_unread in (True, False):
        threads.clear()
        answer = client.call(1, 12, fetch_message(topic_id, 0, isolation_level=1, max_wait_ms=60_000))
        partition = answer.responses[0].partitions[0]
        assert values(partition.records)[0] == b"aborted"
        assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions] == [(7, 0)]
        assert [thread is loop_thread for thread in threads] == ([False, True] if is_unread else [True])


def test_what_is_compacted_during_a_fetch_is_told_to_be_aborted(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = running.broker.logs
    logs.create_topic("events", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    log = logs["events", 0]
    log.append_batches(transactional(b"aborted", 7, key=b"k"))
    log.end_transaction(7, 0, commit=False)
    # The cleaner keeps a producer's last batch.
    log.append_batches(transactional(b"committed", 7, key=b"m", sequence=1))
    log.end_transaction(7, 0, commit=True)
    log.roll()
    log.append(key=b"l", value=b"b")
    fetch = Partition.fetch

    def compacted_after(partition: Partition, *given: Any, **options: Any) -> FileRecords | None:
        found = fetch(partition, *given, **options)
        logs.maintain()
        return found

    monkeypatch.setattr(Partition, "fetch", compacted_after)
    answer = client.call(1, 12, fetch_message(UUID(int=0), 0, isolation_level=1))
    partition = answer.responses[0].partitions[0]
    assert values(partition.records)[0] == b"aborted"
    assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions] == [(7, 0)]


def test_a_fetch_wants_no_more_than_it_may_get(running: BrokerThread, client: WireClient, topic_id: UUID) -> None:
    log = running.broker.logs["events", 0]
    for _ in range(3):
        log.append_batches(batch(b"a" * 100))
    # Without the clock being moved, it would wait for ever.
    answer = client.call(1, 12, fetch_message(topic_id, 0, max_wait_ms=60_000, min_bytes=1000, max_bytes=200))
    assert len(answer.responses[0].partitions[0].records or b"") == 200


def test_a_fetch_does_not_wait_at_the_end_of_a_segment(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a"))
    log.roll()
    log.append_batches(batch(b"b"))
    answer = client.call(1, 12, fetch_message(topic_id, 0, max_wait_ms=60_000, min_bytes=1000))
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


def test_who_wants_no_answer_gets_none_for_a_request_that_failed_as_a_whole(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    topic = {"name": "events", "partition_data": [{"index": 0, "records": transactional(b"a", 7)}]}
    message = {"transactional_id": None, "acks": 0, "timeout_ms": 1000, "topic_data": [topic]}
    client.send(0, 9, message)
    with pytest.raises(ProtocolError, match="closed"):
        client.receive_frame()


def test_what_is_appended_right_after_a_fetch_has_begun_to_wait_wakes_it(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    with connect(running) as producer:
        producer.call(18, 0, {})
        client.call(18, 0, {})
        held, released = Event(), Event()

        def hold() -> None:
            held.set()
            released.wait()

        with ThreadPoolExecutor(1) as thread:
            # Both requests are there when the broker looks for requests again.
            holding = thread.submit(running.call, hold)
            held.wait()
            waiting = client.send(1, 12, fetch_message(topic_id, 0, max_wait_ms=60_000))
            topic = {"name": "events", "partition_data": [{"index": 0, "records": batch(b"a")}]}
            producer.send(0, 9, {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": [topic]})
            released.set()
            holding.result()
        answer = client.receive(1, 12, waiting)
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


def test_a_disk_that_fails_is_told_to_the_client_and_logged_once(
    running: BrokerThread, client: WireClient, topic_id: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    log = running.broker.logs["events", 0]
    log.append_batches(batch(b"a"))
    log.guard.disk.failure = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(3):
        refused = produce(client, 9, batch(b"b"), topic_id=topic_id)
        assert (int(refused.error_code), refused.base_offset) == (56, -1)
    assert [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()] == [
        f"{log.path} is offline: [Errno 28] No space left on device"
    ]
    answer = client.call(1, 12, fetch_message(topic_id, 0))
    assert values(answer.responses[0].partitions[0].records) == [b"a"]
