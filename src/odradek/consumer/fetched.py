"""What a consumer has read, as one value: each step replaces it whole, so an exception finds it before or after one.

    records    | done | handed out | read ahead |
               0      ^ done       ^ handed_out  ^ the readers' positions

Source in Kafka: `FetchBuffer`, `SubscriptionState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.records import Record
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.names import TopicPartition


class Fetched(NamedTuple):
    """The records on their way from the readers to the application, and where each reader is after them.

    Attributes:
        records: The records; never changed.
        done: How many of them the application is done with.
        handed_out: How many of them it was given.
        positions: The next offset that the reader of each partition reads.
    """

    records: list[ConsumedRecord]
    done: int
    handed_out: int
    positions: Mapping[TopicPartition, int]

    @property
    def ahead(self) -> int:
        """How many records were read and not handed out yet."""
        return len(self.records) - self.handed_out

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of a partition's next record to be handed out, or of the place where it is looked for.

        Raises:
            KeyError: It is not read.
        """
        for consumed in self.records[self.handed_out :]:
            if consumed.topic_partition == topic_partition:
                return consumed.offset
        return self.positions[topic_partition]

    def extended(self, topic_partition: TopicPartition, records: Iterable[Record], position: int) -> Fetched:
        """Return this and what a reader has read further, up to a position."""
        more = [ConsumedRecord(*topic_partition, record) for record in records]
        positions = {**self.positions, topic_partition: position}
        return self._replace(records=[*self.records, *more], positions=positions)

    def without_ahead(self, topic_partition: TopicPartition) -> Fetched:
        """Return this as if what was not handed out of a partition had not been read."""
        position = self.position(topic_partition)
        kept = [one for one in self.records[self.handed_out :] if one.topic_partition != topic_partition]
        positions = {**self.positions, topic_partition: position}
        return self._replace(records=[*self.records[: self.handed_out], *kept], positions=positions)

    def moved(self, topic_partition: TopicPartition, position: int) -> Fetched:
        """Return this without anything of a partition, whose reader goes on elsewhere."""
        done, handed_out, ahead = (
            [one for one in part if one.topic_partition != topic_partition]
            for part in (
                self.records[: self.done],
                self.records[self.done : self.handed_out],
                self.records[self.handed_out :],
            )
        )
        positions = {**self.positions, topic_partition: position}
        return Fetched([*done, *handed_out, *ahead], len(done), len(done) + len(handed_out), positions)
