"""Transactions over the wire: every request in every state, as Apache Kafka answered it; time, fencing, crashes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
import re2
from kio.schema.errors import ErrorCode

from odradek.broker import state_topic
from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.broker.transactions.markers import Markers
from odradek.broker.transactions.states import TransactionStates
from odradek.broker.transactions.verification import Verification
from odradek.coordination.placement import partition_for
from odradek.errors import LogOfflineError
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    decode_transaction_record,
)
from odradek.records.append.batching import AppendResult
from odradek.storage.log.nonblocking_appends import NonblockingAppends
from odradek.storage.log.replay import replay
from odradek.storage.log.writable_log import WritableLog
from odradek.testing.wire import WireClient
from peers import broker_thread
from peers.broker_thread import advance, connect, eventually
from peers.process import wait_for
from peers.requests import ask, produce_message, produced
from peers.transactional import (
    DESCRIBE_PRODUCERS,
    STATES,
    WRITE_MARKERS,
    TransactionalProducer,
    answers,
    find_coordinator,
)

CONFIG: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # A test that moves the time keeps its connections.
    "connections.max.idle.ms": -1,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 5,
    # Batches are of 2023, markers of now: a segment between them is made in another thread, and takes longer.
    "log.roll.hours": 1_000_000,
}
EXPECTED: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "transaction-answers-kafka-4.3.1.json").read_text(encoding="utf-8")
)
NOT_COORDINATOR, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 16, 47, 48, 49
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE = 51, 90, 105, 120
INVALID_REGULAR_EXPRESSION = 128

Make = Callable[..., TransactionalProducer]


start = partial(broker_thread.start, **CONFIG)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with start(tmp_path / "data") as running:
        running.broker.logs.create_topic("events", 2)
        yield running


@pytest.fixture
def make(client: WireClient) -> Make:
    """Make producers: `make(transactional_id="t", version=2)`."""
    find_coordinator(client, "t")

    def make(transactional_id: str = "t", version: int = 2) -> TransactionalProducer:
        return TransactionalProducer(client, transactional_id, version, "events", None)

    return make


def committed(running: BrokerThread, partition: int = 0) -> list[bytes | None]:
    log = running.broker.logs["events", partition]
    return [record.value for record in log.read(isolation="read_committed")]


def states(running: BrokerThread) -> list[TransactionValue | None]:
    """Return all records of the coordinator's topic, in order."""
    return [
        decode_transaction_record(record.key, record.value).value
        for number in range(2)
        for record in running.broker.logs["__transaction_state", number].read()
    ]


# -- every request in every state


@pytest.mark.slow
@pytest.mark.parametrize("state", [f"{version} {state}" for version in (1, 2) for state in STATES])
def test_requests_are_answered_as_by_apache_kafka(running: BrokerThread, client: WireClient, state: str) -> None:
    find_coordinator(client, "t")
    version, name = state.split()
    found = answers(client, "events", None, int(version), name)
    assert found == EXPECTED[state]


def test_nothing_is_known_before_the_topic_exists(running: BrokerThread, client: WireClient) -> None:
    producer = TransactionalProducer(client, "t", 2, "events", None)
    producer.producer_id = producer.producer_epoch = 0
    assert producer.describe().error_code == NOT_COORDINATOR
    assert producer.add(0) == [NOT_COORDINATOR]
    assert producer.end(True) == NOT_COORDINATOR
    assert producer.init() == 0


# -- the ways of a transaction


