"""A disk whose every sync waits: no request waits for it in the event loop's thread, and other clients are answered."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import running as running_module
from odradek.broker import server
from odradek.broker.api import ADVERTISED, k00_produce
from odradek.broker.protocol import request_class
from odradek.broker.running import BrokerThread
from odradek.errors import ProtocolError
from odradek.records import Record
from odradek.records.compression import Codec
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.metadata.metadata_image import GROUP_RESOURCE, TOPIC_RESOURCE
from odradek.testing.api_names import api_key_of
from odradek.testing.wire import WireClient
from peers import requests
from peers.broker_thread import advance, connect, eventually
from peers.group_requests import commit, commit_message, find_coordinator, leave, stable_member, state
from peers.request_examples import example
from peers.requests import ask, batch, message, new_topic, produced, readable
from peers.transactional import TransactionalProducer
from peers.transactional import find_coordinator as find_transactions

produce_message = partial(requests.produce_message, topic="flushed")

TIMEOUT = 10
UNKNOWN_TOPIC = 3
NOT_COORDINATOR = 16
KAFKA_STORAGE_ERROR = 56
UNKNOWN_TOPIC_ID = 100
CONFIG: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


class GatedFile(WritableFile):
    """A file whose syncs pass the gate of its file system."""

    files: GatedFiles

    def sync(self) -> None:
        """Wait, and perhaps fail, as a method of a file does."""
        self.files.synced(self.path)


class GatedFiles(FileSystem):
    """A disk whose syncs wait while it is slow; it notes those that a thread other than a worker asks for."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.syncs: list[tuple[str, Path]] = []
        self.is_broken = False

    def synced(self, path: Path) -> None:
        self.syncs.append((threading.current_thread().name, path))
        if not self.gate.is_set():
            self.waiting.release()
            assert self.gate.wait(TIMEOUT)
        if self.is_broken and path.suffix == ".log":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def open(self, path: Path) -> WritableFile:
        file = super().open(path)
        gated = GatedFile.__new__(GatedFile)
        gated.__dict__.update(file.__dict__)
        gated.files, file._descriptor = self, -1
        return gated

    def sync_directory(self, path: Path) -> None:
        self.synced(path)

    def on_loop(self) -> list[Path]:
        return [path for thread, path in self.syncs if thread == "odradek-broker"]


@pytest.fixture
def files() -> GatedFiles:
    return GatedFiles()


@pytest.fixture
def running(
    tmp_path: Path, files: GatedFiles, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[BrokerThread]:
    monkeypatch.setattr(running_module, "open_log_directory", partial(open_log_directory, files=files))
    config = {**CONFIG, **getattr(request, "param", {})}
    with BrokerThread(tmp_path / "data", config, background=False) as running:
        files.syncs.clear()
        yield running
        files.gate.set()


def one(files: GatedFiles) -> None:
    assert files.waiting.acquire(timeout=TIMEOUT)


def assert_served(client: WireClient) -> None:
    assert [topic.name for topic in ask(client, "Metadata", 8, topics=[{"name": "events"}]).topics] == ["events"]


SETTING = {"name": "retention.ms", "value": "1000"}
FEATURE = {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 2}
CHANGES: list[tuple[str, int, dict[str, Any]]] = [
    ("CreateTopics", 5, {"topics": [new_topic("new")]}),
    ("Metadata", 8, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}),
    ("CreatePartitions", 3, {"topics": [{"name": "events", "count": 3, "assignments": None}]}),
    ("DeleteTopics", 5, {"topic_names": ["events"]}),
    ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["a group"]}),
    ("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["a transaction"]}),
    ("InitProducerId", 4, {}),
    ("InitProducerId", 4, {"transactional_id": "t"}),
    ("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": "events", "configs": [SETTING]}]}),
    ("UpdateFeatures", 1, {"feature_updates": [FEATURE], "validate_only": False}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("api", "version", "fields"), CHANGES)
def test_other_clients_are_answered_while_a_change_waits_for_the_disk(
    api: str, version: int, fields: dict[str, Any], running: BrokerThread, files: GatedFiles
) -> None:
    running.broker.logs.create_topic("events", 2)
    key = api_key_of(api)
    with connect(running) as slow, connect(running) as other:
        files.gate.clear()
        sent = slow.send(key, version, message(api, **fields))
        one(files)
        assert_served(other)
        files.gate.set()
        assert_no_error(slow.receive(key, version, sent))
    assert files.on_loop() == []


