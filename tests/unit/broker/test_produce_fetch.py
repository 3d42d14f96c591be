"""Produce and Fetch over the wire, at every version; Apache Kafka answers the same (see the conformance checks)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from threading import Event, Thread, current_thread
from typing import Any
from uuid import UUID

import pytest

from odradek.broker import turns
from odradek.broker.api import k01_fetch
from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.errors import ProtocolError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.header import V2_HEADER_BYTES
from odradek.records.kernels.encode import seal
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.segment.active_segment import ActiveSegment
from odradek.storage.segment.file_records import FileRecords
from odradek.testing.api_names import api_key_of
from odradek.testing.wire import WireClient
from peers import requests
from peers.broker_thread import advance, connect, eventually
from peers.requests import ask, batch, message, produce_message, produced, values, wanted

FETCH_VERSIONS = range(4, 19)
PRODUCE_VERSIONS = range(3, 14)
INVALID_RECORD = 87


def fetch_message(topic_id: UUID, offset: int, **fields: Any) -> dict[str, Any]:
    return requests.fetch_message(offset, topic_id=topic_id, **fields)


@pytest.fixture
def topic_id(running: BrokerThread) -> UUID:
    topic_id = running.broker.logs.create_topic("events").topic_id
    assert topic_id is not None
    return topic_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "version"), [("Fetch", 17), ("Fetch", 12), ("ListOffsets", 10), ("OffsetForLeaderEpoch", 4)]
)
def test_others_have_their_turn_while_many_logs_are_opened(
    running: BrokerThread, client: WireClient, key: str, version: int
) -> None:
    topic_id = running.broker.logs.create_topic("many", partitions=20).topic_id
    turns = opened_in_turn(running, 20)
    answer = ask(client, key, version, **request_for(key, topic_id, range(20)))
    assert error_codes(answer) == [0] * 20
    assert max(after - before for before, after in pairwise(turns.result(30))) == 1


@pytest.mark.sampled
@pytest.mark.parametrize(("key", "version"), [("Produce", 12), ("Fetch", 12), ("ListOffsets", 10)])
def test_many_requests_that_open_logs_let_others_have_their_turn(running: BrokerThread, key: str, version: int) -> None:
    clients, count = 12, 2
    topic_id = running.broker.logs.create_topic("many", partitions=clients * count).topic_id
    with ExitStack() as stack:
        others = [stack.enter_context(connect(running)) for _ in range(clients)]
        sent = []

        def send() -> Future[list[int]]:
            # In one turn of the loop, so that all requests are there in the next one.
            for place, other in enumerate(others):
                numbers = range(count * place, count * (place + 1))
                asked = message(key, **request_for(key, topic_id, numbers))
                sent.append(other.send(api_key_of(key), version, asked))
            return opened_in_turn(running, clients * count)

        turns = running.call(send)
        for other, one in zip(others, sent, strict=True):
            assert error_codes(other.receive(api_key_of(key), version, one)) == [0] * count
    assert max(after - before for before, after in pairwise(turns.result(30))) <= 4 + 1


def opened_in_turn(running: BrokerThread, count: int) -> Future[list[int]]:
    """Return how many logs were open after each turn of the loop, until this many are."""
    turns: Future[list[int]] = Future()

    async def watch() -> None:
        opened = [0]
        while opened[-1] < count:
            await asyncio.sleep(0)
            opened.append(len(list(running.broker.partitions)))
        turns.set_result(opened)

    running.call(lambda: asyncio.ensure_future(watch()))
    return turns


def request_for(key: str, topic_id: UUID | None, numbers: Iterable[int]) -> dict[str, Any]:
    """Return the fields of a request that uses partitions of the topic `many`."""
    if key == "Produce":
        data = [{"index": number, "records": batch(b"a")} for number in numbers]
        return {"topic_data": [{"name": "many", "topic_id": topic_id, "partition_data": data}]}
    others = {"timestamp": -1, "leader_epoch": 0}
    asked = [{**one, "partition_index": one["partition"], **others} for one in wanted(numbers)]
    return {"topics": [{"topic": "many", "name": "many", "topic_id": topic_id, "partitions": asked}]}


def error_codes(answer: Any) -> list[int]:
    """Return those of the partitions of the only topic of an answer."""
    (topic,) = answer.responses if hasattr(answer, "responses") else answer.topics
    rows = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return [int(one.error_code) for one in rows]


@pytest.mark.slow
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
    answer = ask(client, "ListOffsets", 10, **request_for("ListOffsets", None, range(count)))
    assert [(one.partition_index, int(one.error_code)) for one in answer.topics[0].partitions] == [
        (number, 0) for number in range(count)
    ]


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
    partitions = wanted(range(20))
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
    delete_topic(client, "many")
    answer = next_fetch(max_wait_ms=60_000)()
    assert len(numbers(answer)) == 19
    assert {int(one.error_code) for topic in answer.responses for one in topic.partitions} == {100}


def two_topics(running: BrokerThread, first: UUID) -> tuple[UUID, list[dict[str, Any]]]:
    """Return the id of another topic, and what a fetch wants of it and of the first one."""
    other = running.broker.logs.create_topic("other").topic_id
    assert other is not None
    # A fetch waits at once, then: it need not wait until a log is opened.
    running.call(lambda: [running.broker.partitions.get(name, 0) for name in ("other", "events")])
    return other, [
        {"topic": name, "topic_id": topic_id, "partitions": wanted([0])}
        for name, topic_id in (("other", other), ("events", first))
    ]


def delete_topic(client: WireClient, name: str) -> None:
    ask(client, "DeleteTopics", 6, topics=[{"name": name, "topic_id": None}])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("version", "code"), [(6, 3), (12, 3), (13, 100), (18, 100)])
@pytest.mark.parametrize("has_session", [True, False])
def test_a_deleted_topic_does_not_end_the_wait_for_others(
    running: BrokerThread, client: WireClient, topic_id: UUID, version: int, code: int, has_session: bool
) -> None:
    _, topics = two_topics(running, topic_id)
    session: dict[str, Any] = {}
    if has_session and version >= 7:
        full = client.call(1, version, fetch_message(topic_id, 0, topics=topics, session_epoch=0))
        session, topics = {"session_id": full.session_id, "session_epoch": 1}, []
    delete_topic(client, "other")
    waiting = client.send(1, version, fetch_message(topic_id, 0, topics=topics, max_wait_ms=60_000, **session))
    eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
    with connect(running) as producer:
        producer.call(0, 9, produce_message(batch(b"a")))
    rows = [one for topic in client.receive(1, version, waiting).responses for one in topic.partitions]
    assert [(int(one.error_code), values(one.records)) for one in rows] == [(0, [b"a"]), (code, [])]
    assert [one.aborted_transactions for one in rows] == [None, ()]
    if session:
        # An error is answered as long as it lasts, at the end of each wait.
        moved = {**fetch_message(topic_id, 1), "session_id": session["session_id"], "session_epoch": 2}
        waiting = client.send(1, version, {**moved, "max_wait_ms": 60_000})
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        advance(running, 60)
        rows = [one for topic in client.receive(1, version, waiting).responses for one in topic.partitions]
        assert [int(one.error_code) for one in rows] == [code]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_is_deleted_ends_the_waits_for_it(
    running: BrokerThread, client: WireClient, topic_id: UUID, version: int
) -> None:
    _, topics = two_topics(running, topic_id)
    # The first request waits for the logs to be opened, not for records.
    client.call(1, version, fetch_message(topic_id, 0, topics=topics, max_wait_ms=0))
    waiting = client.send(1, version, fetch_message(topic_id, 0, topics=topics, max_wait_ms=60_000))
    eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
    with connect(running) as admin:
        delete_topic(admin, "other")
    rows = [one for topic in client.receive(1, version, waiting).responses for one in topic.partitions]
    # As Apache Kafka: the topic of the id was known when the request came.
    assert [int(one.error_code) for one in rows] == [3, 0]
    assert rows[0].aborted_transactions is None


@pytest.mark.parametrize("version", [12, 13])
def test_who_wants_unknown_topics_alone_is_answered_at_once(
    running: BrokerThread, client: WireClient, topic_id: UUID, version: int
) -> None:
    delete_topic(client, "events")
    answer = client.call(1, version, fetch_message(topic_id, 0, max_wait_ms=60_000))
    assert int(answer.responses[0].partitions[0].error_code) == (100 if version >= 13 else 3)


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
    partitions = wanted(range(2))
    limits = {"max_bytes": 8000, "isolation_level": isolation_level}
    first = {**fetch_message(topic_id, 0, **limits), "topics": [{"topic_id": topic_id, "partitions": partitions}]}
    full = client.call(1, 13, {**first, "session_id": 0, "session_epoch": 0})
    assert [values(one.records) for one in full.responses[0].partitions] == [[b"a" * 5000], []]
    read = {"topic_id": topic_id, "partitions": [{**partitions[0], "fetch_offset": 2}]}
    after = {"topics": [read], "session_id": full.session_id, "session_epoch": 1}
    news = client.call(1, 13, {**fetch_message(topic_id, 0, **limits), **after})
    assert [(one.partition_index, values(one.records)) for one in news.responses[0].partitions] == [(1, [b"a" * 5000])]


def transactional(value: bytes, producer_id: int, *, key: bytes | None = None, sequence: int = 0) -> bytes:
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return batch(value, key=key, is_transactional=True, **producer)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("look", range(8))
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
    client.send(0, 9, produce_message(transactional(b"a", 7), acks=0))
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
            producer.send(0, 9, produce_message(batch(b"a")))
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
    for times in (1, 2):
        for _ in range(3):
            assert produced(client.call(0, 9, produce_message(batch(b"b")))) == (56, -1)
        told = [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()]
        assert told == [f"{log.path} is offline: [Errno 28] No space left on device"] * times
        # A disk that fails again later is news.
        advance(running, 61)
    answer = client.call(1, 12, fetch_message(topic_id, 0))
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


@pytest.mark.parametrize(("version", "code"), [(4, 6), (5, 6), (6, 56), (12, 56)])
def test_a_disk_that_cannot_be_read_is_told_to_the_client_and_logged_once(
    running: BrokerThread,
    client: WireClient,
    topic_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: int,
    code: int,
) -> None:
    running.broker.logs["events", 0].append_batches(batch(b"a"))

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Partition, "fetch", fail)
    for _ in range(2):
        answer = client.call(1, version, fetch_message(topic_id, 0, max_wait_ms=60_000))
        assert int(answer.responses[0].partitions[0].error_code) == code
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == ["[Errno 5] Input/output error"]


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_records_get_their_append_time_also_where_a_segment_begins(
    running: BrokerThread, client: WireClient, is_idempotent: bool
) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "segment.ms": "1"}
    running.broker.logs.create_topic("events", 1, config)
    for number in range(3):
        producer: dict[str, Any] = {}
        if is_idempotent:
            producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        data = batch(b"%d" % number, **producer)
        assert produced(client.call(0, 9, produce_message(data))) == (0, number)
        advance(running, 1)
    log = running.broker.logs["events", 0]
    assert len(log.segments) == 3
    assert [record.value for record in log.read()] == [b"0", b"1", b"2"]
    assert log.damage == []


@pytest.mark.parametrize("codec", [0, 1])
def test_a_time_in_a_batch_that_cannot_be_read_is_no_error_that_clients_try_again(
    codec: int, running: BrokerThread, client: WireClient, topic_id: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    log = running.broker.logs["events", 0]
    times = [running.broker.clock.now_ms() + number for number in range(10)]
    records = [Record(value=b"v" * 100, timestamp=time) for time in times]
    running.call(lambda: log.append(records))
    path = log.segments[0].path
    data = build_batch(records, codec=codec).ljust(path.stat().st_size, b"\0")
    # The records, not what the header says of them.
    path.write_bytes(seal(data[:V2_HEADER_BYTES], b"\1" * (len(data) - V2_HEADER_BYTES)))
    log.segments[0].refresh()
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": times[5]}
    answer = ask(client, "ListOffsets", 10, topics=[{"name": "events", "partitions": [partition]}])
    (found,) = answer.topics[0].partitions
    assert (int(found.error_code), found.offset) == (INVALID_RECORD, -1)
    assert any(str(path) in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("acks", [1, 0])
def test_a_request_for_many_partitions_leaves_turns_of_the_loop_to_others(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """5,000 partitions took a second, in which nobody else was answered."""
    count = 200
    # Every 16 batches are a turn.
    monkeypatch.setattr(turns, "_FIRST_S", 0)
    monkeypatch.setattr(turns, "TURN_S", 1e-5)
    running.broker.logs.create_topic("many", count)
    rows = [{"index": number, "records": batch(b"v")} for number in range(count)]
    data = [{"name": "many", "topic_id": None, "partition_data": rows}]
    others: list[int] = []

    def look() -> None:
        others.append(sum(log.log_end_offset for log in running.broker.logs.open_logs))
        if not others or others[-1] < 2 * count:
            asyncio.get_running_loop().call_soon(look)

    answer = ask(client, "Produce", 9, acks=1, topic_data=data)
    assert {int(one.error_code) for one in answer.responses[0].partition_responses} == {0}
    running.call(look)
    if acks:
        answer = ask(client, "Produce", 9, acks=1, topic_data=data)
        assert {(int(one.error_code), one.base_offset) for one in answer.responses[0].partition_responses} == {(0, 1)}
    else:
        client.send(api_key_of("Produce"), 9, message("Produce", acks=0, topic_data=data))
    # What comes after it on the same connection is not begun before it has ended.
    assert produced(ask(client, "Produce", 9, **produce_message(batch(b"w"), "many", partition=count - 1))) == (0, 2)
    assert len({end for end in others if count < end < 2 * count}) >= count // 16 - 1