@pytest.mark.sampled
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_and_its_records(running: BrokerThread, make: Make, version: int, commit: bool) -> None:
    producer = make(version=version)
    assert producer.init() == 0
    producer_id = producer.producer_id
    if version == 1:
        assert producer.add(0, 1) == [0, 0]
    assert producer.produce(0, b"a", b"b") == 0
    assert producer.produce(1, b"c") == 0
    assert committed(running) == []
    assert producer.describe()[1:] == (
        "Ongoing",
        60_000,
        producer.describe().start_ms,
        producer_id,
        0,
        (("events", 0), ("events", 1)),
    )
    assert producer.end(commit) == 0
    assert producer.until_idle() == ("CompleteCommit" if commit else "CompleteAbort")
    assert committed(running) == ([b"a", b"b"] if commit else [])
    assert committed(running, 1) == ([b"c"] if commit else [])
    assert (producer.producer_id, producer.producer_epoch) == (producer_id, version - 1)

    end = [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]
    if not commit:
        end = [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]
    found = [value for value in states(running) if value is not None]
    ongoing = [TransactionState.ONGOING] * version
    assert [value.transaction_status for value in found] == [TransactionState.EMPTY, *ongoing, *end]
    both, none = (TransactionTopic("events", (0, 1)),), ()
    assert [value.transaction_partitions for value in found[-3:]] == [both, both, none]
    assert found[0].transaction_partitions is None
    assert [value.producer_epoch for value in found[-2:]] == [version - 1, version - 1]
    assert [value.client_transaction_version for value in found[-2:]] == [0 if version == 1 else 2] * 2
    assert {value.previous_producer_id for value in found} == {producer_id}


def test_two_transactions_in_a_row_with_the_same_sequences(running: BrokerThread, make: Make) -> None:
    producer = make()
    producer.init()
    for value in (b"a", b"b"):
        assert producer.produce(0, value) == 0
        assert producer.end(True) == 0
    assert committed(running) == [b"a", b"b"]


@pytest.mark.slow
def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    found = []
    # They are taken from the log by the thousand.
    for count in (1001, 1):
        with start(tmp_path / "data") as running, connect(running) as client:
            for _ in range(count):
                answer = client.call(22, 4, {"transactional_id": None, "transaction_timeout_ms": 0})
                assert (int(answer.error_code), answer.producer_epoch) == (0, 0)
                found.append(answer.producer_id)
    assert found == [*range(1001), 2000]


def set_epoch(running: BrokerThread, epoch: int) -> None:
    """Bring the transactional id to an epoch, as thousands of transactions would."""

    def change() -> None:
        transaction = running.broker.transactions.states.get("t")
        assert transaction is not None
        changed = {**{name: getattr(transaction.metadata, name) for name in transaction.metadata.__slots__}}
        transaction.metadata = type(transaction.metadata)(**{**changed, "producer_epoch": epoch})

    running.call(change)


def test_when_the_epochs_are_used_up_there_is_a_new_producer_id(running: BrokerThread, make: Make) -> None:
    producer = make()
    producer.init()
    first_id = producer.producer_id
    set_epoch(running, 0x7FFE)
    producer.producer_epoch = 0x7FFE
    assert producer.produce(0, b"a") == 0
    assert producer.end(True, keep=True) == 0
    assert producer.until_idle() == "CompleteCommit"
    # Asked again with the old id.
    assert producer.end(True) == 0
    assert (producer.producer_id > first_id, producer.producer_epoch) == (True, 0)
    assert producer.produce(0, b"b") == 0
    assert producer.end(True) == 0
    assert committed(running) == [b"a", b"b"]


def test_an_initialisation_rotates_a_used_up_producer_id(running: BrokerThread, make: Make) -> None:
    producer = make(version=1)
    producer.init()
    first_id = producer.producer_id
    set_epoch(running, 0x7FFE)
    assert producer.init(expected=(first_id, 0x7FFE), keep=True) == 0
    found = producer.describe()
    assert (found.producer_id > first_id, found.producer_epoch) == (True, 0)
    # KIP-360: the answer got lost, the epoch before is the last of the old id.
    assert producer.init(expected=(first_id, 0x7FFE)) == 0
    assert producer.producer_id == found.producer_id


