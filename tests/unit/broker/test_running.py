"""A broker in a thread: errors at the start, stopping, and what callers notice of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from odradek.broker.server import Server
from odradek.broker.service import serve
from odradek.errors import InvalidConfigError, LogDirectoryLockedError, LogError, OdradekError, ProtocolError
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from peers.broker_thread import connect, eventually, start
from peers.requests import ask, batch, new_topic, produce_message, produced

KAFKA_STORAGE_ERROR = 56
CONFIG: dict[str, str | int | float | bool] = {"listeners": "PLAINTEXT://127.0.0.1:0"}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("odradek")]


@pytest.mark.slow
def test_a_directory_in_use_is_told_of(tmp_path: Path) -> None:
    with open_log_directory(tmp_path / "data"), pytest.raises(LogDirectoryLockedError):
        start(tmp_path / "data")
    assert threads() == []
    start(tmp_path / "data").stop()


def test_stops_from_any_thread_and_more_than_once(tmp_path: Path) -> None:
    running = start(tmp_path / "data")
    stopping = [threading.Thread(target=running.stop) for _ in range(3)]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
    running.stop()
    assert threads() == []
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()
    with pytest.raises(LogError, match="has stopped"):
        running.call(lambda: 1)


def test_stops_from_its_own_thread(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running:
        running.call(running.stop)
    assert threads() == []


def test_a_call_from_its_own_thread_is_made_at_once(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running:
        assert running.call(lambda: running.call(lambda: 7)) == 7


def test_who_calls_while_it_ends_does_not_wait_for_ever(tmp_path: Path) -> None:
    running = start(tmp_path / "data")
    ended = []

    def call() -> None:
        try:
            while True:
                running.call(lambda: None)
        except LogError as error:
            ended.append(str(error))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    running.stop()
    for caller in callers:
        caller.join(30)
    assert ended == ["the broker has stopped"] * 4


def test_an_error_of_a_call_is_the_callers(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running, pytest.raises(ZeroDivisionError):
        running.call(lambda: 1 // 0)


def test_a_broker_that_is_never_stopped_is_warned_of(tmp_path: Path) -> None:
    kept = [start(tmp_path / "data")]
    thread = kept[0]._thread
    with pytest.warns(ResourceWarning, match="never stopped"):
        kept.clear()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_no_broker(tmp_path: Path) -> None:
    with start(tmp_path / "data") as running:
        child = os.fork()
        if not child:
            code = 1
            try:
                running.call(lambda: None)
            except LogError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert running.call(lambda: 1) == 1


def test_what_was_begun_is_answered_when_it_stops(tmp_path: Path) -> None:
    running = start(tmp_path / "data")
    running.broker.logs.create_topic("events")
    partition = running.call(lambda: running.broker.partitions.get("events", 0))
    running.call(lambda: setattr(partition, "takes_at_once", lambda data: False))
    with connect(running) as client, connect(running) as waiting:
        began = threading.Event()
        for _ in range(4):
            running.call(lambda: running.broker.executor.submit(began.wait))
        correlation_id = client.send(0, 9, produce_message(batch(b"late")))
        waiting.send(18, 0, {})
        waiting.receive_frame()
        eventually(lambda: running.call(lambda: any(one.is_busy for one in running.server.connections)))
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        with pytest.raises(ProtocolError):
            waiting.receive_frame()
        began.set()
        assert produced(client.receive(0, 9, correlation_id)) == (0, 0)
        stopping.join()
    with open_log_directory(tmp_path / "data") as logs:
        assert [record.value for record in logs["events", 0].read()] == [b"late"]


def test_the_node_is_the_one_of_the_settings(tmp_path: Path) -> None:
    with start(tmp_path / "data", **{"node.id": 7}) as running:
        assert running.broker.node_id == 7
    with pytest.raises(InvalidConfigError, match="belongs to node 7"):
        start(tmp_path / "data", **{"node.id": 8})
    start(tmp_path / "data").stop()


def test_several_folders_are_served_together(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    with BrokerThread(folders, CONFIG, sync="off", background=False) as running:
        running.broker.logs.create_topic("events", 4)
    assert all(list(folder.glob("events-*")) for folder in folders)


def test_a_timer_that_fails_does_not_stop_the_others(running: BrokerThread) -> None:
    clock, done = running.broker.clock, threading.Event()

    def fail() -> None:
        raise ValueError("on purpose")

    def begin() -> None:
        clock.after(0, fail)
        clock.after(0, done.set)

    running.call(begin)
    assert done.wait(60)


def test_cancelled_timers_are_not_kept_until_their_time(running: BrokerThread) -> None:
    clock = running.broker.clock
    fired: list[int] = []

    def come_and_go() -> None:
        timers = [clock.after(3_600_000 - number, partial(fired.append, number)) for number in range(3)]
        for _ in range(10_000):
            clock.after(300_000, partial(fired.append, -1)).cancel()
        timers[1].cancel()

    running.call(come_and_go)
    assert running.call(lambda: len(clock._timers)) < 2000
    running.call(lambda: clock.advance(3601))
    assert fired == [2, 0]


def test_a_folder_that_has_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = BrokerThread(tmp_path / "data", CONFIG, background=False)
    shutil.rmtree(tmp_path / "data")
    with connect(running) as client:
        made = ask(client, "CreateTopics", 7, topics=[new_topic("events")]).topics
        assert [int(one.error_code) for one in made] == [KAFKA_STORAGE_ERROR]
    for _ in range(3):
        with connect(running) as client, pytest.raises(ProtocolError, match="closed"):
            ask(client, "ApiVersions", 3)
    with pytest.raises(OdradekError, match="No such file or directory"):
        running.stop()
    errors = [record for record in caplog.records if record.name != "odradek.broker.running"]
    assert [record.getMessage() for record in errors if record.exc_info] == []
    assert sum(record.levelname == "ERROR" for record in errors) == 1


def test_each_setting_that_has_no_effect_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unused = [
        "my.own.setting",
        "num.network.threads",
        "listener.name.plaintext.max.connections.per.ip",
        "listener.name.plaintext.my.own",
        "listener.name.other.max.connections",
    ]
    used = {"listener.name.plaintext.max.connections": 5, "max.connections": 6}
    caplog.set_level("INFO")
    with start(tmp_path / "data", **used, **dict.fromkeys(unused, 7)):
        words = [word.strip(",:;'") for record in caplog.records for word in record.getMessage().split()]
    assert {name: words.count(name) for name in [*unused, *used]} == dict.fromkeys(unused, 1) | dict.fromkeys(used, 0)


def test_what_runs_beside_a_service_ends_if_the_metrics_cannot_listen(tmp_path: Path) -> None:
    ended: list[bool] = []

    @contextmanager
    def beside(_: Server) -> Iterator[None]:
        try:
            yield
        finally:
            ended.append(True)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        served = serve([str(tmp_path / "data")], config, metrics=taken.getsockname(), companion=beside)
        with pytest.raises(LogError, match="cannot be opened"):
            asyncio.run(served)
    assert ended == [True]


def test_restrictions_that_apache_kafka_kept_in_the_metadata_stop_the_start_unless_they_are_given(
    tmp_path: Path,
) -> None:
    name = "listener.name.plaintext.ssl.client.auth"
    with open_log_directory(tmp_path / "data", sync="off") as logs:
        logs.metadata.alter_broker_config({name: "required", "log.retention.ms": "1000"})
        # Listeners that this broker does not have, one of them misspelt: Apache Kafka takes any name.
        for other in ("controller", "PLAINTEXT"):
            logs.metadata.alter_broker_config({f"listener.name.{other}.ssl.client.auth": "required"})
            logs.metadata.alter_broker_config({f"listener.name.{other}.ssl.key.password": "${file:/a:b}"})
    with pytest.raises(InvalidConfigError, match=f": {name}: is in the metadata and restricts clients"):
        start(tmp_path / "data")
    start(tmp_path / "data", **{name: "none"}).stop()
