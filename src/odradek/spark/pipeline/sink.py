"""What a pipeline asks of a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from odradek.errors import SinkError
from odradek.spark.pipeline.batch import Batch
from odradek.storage.names import TopicPartition


class Held(NamedTuple):
    """How far a sink holds a partition of the source.

    Attributes:
        offset: The offset after the last one.
        topic_id: The id of the topic that the records came from; None where it was not known.
    """

    offset: int
    topic_id: str | None = None

    def is_of(self, topic_id: str | None) -> bool:
        """Return whether a topic may be the one that the records came from, by its id."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id


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
    def positions(self) -> Mapping[TopicPartition, Held]:
        """Return how far the sink holds each partition, to be cut from what it is given; nothing if it cuts itself."""

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Held]:
        """Return how far the sink holds these partitions; those of which it holds nothing are left out."""
        positions = self.positions()
        return {name: positions[name] for name in partitions if name in positions}

    def replay(self, starts: Mapping[TopicPartition, Held]) -> None:
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