# -- time


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(running: BrokerThread, make: Make, version: int) -> None:
    producer = make(version=version)
    assert producer.init(timeout_ms=900_000) == 0
    if version == 1:
        producer.add(0)
    producer.produce(0, b"a")
    advance(running, 899)
    assert producer.describe().state == "Ongoing"
    advance(running, 12)
    eventually(lambda: producer.describe().state == "CompleteAbort")
    assert committed(running) == []
    assert producer.produce(0, b"b") == INVALID_PRODUCER_EPOCH
    assert producer.end(True, keep=True) == (PRODUCER_FENCED if version == 1 else INVALID_TXN_STATE)
    log = running.broker.logs["events", 0]
    assert log.last_stable_offset == log.log_end_offset


def ongoing(make: Make, count: int) -> list[TransactionalProducer]:
    """Return producers, each with a transaction of fifteen minutes."""
    producers = [make(f"t{number}") for number in range(count)]
    for producer in producers:
        producer.init(timeout_ms=900_000)
        producer.produce(0, b"a")
    return producers


@pytest.mark.slow
def test_of_many_that_take_too_long_only_some_are_aborted_at_once(
    running: BrokerThread, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 40)
    at_once: list[int] = [0, 0]
    write = Markers.write

    async def writing(*given: Any) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        # Others that may go on do so now.
        for _ in range(10):
            await asyncio.sleep(0)
        try:
            return await write(*given)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(Markers, "write", writing)
    advance(running, 912)
    eventually(lambda: {producer.describe().state for producer in producers} == {"CompleteAbort"})
    # Else a client of others waits for a turn of thousands.
    assert at_once == [0, 16]


@pytest.mark.slow
def test_an_abort_that_waits_for_a_disk_is_not_begun_again(
    running: BrokerThread, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 20)
    change, is_slow = TransactionStates.change, True
    begun = list[str]()

    async def changing(self: TransactionStates, transaction: Any, metadata: Any) -> None:
        begun.append(transaction.transactional_id)
        while is_slow:
            await asyncio.sleep(0.001)
        await change(self, transaction, metadata)

    monkeypatch.setattr(TransactionStates, "change", changing)
    advance(running, 912)
    eventually(lambda: len(begun) == 20)
    for _ in range(5):
        advance(running, 10)
        running.call(lambda: None)
    assert sorted(begun) == sorted({*begun})
    is_slow = False
    eventually(lambda: {producer.describe().state for producer in producers} == {"CompleteAbort"})


def test_an_unused_transactional_id_is_forgotten(running: BrokerThread, make: Make) -> None:
    unused, used = make("unused"), make("used")
    unused.init()
    used.init(timeout_ms=900_000)
    advance(running, 6.5 * 86_400)
    used.init()
    advance(running, 86_400)
    assert unused.describe().error_code == TRANSACTIONAL_ID_NOT_FOUND
    assert used.describe().state == "Empty"
    assert unused.end(True) == INVALID_PRODUCER_ID_MAPPING
    assert None in states(running)


