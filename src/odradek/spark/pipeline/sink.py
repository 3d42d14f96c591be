"""What a pipeline asks of a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from odradek.errors import SinkError
from odradek.offsets.store import Position, is_same_topic
from odradek.spark.pipeline.batch import Batch
from odradek.storage.names import TopicPartition


def check_same_topic(holder: str, name: TopicPartition, held: Position, topic_id: str | None) -> None:
    """Check that what is held of a partition is of the topic that has its name now.

    Args:
        holder: Who holds it, in a few words.
        name: The partition.
        held: How far, and of which topic.
        topic_id: The id of the topic now.

    Raises:
        SinkError: It is of another topic.
    """
    if not is_same_topic(held.topic_id, topic_id):
        raise SinkError(
            f"{holder} holds {name} up to offset {held.offset} of another topic of that name, whose id was "
            f"{held.topic_id}: give the sink another path or transactional_id, or let it start over with an empty one"
        )


class Sink(ABC):
    """Somewhere that the output of batches goes.

    The order of work is: every sink writes the batch, then the offset store takes its end. So a sink may be ahead of
    the store after a crash; one that says so through `positions` is given only what it does not hold yet.

    Attributes:
        description: What it is, in a few words.
        on_held: What to do where the sink holds records of a partition that the offset store has no position of:
            `error`, `skip` what is held, or `replay` it.
        wants_whole_partitions: Whether a task should have all of a source partition's rows, not a split of them.
    """

    description: str
    on_held = "skip"
    wants_whole_partitions = False

    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return how far the sink holds each partition, to be cut from what it is given; nothing if it cuts itself."""

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Return how far the sink holds these partitions; those of which it holds nothing are left out."""
        positions = self.positions()
        return {name: positions[name] for name in partitions if name in positions}

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Forget what is held of partitions, so that it is written again from these places on."""
        raise SinkError(f"{self.description}: what it holds cannot be written again")

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write a batch, whose views are defined; what returns is durable."""

    def define_views(self, spark: SparkSession) -> None:  # noqa: B027 - most sinks have none
        """Define the views that the sinks after this one may query; also called where nothing was left to write."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""
