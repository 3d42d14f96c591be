"""How fetches wait: an append wakes those whose `min_bytes` it fills, and costs nothing for the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.api.k01_fetch import _Fetch
from odradek.broker.log_waits import LogPlace, LogWaits
from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually
from peers.requests import batch, fetch_message, wanted

BATCH = batch(bytes(1000))
VERSION = 12


@pytest.fixture
def topic_id(running: BrokerThread) -> UUID:
    topic_id = running.broker.logs.create_topic("events", 3).topic_id
    assert topic_id is not None
    for number in range(3):
        running.call(lambda number=number: running.broker.partitions.get("events", number))  # type: ignore[misc]
    return topic_id


def message(numbers: list[int], offset: int = 0, **fields: Any) -> dict[str, Any]:
    topics = [{"topic": "events", "partitions": wanted(numbers, offset)}] if numbers else []
    return fetch_message(**{"max_wait_ms": 60_000, "topics": topics, **fields})


def append(running: BrokerThread, number: int, data: bytes = BATCH) -> None:
    running.call(lambda: running.broker.partitions.get("events", number).append(bytearray(data)))


def busy(running: BrokerThread) -> int:
    """Return how many requests wait, once those that are woken were answered."""
    for _ in range(5):
        running.call(lambda: None)
    return running.call(lambda: sum(one.is_busy for one in running.server.connections))


def sizes(answer: Any) -> dict[int, int]:
    return {
        one.partition_index: len(one.records or b"") // len(BATCH)
        for topic in answer.responses
        for one in topic.partitions
        if one.records
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("has_session", [True, False])
@pytest.mark.parametrize("order", [[1] * 5, [0, 1, 2, 0, 1], [2, 0, 0, 0, 0], [0, 0, 0, 0, 1], [1, 2, 1, 2, 1]])
def test_what_several_partitions_have_is_counted_together(
    running: BrokerThread, client: WireClient, topic_id: UUID, order: list[int], has_session: bool, isolation_level: int
) -> None:
    # Something is there before the fetch.
    append(running, order[0])
    fields: dict[str, Any] = {"min_bytes": 5 * len(BATCH) - 3, "isolation_level": isolation_level}
    numbers = [0, 1, 2]
    if has_session:
        full = client.call(1, VERSION, message(numbers, session_epoch=0, max_wait_ms=0))
        fields |= {"session_id": full.session_id, "session_epoch": 1}
        numbers = []
    waiting = client.send(1, VERSION, message(numbers, **fields))
    eventually(lambda: busy(running) == 1)
    for number in order[1:-1]:
        append(running, number)
        assert busy(running) == 1
    append(running, order[-1])
    assert sizes(client.receive(1, VERSION, waiting)) == {number: order.count(number) for number in set(order)}


def test_random_appends_wake_a_fetch_when_there_is_enough(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    chosen = random.Random(1)
    for _ in range(8):
        offsets = [running.broker.logs["events", number].log_end_offset for number in range(3)]
        asked = message([0, 1, 2], min_bytes=chosen.randrange(1, 9 * len(BATCH)))
        for one in asked["topics"][0]["partitions"]:
            one["fetch_offset"] = offsets[one["partition"]]
        waiting, appended = client.send(1, VERSION, asked), 0
        while appended < asked["min_bytes"]:
            append(running, chosen.randrange(3))
            appended += len(BATCH)
        answer = client.receive(1, VERSION, waiting)
        assert sum(sizes(answer).values()) * len(BATCH) == appended


@pytest.fixture
def crowd(running: BrokerThread) -> Iterator[list[WireClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(running)) for _ in range(20)]


def test_appends_that_are_not_enough_cost_nothing_for_the_fetches_that_wait(
    running: BrokerThread, crowd: list[WireClient], topic_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = [one.send(1, VERSION, message([0, 1], min_bytes=1 << 20)) for one in crowd]
    # Their logs are opened first.
    eventually(lambda: running.call(lambda: len(running.broker.partitions.get("events", 1)._waits)) == len(crowd))
    done: list[str] = []

    def note(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(kind, name, noted)

    note(Partition, "fetch")
    note(_Fetch, "_count")
    for _ in range(200):
        append(running, 0)
    assert busy(running) == len(crowd)
    # Each looked once: at the first bytes.
    assert done == ["_count"] * len(crowd)
    advance(running, 60)
    for one, waiting in zip(crowd, fetches, strict=True):
        assert sizes(one.receive(1, VERSION, waiting)) == {0: 200}


def test_many_that_wait_for_the_same_bytes_are_all_woken(
    running: BrokerThread, crowd: list[WireClient], topic_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.partitions._WOKEN_AT_ONCE", 3)
    fetches = [one.send(1, VERSION, message([number % 3])) for number, one in enumerate(crowd)]
    eventually(lambda: busy(running) == len(crowd))
    for number in range(3):
        append(running, number)
    for number, (one, waiting) in enumerate(zip(crowd, fetches, strict=True)):
        assert sizes(one.receive(1, VERSION, waiting)) == {number % 3: 1}


def test_an_open_transaction_wakes_no_reader_of_committed_records(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    waiting = client.send(1, VERSION, message([0], isolation_level=1, min_bytes=len(BATCH)))
    eventually(lambda: busy(running) == 1)
    for sequence in range(3):
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        append(running, 0, batch(bytes(1000), is_transactional=True, **producer))
        # What follows the open transaction is not committed to its readers either.
        append(running, 0)
        assert busy(running) == 1
    log = running.broker.logs["events", 0]
    log.end_transaction(7, 0, commit=True)
    running.call(lambda: running.broker.partitions.get("events", 0).changed())
    answer = client.receive(1, VERSION, waiting)
    assert answer.responses[0].partitions[0].last_stable_offset == 7


def test_a_new_segment_wakes_only_those_who_have_records_in_the_one_before(
    running: BrokerThread, client: WireClient, topic_id: UUID
) -> None:
    append(running, 0)
    with connect(running) as other:
        behind = client.send(1, VERSION, message([0], 0, min_bytes=1 << 19))
        at_end = other.send(1, VERSION, message([0], 1, min_bytes=1 << 19))
        eventually(lambda: busy(running) == 2)
        running.broker.logs["events", 0].roll()
        append(running, 0)
        assert sizes(client.receive(1, VERSION, behind)) == {0: 1}
        assert busy(running) == 1
        advance(running, 60)
        assert sizes(other.receive(1, VERSION, at_end)) == {0: 1}


def wakes(waits: LogWaits, end: LogPlace | None, most: int = 100) -> list[str]:
    found: list[str] = []
    for wake in waits.take(end, most, is_committed=False):
        wake()
        found.append(str(names.pop()))
    return found


names: list[object] = []


def add(waits: LogWaits, waiter: str, place: LogPlace) -> None:
    waits.add(waiter, place, lambda: names.append(waiter), is_committed=False)


def test_the_order_of_waiting() -> None:
    waits = LogWaits()
    for waiter, place in (("d", (8, 1)), ("c", (0, 9)), ("a", (0, 5)), ("b", (0, 5)), ("x", (0, 1))):
        add(waits, waiter, LogPlace(*place))
    waits.remove("x")
    add(waits, "a", LogPlace(0, 6))
    assert wakes(waits, LogPlace(0, 4)) == []
    assert wakes(waits, LogPlace(0, 6), 1) == ["b"]
    assert wakes(waits, LogPlace(0, 6)) == ["a"]
    # A later segment is further than any place in an earlier one.
    assert wakes(waits, LogPlace(8, 0)) == ["c"]
    assert wakes(waits, None) == ["d"]
    assert len(waits) == 0


def test_waiters_that_come_and_go_leave_nothing() -> None:
    waits = LogWaits()
    for number in range(1000):
        add(waits, "a", LogPlace(0, number))
        waits.remove("a")
    assert sum(map(len, waits._heaps)) < 50
