"""Records of groups, appended to a folder's `__consumer_offsets` as Kafka's coordinator appends them.

The topic is created as a broker with Kafka's defaults creates it, if it is missing.

Source in Kafka: `GroupCoordinatorService`, `GroupCoordinatorShard`, `CoordinatorRuntime`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from odradek.coordination.groups.share import ShareGroup, share_epoch_record, share_topics_record
from odradek.coordination.groups.share_topics import ShareTopics, TopicState
from odradek.coordination.internal_topics import DEFAULT_PARTITIONS, INTERNAL_TOPICS
from odradek.coordination.placement import partition_for
from odradek.coordination.shares.states import coordinator_key
from odradek.coordination.state_log import KeyValue, state_batch
from odradek.errors import BrokerError, OptionError, TopicExistsError, UnknownTopicOrPartitionError
from odradek.inspection.group_description import GroupDescription
from odradek.inspection.groups import load_groups
from odradek.inspection.share_state import ShareStates
from odradek.messages.coordinators.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_record,
    encode_offset_commit,
)
from odradek.messages.coordinators.share_records import ShareKey
from odradek.messages.uuids import ZERO_UUID
from odradek.records.append.validator import AppendOrigin
from odradek.records.timestamps import now_ms
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TopicPartition


class NonEmptyGroupError(BrokerError):
    """A group cannot be changed, because it has members."""

    error_code = 68
    error_name = "NON_EMPTY_GROUP"


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


def state_partition(logs: WritableLogDirectory, topic: str, key: str) -> TopicPartition:
    """Return the partition of an internal topic that has the records about a key; the topic is created if missing.

    Raises:
        LogError: The disk failed.
    """
    if topic not in logs.metadata_image.topics:
        # Another thread may create it at the same time.
        with suppress(TopicExistsError):
            logs.create_topic(topic, DEFAULT_PARTITIONS, INTERNAL_TOPICS[topic].config())
    return TopicPartition(topic, partition_for(key, len(logs.metadata_image.topic(topic).partitions)))


def group_partition(logs: WritableLogDirectory, group_id: str) -> TopicPartition:
    """Return the partition that has the records about a group; the topic is created if it is missing.

    Raises:
        LogError: The disk failed.
    """
    return state_partition(logs, CONSUMER_OFFSETS_TOPIC, group_id)


def append_group_records(
    logs: WritableLogDirectory,
    group_id: str,
    records: Sequence[KeyValue],
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
    if records:
        batch = state_batch(records, now_ms(), producer or (-1, -1))
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
            comes back joins again, and continues at these offsets.

    Raises:
        NonEmptyGroupError: The group has members, and `force` is not set.
        OptionError: It is a share group, which has no committed offsets.
        UnknownTopicOrPartitionError: A partition is not here.
        BrokerError: They are refused.
        LogError: The disk failed.
    """
    states = load_groups(logs, [group_id])
    described = states.describe(group_id)
    if described is not None and described.type == "share":
        raise OptionError(
            f'{group_id} is a share group, which has no committed offsets: "odradek groups reset" sets where it starts'
        )
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


def begin_share_group(
    logs: WritableLogDirectory, group_id: str, offsets: Mapping[TopicPartition, int], *, force: bool = False
) -> None:
    """Let a share group start at offsets, as `AlterShareGroupOffsets` does: all records from there on are delivered.

    The states of the partitions are written first, and the group's list of partitions after them. A broker does it the
    other way round, because members may come meanwhile; here an interruption leaves no partition without a state.

    Args:
        logs: The log directory.
        group_id: The group.
        offsets: The offsets, by partition.
        force: Whether members are removed. One that comes back joins again.

    Raises:
        NonEmptyGroupError: The group has members, and `force` is not set.
        UnknownTopicOrPartitionError: A partition is not here.
        FormatError: A record is damaged.
        LogError: The disk failed.
    """
    states, now = load_groups(logs, [group_id]), now_ms()
    described, group = states.describe(group_id), states.share_group(group_id) or ShareGroup(group_id)
    if described is not None and not force:
        check_has_no_members(described)
    begun: dict[UUID, TopicState] = {}
    starts: dict[TopicPartition, dict[ShareKey, int]] = {}
    for name in sorted(offsets):
        if name not in logs:
            raise UnknownTopicOrPartitionError(*name, path=logs.path)
        key = ShareKey(group_id, logs.topic_id(name.topic) or ZERO_UUID, name.partition)
        known = begun.get(key.topic_id, TopicState(name.topic, frozenset(), now))
        begun[key.topic_id] = known._replace(partitions=known.partitions | {name.partition})
        place = state_partition(logs, SHARE_GROUP_STATE_TOPIC, coordinator_key(key))
        starts.setdefault(place, {})[key] = offsets[name]
    removes = bool(described is not None and described.members)
    epoch = group.epoch + 1 if removes else group.epoch
    for place, keys in starts.items():
        written = ShareStates()
        written.load(logs[place])
        for key, offset in keys.items():
            batch = state_batch([written.begun(key, epoch, offset, now)], now)
            logs[place].append_batches(batch, origin=AppendOrigin.COORDINATOR)
    before = group.topics or ShareTopics()
    after = before.begun(begun).done({topic_id: state.partitions for topic_id, state in begun.items()})
    # The next heartbeat makes another epoch and another assignment, because the hash is none of topics.
    records = [share_epoch_record(group_id, epoch, 0)] if removes or described is None else []
    if records or after.value() != before.value():
        records.append(share_topics_record(group_id, after))
    gone = states.tombstones(group_id) if removes else []
    append_group_records(logs, group_id, [*gone, *(encode_group_record(*record) for record in records)])


def remove_share_states(logs: WritableLogDirectory, groups: Collection[str]) -> None:
    """Append the records that remove what `__share_group_state` has of share groups.

    This comes before the records that remove the groups: Apache Kafka deletes in this order, too, and a group whose
    deletion was interrupted is deleted by the next attempt.

    Raises:
        FormatError: A record is damaged.
        LogError: The disk failed.
    """
    if not groups or SHARE_GROUP_STATE_TOPIC not in logs.topics():
        return
    for name in logs.topic_partitions(SHARE_GROUP_STATE_TOPIC):
        states = ShareStates()
        states.load(logs[name])
        records = [record for group_id in groups for record in states.tombstones(group_id)]
        if records:
            logs[name].append_batches(state_batch(records, now_ms()), origin=AppendOrigin.COORDINATOR)
