"""What a pipeline asks of a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from pyspark.sql import SparkSession

from odradek.errors import OdradekError
from odradek.spark.pipeline.batch import Batch
from odradek.storage.names import TopicPartition


class SinkError(OdradekError):
    """A sink that cannot take a batch, or that does not hold what it should."""


class Sink(ABC):
    """Somewhere that the output of batches goes.

    The order of work is: every sink writes the batch, then the offset store takes its end. So a sink may be ahead of
    the store after a crash; one that says so through `positions` is given only what it does not hold yet.

    Attributes:
        description: What it is, in a few words.
        wants_whole_partitions: Whether a task should have all of a source partition's rows, not a split of them.
    """

    description: str
    wants_whole_partitions = False

    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the next offset of every partition that the sink remembers; nothing if it remembers none."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write a batch, whose views are defined; what returns is durable."""

    def define_views(self, spark: SparkSession) -> None:  # noqa: B027 - most sinks have none
        """Define the views that the sinks after this one may query; also called where nothing was left to write."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""
