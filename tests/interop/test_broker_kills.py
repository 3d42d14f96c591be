"""Our broker, killed or stopped for a while under load again and again, with the producers that confluent-kafka has.

Producers write all the time: idempotent ones, and transactional ones that move the position of a group with each
transaction and abort some of them. They go on through each kill and restart, or pause. In the end no record that was
acknowledged is missing, none is there twice, `read_committed` is given the committed transactions and nothing of the
others, and the positions are those of the last committed transactions.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.inspection import verify
from peers.librdkafka import read_to_end
from peers.odradek_broker import OdradekBroker
from peers.process import PATIENCE

PLAIN, MOVED, SOURCE = "plain", "moved", "source"
PARTITIONS = 2
MOVERS = 2
PATIENCE_S = 120 * PATIENCE
CALL_S = 5
MOST_WAITING = 200
ABORTED_EACH = 4
TIMEOUT = "transaction.timeout.ms"
SETTINGS: dict[str, str | int | float] = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # Else send_offsets_to_transaction waits for ever for a broker that librdkafka has forgotten (its issue 5511).
    "metadata.recovery.strategy": "none",
}


class Worker(threading.Thread):
    """Writes until it is told to stop; an error of its own fails the test."""

    def __init__(self, broker: OdradekBroker, number: int) -> None:
        super().__init__(name=f"{type(self).__name__}-{number}", daemon=True)
        self.settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, **SETTINGS}
        self.number = number
        self.is_told_to_stop = threading.Event()
        self.error: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.is_told_to_stop.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} hangs"
        if self.error is not None:
            raise self.error


class PlainWorker(Worker):
    """An idempotent producer; knows where each of its records was acknowledged."""

    def __init__(self, broker: OdradekBroker, number: int) -> None:
        super().__init__(broker, number)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []

    def work(self) -> None:
        producer = Producer({**self.settings, "enable.idempotence": True, "linger.ms": 1})
        count = 0
        while not self.is_told_to_stop.is_set():
            while len(producer) < MOST_WAITING:
                value = f"{self.number}-{count}".encode()
                producer.produce(PLAIN, value, partition=count % PARTITIONS, on_delivery=self._delivered)
                count += 1
            producer.poll(0.01)
        assert producer.flush(PATIENCE_S) == 0
        assert not self.failed, self.failed[:3]

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acknowledged[message.partition(), message.offset()] = message.value()
        self.done += 1


class Mover(Worker):
    """A transactional producer: each transaction has records in all partitions, and moves a group's position by one.

    Attributes:
        outcomes: By the transaction's number whether it was committed; None if the broker's answer never came.
        acknowledged: The records that the broker took, and where. Around an abort librdkafka may drop one and commit.
    """

    def __init__(self, broker: OdradekBroker, number: int) -> None:
        super().__init__(broker, number)
        self.outcomes: dict[int, bool | None] = {}
        self.acknowledged: dict[bytes | None, tuple[int | None, int | None]] = {}
        self.group = f"movers-{number}"

    def work(self) -> None:
        consumer = Consumer({**self.settings, "group.id": self.group})
        group = consumer.consumer_group_metadata()
        producer = self._new_producer()
        try:
            while not self.is_told_to_stop.is_set():
                number = len(self.outcomes) + 1
                self.outcomes[number] = None
                try:
                    self._transact(producer, number, group)
                except KafkaException as raised:
                    if raised.args[0].txn_requires_abort() and _aborts(producer):
                        self.outcomes[number] = False
                    else:
                        # Fenced, say by the time-out of the transaction: initializing aborts what is still open.
                        producer = self._new_producer()
                self.done += 1
        finally:
            consumer.close()

    def _transact(self, producer: Producer, number: int, group: Any) -> None:
        producer.begin_transaction()
        for record in range(2 * PARTITIONS):
            value = f"{self.number}-{number}-{record}".encode()
            producer.produce(MOVED, value, partition=record % PARTITIONS, on_delivery=self._told)
        place = TopicPartition(SOURCE, self.number, number)
        _again(producer.send_offsets_to_transaction, [place], group, CALL_S)
        if number % ABORTED_EACH:
            _again(producer.commit_transaction, CALL_S)
            self.outcomes[number] = True
        else:
            self.outcomes[number] = False
            _again(producer.abort_transaction, CALL_S)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] = message.partition(), message.offset()

    def _new_producer(self) -> Producer:
        producer = Producer({**self.settings, "transactional.id": f"mover-{self.number}"})
        _again(producer.init_transactions, CALL_S)
        return producer


def _again(call: Callable[..., object], *arguments: Any) -> None:
    """Call until it is done, or fails by an error that does not go away by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(*arguments)
        except KafkaException as raised:
            if not raised.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _aborts(producer: Producer) -> bool:
    """Abort the transaction; return whether it was, and the producer can go on."""
    try:
        _again(producer.abort_transaction, CALL_S)
    except KafkaException as raised:
        # It timed out meanwhile, or was committed by a request that the producer had given up; only pauses do that.
        if TIMEOUT not in SETTINGS or not raised.args[0].fatal():
            raise
        return False
    return True


def _read_all(broker: OdradekBroker, topic: str, isolation: str) -> dict[Any, Any]:
    partitions = [(topic, number) for number in range(PARTITIONS)]
    found = read_to_end(broker.bootstrap_servers, partitions, isolation)
    return {(message.partition(), message.offset()): message.value() for message in found}