def assert_no_error(answer: Any) -> None:
    if isinstance(answer, tuple):
        for one in answer:
            assert_no_error(one)
    elif hasattr(answer, "__dataclass_fields__"):
        for field in answer.__dataclass_fields__:
            if field == "error_code":
                assert int(answer.error_code) == 0, answer
            assert_no_error(getattr(answer, field))


def _partitions(names: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "count": 3, "assignments": None} for name in names]}


def _settings(kind: int, setting: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    return lambda names: {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": [setting]} for name in names]
    }


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("CreateTopics", 5, lambda names: {"topics": [new_topic(f"new-{name}") for name in names]}),
        ("CreatePartitions", 3, _partitions),
        ("DeleteTopics", 5, lambda names: {"topic_names": list(names)}),
        ("AlterConfigs", 2, _settings(TOPIC_RESOURCE, SETTING)),
        ("IncrementalAlterConfigs", 1, _settings(TOPIC_RESOURCE, {**SETTING, "config_operation": 0})),
        ("AlterConfigs", 2, _settings(GROUP_RESOURCE, {"name": "share.heartbeat.interval.ms", "value": "6000"})),
    ],
)
def test_all_changes_of_a_request_are_one_change_of_the_metadata(
    api: str, version: int, fields: Callable[[str], dict[str, Any]], running: BrokerThread, files: GatedFiles
) -> None:
    for name in "abcdefgh":
        running.broker.logs.create_topic(name, 2)
    files.syncs.clear()
    with connect(running) as client:
        assert_no_error(ask(client, api, version, **fields("abcdefgh")))
    assert len([path for _, path in files.syncs if path.name.startswith("bootstrap.checkpoint")]) == 1


