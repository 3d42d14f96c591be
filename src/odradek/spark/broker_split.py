"""What a task reads from a broker: a range of offsets of one partition, from its current leader.

A split holds settings, never a connection. A Spark worker keeps its connections for later tasks: only the first task
pays for TLS, login and finding the brokers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.columnar.decode import decode_slices
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.kafka.client import BrokerClient
from odradek.kafka.partition_fetch import GUESSED_RECORD_BYTES, Held, PartitionFetch
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.topics import Bounds
from odradek.records.isolation import Isolation
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, LossCause, OffsetRange, Split, find_loss, pieces

if TYPE_CHECKING:
    from odradek.places.broker import BrokerPlace

BATCH_ROWS = 32_768
_LONG_RANGE = 50_000
"""The offsets of a range from which a fetch to measure the size of records is worthwhile."""

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


@dataclass(eq=False, repr=False)
class BrokerSplit(Split):
    """A range of offsets of one partition of a broker.

    Attributes:
        wanted: The range.
        settings: How to reach the broker.
        isolation: `read_uncommitted` or `read_committed`.
        fail_on_data_loss: Whether missing records are an error.
        topic_id: The topic's id when the range was planned; None if the broker has no topic ids.
        record_bytes: An estimate of the bytes for each offset.
    """

    wanted: OffsetRange
    settings: BrokerSettings
    isolation: Isolation
    _: KW_ONLY
    fail_on_data_loss: bool
    topic_id: str | None = None
    record_bytes: float = GUESSED_RECORD_BYTES

    def __post_init__(self) -> None:
        super().__init__(str(self.wanted.topic_partition))

    @property
    def size_bytes(self) -> int:
        """About how many bytes the range takes."""
        return int(self.record_bytes * (self.wanted.end_offset - self.wanted.start_offset))

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Fetch and decode the records of the split into batches of a schema.

        Raises:
            DataLossError: Some of them were deleted, and `fail_on_data_loss` is true.
            BrokerUnavailableError: No leader returned them in time.
        """
        far_timestamps = FarTimestamps(self.far_timestamps, "farTimestamps")
        return far_timestamps.counted(self._batches(schema, far_timestamps))

    def _batches(self, schema: pa.Schema, far_timestamps: FarTimestamps) -> Iterator[pa.RecordBatch]:
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
                    far_timestamps=far_timestamps,
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
        # In a new topic these offsets belong to other records: there is nothing to continue.
        if loss is not None and (self.fail_on_data_loss or loss.cause is LossCause.NEW_TOPIC):
            raise loss


class BrokerSplits:
    """Plans the tasks that read a broker.

    Args:
        place: The broker.
        isolation: Whether a partition ends at its high watermark or at its last stable offset.
    """

    def __init__(self, place: BrokerPlace, isolation: Isolation) -> None:
        self._place = place
        self._isolation = isolation

    def splits(self, ranges: Sequence[OffsetRange], options: SourceOptions) -> list[Split]:
        """Return the tasks that read ranges: each of about `max_split_bytes`, or less if more tasks are asked for."""
        with self._place.client() as client:
            return list(self._planned(client, ranges, options))

    def _planned(
        self, client: BrokerClient, ranges: Sequence[OffsetRange], options: SourceOptions
    ) -> Iterator[BrokerSplit]:
        for wanted in ranges:
            record_bytes = self._record_bytes(client, wanted)
            most = max(1, int(options.max_split_bytes / record_bytes))
            if options.max_split_records is not None:
                most = min(most, options.max_split_records)
            if options.min_partitions is not None:
                total = sum(part.end_offset - part.start_offset for part in ranges)
                most = min(most, -(-total // options.min_partitions))
            for piece in pieces([wanted], most):
                yield BrokerSplit(
                    piece,
                    self._place.settings,
                    self._isolation,
                    fail_on_data_loss=options.fail_on_data_loss,
                    topic_id=client.topic_id(wanted.topic_partition.topic),
                    record_bytes=record_bytes,
                )

    def _record_bytes(self, client: BrokerClient, wanted: OffsetRange) -> float:
        """Return about how many bytes each offset of a range takes; this is measured only for long ranges."""
        name, start, end = wanted
        if end - start < _LONG_RANGE:
            return GUESSED_RECORD_BYTES
        sample = OffsetRange(name, start, start + 1)
        split = BrokerSplit(sample, self._place.settings, self._isolation, fail_on_data_loss=False)
        fetch = split.fetch(client)
        # The reader reports records that were deleted.
        with suppress(DataLossError):
            for _ in fetch.chunks():
                pass
        return fetch.record_bytes
