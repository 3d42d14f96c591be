"""Where a group's positions are set to, relative to what a source holds: shifted, to a time, to an end.

    log start offset 100 ........ position 400 ........ log end offset 900
    --shift -350  ->  100, because no position is set outside of the log

Source in Kafka: `ConsumerGroupCommand`, `OffsetsUtils`.
"""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.errors import OffsetStoreError
from odradek.inspection.group_description import GroupDescription
from odradek.kafka.topics import Bounds
from odradek.places.place import Place
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

_MOST_PARTITION = (1 << 31) - 1


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
    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the offset that is wanted."""


class ToEarliest(ResetTarget):
    """The first offset."""

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the log start offset."""
        return bounds.start_offset


class ToLatest(ResetTarget):
    """The end."""

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the log end offset."""
        return bounds.end_offset


@dataclass(frozen=True)
class ToOffset(ResetTarget):
    """The same offset in every partition."""

    wanted: int

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return it."""
        return self.wanted


@dataclass(frozen=True)
class ToPlaces(ResetTarget):
    """An offset for each partition."""

    places: Mapping[TopicPartition, int]

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return that of the partition."""
        return self.places[name]


@dataclass(frozen=True)
class Shift(ResetTarget):
    """A number of offsets forwards, or back."""

    by: int

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
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

    def offset(self, source: Place, name: TopicPartition, bounds: Bounds, before: int | None) -> int:
        """Return the offset that the time index leads to."""
        found = source.find_timestamp(name, self.timestamp_ms)
        return bounds.end_offset if found is None else found


def plan_resets(
    source: Place, positions: Mapping[TopicPartition, int | None], names: Collection[TopicPartition], to: ResetTarget
) -> dict[TopicPartition, Reset]:
    """Return how positions would change; none is set outside of what the source holds.

    Args:
        source: Where the partitions are.
        positions: The positions now; None where it is not known.
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
        before = positions.get(name)
        wanted = to.offset(source, name, bounds[name], before)
        after = min(max(wanted, bounds[name].start_offset), bounds[name].end_offset)
        planned[name] = Reset(before, after, bounds[name], wanted)
    return planned


def group_positions(place: Place, group: GroupDescription) -> dict[TopicPartition, int | None]:
    """Return the positions of a group; of a share group where it starts, which may not be known."""
    if group.type == "share":
        shared = place.shared_offsets([group.group_id])[group.group_id]
        return {name: one.start_offset for name, one in shared.items()}
    committed = place.group_offsets([group.group_id])[group.group_id]
    return {name: one.offset for name, one in committed.items()}


def plan_group_resets(
    place: Place,
    group: GroupDescription,
    to: ResetTarget,
    topics: Collection[str] = (),
    partitions: Collection[int] = (),
) -> dict[TopicPartition, Reset]:
    """Return how the positions of a group would change.

    Args:
        place: Where the group and the partitions are.
        group: The group.
        to: Where to.
        topics: Names or patterns of topics; without them those that it has positions in.
        partitions: Numbers of partitions; without them all.

    Raises:
        OffsetStoreError: It has no such position, or none that could be shifted.
        UnknownTopicOrPartitionError: A topic that was named does not exist.
    """
    stored = group_positions(place, group)
    if topics:
        names = place.choose(topics, partitions or None)
    else:
        names = [name for name in stored if not partitions or name.partition in partitions]
    if not names:
        raise OffsetStoreError(f"group {group.group_id} has no such offset: name topics")
    return plan_resets(place, stored, names, to)


def write_plan(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the CSV of `kafka-consumer-groups --reset-offsets --export`: a line for each partition, and no heading.

        events,0,1200             topic, partition, offset

    Kafka's tool reads it with `--from-file`.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows((*partition, offset) for partition, offset in sorted(offsets.items()))
    return text.getvalue()


def read_plan(lines: Iterable[str], name: str, group: str | None = None) -> dict[TopicPartition, int]:
    """Read what `write_plan` writes; return the offset of each partition.

        words,events,0,1200       of several groups: the group comes first

    Kafka puts a topic's name in quotes if it has more than 24 characters.

    Args:
        lines: The lines of the file.
        name: What it is called in errors.
        group: The group whose offsets are wanted of a file of several; those of others are left out. None if that is
            not known: the file must then be of one group.

    Raises:
        OffsetStoreError: A line is not part of a plan, a partition comes twice, or the file has nothing of the group.
    """
    offsets: dict[TopicPartition, int] = {}
    groups = set()
    reader = csv.reader(lines)
    try:
        for fields in reader:
            if not fields:
                continue
            *named, topic, partition, offset = fields if len(fields) in (3, 4) else ("", "", "", "", "")
            where = f"{name}, line {reader.line_num}"
            is_number = re.fullmatch("[0-9]{1,10}", partition) and re.fullmatch("[0-9]{1,18}", offset)
            if len(named) > 1 or not is_number or int(partition) > _MOST_PARTITION:
                raise OffsetStoreError(f"{where}: it is not topic,partition,offset, nor group,topic,partition,offset")
            reason = invalid_topic_name_reason(topic)
            if reason is not None:
                raise OffsetStoreError(f"{where}: {reason}")
            groups.update(named)
            if named and group is not None and named != [group]:
                continue
            place = TopicPartition(topic, int(partition))
            if place in offsets and len(groups) < 2:
                raise OffsetStoreError(f"{where}: {place} comes twice")
            offsets[place] = int(offset)
    except csv.Error as error:
        raise OffsetStoreError(f"{name}, line {reader.line_num}: {error}") from error
    if group is None and len(groups) > 1:
        raise OffsetStoreError(f"{name}: it is a plan for {len(groups)} groups")
    if not offsets:
        raise OffsetStoreError(f"{name}: there is no offset{f' of the group {group}' if groups else ''} in it")
    return offsets
