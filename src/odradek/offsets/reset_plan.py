"""The CSV of `kafka-consumer-groups --reset-offsets`: what `--export` prints and `--from-file` reads.

    events,0,1200             of one group
    words,events,0,1200       of several: the group comes first

There is no heading. Kafka puts a topic's name in quotes if it has more than 24 characters.

Source in Kafka: `ConsumerGroupCommand`, `CsvUtils`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping

from odradek.errors import OffsetStoreError
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

_MOST_PARTITION = (1 << 31) - 1


def write_plan(offsets: Mapping[TopicPartition, int]) -> str:
    """Return a line for each partition: topic, partition, offset."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows((*partition, offset) for partition, offset in sorted(offsets.items()))
    return text.getvalue()


def read_plan(lines: Iterable[str], name: str, group: str | None = None) -> dict[TopicPartition, int]:
    """Return the offset of each partition.

    Args:
        lines: The lines of the file.
        name: What it is called in errors.
        group: The group whose offsets are wanted of a file of several; those of others are left out. None if that is
            not known: the file must then be of one group.

    Raises:
        OffsetStoreError: A line is none of a plan, a partition comes twice, or the file has nothing of the group.
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
