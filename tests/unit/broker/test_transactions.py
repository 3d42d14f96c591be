"""Transactions over the wire: every request in every state, as Apache Kafka answered it; time, fencing, crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.broker.transactions import verification
from odradek.errors import LogOfflineError
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    decode_transaction_record,
)
from odradek.records.append.batching import AppendResult
from odradek.storage.log.writable_log import WritableLog
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect
from peers.process import wait_for
from peers.transactional import (
    DESCRIBE_PRODUCERS,
    LIST,
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
}
EXPECTED: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "transaction-answers-kafka-4.3.1.json").read_text(encoding="utf-8")
)
NOT_COORDINATOR, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 16, 47, 48, 49
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE = 51, 90, 105, 120

Make = Callable[..., TransactionalProducer]


def start(path: Path, **config: str | int | float | bool) -> BrokerThread:
    return BrokerThread(path, {**CONFIG, **config}, sync="off", background=False)


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


@pytest.mark.sampled
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


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with start(tmp_path / "data") as running, connect(running) as client:
            for _ in range(1001):
                message = {"transactional_id": None, "transaction_timeout_ms": 0}
                answer = client.call(22, 4, message)
                assert (int(answer.error_code), answer.producer_epoch) == (0, 0)
                found.append(answer.producer_id)
    assert found == [*range(1001), *range(2000, 3001)]


def test_a_client_that_asks_again_gets_what_it_missed(make: Make) -> None:
    producer = make()
    producer.init()
    producer.produce(0, b"a")
    assert producer.end(True, keep=True) == 0
    assert producer.end(True) == 0
    assert producer.producer_epoch == 1
    old = (producer.producer_id, producer.producer_epoch)
    assert producer.init(expected=old) == 0
    new = producer.producer_epoch
    # KIP-360: the answer got lost.
    assert producer.init(expected=old) == 0
    assert producer.producer_epoch == new == old[1] + 1


def test_another_producer_fences_the_one_before(running: BrokerThread, make: Make) -> None:
    old, new = make(version=1), make(version=1)
    old.init()
    old.add(0)
    old.produce(0, b"a")
    assert new.init() == CONCURRENT_TRANSACTIONS
    assert new.init() == 0
    assert new.producer_epoch == old.producer_epoch + 2
    assert old.produce(0, b"b", version=11) == INVALID_PRODUCER_EPOCH
    assert (old.add(1, version=1), old.add(1)) == ([INVALID_PRODUCER_EPOCH], [PRODUCER_FENCED])
    assert (old.end(True, 1), old.end(True, 2)) == (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    before = (old.producer_id, old.producer_epoch)
    assert old.init(3, expected=before) == INVALID_PRODUCER_EPOCH
    assert old.init(4, expected=before) == PRODUCER_FENCED
    assert committed(running) == []


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
    assert producer.until_idle() == "CompleteAbort"
    assert committed(running) == []
    assert producer.produce(0, b"b") == INVALID_PRODUCER_EPOCH
    assert producer.end(True, keep=True) == (PRODUCER_FENCED if version == 1 else INVALID_TXN_STATE)
    log = running.broker.logs["events", 0]
    assert log.last_stable_offset == log.log_end_offset


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
    end = WritableLog.end_transaction

    def end_transaction(self: WritableLog, *args: Any, **kwargs: Any) -> AppendResult:
        if self.path.name in found:
            raise LogOfflineError(self.path, "the disk failed")
        return end(self, *args, **kwargs)

    monkeypatch.setattr(WritableLog, "end_transaction", end_transaction)
    return found


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


@pytest.mark.parametrize("api_version", [0, 1, 2])
def test_listed_transactions(running: BrokerThread, make: Make, client: WireClient, api_version: int) -> None:
    empty, ongoing = make("empty"), make("ongoing")
    empty.init()
    ongoing.init(timeout_ms=900_000)
    ongoing.produce(0, b"a")

    def listed(**filters: Any) -> list[str]:
        message = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = client.call(LIST, api_version, message)
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
        message = {"state_filters": ["Some"], "producer_id_filters": [], "transactional_id_pattern": "("}
        assert int(client.call(LIST, 2, message).error_code) == 128
    message = {"state_filters": ["Some"], "producer_id_filters": []}
    assert client.call(LIST, api_version, message).unknown_state_filters == ("Some",)


# -- what is produced


def test_batches_of_two_producers_in_one_request(make: Make, client: WireClient) -> None:
    first, second = make("a"), make("b")
    for producer in (first, second):
        producer.init()
    data = [{"index": number, "records": one.batch(number, b"a")} for number, one in enumerate((first, second))]
    message = {
        "transactional_id": "a",
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "events", "partition_data": data}],
    }
    answer = client.call(0, 12, message)
    errors = [int(one.error_code) for one in answer.responses[0].partition_responses]
    assert errors == [INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_request_adds_its_partitions_in_one_record(running: BrokerThread, make: Make, client: WireClient) -> None:
    producer = make()
    producer.init()
    data = [{"index": number, "records": producer.batch(number, b"a")} for number in (0, 1)]
    message = {
        "transactional_id": "t",
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "events", "partition_data": data}],
    }
    answer = client.call(0, 12, message)
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
    ask, asked = verification._ask, 0

    async def late_at_first(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            # As if the transaction before were still ending.
            await running.broker.clock.sleep(60_000)
        return await ask(*given)

    monkeypatch.setattr(verification, "_ask", late_at_first)
    sent = []
    for value in (b"a", b"b"):
        topic = {"name": "events", "partition_data": [{"index": 0, "records": producer.batch(0, value)}]}
        message = {"transactional_id": "t", "acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}
        sent.append(client.send(0, 12, message))
    with connect(running) as other:
        wait_for(lambda: asked, 10, "the first batch")
        find_coordinator(other, "t")
    advance(running, 60)
    answered = [client.receive(0, 12, one).responses[0].partition_responses[0] for one in sent]
    assert [(int(one.error_code), one.base_offset) for one in answered] == [(0, 0), (0, 1)]


def test_a_topic_that_is_flushed_at_each_record(running: BrokerThread, make: Make) -> None:
    for topic in ("events", "__transaction_state"):
        running.call(lambda topic=topic: running.broker.logs.alter_topic_config(topic, {"flush.messages": 1}))  # type: ignore[misc]
    producer = make()
    producer.init()
    for value in (b"a", b"b"):
        producer.patiently(lambda value=value: producer.produce(0, value, sequence=0))  # type: ignore[misc]
        producer.patiently(lambda: producer.end(True))
    assert producer.until_idle() == "CompleteCommit"
    assert committed(running) == [b"a", b"b"]


# -- restarts and crashes


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
        assert producer.until_idle() == "CompleteAbort"


@pytest.mark.sampled
@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_completed_after_a_crash(
    running: BrokerThread, make: Make, blocked: set[str], tmp_path: Path, commit: bool
) -> None:
    producer = make()
    producer.init()
    for partition in (0, 1):
        producer.produce(partition, b"a")
    blocked.add("events-1")
    assert producer.end(commit) == 0
    wait_for(lambda: producer.describe().partitions == (("events", 1),), 10, "the marker of one partition")
    shutil.copytree(tmp_path / "data", tmp_path / "image")
    blocked.clear()
    with start(tmp_path / "image") as again, connect(again) as client:
        producer.client = client
        wait_for(lambda: not again.broker.transactions.states.is_loading, 10, "the states")
        assert producer.until_idle() == ("CompleteCommit" if commit else "CompleteAbort")
        assert committed(again) == committed(again, 1) == ([b"a"] if commit else [])
        assert producer.produce(0, b"b") == 0


def images(
    folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch, acknowledged: list[bytes]
) -> list[tuple[Path, int]]:
    """Copy a log directory before each append from now on.

    Returns:
        The copies, and how many values had been acknowledged as committed.
    """
    found: list[tuple[Path, int]] = []
    append = WritableLog.append_batches

    def append_batches(self: WritableLog, *args: Any, **kwargs: Any) -> AppendResult:
        copy = into / str(len(found))
        shutil.copytree(folder, copy)
        found.append((copy, len(acknowledged)))
        return append(self, *args, **kwargs)

    monkeypatch.setattr(WritableLog, "append_batches", append_batches)
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
        producer.until_idle()
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


def test_while_the_states_are_loaded_clients_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path / "data") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        producer = TransactionalProducer(client, "t", 2, "events", None)
        producer.init()
    from odradek.broker.transactions import states as module

    held: list[bool] = [True]
    read = module._read

    def slowly(partition: Partition, found: Any) -> None:
        wait_for(lambda: not held[0], 20, "the test")
        read(partition, found)

    monkeypatch.setattr(module, "_read", slowly)
    with start(tmp_path / "data") as running, connect(running) as client:
        producer.client = client
        try:
            assert producer.init(keep=True) == 14
            assert int(client.call(LIST, 2, {"state_filters": [], "producer_id_filters": []}).error_code) == 14
        finally:
            held[0] = False
        producer.patiently(lambda: producer.init(keep=True))