def _check_plain(broker: OdradekBroker, workers: list[PlainWorker]) -> None:
    found = _read_all(broker, PLAIN, "read_uncommitted")
    acknowledged = {place: value for worker in workers for place, value in worker.acknowledged.items()}
    # Each producer was flushed, so all that it wrote was acknowledged.
    assert found == acknowledged
    assert [value for value, times in Counter(found.values()).items() if times > 1] == []


def _check_moved(broker: OdradekBroker, movers: list[Mover]) -> None:
    values = Counter(_read_all(broker, MOVED, "read_committed").values())
    everything = _read_all(broker, MOVED, "read_uncommitted")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **SETTINGS})
    for mover in movers:
        place = TopicPartition(SOURCE, mover.number)
        wanted = ConsumerGroupTopicPartitions(mover.group, [place])
        listed = admin.list_consumer_group_offsets([wanted], require_stable=True)[mover.group].result(PATIENCE_S)
        position = listed.topic_partitions[0].offset
        acknowledged = {
            value for value, at in mover.acknowledged.items() if not _is_reused(mover, value, everything.get(at))
        }
        for number, outcome in mover.outcomes.items():
            records = [f"{mover.number}-{number}-{one}".encode() for one in range(2 * PARTITIONS)]
            found = {record: values.pop(record, 0) for record in records}
            assert max(found.values()) <= 1
            times = {found[record] for record in records if record in acknowledged} or {max(found.values())}
            what = f"{number} of {mover.name}, whose outcome is {outcome}"
            assert times == ({0} if outcome is False else {1} if outcome else {min(times)}), what
            if outcome is None and times == {1}:
                mover.outcomes[number] = True
        assert position == max(number for number, outcome in mover.outcomes.items() if outcome), mover.name
    assert not values


def _is_reused(mover: Mover, value: bytes | None, found: bytes | None) -> bool:
    """Return whether librdkafka had used the record's sequence number before.

    It gives those of an aborted transaction, of which it was told nothing, to the next one without a new epoch. Every
    broker takes these for duplicates then; a check of conformance shows that Apache Kafka does.
    """
    if value == found:
        return False
    assert value is not None
    assert found is not None, f"{value!r} was acknowledged, and there is nothing"
    (_, number, _), (before, aborted, _) = value.split(b"-"), found.split(b"-")
    assert int(before) == mover.number, f"{value!r} was acknowledged where {found!r} is"
    assert int(aborted) < int(number), f"{value!r} was acknowledged where {found!r} is"
    assert mover.outcomes[int(aborted)] is False, f"{value!r} was acknowledged where {found!r} is"
    return True


@pytest.mark.laboratory
# Most syncs of the last case are for many of its producers.
@pytest.mark.parametrize(("kills", "producers"), [(5, 2), (200, 2), (20, 50)])
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills(
    tmp_path: Path, kills: int, producers: int, seed: int
) -> None:
    def kill(broker: OdradekBroker, _: random.Random) -> None:
        broker.kill()
        broker.start()

    _check_under_load(tmp_path, seed, kills, kill, producers=producers)


@pytest.mark.laboratory
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_or_doubled_by_pauses(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests time out on the way, and transactions: they are sent again, and aborted.
    monkeypatch.setitem(SETTINGS, "socket.timeout.ms", 1000)
    monkeypatch.setitem(SETTINGS, TIMEOUT, 3000)
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}

    def pause(broker: OdradekBroker, rng: random.Random) -> None:
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            time.sleep(rng.choice([0.2, 1.2, 4.0, 8.0]))
        finally:
            os.kill(broker.pid, signal.SIGCONT)

    _check_under_load(tmp_path, seed, 40, pause, config)


def _check_under_load(
    tmp_path: Path,
    seed: int,
    times: int,
    disturb: Callable[[OdradekBroker, random.Random], None],
    config: dict[str, str] | None = None,
    *,
    producers: int = 2,
) -> None:
    rng = random.Random(seed)
    with OdradekBroker(tmp_path / "data", config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **SETTINGS})
        topics = [
            NewTopic(name, max(PARTITIONS, MOVERS), config={"flush.messages": "1"}) for name in (PLAIN, MOVED, SOURCE)
        ]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        plain = [PlainWorker(broker, number) for number in range(producers)]
        movers = [Mover(broker, number) for number in range(MOVERS)]
        workers: list[Worker] = [*plain, *movers]
        for worker in workers:
            worker.start()
        for _ in range(times):
            if rng.random() < 0.8:
                _wait_for_progress(workers)
            time.sleep(rng.random() * 0.5)
            disturb(broker, rng)
        _wait_for_progress(workers)
        for worker in workers:
            worker.finish()
        assert all(any(mover.outcomes.values()) for mover in movers)
        _check_plain(broker, plain)
        _check_moved(broker, movers)
    assert list(verify(broker.log_dir)) == []


def _wait_for_progress(workers: list[Worker]) -> None:
    """Wait until each worker has done something since now."""
    before = [worker.done for worker in workers]
    deadline = time.monotonic() + PATIENCE_S
    while any(worker.done == done for worker, done in zip(workers, before, strict=True)):
        for worker in workers:
            assert worker.error is None, worker.error
        stuck = [worker.name for worker, done in zip(workers, before, strict=True) if worker.done == done]
        assert time.monotonic() < deadline, stuck
        time.sleep(0.01)