# -- markers


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the partitions whose disk takes no markers; the test may change it."""
    found: set[str] = set()
    append = Partition.append_acknowledged

    async def append_marker(self: Partition, *args: Any, **kwargs: Any) -> AppendResult:
        if str(self.topic_partition) in found:
            raise LogOfflineError(self.log.path, "the disk failed")
        return await append(self, *args, **kwargs)

    monkeypatch.setattr(Partition, "append_acknowledged", append_marker)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_while_markers_are_written_nothing_else_begins(
    running: BrokerThread, make: Make, blocked: set[str], version: int
) -> None:
    producer = make(version=version)
    producer.init()
    producer.add(0, 1)
    for partition in (0, 1):
        producer.produce(partition, b"a")
    blocked.add("events-1")
    assert producer.end(True, keep=True) == 0
    wait_for(lambda: producer.describe().partitions == (("events", 1),), 10, "the marker of one partition")
    assert committed(running) == [b"a"]
    assert producer.describe().state == "PrepareCommit"
    again = [producer.init(keep=True), producer.end(True, keep=True), producer.end(False, keep=True)]
    assert again == [CONCURRENT_TRANSACTIONS] * 3
    if version == 1:
        assert producer.add(0) == [CONCURRENT_TRANSACTIONS]
        # NOT_ENOUGH_REPLICAS, which old clients retry.
        assert producer.produce(0, b"b") == 19
    else:
        producer.producer_epoch += 1
        assert producer.produce(0, b"b", sequence=0) == CONCURRENT_TRANSACTIONS
    blocked.clear()
    advance(running, 1)
    assert producer.until_idle() == "CompleteCommit"
    assert committed(running, 1) == [b"a"]


@pytest.mark.slow
def test_of_many_that_wait_for_one_partition_one_tries_at_a_time_and_others_have_their_own_turns(
    running: BrokerThread, make: Make, blocked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 40)
    # The first three wait for another partition, too.
    other = make("other")
    other.init()
    for producer in (other, *producers[:3]):
        assert producer.add(1) == [0]
        producer.produce(1, b"b")
    blocked |= {"events-0", "events-1"}
    tried, turns = Counter[str](), Counter[int]()
    write = Markers.write

    async def writing(self: Markers, partitions: Any, marker: Any) -> Any:
        tried.update(map(str, partitions))
        turns[-1] += 1
        return await write(self, partitions, marker)

    async def ticking() -> None:
        while True:
            turns[len(turns)] = turns.pop(-1, 0)
            await asyncio.sleep(0)

    monkeypatch.setattr(Markers, "write", writing)
    for producer in (*producers, other):
        assert producer.end(True, keep=True) == 0
    eventually(lambda: tried["events-0"] == 40)
    tried.clear()
    for tries in range(1, 11):
        advance(running, 8)
        eventually(partial(lambda tries: min(tried["events-0"], tried["events-1"]) >= tries, tries))
    assert abs(tried["events-0"] - tried["events-1"]) <= 1
    # What the one has waited for, all have waited for; but not all in one turn of the loop.
    blocked.remove("events-0")
    turns.clear()
    ticks = running.call(lambda: asyncio.ensure_future(ticking()))
    advance(running, 8)
    eventually(lambda: {producer.describe().state for producer in producers[3:]} == {"CompleteCommit"})
    running.call(ticks.cancel)
    assert max(turns.values()) <= 17
    assert {producer.describe().partitions for producer in producers[:3]} == {(("events", 1),)}
    assert other.describe().state == "PrepareCommit"
    blocked.clear()
    advance(running, 8)
    eventually(lambda: {one.describe().state for one in (other, *producers)} == {"CompleteCommit"})


@pytest.mark.slow
def test_a_partition_whose_disk_hangs_holds_up_no_other(
    running: BrokerThread, make: Make, blocked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 40)
    other = make("other")
    other.init()
    for partition in (0, 1):
        assert other.add(partition) == [0]
        other.produce(partition, b"b")
    blocked |= {"events-0", "events-1"}
    for producer in (*producers, other):
        assert producer.end(True, keep=True) == 0
    append = Partition.append_acknowledged
    hanging = list[Partition]()

    async def append_marker(self: Partition, *args: Any, **kwargs: Any) -> AppendResult:
        if str(self.topic_partition) == "events-0":
            hanging.append(self)
            await asyncio.Event().wait()
        return await append(self, *args, **kwargs)

    monkeypatch.setattr(Partition, "append_acknowledged", append_marker)
    blocked.clear()
    # It may have to be tried once more: the first time may come while the partitions are blocked still.
    for _ in range(2):
        advance(running, 8)
    eventually(lambda: hanging and other.describe().partitions == (("events", 0),))
    assert committed(running, 1) == [b"b"]


@pytest.mark.slow
def test_a_partition_whose_disk_hangs_holds_up_no_other_transaction_that_takes_too_long(
    running: BrokerThread, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ongoing(make, 40)
    other = make("other")
    other.init(timeout_ms=900_000)
    assert other.add(1) == [0]
    other.produce(1, b"b")
    write, hanging = Markers.write, list[int]()

    async def writing(self: Markers, partitions: Any, marker: Any) -> Any:
        if list(partitions) == [("events", 0)]:
            hanging.append(marker.producer_id)
            await asyncio.Event().wait()
        return await write(self, partitions, marker)

    monkeypatch.setattr(Markers, "write", writing)
    advance(running, 912)
    eventually(lambda: hanging and other.describe().state == "CompleteAbort")


@pytest.mark.slow
def test_a_state_that_cannot_be_written_holds_up_no_other_transaction(
    running: BrokerThread, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 40)
    change, stuck = TransactionStates.change, {f"t{number}" for number in range(20)}

    async def changing(self: TransactionStates, transaction: Any, metadata: Any) -> None:
        if transaction.transactional_id in stuck:
            raise ApiError(ErrorCode.invalid_record)
        await change(self, transaction, metadata)

    monkeypatch.setattr(TransactionStates, "change", changing)
    advance(running, 912)
    eventually(lambda: {producer.describe().state for producer in producers[20:]} == {"CompleteAbort"})
    assert {producer.describe().state for producer in producers[:20]} == {"Ongoing"}
    stuck.clear()
    advance(running, 12)
    eventually(lambda: {producer.describe().state for producer in producers[:20]} == {"CompleteAbort"})


@pytest.mark.slow
def test_a_state_whose_disk_hangs_holds_up_no_other_transaction(
    running: BrokerThread, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = ongoing(make, 20)
    homes = [partition_for(f"t{number}", 2) for number in range(20)]
    others = [producer for producer, home in zip(producers, homes, strict=True) if home != homes[0]]
    change, hanging = TransactionStates.change, list[str]()

    async def changing(self: TransactionStates, transaction: Any, metadata: Any) -> None:
        if (
            partition_for(transaction.transactional_id, 2) == homes[0]
            and metadata.state is TransactionState.COMPLETE_ABORT
        ):
            hanging.append(transaction.transactional_id)
            await asyncio.Event().wait()
        await change(self, transaction, metadata)

    monkeypatch.setattr(TransactionStates, "change", changing)
    advance(running, 912)
    eventually(lambda: hanging and {producer.describe().state for producer in others} == {"CompleteAbort"})


def test_a_deleted_topic_holds_nothing_up(running: BrokerThread, make: Make) -> None:
    producer = make(version=1)
    producer.init()
    running.broker.logs.create_topic("gone")
    assert producer.add(0) == [0]
    assert producer.add(0, topic="gone") == [0]
    producer.produce(0, b"a")
    running.broker.logs.delete_topic("gone")
    assert producer.end(True) == 0
    assert producer.until_idle() == "CompleteCommit"
    assert committed(running) == [b"a"]


@pytest.mark.parametrize("api_version", [1, 2])
def test_markers_from_outside(running: BrokerThread, make: Make, client: WireClient, api_version: int) -> None:
    producer = make(version=1)
    producer.init()
    producer.add(0)
    producer.produce(0, b"a")
    marker: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "transaction_version": 0,
        "topics": [{"name": "events", "partition_indexes": [0, 7]}],
    }
    answer = client.call(WRITE_MARKERS, api_version, {"markers": [marker]})
    (found,) = answer.markers
    (topic,) = found.topics
    assert found.producer_id == producer.producer_id
    assert [(one.partition_index, int(one.error_code)) for one in topic.partitions] == [(0, 0), (7, 3)]
    log = running.broker.logs["events", 0]
    assert (log.last_stable_offset, committed(running)) == (log.log_end_offset, [])
    marker["producer_epoch"] += 1
    client.call(WRITE_MARKERS, api_version, {"markers": [marker]})
    marker["producer_epoch"] -= 1
    answer = client.call(WRITE_MARKERS, api_version, {"markers": [marker]})
    assert int(answer.markers[0].topics[0].partitions[0].error_code) == INVALID_PRODUCER_EPOCH


# -- what is told of them


def test_the_producers_of_a_partition(running: BrokerThread, make: Make, client: WireClient) -> None:
    producer = make()
    producer.init()
    producer.produce(0, b"a", b"b")
    topics = [
        {"name": "events", "partition_indexes": [0, 1, 9]},
        {"name": "unknown", "partition_indexes": [0]},
        {"name": "no topic", "partition_indexes": [0]},
    ]
    answer = client.call(DESCRIBE_PRODUCERS, 0, {"topics": topics})
    known, unknown, wrong = answer.topics
    assert [int(one.error_code) for one in (*known.partitions, *unknown.partitions, *wrong.partitions)] == [
        0,
        0,
        3,
        3,
        17,
    ]
    (state,) = known.partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.producer_id, 0, 1)
    assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (1_700_000_000_000, -1, 0)
    assert known.partitions[1].active_producers == ()
    producer.end(True)
    state = client.call(DESCRIBE_PRODUCERS, 0, {"topics": topics}).topics[0].partitions[0].active_producers[0]
    assert (state.producer_epoch, state.last_sequence, state.current_txn_start_offset) == (1, -1, -1)


@pytest.mark.sampled
@pytest.mark.parametrize("api_version", [0, 1, 2])
def test_listed_transactions(running: BrokerThread, make: Make, client: WireClient, api_version: int) -> None:
    empty, ongoing = make("empty"), make("ongoing")
    empty.init()
    ongoing.init(timeout_ms=900_000)
    ongoing.produce(0, b"a")

    def listed(**filters: Any) -> list[str]:
        answer = ask(client, "ListTransactions", api_version, **filters)
        assert int(answer.error_code) == 0
        return sorted(one.transactional_id for one in answer.transaction_states)

    assert listed() == ["empty", "ongoing"]
    assert listed(state_filters=["Ongoing"]) == ["ongoing"]
    assert listed(producer_id_filters=[empty.producer_id]) == ["empty"]
    assert listed(state_filters=["None"]) == []
    if api_version >= 1:
        advance(running, 5)
        ongoing.add(1)
        assert listed(duration_filter=4000, state_filters=["Ongoing"]) == ["ongoing"]
        assert listed(duration_filter=60_000, state_filters=["Ongoing"]) == []
    if api_version >= 2:
        assert listed(transactional_id_pattern="e.*") == ["empty"]
        refused = ask(client, "ListTransactions", 2, state_filters=["Some"], transactional_id_pattern="(")
        assert int(refused.error_code) == INVALID_REGULAR_EXPRESSION
    assert ask(client, "ListTransactions", api_version, state_filters=["Some"]).unknown_state_filters == ("Some",)


def test_patterns_of_clients_are_those_of_re2(make: Make, client: WireClient) -> None:
    make("a" * 60 + "!").init()

    def listed(pattern: str) -> tuple[int, int]:
        answer = ask(client, "ListTransactions", 2, transactional_id_pattern=pattern)
        return int(answer.error_code), len(answer.transaction_states)

    # RE2 has no assertions, so it needs no backtracking.
    assert listed("(?=a)a*!") == (INVALID_REGULAR_EXPRESSION, 0)
    assert listed(r"\pL*!\z") == (0, 1)
    # Backtracking would take 2 ** 60 steps.
    assert listed("(a+)+$") == (0, 0)


def test_the_loop_matches_no_patterns_of_clients(
    make: Make, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[str]()

    class Spy:
        def __init__(self, pattern: str, options: Any) -> None:
            self.found = compile_pattern(pattern, options)
            self.groups = self.found.groups

        def fullmatch(self, text: str) -> object:
            threads.add(current_thread().name)
            return self.found.fullmatch(text)

    compile_pattern = re2.compile
    monkeypatch.setattr(re2, "compile", Spy)
    for name in ("a" * 30_000, "b" * 30_000, "c", "d"):
        make(name).init()
    answer = ask(client, "ListTransactions", 2, transactional_id_pattern="[ac]+")
    assert sorted(one.transactional_id[:2] for one in answer.transaction_states) == ["aa", "c"]
    assert threads
    assert all(name.startswith("odradek-broker_") for name in threads)
    # It would take a minute and a half for an id of 32 KB.
    refused = ask(client, "ListTransactions", 2, transactional_id_pattern="(?:x|a?){900}" * 60)
    assert int(refused.error_code) == INVALID_REGULAR_EXPRESSION


# -- what is produced


def test_batches_of_two_producers_in_one_request(make: Make, client: WireClient) -> None:
    first, second = make("a"), make("b")
    for producer in (first, second):
        producer.init()
    data = [{"index": number, "records": one.batch(number, b"a")} for number, one in enumerate((first, second))]
    topics = [{"name": "events", "partition_data": data}]
    answer = ask(client, "Produce", 12, transactional_id="a", topic_data=topics)
    errors = [int(one.error_code) for one in answer.responses[0].partition_responses]
    assert errors == [INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_request_adds_its_partitions_in_one_record(running: BrokerThread, make: Make, client: WireClient) -> None:
    producer = make()
    producer.init()
    data = [{"index": number, "records": producer.batch(number, b"a")} for number in (0, 1)]
    topics = [{"name": "events", "partition_data": data}]
    answer = ask(client, "Produce", 12, transactional_id="t", topic_data=topics)
    assert [int(one.error_code) for one in answer.responses[0].partition_responses] == [0, 0]
    assert [value.transaction_status for value in states(running) if value] == [0, 1]


def test_without_verification_old_clients_may_write_anywhere(tmp_path: Path) -> None:
    with start(tmp_path / "data", **{"transaction.partition.verification.enable": False}) as running:
        running.broker.logs.create_topic("events", 2)
        with connect(running) as client:
            producer = TransactionalProducer(client, "t", 1, "events", None)
            producer.init()
            assert producer.produce(0, b"a") == 0
            assert producer.end(True) == INVALID_TXN_STATE


def test_a_new_producer_of_version_2_begins_with_sequence_0(make: Make) -> None:
    producer = make()
    producer.init()
    assert producer.produce(0, b"a", sequence=5) == 45
    assert producer.produce(0, b"a", sequence=0) == 0


def test_a_batch_does_not_overtake_one_that_is_verified(
    running: BrokerThread, make: Make, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make()
    producer.init()
    ask, asked = Verification._ask, 0

    async def late_at_first(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            # As if the transaction before were still ending.
            await running.broker.clock.sleep(60_000)
        return await ask(*given)

    monkeypatch.setattr(Verification, "_ask", late_at_first)
    batches = [producer.batch(0, value) for value in (b"a", b"b")]
    sent = [client.send(0, 12, produce_message(data, transactional_id="t", acks=-1)) for data in batches]
    with connect(running) as other:
        wait_for(lambda: asked, 10, "the first batch")
        find_coordinator(other, "t")
    advance(running, 60)
    assert [produced(client.receive(0, 12, one)) for one in sent] == [(0, 0), (0, 1)]


# -- restarts and crashes


@pytest.mark.slow
def test_a_restart_keeps_every_state(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client, "t")
        before = []
        for name, bring in STATES.items():
            if name != "none":
                producer = TransactionalProducer(client, name, 2, "events", None)
                bring(producer)
                before.append(producer.describe())
    with start(tmp_path / "data") as running, connect(running) as client:
        wait_for(lambda: not running.broker.transactions.states.is_loading, 10, "the states")
        after = []
        for name in STATES:
            producer = TransactionalProducer(client, name, 2, "events", None)
            if name != "none":
                after.append(producer.describe())
        assert after == before
        advance(running, 100)
        producer = TransactionalProducer(client, "Ongoing", 2, "events", None)
        eventually(lambda: producer.describe().state == "CompleteAbort")


def images(
    folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch, acknowledged: list[bytes]
) -> list[tuple[Path, int]]:
    """Copy a log directory before each append from now on.

    Returns:
        The copies, and how many values had been acknowledged as committed.
    """
    found: list[tuple[Path, int]] = []
    append, at_once = WritableLog.append_batches, NonblockingAppends.append

    def copy() -> None:
        made = into / str(len(found))
        shutil.copytree(folder, made)
        found.append((made, len(acknowledged)))

    def append_batches(self: WritableLog, *args: Any, **kwargs: Any) -> AppendResult:
        copy()
        return append(self, *args, **kwargs)

    def append_at_once(self: NonblockingAppends, *args: Any, **kwargs: Any) -> AppendResult | None:
        copy()
        result = at_once(self, *args, **kwargs)
        if result is None:
            # It is appended by the other way.
            shutil.rmtree(found.pop()[0])
        return result

    monkeypatch.setattr(WritableLog, "append_batches", append_batches)
    monkeypatch.setattr(NonblockingAppends, "append", append_at_once)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_a_crash_before_any_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    values = [b"a", b"b", b"c"]
    acknowledged: list[bytes] = []
    with start(tmp_path / "data") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client, "t")
        with monkeypatch.context() as patch:
            found = images(tmp_path / "data", tmp_path / "images", patch, acknowledged)
            producer = TransactionalProducer(client, "t", version, "events", None)
            producer.init()
            for value in values:
                if version == 1:
                    producer.add(0, 1)
                for partition in (0, 1):
                    producer.produce(partition, value)
                assert producer.end(value != b"b") == 0
                if value != b"b":
                    acknowledged.append(value)
                producer.until_idle()
    assert len(found) == 1 + 3 * (7 if version == 1 else 8)
    for image, commits in found:
        check_image(image, version, commits)


def check_image(image: Path, version: int, commits: int) -> None:
    """Start a broker on a folder that a crash left: each transaction has ended, in all partitions alike."""
    with start(image) as running, connect(running) as client:
        wait_for(lambda: not running.broker.transactions.states.is_loading, 10, "the states")
        producer = TransactionalProducer(client, "t", version, "events", None)
        advance(running, 100)
        eventually(lambda: producer.describe().state not in ("Ongoing", "PrepareCommit", "PrepareAbort"))
        visible = committed(running)
        assert visible == committed(running, 1)
        assert visible in ([], [b"a"], [b"a", b"c"])
        assert len(visible) >= commits
        for partition in (0, 1):
            log = running.broker.logs["events", partition]
            assert log.last_stable_offset == log.log_end_offset
        producer.patiently(producer.init)
        producer.patiently(lambda: producer.produce(0, b"z", version=12))
        producer.patiently(lambda: producer.end(True, 5))
        producer.until_idle()
        assert committed(running) == [*visible, b"z"]


@pytest.mark.slow
def test_while_the_states_are_loaded_clients_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path / "data") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        producer = TransactionalProducer(client, "t", 2, "events", None)
        producer.init()
    held: list[bool] = [True]

    def slowly(*arguments: Any) -> None:
        wait_for(lambda: not held[0], 20, "the test")
        replay(*arguments)

    monkeypatch.setattr(state_topic, "replay", slowly)
    with start(tmp_path / "data") as running, connect(running) as client:
        producer.client = client
        try:
            assert producer.init(keep=True) == 14
            assert int(ask(client, "ListTransactions", 2).error_code) == 14
        finally:
            held[0] = False
        producer.patiently(lambda: producer.init(keep=True))
