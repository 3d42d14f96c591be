"""Where a group's positions are set to, relative to what a source holds: shifted, to a time, to an end.

    log start offset 100 ........ position 400 ........ log end offset 900
    --shift -350  ->  100, because no position is set outside of the log

Source in Kafka: `ConsumerGroupCommand`, `OffsetsUtils`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.errors import OffsetStoreError
from odradek.offsets.store import Position
from odradek.sources.source import Bounds, Source
from odradek.storage.names import TopicPartition


class Reset(NamedTuple):
    """A change of one position.

    Attributes:
        before: The offset before; None if there was none.
        after: The offset after.
        bounds: The offsets that the partition holds.
        wanted: The offset that was asked for, which may be outside of them.
    """

    before: int | None
    after: int
    bounds: Bounds
    wanted: int


class ResetTarget(ABC):
    """Where positions are set to."""

    @abstractmethod
    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the offset that is wanted."""


class ToEarliest(ResetTarget):
    """The first offset."""

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the log start offset."""
        return bounds.start_offset


class ToLatest(ResetTarget):
    """The end."""

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the log end offset."""
        return bounds.end_offset


@dataclass(frozen=True)
class ToOffset(ResetTarget):
    """The same offset in every partition."""

    wanted: int

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return it."""
        return self.wanted


@dataclass(frozen=True)
class ToPlaces(ResetTarget):
    """An offset for each partition."""

    places: Mapping[TopicPartition, int]

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return that of the partition."""
        return self.places[name]


@dataclass(frozen=True)
class Shift(ResetTarget):
    """So many offsets on, or back."""

    by: int

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the offset before, shifted.

        Raises:
            OffsetStoreError: There is none.
        """
        if before is None:
            raise OffsetStoreError(f"{name} has no position that could be shifted")
        return before + self.by


@dataclass(frozen=True)
class ToTime(ResetTarget):
    """The first record at or after a time, or the end."""

    timestamp_ms: int

    def offset(self, source: Source, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the offset that the time index leads to."""
        found = source.find_timestamp(name, self.timestamp_ms)
        return bounds.end_offset if found is None else found


def plan_resets(
    source: Source, positions: Mapping[TopicPartition, Position], names: Collection[TopicPartition], to: ResetTarget
) -> dict[TopicPartition, Reset]:
    """Return how positions would change; none is set outside of what the source holds.

    Args:
        source: Where the partitions are.
        positions: The positions now.
        names: The partitions whose positions are to be set.
        to: Where to.

    Raises:
        OffsetStoreError: A partition is not in the source, or has no position that could be shifted.
    """
    bounds = source.all_bounds(names)
    planned = {}
    for name in sorted(names):
        if name not in bounds:
            raise OffsetStoreError(f"{name} is not in {source.address}")
        held = positions.get(name)
        before = None if held is None else held.offset
        wanted = to.offset(source, name, bounds[name], before)
        after = min(max(wanted, bounds[name].start_offset), bounds[name].end_offset)
        planned[name] = Reset(before, after, bounds[name], wanted)
    return planned
