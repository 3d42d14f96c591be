"""Records of groups, appended to a folder's `__consumer_offsets` as Kafka's coordinator appends them.

The topic is created as a broker with Kafka's defaults creates it, if it is missing.

Source in Kafka: `GroupCoordinatorService`, `GroupCoordinatorShard`, `CoordinatorRuntime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.admin.admin import NonEmptyGroupError
from odradek.coordination.placement import partition_for
from odradek.errors import UnknownTopicOrPartitionError
from odradek.inspection.groups import GroupDescription, load_groups
from odradek.messages.coordinators.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit,
)
from odradek.messages.uuids import ZERO_UUID
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.timestamps import now_ms
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

_PARTITIONS = 50
_CONFIG = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


def check_has_no_members(group: GroupDescription) -> None:
    """Check whether a group of a folder, on which no broker runs, may be changed.

    Raises:
        NonEmptyGroupError: It has members, or their number is not known.
    """
    if group.members is None:
        raise NonEmptyGroupError(f"{group.group_id} is a {group.type} group, whose members are not known")
    if group.members:
        hosts = ", ".join(sorted({f"{member.client_id} {member.client_host}" for member in group.members}))
        count = f"{len(group.members)} member{'s' if len(group.members) > 1 else ''}"
        raise NonEmptyGroupError(
            f"group {group.group_id} has {count} ({hosts}), as its broker left it: they may come back to the next "
            "one. Stop them, and remove them by --force"
        )


def group_partition(logs: WritableLogDirectory, group_id: str) -> TopicPartition:
    """Return the partition that has the records about a group; the topic is created if it is missing.

    Raises:
        LogError: The disk failed.
    """
    image = logs.metadata_image.topics.get(CONSUMER_OFFSETS_TOPIC)
    topic = image or logs.create_topic(CONSUMER_OFFSETS_TOPIC, _PARTITIONS, _CONFIG)
    return TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions)))


def append_group_records(
    logs: WritableLogDirectory,
    group_id: str,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    producer: tuple[int, int] | None = None,
) -> None:
    """Append records about a group, in one batch: all of them, or none.

    Args:
        logs: The log directory.
        group_id: The group.
        records: Keys and values.
        producer: The producer id and epoch whose transaction they belong to; None if they belong to none.

    Raises:
        BrokerError: They are refused.
        LogError: The disk failed.
    """
    if not records:
        return
    now = now_ms()
    made = [Record(offset=number, timestamp=now, key=key, value=value) for number, (key, value) in enumerate(records)]
    producer_id, producer_epoch = producer or (-1, -1)
    batch = build_batch(
        made, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=producer is not None
    )
    logs[group_partition(logs, group_id)].append_batches(batch, origin=AppendOrigin.COORDINATOR)


def commit_offsets(
    logs: WritableLogDirectory,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetCommitValue | None],
    *,
    producer: tuple[int, int] | None = None,
    force: bool = False,
) -> None:
    """Commit offsets of a group that has no members, and remove those that are None; times and ids are filled in.

    Args:
        logs: The log directory.
        group_id: The group.
        offsets: The offsets, by partition.
        producer: The producer id and epoch whose transaction they belong to; None if they belong to none.
        force: Whether members are removed, together with all that is known of the group but its offsets. One that
            comes back joins again, and then goes on at these offsets.

    Raises:
        NonEmptyGroupError: The group has members, and `force` is not set.
        UnknownTopicOrPartitionError: A partition is not here.
        BrokerError: They are refused.
        LogError: The disk failed.
    """
    states = load_groups(logs, [group_id])
    described = states.describe(group_id)
    if described is not None and not force:
        check_has_no_members(described)
    now = now_ms()
    records = states.tombstones(group_id) if force else []
    for partition in sorted(offsets):
        value = offsets[partition]
        if value is not None:
            if partition not in logs:
                raise UnknownTopicOrPartitionError(*partition, path=logs.path)
            topic_id = logs.topic_id(partition.topic) or ZERO_UUID
            value = value._replace(commit_timestamp=now, topic_id=topic_id)
        records.append(encode_offset_commit(OffsetCommitKey(group_id, *partition), value))
    append_group_records(logs, group_id, records, producer=producer)
