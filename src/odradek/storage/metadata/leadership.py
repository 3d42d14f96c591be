"""Which partitions have no leader in the metadata while no broker of Kafka's runs: those with transactions' states.

    leader -1 | isr 1 | last_known_elr 1     Kafka's controller elects 1 when its broker has registered
    leader  1 | isr 1                        Kafka's broker acts as the leader from its first look at the metadata on

A broker that leads `__transaction_state` before it has registered loads the decided transactions and looks for the
leaders of their partitions. It is one itself, but does not know its own address yet, so it takes the partitions as
deleted and skips their markers. Kafka's own clean shutdown leaves no partition with a leader; here the other partitions
keep theirs, for nobody acts on it too early.

After an unclean shutdown, and every one here is unclean to Kafka, a controller with eligible leader replicas (KIP-966)
elects the last known leader and no other; without them it elects who is in `isr`, and knows of no such leader.

Source in Kafka: `ReplicationControlManager`, `PartitionChangeBuilder`, `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.messages.metadata.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.names import TRANSACTION_STATE_TOPIC

NO_LEADER = -1


def left_to_election(record: PartitionRecord, image: MetadataImage) -> PartitionRecord:
    """Return the record of a new partition without its leader, which Kafka's controller will elect again."""
    known = (record.leader,) if image.has_eligible_leader_replicas else None
    return record._replace(leader=NO_LEADER, last_known_elr=known)


def resignations(image: MetadataImage, node_id: int) -> Iterator[PartitionChangeRecord]:
    """Yield what takes the states of transactions from a node that leads them, and alone holds them.

    Earlier versions of Odradek left such partitions, and so does a broker of Kafka's that was killed.
    """
    topic = image.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None or topic.topic_id is None or any(broker != node_id for broker in image.brokers):
        return
    known = (node_id,) if image.has_eligible_leader_replicas else None
    for number, partition in topic.partitions.items():
        if partition.leader == node_id and partition.replicas == (node_id,):
            yield PartitionChangeRecord(number, topic.topic_id, leader=NO_LEADER, last_known_elr=known)


def feature_changes(levels: Mapping[str, int], node_id: int, image: MetadataImage) -> list[MetadataRecord]:
    """Return what sets the levels of features; partitions without a leader stay such as a controller can elect one.

    A controller notes the last known leader when a partition loses it. Where it did so before it had eligible leader
    replicas, it would elect nobody.
    """
    records: list[MetadataRecord] = [FeatureLevelRecord(name, level) for name, level in levels.items()]
    after = image.copy()
    after.apply_all(records)
    if not after.has_eligible_leader_replicas:
        return records
    known = (node_id,)
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            is_orphan = (partition.leader, partition.replicas) == (NO_LEADER, known)
            if is_orphan and partition.last_known_elr != known and topic.topic_id is not None:
                records.append(PartitionChangeRecord(number, topic.topic_id, last_known_elr=known))
    return records
