"""The topics of a broker, as the planner asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from odradek.kafka.client import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerClient
from odradek.kafka.partition_fetch import GUESSED_RECORD_BYTES
from odradek.kafka.settings import BrokerSettings
from odradek.records.header import BatchHeader
from odradek.records.isolation import ISOLATION_LEVELS, Isolation
from odradek.records.scan import scan_batches
from odradek.spark.broker_split import BrokerSplit, sample_record_bytes
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Bounds, OffsetRange, Split, pieces
from odradek.storage.names import TopicPartition

_LONG_RANGE = 50_000
"""The offsets of a range from which a fetch to measure the size of records is worthwhile."""


class BrokerTopics:
    """The topics of a cluster.

    Args:
        settings: How to reach it.
        isolation: Whether a partition ends at its high watermark or at its last stable offset.
    """

    def __init__(self, settings: BrokerSettings, isolation: Isolation) -> None:
        self._settings = settings
        self._isolation = isolation
        self._client = BrokerClient(settings)

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """Return the partitions of the topics that are wanted, in order."""
        topics = self._client.attempt("listing topics", self._client.topics)
        return sorted(
            TopicPartition(name, number) for name, topic in topics.items() if wanted(name) for number in topic.leaders
        )

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the first offset and the end of each partition; partitions that do not exist are left out."""
        if not partitions:
            return {}

        def ask() -> dict[TopicPartition, Bounds]:
            topics = self._client.topics(sorted({name.topic for name in partitions}))
            there = [
                name for name in partitions if name.topic in topics and name.partition in topics[name.topic].leaders
            ]
            first = self._client.list_offsets(dict.fromkeys(there, EARLIEST_TIMESTAMP), 0)
            end = self._client.find_offsets(dict.fromkeys(there, LATEST_TIMESTAMP), ISOLATION_LEVELS[self._isolation])
            return {
                name: Bounds(
                    first[name],
                    max(end[name].offset, first[name]),
                    topics[name.topic].topic_id,
                    end[name].leader_epoch,
                )
                for name in there
            }

        return self._client.attempt("listing offsets", ask)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end; partitions that do not know the epoch are left out."""
        return self._client.attempt("looking up leader epochs", lambda: self._client.epoch_ends(epochs))

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions at which readers of committed records wait, for the partitions that have one."""

        def ask() -> dict[TopicPartition, int]:
            latest = dict.fromkeys(partitions, LATEST_TIMESTAMP)
            stable = self._client.list_offsets(latest, ISOLATION_LEVELS["read_committed"])
            end = self._client.list_offsets(latest, ISOLATION_LEVELS["read_uncommitted"])
            return {name: offset for name, offset in stable.items() if offset < end[name]}

        found = []
        for name, offset in self._client.attempt("looking for open transactions", ask).items():
            header = self._first_header(name, offset)
            if header is not None:
                found.append(OpenTransaction.of(name, header))
        return found

    def _first_header(self, name: TopicPartition, offset: int) -> BatchHeader | None:
        """Return the header of the batch at an offset; None if it is not there any more."""
        wanted = OffsetRange(name, offset, offset + 1)
        split = BrokerSplit(wanted, self._settings, "read_uncommitted", fail_on_data_loss=False)
        for chunk in split.fetch(self._client).chunks():
            for header in scan_batches(chunk.data, chunk.position, chunk.end_position, check_crc=False):
                if header.last_offset >= offset:
                    return header
        return None

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at or after a time; None if there is no such record."""
        level = ISOLATION_LEVELS[self._isolation]
        found = self._client.attempt("looking up times", lambda: self._client.list_offsets(times, level))
        return {name: None if offset < 0 else offset for name, offset in found.items()}

    def splits(self, ranges: Sequence[OffsetRange], options: SourceOptions) -> list[Split]:
        """Return the tasks that read ranges: each of about `max_split_bytes`, or less if more tasks are asked for."""
        splits: list[Split] = []
        for wanted in ranges:
            record_bytes = self._record_bytes(wanted)
            most = max(1, int(options.max_split_bytes / record_bytes))
            if options.max_split_records is not None:
                most = min(most, options.max_split_records)
            if options.min_partitions is not None:
                total = sum(part.end_offset - part.start_offset for part in ranges)
                most = min(most, -(-total // options.min_partitions))
            splits.extend(self._split(piece, options, record_bytes) for piece in pieces([wanted], most))
        return splits

    def _split(self, wanted: OffsetRange, options: SourceOptions, record_bytes: float) -> BrokerSplit:
        return BrokerSplit(
            wanted,
            self._settings,
            self._isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            topic_id=self._client.topic_id(wanted.topic_partition.topic),
            record_bytes=record_bytes,
        )

    def _record_bytes(self, wanted: OffsetRange) -> float:
        """Return about how many bytes each offset of a range takes; this is measured only for long ranges."""
        name, start, end = wanted
        if end - start < _LONG_RANGE:
            return GUESSED_RECORD_BYTES
        sample = OffsetRange(name, start, start + 1)
        split = BrokerSplit(sample, self._settings, self._isolation, fail_on_data_loss=False)
        return sample_record_bytes(self._client, split)

    def refresh(self) -> None:
        """Do nothing: the broker is asked every time."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