@pytest.mark.parametrize("action", ["add_partitions", "delete_topics"])
def test_changes_are_made_one_by_one_if_another_client_was_faster_with_one(
    action: str, running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = running.broker.logs
    for name in "abc":
        logs.create_topic(name, 2)
    change = getattr(logs, action)

    def after_another(names: Any) -> object:
        if "b" in logs.topics():
            WritableLogDirectory.delete_topics(logs, ["b"])
        return change(names)

    monkeypatch.setattr(logs, action, after_another)
    api, version, fields = {
        "add_partitions": ("CreatePartitions", 3, _partitions("abc")),
        "delete_topics": ("DeleteTopics", 5, {"topic_names": list("abc")}),
    }[action]
    with connect(running) as client:
        answer = ask(client, api, version, **fields)
    answers = answer.results if action == "add_partitions" else answer.responses
    # As Kafka's controller, which deletes topics by their ids.
    code = UNKNOWN_TOPIC if action == "add_partitions" else UNKNOWN_TOPIC_ID
    assert {one.name: int(one.error_code) for one in answers} == {"a": 0, "b": code, "c": 0}
    assert {name: len(logs.metadata_image.topics[name].partitions) for name in logs.topics()} == (
        {"a": 3, "c": 3} if action == "add_partitions" else {}
    )


# -- group commit


FLUSHED = {"log.flush.interval.messages": 1}


def latest(client: WireClient) -> int:
    asked = {"name": "flushed", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    answer = ask(client, "ListOffsets", 3, topics=[asked])
    return int(answer.topics[0].partitions[0].offset)


@pytest.fixture
def flushed(running: BrokerThread, files: GatedFiles) -> None:
    for name, config in (("events", {}), ("flushed", {"flush.messages": "1"})):
        running.broker.logs.create_topic(name, 1, config)
    with connect(running) as client:
        for name in ("events", "flushed"):
            assert produced(client.call(0, 9, produce_message(batch(b"first"), topic=name))) == (0, 0)
    files.syncs.clear()


@pytest.mark.parametrize("data", [batch(b"a"), batch(b"a", codec=Codec.GZIP)], ids=["plain", "compressed"])
def test_one_sync_covers_all_appends_that_wait(
    running: BrokerThread, files: GatedFiles, flushed: None, data: bytes
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(6)]
        other = stack.enter_context(connect(running))
        files.gate.clear()
        sent = [clients[0].send(0, 9, produce_message(data))]
        one(files)
        sent += [client.send(0, 9, produce_message(data)) for client in clients[1:]]
        log = running.broker.logs["flushed", 0]
        eventually(lambda: log.log_end_offset == 7)
        # Nobody is told of what is not on the disk, and nobody else waits.
        assert (readable(other)[:2], latest(other)) == ((1, 1), 1)
        assert produced(other.call(0, 9, produce_message(data, topic="events"))) == (0, 1)
        files.gate.set()
        answers = [client.receive(0, 9, number) for client, number in zip(clients, sent, strict=True)]
        assert sorted(map(produced, answers)) == [(0, offset) for offset in range(1, 7)]
        assert (readable(other)[:2], latest(other)) == ((7, 7), 7)
    assert len([path for _, path in files.syncs if path.suffix == ".log"]) == 2
    assert files.on_loop() == []


def test_what_waits_for_a_thread_is_appended_in_the_loop_when_its_turn_comes(
    running: BrokerThread, flushed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Semaphore(0), threading.Event()
    append_batches = WritableLog.append_batches

    def append(log: WritableLog, *arguments: Any, **options: Any) -> Any:
        begun.release()
        assert gate.wait(TIMEOUT)
        return append_batches(log, *arguments, **options)

    monkeypatch.setattr(WritableLog, "append_batches", append)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(4)]
        sent = [clients[0].send(0, 9, produce_message(batch(b"a", codec=Codec.GZIP)))]
        assert begun.acquire(timeout=TIMEOUT)
        sent += [client.send(0, 9, produce_message(batch(b"a"))) for client in clients[1:]]
        running.call(lambda: None)
        gate.set()
        answers = [client.receive(0, 9, number) for client, number in zip(clients, sent, strict=True)]
    assert sorted(map(produced, answers)) == [(0, offset) for offset in range(1, 5)]
    assert not begun.acquire(blocking=False)


def test_a_plain_request_that_waits_for_a_sync_is_not_read_a_second_time(
    running: BrokerThread, files: GatedFiles, flushed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k00_produce, "decode", None)
    with connect(running) as client:
        files.gate.clear()
        sent = client.send(0, 9, produce_message(batch(b"a")))
        one(files)
        files.gate.set()
        assert produced(client.receive(0, 9, sent)) == (0, 1)


def test_what_fails_to_be_synced_is_not_acknowledged_and_not_read(
    running: BrokerThread, files: GatedFiles, flushed: None
) -> None:
    with connect(running) as client, connect(running) as second:
        files.gate.clear()
        sent = client.send(0, 9, produce_message(batch(b"a")))
        one(files)
        later = second.send(0, 9, produce_message(batch(b"b")))
        eventually(lambda: running.broker.logs["flushed", 0].log_end_offset == 3)
        files.is_broken = True
        files.gate.set()
        assert produced(client.receive(0, 9, sent))[0] == KAFKA_STORAGE_ERROR
        assert produced(second.receive(0, 9, later))[0] == KAFKA_STORAGE_ERROR
        assert readable(client)[:2] == (1, 1)
        files.is_broken = False


def test_records_that_wait_for_the_disk_are_not_deleted(
    running: BrokerThread, files: GatedFiles, flushed: None
) -> None:
    def until(offset: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "offset": offset}]
        return message("DeleteRecords", topics=[{"name": "flushed", "partitions": partitions}])

    with connect(running) as client, connect(running) as other, connect(running) as third:
        files.gate.clear()
        sent = client.send(0, 9, produce_message(batch(b"a")))
        one(files)
        to_the_end, beyond = other.send(21, 2, until(-1)), third.send(21, 2, until(2))
        (row,) = third.receive(21, 2, beyond).topics[0].partitions
        assert row.error_code == 1
        files.gate.set()
        assert_no_error(client.receive(0, 9, sent))
        (row,) = other.receive(21, 2, to_the_end).topics[0].partitions
        assert (row.error_code, row.low_watermark) == (0, 1)


def test_a_marker_counts_for_readers_when_it_is_on_the_disk(
    running: BrokerThread, files: GatedFiles, flushed: None
) -> None:
    with connect(running) as client, connect(running) as other:
        find_transactions(client, "t")
        producer = TransactionalProducer(client, "t", 2, "flushed", None)
        producer.patiently(producer.init)
        producer.patiently(lambda: producer.produce(0, b"a"))
        assert readable(other)[:2] == (2, 1)
        files.gate.clear()
        assert producer.end(True) == 0
        one(files)
        assert readable(other)[:2] == (2, 1)
        files.gate.set()
        eventually(lambda: readable(other)[:2] == (3, 3))


@pytest.mark.parametrize("running", [FLUSHED], indirect=True)
def test_offsets_are_told_when_they_are_on_the_disk(running: BrokerThread, files: GatedFiles) -> None:
    running.broker.logs.create_topic("events", 1)
    with connect(running) as client, connect(running) as reader, connect(running) as other:
        find_coordinator(client)
        member = stable_member(client, "g")
        assert commit(client, "g", {0: 1}, member.member_id, member.generation_id) == [0]
        files.syncs.clear()
        files.gate.clear()
        sent = client.send(8, 9, commit_message("g", {0: 5}, member.member_id, member.generation_id))
        one(files)
        asked = {"group_id": "g", "topics": [{"name": "events", "partition_indexes": [0]}], "require_stable": False}
        reading = reader.send(9, 7, asked)
        assert_served(other)
        files.gate.set()
        assert_no_error(client.receive(8, 9, sent))
        assert reader.receive(9, 7, reading).topics[0].partitions[0].committed_offset == 5
        assert leave(client, "g", (member.member_id, None)).error_code == 0
        assert int(client.call(42, 2, {"groups_names": ["g"]}).results[0].error_code) == 0
    assert files.on_loop() == []


@pytest.mark.parametrize("running", [FLUSHED], indirect=True)
def test_offsets_that_failed_to_be_synced_are_told_to_nobody_and_logged_once(
    running: BrokerThread, files: GatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    running.broker.logs.create_topic("events", 1)
    asked = {"group_id": "g", "topics": [{"name": "events", "partition_indexes": [0]}], "require_stable": False}
    with connect(running) as client:
        find_coordinator(client)
        member = stable_member(client, "g")
        files.is_broken = True
        for offset in range(3):
            assert commit(client, "g", {0: offset}, member.member_id, member.generation_id) == [NOT_COORDINATOR]
            assert client.call(9, 7, asked).error_code == NOT_COORDINATOR
        files.is_broken = False
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].startswith("__consumer_offsets cannot be written: ")


@pytest.mark.parametrize("running", [{**FLUSHED, "log.segment.bytes": 1 << 20}], indirect=True)
def test_new_segments_are_made_in_another_thread(running: BrokerThread, files: GatedFiles) -> None:
    running.broker.logs.create_topic("flushed", 1, {"flush.messages": str((1 << 63) - 1)})
    with connect(running) as client:
        for offset in range(5):
            assert produced(client.call(0, 9, produce_message(batch(bytes(400_000))))) == (0, offset)
    assert len(running.broker.logs["flushed", 0].segments) == 3
    assert files.on_loop() == []


@pytest.mark.slow
@pytest.mark.parametrize("running", [{"offsets.topic.segment.bytes": 1 << 20}], indirect=True)
def test_groups_get_new_segments_in_another_thread(running: BrokerThread, files: GatedFiles) -> None:
    running.broker.logs.create_topic("events", 12)
    with connect(running) as client:
        find_coordinator(client)
        member = stable_member(client, "g")
        offsets, metadata = dict.fromkeys(range(12), 1), "x" * 4000
        asked = commit_message("g", offsets, member.member_id, member.generation_id, metadata=metadata)
        for _ in range(25):
            assert_no_error(client.call(8, 9, asked))
    assert max(len(log.segments) for log in running.broker.logs.open_logs) == 2
    assert files.on_loop() == []


def fill(log: WritableLog) -> None:
    """Leave no room for another record in the active segment."""
    left = log.config.segment_bytes - log.segments[-1].size_bytes
    log.append([Record(b"", bytes(left - 100))])
    assert not log.nonblocking.has_room(100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "running", [{"offsets.topic.segment.bytes": 1 << 20, "offsets.topic.num.partitions": 1}], indirect=True
)
def test_what_is_due_in_groups_gets_new_segments_in_another_thread(running: BrokerThread, files: GatedFiles) -> None:
    for name in ("events", "gone"):
        running.broker.logs.create_topic(name, 1)
    with connect(running) as client:
        find_coordinator(client)
        stable_member(client, "g", session_ms=10_000)
        for topic in ("events", "gone"):
            assert commit(client, "other", {0: 1}, topic=topic) == [0]
        log = running.broker.logs["__consumer_offsets", 0]
        fill(log)
        # A session, then a deleted topic, then the retention of the offsets.
        advance(running, 11)
        eventually(lambda: state(client, "g") == "Empty")
        fill(log)
        assert_no_error(ask(client, "DeleteTopics", 5, topic_names=["gone"]))
        fill(log)
        advance(running, 8 * 24 * 60 * 60)
    with connect(running) as client:
        eventually(lambda: [one.group_id for one in client.call(16, 4, {"states_filter": []}).groups] == [])
    assert len(log.segments) >= 4
    assert files.on_loop() == []


@pytest.mark.slow
@pytest.mark.parametrize("running", [FLUSHED], indirect=True)
def test_no_request_waits_for_the_disk_in_the_loop(running: BrokerThread, files: GatedFiles) -> None:
    """Each API once with something in every field, and then a whole life of a group and of a transaction."""
    running.broker.logs.create_topic("name", 8)
    with connect(running) as client:
        for key, (_, versions) in ADVERTISED.items():
            anything = example(request_class(key, versions[-1]))
            with suppress(ProtocolError, ConnectionError), connect(running) as sender:
                sender.call(key, versions[-1], {**anything, "max_wait_ms": 0})
        find_coordinator(client)
        member = stable_member(client, "g")
        assert commit(client, "g", {0: 1}, member.member_id, member.generation_id, topic="name") == [0]
        find_transactions(client, "t")
        producer = TransactionalProducer(client, "t", 2, "name", None)
        producer.patiently(producer.init)
        producer.patiently(lambda: producer.produce(0, b"a"))
        producer.patiently(lambda: producer.end(True))
        producer.until_idle()
        asked = [{"name": "name", "partitions": [{"partition_index": 0, "offset": 1}]}]
        assert_no_error(ask(client, "DeleteRecords", 2, topics=asked))
        assert_no_error(ask(client, "DeleteTopics", 5, topic_names=["name"]))
    assert len(files.syncs) > 10
    assert files.on_loop() == []


# -- the end of the broker during a sync


@pytest.mark.slow
@pytest.mark.parametrize("drained_s", [TIMEOUT, 0.05])
def test_a_broker_that_ends_during_a_sync_answers_or_closes_the_connection(
    running: BrokerThread,
    files: GatedFiles,
    flushed: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    drained_s: float,
) -> None:
    monkeypatch.setattr(server, "_DRAINED_WITHIN_S", drained_s)
    log = running.broker.logs["flushed", 0]
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(3)]
        unasked = stack.enter_context(connect(running))
        files.gate.clear()
        sent = [clients[0].send(0, 9, produce_message(batch(b"1")))]
        one(files)
        # They wait for the next sync. The last one takes another thread to be written.
        sent += [clients[1].send(0, 9, produce_message(batch(b"2"), acks=-1))]
        eventually(lambda: log.log_end_offset == 3)
        unasked.send(0, 9, produce_message(batch(b"3"), acks=0))
        eventually(lambda: log.log_end_offset == 4)
        sent += [clients[2].send(0, 9, produce_message(batch(b"4", codec=Codec.GZIP)))]
        eventually(lambda: log.log_end_offset == 5)
        ending = stack.enter_context(ThreadPoolExecutor(1)).submit(running.stop)
        if drained_s == TIMEOUT:
            eventually(lambda: not running.server._acceptor._sockets)
            files.gate.set()
            answers = [client.receive(0, 9, number) for client, number in zip(clients, sent, strict=True)]
            assert list(map(produced, answers)) == [(0, 1), (0, 2), (0, 4)]
        else:
            for client, number in zip(clients, sent, strict=True):
                with pytest.raises((ProtocolError, ConnectionError)):
                    client.receive(0, 9, number)
            assert not ending.done()
            files.gate.set()
        ending.result(TIMEOUT)
    with open_log_directory(tmp_path / "data") as logs:
        assert not logs.report.actions
        assert [record.value for record in logs["flushed", 0].read()] == [b"first", b"1", b"2", b"3", b"4"]
    assert [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []
