"""The report of a pipeline on each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.offsets.store import Position
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition


@dataclass(frozen=True)
class BatchReport:
    """What a batch did.

    Attributes:
        number: Its number in this run, from 1.
        ranges: What it read.
        end_offsets: The ends of the partitions when it was planned.
        positions: The positions of the partitions after it.
        seconds: How long it took.
        refused: How many records the sinks' targets refused, which were skipped or became dead letters.
        sink_seconds: How long each sink took, in their order, with its description.
    """

    number: int
    ranges: Sequence[OffsetRange]
    end_offsets: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, Position]
    seconds: float
    refused: int = 0
    sink_seconds: Sequence[tuple[str, float]] = ()

    @property
    def offsets(self) -> int:
        """How many offsets it spanned."""
        return sum(part.end_offset - part.start_offset for part in self.ranges)

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """How many offsets of each partition were left after it, up to `end_offsets`."""
        return {name: max(0, end - self.positions[name].offset) for name, end in self.end_offsets.items()}

    @property
    def lag(self) -> int:
        """How many offsets were left after it in all partitions."""
        return sum(self.lags.values())
