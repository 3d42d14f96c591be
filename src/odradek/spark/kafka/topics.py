"""The topics of a broker, as the planner asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from odradek.spark.kafka.client import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerClient
from odradek.spark.kafka.fetch import ISOLATION_LEVELS, BrokerSplit
from odradek.spark.kafka.settings import BrokerSettings
from odradek.spark.options import Isolation, SourceOptions
from odradek.spark.ranges import Bounds, OffsetRange, Split, pieces
from odradek.storage.names import TopicPartition


class BrokerTopics:
    """The topics of a cluster.

    Args:
        settings: Where it is.
        isolation: What the end of a partition is.
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
        """Return the first offset and the end of partitions; those that do not exist are left out."""
        if not partitions:
            return {}

        def ask() -> dict[TopicPartition, Bounds]:
            topics = self._client.topics(sorted({name.topic for name in partitions}))
            there = [
                name for name in partitions if name.topic in topics and name.partition in topics[name.topic].leaders
            ]
            first = self._client.list_offsets(dict.fromkeys(there, EARLIEST_TIMESTAMP), 0)
            end = self._client.list_offsets(dict.fromkeys(there, LATEST_TIMESTAMP), ISOLATION_LEVELS[self._isolation])
            return {
                name: Bounds(first[name], max(end[name], first[name]), topics[name.topic].topic_id) for name in there
            }

        return self._client.attempt("listing offsets", ask)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at or after a time; None where there is no such record."""
        level = ISOLATION_LEVELS[self._isolation]
        found = self._client.attempt("looking up times", lambda: self._client.list_offsets(times, level))
        return {name: None if offset < 0 else offset for name, offset in found.items()}

    def splits(self, ranges: Sequence[OffsetRange], options: SourceOptions) -> list[Split]:
        """Return the tasks that read ranges: one a partition, more where more are asked for."""
        return [
            BrokerSplit(piece, self._settings, self._isolation, options.fail_on_data_loss)
            for piece in pieces(ranges, options.min_partitions, options.max_split_records)
        ]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
