"""Apache Kafka as the writer: killed under load and started again, so that it recovers, under readers of its folder."""

from __future__ import annotations

import functools
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import wait_for
from restarts.processes import Readers, tear
from restarts.test_restarts import check
from restarts.told import numbered

SETTINGS = {
    "internal.segment.bytes": "2000000",
    "index.interval.bytes": "1",
    "segment.index.bytes": "500000",
    "message.timestamp.after.max.ms": str(1 << 50),
}
TOPICS = {"events": (2, SETTINGS), "preallocated": (1, SETTINGS | {"preallocate": "true"})}
LIFE_S = 3.0


class Load:
    """A producer that sends as fast as it can until it is stopped, and notes what it is told."""

    def __init__(self, broker: KafkaBroker, told: Path, numbers: Iterator[int]) -> None:
        self._descriptor = os.open(told, os.O_WRONLY | os.O_APPEND)
        self._numbers = numbers
        self._stopping = threading.Event()
        self._places = [(topic, partition) for topic, (count, _) in TOPICS.items() for partition in range(count)]
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "acks": "all",
                "retries": 0,
                "linger.ms": 0,
                "batch.num.messages": 2,
                "message.timeout.ms": 3000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in self._numbers:
            if self._stopping.is_set():
                return
            topic, partition = self._places[number % len(self._places)]
            record = numbered(number)
            try:
                self._producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp=record.timestamp or 0,
                    on_delivery=functools.partial(self._tell, number),
                )
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _tell(self, number: int, error: object, message: Any) -> None:
        if error is None:
            line = f"append {message.topic()} {message.partition()} {message.offset()} {number} -1\n"
            os.write(self._descriptor, line.encode())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(5)
        self._producer.purge()
        self._producer.flush(1)
        os.close(self._descriptor)


def restart(
    path: Path, kafka_broker: BrokerFactory, kafka_tools: KafkaTools, restarts: int, readers: int, seed: int
) -> None:
    """Kill Apache Kafka so often under load and so many readers."""
    told = path / "told"
    told.touch()
    broker = kafka_broker(path / "log-dir")
    for topic, (partitions, config) in TOPICS.items():
        flags = [flag for name, value in config.items() for flag in ("--config", f"{name}={value}")]
        arguments = ["--create", "--topic", topic, "--partitions", str(partitions), *flags]
        kafka_tools.topics(broker.bootstrap_servers, *arguments).check()
        for partition in range(partitions):
            wait_for((broker.log_dir / f"{topic}-{partition}").exists, 30, "the partition's folder")
    numbers, rng = itertools.count(1), random.Random(seed)
    partitions_of = {topic: partitions for topic, (partitions, _) in TOPICS.items()}
    with Readers(readers, path, broker.log_dir, told, seed, partitions_of) as read:
        read.wait()
        for number in range(restarts):
            load = Load(broker, told, numbers)
            # What the readers are to come upon is that it dies amid its work.
            time.sleep(LIFE_S)
            broker.kill()
            load.stop()
            tear(broker.log_dir, {"events": 2}, rng)
            read.look(f"kill {number}")
            broker.start()
            read.look(f"restart {number}")
        read.stop()
    broker.stop()
    check(broker.log_dir, told)
    assert read.counts["look_up"] > 10 * restarts


@pytest.mark.laboratory
@pytest.mark.timeout(600)
def test_three_restarts_of_kafka(memory_folder: Path, kafka_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    restart(memory_folder, kafka_broker, kafka_tools, 3, 4, 1)


@pytest.mark.laboratory
@pytest.mark.timeout(24 * 3600)
def test_twenty_restarts_of_kafka(
    memory_folder: Path, kafka_broker: BrokerFactory, kafka_tools: KafkaTools, pytestconfig: pytest.Config
) -> None:
    restart(memory_folder, kafka_broker, kafka_tools, pytestconfig.getoption("--restarts") // 10, 4, 2)
