"""librdkafka as a reader of whole partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

TIMEOUT_S = 600


def read_to_end(
    servers: str, partitions: Iterable[tuple[str, int]], isolation: str = "read_committed", **settings: Any
) -> list[Message]:
    """Reads partitions from their beginning to their end."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "nobody",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
        **settings,
    }
    left = set(partitions)
    found: list[Message] = []
    consumer = Consumer(config)
    with closing(consumer):
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in sorted(left)])
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"the end of {left} was not reached"
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard((message.topic() or "", message.partition() or 0))
    return found
