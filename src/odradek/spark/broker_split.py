"""What a task reads from a broker: a range of offsets of one partition, from its current leader.

A split holds settings, never a connection. A Spark worker keeps its connections for later tasks: only the first task
pays for TLS, login and finding the brokers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress

import pyarrow as pa

from odradek.columnar.decode import decode_slices
from odradek.kafka.client import BrokerClient
from odradek.kafka.partition_fetch import GUESSED_RECORD_BYTES, Held, PartitionFetch
from odradek.kafka.settings import BrokerSettings
from odradek.records.isolation import Isolation
from odradek.spark.ranges import Bounds, DataLossError, LossCause, OffsetRange, Split, find_loss

BATCH_ROWS = 32_768

_kept_clients: dict[tuple[object, ...], BrokerClient] = {}


def kept_client(settings: BrokerSettings) -> BrokerClient:
    """Return the client that this process keeps for a broker."""
    # A forked worker must not speak on its parent's sockets.
    key = (os.getpid(), repr(settings))
    if key not in _kept_clients:
        _kept_clients[key] = BrokerClient(settings)
    return _kept_clients[key]


def close_kept_clients() -> None:
    """Close the connections that this process keeps for its next tasks."""
    while _kept_clients:
        _kept_clients.popitem()[1].close()


class BrokerSplit(Split):
    """A range of offsets of one partition of a broker.

    Attributes:
        wanted: The range.
        settings: How to reach the broker.
        isolation: `read_uncommitted` or `read_committed`.
        fail_on_data_loss: Whether records that are gone are an error.
        topic_id: The topic's id when the range was planned; None if the broker has no topic ids.
        record_bytes: An estimate of the bytes for each offset.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        settings: BrokerSettings,
        isolation: Isolation,
        *,
        fail_on_data_loss: bool,
        topic_id: str | None = None,
        record_bytes: float = GUESSED_RECORD_BYTES,
    ) -> None:
        super().__init__(str(wanted.topic_partition))
        self.wanted = wanted
        self.settings = settings
        self.isolation = isolation
        self.fail_on_data_loss = fail_on_data_loss
        self.topic_id = topic_id
        self.record_bytes = record_bytes

    @property
    def size_bytes(self) -> int:
        """About how many bytes the range takes."""
        return int(self.record_bytes * (self.wanted.end_offset - self.wanted.start_offset))

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Fetch and decode the records of the split into batches of a schema.

        Raises:
            DataLossError: Some of them are gone, and `fail_on_data_loss` is true.
            BrokerUnavailableError: No leader returned them in time.
        """
        (topic, partition), _, end = self.wanted
        with closing(self.fetch(kept_client(self.settings)).chunks()) as chunks:
            for chunk in chunks:
                yield from decode_slices(
                    [chunk],
                    schema,
                    topic=topic,
                    partition=partition,
                    # The log start offset may lie within a batch that is still there.
                    start_offset=chunk.start_offset,
                    end_offset=end,
                    aborted=chunk.aborted,
                    start_timestamp=self.start_timestamp,
                    end_timestamp=self.end_timestamp,
                    rows=BATCH_ROWS,
                )

    def fetch(self, client: BrokerClient) -> PartitionFetch:
        """Return what fetches the range."""
        name, start, end = self.wanted
        return PartitionFetch(
            client,
            name,
            start,
            end,
            self.isolation,
            lost=self._lost,
            topic_id=self.topic_id,
            record_bytes=self.record_bytes,
        )

    def _lost(self, held: Held) -> None:
        name, _, end = self.wanted
        bounds = Bounds(held.start_offset, held.end_offset, held.topic_id)
        planned_id = None if held.topic_id is None else self.topic_id
        loss = find_loss(OffsetRange(name, held.wanted_offset, end), bounds, planned_id)
        # Other records have the offsets of a new topic: there is nothing to go on with.
        if loss is not None and (self.fail_on_data_loss or loss.cause is LossCause.NEW_TOPIC):
            raise loss


def sample_record_bytes(client: BrokerClient, split: BrokerSplit) -> float:
    """Return the bytes for each offset at the start of a split, measured by one small fetch."""
    fetch = split.fetch(client)
    # The reader reports records that are gone.
    with suppress(DataLossError):
        for _ in fetch.chunks():
            pass
    return fetch.record_bytes
