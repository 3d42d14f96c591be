"""The records that a consumer has read, between its readers and the application."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.records import Record
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.names import TopicPartition


class Fetched(NamedTuple):
    """The records between the readers and the application, and each reader's position after them.

        records    | done | handed out | read ahead |
                   0      ^ done       ^ handed_out  ^ the readers' positions

    Each step replaces it whole, so that an exception never leaves half a step.

    Attributes:
        records: The records; never changed.
        done: How many of them, from the first, the application is done with.
        handed_out: How many of them, from the first, were handed to the application.
        positions: The next offset that each partition's reader reads.
    """

    records: list[ConsumedRecord]
    done: int
    handed_out: int
    positions: Mapping[TopicPartition, int]

    @property
    def ahead(self) -> int:
        """How many records were read and not yet handed out."""
        return len(self.records) - self.handed_out

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of a partition's next record to be handed out, or that at which the search for it starts.

        Raises:
            KeyError: The partition is not read.
        """
        for consumed in self.records[self.handed_out :]:
            if consumed.topic_partition == topic_partition:
                return consumed.offset
        return self.positions[topic_partition]

    def extended(self, topic_partition: TopicPartition, records: Iterable[Record], position: int) -> Fetched:
        """Return this with the records that a reader has read since, up to a position."""
        more = [ConsumedRecord(*topic_partition, record) for record in records]
        positions = {**self.positions, topic_partition: position}
        return self._replace(records=[*self.records, *more], positions=positions)

    def without_ahead(self, topic_partition: TopicPartition) -> Fetched:
        """Return this without the records of a partition that were not handed out: its reader reads them again."""
        position = self.position(topic_partition)
        kept = [one for one in self.records[self.handed_out :] if one.topic_partition != topic_partition]
        positions = {**self.positions, topic_partition: position}
        return self._replace(records=[*self.records[: self.handed_out], *kept], positions=positions)

    def without(self, topic_partitions: Collection[TopicPartition]) -> Fetched:
        """Return this without partitions that are no longer read."""
        positions = {name: position for name, position in self.positions.items() if name not in topic_partitions}
        done, handed_out, ahead = (
            [one for one in part if one.topic_partition not in topic_partitions]
            for part in (
                self.records[: self.done],
                self.records[self.done : self.handed_out],
                self.records[self.handed_out :],
            )
        )
        return Fetched([*done, *handed_out, *ahead], len(done), len(done) + len(handed_out), positions)

    def moved(self, topic_partition: TopicPartition, position: int) -> Fetched:
        """Return this without the records of a partition, whose reader continues at another position."""
        others = self.without([topic_partition])
        return others._replace(positions={**others.positions, topic_partition: position})
