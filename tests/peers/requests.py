"""Requests as messages and as calls, with values that suit most tests where a test says nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from odradek.testing.api_names import api_key_of
from odradek.testing.conformance import target
from odradek.testing.wire import WireClient
from peers.batches import records_of

batch = partial(target.batch, timestamp=1_700_000_000_000)
"""Returns a batch of some values."""


def message(api: str, **fields: Any) -> dict[str, Any]:
    """Returns a request of an API by Kafka's name."""
    return {**target.DEFAULTS.get(api, {}), **fields}


def ask(client: WireClient, api: str, version: int, **fields: Any) -> Any:
    """Sends a request, and returns its answer."""
    return client.call(api_key_of(api), version, message(api, **fields))


def new_topic(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns what CreateTopics is told of a topic."""
    configs = [{"name": key, "value": value} for key, value in (config or {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs}


def produce_message(
    data: bytes | None, topic: str = "events", *, partition: int = 0, topic_id: UUID | None = None, **fields: Any
) -> dict[str, Any]:
    """Returns a Produce request for one partition."""
    asked = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": data}]}
    return message("Produce", **{"acks": 1, "topic_data": [asked], **fields})


def produced(answer: Any) -> tuple[int, int]:
    """Returns the error and the offset of the only partition of a Produce answer."""
    [row] = answer.responses[0].partition_responses
    return int(row.error_code), row.base_offset


def wanted(numbers: Iterable[int], offset: int = 0, max_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    """Returns what a Fetch wants of partitions."""
    return [{"partition": number, "fetch_offset": offset, "partition_max_bytes": max_bytes} for number in numbers]


def fetch_message(
    offset: int = 0, *, topic: str = "events", topic_id: UUID | None = None, max_bytes: int = 1 << 20, **fields: Any
) -> dict[str, Any]:
    """Returns a Fetch request, of a topic's partition 0 if no others are given."""
    topics = [{"topic": topic, "topic_id": topic_id, "partitions": wanted([0], offset, max_bytes)}]
    return message("Fetch", **{"topics": topics, "max_bytes": max_bytes, **fields})


def readable(client: WireClient, isolation_level: int = 0) -> tuple[int, int, int]:
    """Returns the high watermark and the last stable offset of the topic `flushed`, and how many bytes come."""
    answer = client.call(1, 11, fetch_message(topic="flushed", isolation_level=isolation_level))
    [row] = answer.responses[0].partitions
    return row.high_watermark, row.last_stable_offset, len(row.records or b"")


def values(records: bytes | None) -> list[bytes | None]:
    """Returns the values of the records of a Fetch answer."""
    return [record.value for record in records_of(records or b"")]
