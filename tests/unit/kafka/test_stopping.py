"""What waits for a broker can be stopped by another thread."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import ClosingSocket
from odradek.kafka.partition_fetch import PartitionFetch
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.stopping import StoppedError, at_most, check_not_stopped, stopped_by
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

FOR_EVER_MS = "999999999"


@contextlib.contextmanager
def client(servers: str) -> Iterator[BrokerClient]:
    options = {"bootstrap.servers": servers, "default.api.timeout.ms": FOR_EVER_MS, "request.timeout.ms": FOR_EVER_MS}
    made = BrokerClient(BrokerSettings.parse(options))
    try:
        yield made
    finally:
        made.close()


def check_stops(action: Callable[[], object], waits: Callable[[], object]) -> None:
    """Run an action in a thread, let it wait, and stop it."""
    stop = threading.Event()
    ended: list[type[BaseException]] = []

    def run() -> None:
        try:
            with stopped_by(stop):
                action()
        except BaseException as error:
            ended.append(type(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    waits()
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert ended == [StoppedError]


@pytest.mark.slow
def test_a_wait_for_a_broker_that_is_away_is_stopped() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tried = threading.Event()
        with client(f"127.0.0.1:{taken.getsockname()[1]}") as to:

            def ask() -> object:
                tried.set()
                return to.topics()

            check_stops(lambda: to.attempt("listing topics", ask), lambda: tried.wait(60))


@pytest.mark.slow
def test_a_wait_for_a_broker_that_hangs_is_stopped() -> None:
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        with client(f"127.0.0.1:{hanging.getsockname()[1]}") as to:
            check_stops(lambda: to.attempt("listing topics", to.topics), lambda: hanging.accept()[0].close())


@pytest.mark.sampled
@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_a_wait_for_an_answer_is_stopped(api: str) -> None:
    with Broker() as broker, client(broker.bootstrap_servers) as to, broker.fault(api, drop=True) as fault:
        broker.create_topic("events")
        name = TopicPartition("events", 0)

        def ask() -> object:
            if api == "Fetch":
                return list(PartitionFetch(to, name, 0, 1, "read_uncommitted", lost=print).chunks())
            return to.attempt("offsets", lambda: to.list_offsets({name: -1}, 0))

        check_stops(ask, fault.wait)


def test_a_limit_goes_before_a_stop() -> None:
    stop = threading.Event()
    stop.set()
    with stopped_by(stop):
        with at_most(3600):
            check_not_stopped()
        with at_most(-1), pytest.raises(StoppedError):
            check_not_stopped()
        with pytest.raises(StoppedError):
            check_not_stopped()
    check_not_stopped()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_within_a_task_of_the_event_loop_is_not_lost_with_the_task(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    connect = ClosingSocket.sock_connect
    came = iter([number])

    async def interrupted(self: ClosingSocket, *arguments: Any, **more: Any) -> Any:
        for one in came:
            signal.raise_signal(one)
        return await connect(self, *arguments, **more)

    monkeypatch.setattr(ClosingSocket, "sock_connect", interrupted)
    before = signal.signal(number, interrupt)
    try:
        with Broker() as broker, client(broker.bootstrap_servers) as asked:
            with pytest.raises(KeyboardInterrupt):
                asked.nodes()
            assert signal.getsignal(number) is interrupt
            assert asked.nodes() == [1]
    finally:
        signal.signal(number, before)
