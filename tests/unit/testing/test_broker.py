"""The broker for tests: faults, requests that came in, and its time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import BrokerError, LogError, OdradekError, OptionError, ProtocolError, UnknownTopicOrPartitionError
from odradek.records import Record
from odradek.records.partitioner import partition_for_key
from odradek.storage.file_lock import FileLock
from odradek.testing import Broker, request_tap
from odradek.testing import broker as testing_broker
from odradek.testing.conformance.target import batch
from odradek.testing.request_tap import ReceivedRequest
from odradek.testing.wire import WireClient
from peers import requests
from peers.broker_thread import eventually
from peers.requests import ask, fetch_message, produced, values

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
NOT_LEADER = 6


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("events")
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with connect(broker) as client:
        yield client


def connect(broker: Broker) -> WireClient:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return WireClient(host, int(port), client_id="tester")


def produce_message(**fields: Any) -> dict[str, Any]:
    return requests.produce_message(batch(b"a"), **fields)


def produce(client: WireClient, **fields: Any) -> int:
    return produced(client.call(PRODUCE, 9, produce_message(**fields)))[0]


def end_offset(broker: Broker) -> int:
    return broker.logs["events", 0].log_end_offset


# -- faults


def test_an_error_is_answered_and_the_request_not_done(broker: Broker, client: WireClient) -> None:
    fault = broker.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert [produce(client) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, 0]
    assert (fault.fired, end_offset(broker)) == (2, 1)


def test_a_fault_ends_with_its_block(broker: Broker, client: WireClient) -> None:
    with broker.fault(PRODUCE, error=NOT_LEADER) as fault:
        assert produce(client) == NOT_LEADER
    assert produce(client) == 0
    assert fault.fired == 1


def test_a_condition_chooses_requests(broker: Broker, client: WireClient) -> None:
    def from_others(request: ReceivedRequest) -> bool:
        return request.client_id != "tester" and request.fields["acks"] == 1

    broker.fault("Produce", error=NOT_LEADER, when=from_others)
    assert produce(client) == 0
    client.client_id = "other"
    assert produce(client) == NOT_LEADER
    assert produce(client, acks=-1) == 0


def test_a_condition_that_fails_is_told_to_who_waits(broker: Broker, client: WireClient) -> None:
    fault = broker.fault("Produce", error=NOT_LEADER, when=lambda request: request.fields["no such field"])
    assert produce(client) == 0
    with pytest.raises(KeyError):
        fault.wait()
    assert fault.fired == 0


def test_a_closed_connection_and_what_is_done_before_it(broker: Broker) -> None:
    for disconnect, done in ((True, 0), ("answer", 1)):
        with connect(broker) as client, broker.fault("Produce", disconnect=disconnect):  # type: ignore[arg-type]
            with pytest.raises(ProtocolError, match="closed"):
                produce(client)
        assert end_offset(broker) == done


@pytest.mark.slow
def test_no_answer_and_none_to_later_requests_of_the_connection(broker: Broker) -> None:
    for drop, done in ((True, 0), ("answer", 1)):
        fault = broker.fault("Produce", drop=drop, times=1)  # type: ignore[arg-type]
        with connect(broker) as client:
            client.send(PRODUCE, 9, produce_message())
            fault.wait()
            client.send(API_VERSIONS, 0, {})
            client.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.receive_frame()
        assert end_offset(broker) == done


def test_a_delay_goes_by_the_brokers_time_and_keeps_the_order(broker: Broker, client: WireClient) -> None:
    fault = broker.fault("Produce", delay_ms=60_000, times=1)
    first = client.send(PRODUCE, 9, produce_message())
    second = client.send(PRODUCE, 9, produce_message())
    fault.wait()
    assert end_offset(broker) == 0
    broker.clock.advance(60)
    assert [produced(client.receive(PRODUCE, 9, sent)) for sent in (first, second)] == [(0, 0), (0, 1)]


def test_who_wants_no_answer_is_told_of_an_error_by_a_closed_connection(broker: Broker, client: WireClient) -> None:
    broker.fault("Produce", error=NOT_LEADER)
    client.send(PRODUCE, 9, produce_message(acks=0))
    with pytest.raises(ProtocolError, match="closed"):
        client.receive_frame()


def test_an_error_of_metadata_leaves_the_brokers(broker: Broker, client: WireClient) -> None:
    broker.fault("Metadata", error="LEADER_NOT_AVAILABLE", times=1)
    answer = client.call(METADATA, 7, {"topics": [{"name": "events"}], "allow_auto_topic_creation": False})
    assert [(topic.name, int(topic.error_code), topic.partitions) for topic in answer.topics] == [("events", 5, ())]
    assert len(answer.brokers) == 1


def test_an_error_reaches_a_fetch_in_a_session(broker: Broker, client: WireClient) -> None:
    session = client.call(FETCH, 12, fetch_message(session_id=0, session_epoch=0)).session_id
    assert session > 0
    fault = broker.fault("Fetch", error="NOT_LEADER_OR_FOLLOWER")
    ended = client.call(FETCH, 12, fetch_message(topics=[], session_id=session, session_epoch=1))
    assert (int(ended.error_code), fault.fired) == (70, 0)
    full = client.call(FETCH, 12, fetch_message(session_id=0, session_epoch=0))
    assert int(full.responses[0].partitions[0].error_code) == NOT_LEADER


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"api": "Produces", "error": 6}, "no API"),
        ({"api": 9999, "error": 6}, "no API"),
        ({}, None),
        ({"error": "NO_SUCH_ERROR"}, "no error"),
        ({"error": 6, "times": 0}, "times"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": float("nan")}, "delay_ms"),
        ({"times": 1.5, "drop": True}, "times"),
        ({"drop": "maybe"}, "drop"),
        ({"disconnect": "drop"}, "disconnect"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(broker: Broker, options: dict[str, Any], told: str | None) -> None:
    with pytest.raises(OptionError, match=told):
        broker.fault(**{"api": "Produce", **options})


def test_what_nobody_asks_for_does_not_fire(broker: Broker) -> None:
    fault = broker.fault("Produce", error=NOT_LEADER)
    with pytest.raises(TimeoutError, match="fired 0 times"):
        fault.wait(timeout_s=0.01)


# -- requests


def test_the_requests_that_came_in(broker: Broker, client: WireClient) -> None:
    message = produce_message()
    client.call(PRODUCE, 9, message)
    client.call(API_VERSIONS, 0, {})
    (request,) = broker.requests("Produce")
    assert (request.api, request.version, request.client_id, request.peer) == ("Produce", 9, "tester", "127.0.0.1")
    assert abs(request.time_ms - broker.clock.now_ms()) < 60_000
    # As it came in: the broker has given the records in its memory offsets and an epoch.
    (sent,), (asked,) = request.fields["topic_data"], message["topic_data"]
    assert sent["partition_data"] == asked["partition_data"]
    assert [one.api for one in broker.requests()] == ["Produce", "ApiVersions"]
    broker.reset()
    assert broker.requests() == []


def test_only_so_many_requests_are_kept(broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tap, "MAX_KEPT_REQUESTS", 5)
    for _ in range(8):
        client.call(API_VERSIONS, 0, {})
    assert len(broker.requests()) == 5
    monkeypatch.setattr(request_tap, "MAX_KEPT_BYTES", 2 * len(broker.requests()[0].frame))
    client.call(API_VERSIONS, 0, {})
    assert len(broker.requests()) == 2


# -- time


def test_a_week_deletes_what_is_older(broker: Broker, client: WireClient) -> None:
    now = broker.clock.now_ms()
    produce(client)
    broker.clock.advance(6 * 86_400)
    assert broker.logs["events", 0].log_start_offset == 0
    broker.clock.advance(2 * 86_400)
    assert broker.logs["events", 0].log_start_offset == 1
    assert broker.clock.now_ms() - now >= 8 * 86_400_000


# -- the folder


def test_a_folder_of_its_own_is_removed(tmp_path: Path) -> None:
    with Broker() as broker:
        path = broker.path
        assert path.is_dir()
    assert not path.exists()
    with Broker(tmp_path / "data") as broker:
        assert broker.path == tmp_path / "data"
    assert (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_that_stops_it_leaves_it_to_its_parent(broker: Broker, client: WireClient) -> None:
    child = os.fork()
    if child == 0:
        try:
            broker.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert broker.path.exists()
    assert produce(client) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_told_that_the_broker_is_not_its_own(broker: Broker, client: WireClient) -> None:
    # A thread of the parent may hold any lock at that moment.
    with broker._control._tap._lock, broker._running._shared._lock:
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            # As the pytest plugin does after a test.
            broker.reset()
            for action in (
                broker.requests,
                partial(broker.create_topic, "other"),
                partial(broker.fault, "Fetch", drop=True),
                partial(broker.clock.advance, 1),
            ):
                with pytest.raises(LogError, match="parent"):
                    action()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert produce(client) == 0


def test_a_folder_of_its_own_is_removed_even_if_the_broker_cannot_be_closed() -> None:
    broker = Broker()
    broker.path.rename(broker.path.with_name("elsewhere"))
    with pytest.raises(OdradekError):
        broker.stop()
    assert not broker.path.parent.exists()


def test_a_topic_comes_and_goes(broker: Broker, client: WireClient) -> None:
    broker.create_topic("other", 3, {"cleanup.policy": "compact"})
    asked = {"topics": [{"name": "other"}], "allow_auto_topic_creation": False}
    assert len(client.call(METADATA, 7, asked).topics[0].partitions) == 3
    broker.delete_topic("other")
    assert int(client.call(METADATA, 7, asked).topics[0].error_code) == 3


def test_records_go_where_their_keys_belong(broker: Broker) -> None:
    broker.create_topic("other", 3)
    broker.produce("other", b"a", None, Record(b"key", b"b", [("h", b"1")], 7), key=b"k")
    broker.produce("other", b"c", Record(b"k", b"d"), partition=2)
    of_k, of_key = (partition_for_key(key, 3) for key in (b"k", b"key"))
    assert [one.value for one in broker.logs["other", of_k].read() if one.key == b"k"][:2] == [b"a", None]
    assert [one.headers for one in broker.logs["other", of_key].read() if one.timestamp == 7] == [(("h", b"1"),)]
    assert [one.value for one in broker.logs["other", 2].read()][-2:] == [b"c", b"d"]
    assert len(broker.records("other")) == 5
    broker.produce("other", b"without a key")
    assert broker.records("other")[broker.logs["other", 0].log_end_offset - 1].value == b"without a key"
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.produce("missing", b"a")
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.produce("other", b"a", partition=3)


def test_records_wake_a_consumer_that_waits(broker: Broker, client: WireClient) -> None:
    waiting = client.send(FETCH, 11, fetch_message(max_wait_ms=20_000, min_bytes=1))
    broker.clock.advance(0)
    started = time.monotonic()
    broker.produce("events", b"a")
    answer = client.receive(FETCH, 11, waiting)
    assert values(answer.responses[0].partitions[0].records) == [b"a"]
    assert time.monotonic() - started < 10


def committed(client: WireClient, group: str) -> int:
    topics = [{"name": "events", "partition_indexes": [0]}]
    answer = ask(client, "OffsetFetch", 7, group_id=group, topics=topics)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_a_group_comes_with_offsets_and_goes(broker: Broker, client: WireClient) -> None:
    broker.commit_offsets("g", {("events", 0): 7})
    assert committed(client, "g") == 7
    broker.commit_offsets("g", {("events", 0): 0})
    assert committed(client, "g") == 0
    broker.delete_group("g")
    assert committed(client, "g") == -1
    with pytest.raises(BrokerError) as caught:
        broker.delete_group("g")
    assert caught.value.error_name == "GROUP_ID_NOT_FOUND"
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.commit_offsets("g", {("events", 1): 7})
    assert committed(client, "g") == -1


def test_a_group_with_members_stays(broker: Broker, client: WireClient) -> None:
    broker.commit_offsets("g", {("events", 0): 7})
    protocols = [{"name": "range", "metadata": b""}]
    assert ask(client, "JoinGroup", 0, group_id="g", member_id="", protocols=protocols).error_code == 0
    with pytest.raises(BrokerError) as caught:
        broker.commit_offsets("g", {("events", 0): 8})
    assert caught.value.error_name == "UNKNOWN_MEMBER_ID"
    with pytest.raises(BrokerError) as caught:
        broker.delete_group("g")
    assert caught.value.error_name == "NON_EMPTY_GROUP"
    assert committed(client, "g") == 7


def test_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("events")
        broker.commit_offsets("g", {("events", 0): 7})
    with Broker(tmp_path) as broker:
        # Also before the groups are loaded.
        broker.commit_offsets("h", {("events", 0): 8})
        with connect(broker) as client:
            assert (committed(client, "g"), committed(client, "h")) == (7, 8)


# -- what users do wrong, and what is left


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e12])
def test_time_moves_forward_by_what_can_pass(broker: Broker, client: WireClient, seconds: float) -> None:
    with pytest.raises(OptionError, match="time moves forward"):
        broker.clock.advance(seconds)
    assert produce(client) == 0
    with connect(broker) as other:
        assert other.call(API_VERSIONS, 0, {}).error_code == 0


def test_clients_are_told_of_the_first_listener_whatever_its_name() -> None:
    listeners = {"listeners": "INNER://[::1]:0", "listener.security.protocol.map": "INNER:PLAINTEXT"}
    with Broker(config=listeners) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        assert host == "[::1]"
        with WireClient("::1", int(port)) as client:
            assert client.call(API_VERSIONS, 0, {}).error_code == 0


def forget(names: dict[str, Broker]) -> None:
    names.clear()
    gc.collect()


@pytest.mark.slow
def test_a_broker_that_nobody_stopped_leaves_no_folder() -> None:
    broker = Broker()
    folder = broker.path.parent
    assert folder.is_dir()
    # The request tap and its server refer to each other.
    names = {"broker": broker}
    del broker
    with pytest.warns(ResourceWarning, match="never stopped"):
        forget(names)
    eventually(lambda: not folder.exists())


@pytest.mark.slow
def test_a_broker_that_is_still_stopping_as_the_program_ends_leaves_no_folder() -> None:
    program = (
        "import gc; from odradek import Record; from odradek.testing import Broker",
        "broker = Broker()",
        "broker.create_topic('events', 100)",
        "[broker.logs['events', one].append([Record(value=b'a')]) for one in range(100)]",
        "print(broker.path.parent)",
        # As by Ctrl-C between its start and the `with` that would stop it.
        "del broker; gc.collect()",
    )
    command = [sys.executable, "-W", "ignore", "-c", "; ".join(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()


def test_what_killed_programs_have_left_is_removed(tmp_path: Path) -> None:
    def left(name: str, started_s: float) -> Path:
        lock_file = tmp_path / name / "data" / ".lock"
        lock_file.parent.mkdir(parents=True)
        lock_file.touch()
        os.utime(lock_file, (started_s, started_s))
        return lock_file

    killed, running, _ = left("odradek-broker-1", 0), left("odradek-broker-2", 0), left("odradek-other", 0)
    left("odradek-broker-3", time.time())
    (tmp_path / "odradek-broker-4").mkdir()
    lock = FileLock(running)
    assert lock.acquire()
    testing_broker._remove_left_ones(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"odradek-{one}" for one in ("broker-2", "broker-3", "broker-4", "other")
    }
    assert not killed.exists()
    assert lock.is_held
    lock.release()


@pytest.mark.slow
def test_a_program_that_ends_without_stopping_its_broker_leaves_no_folder() -> None:
    program = "from odradek.testing import Broker", "broker = Broker()", "print(broker.path.parent)"
    done = subprocess.run([sys.executable, "-c", "; ".join(program)], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).exists()
    assert done.stderr == ""
