"""The group coordinator: who is in a group, and which offsets it has committed.

    coordinator   which partition of `__consumer_offsets` a group belongs to, loading, offsets of all sorts
    shard         the groups of one partition, kept in its log
    membership    join, sync, heartbeat, leave: the rebalances of a group
    group member  a group of the classic protocol, and a member of it
    modern_group  a group of another protocol (KIP-848, share groups, Streams groups), which is only kept or removed
    answers       the answers of APIs that commit or delete offsets

Committed offsets, and those of transactions that have not ended, are in `odradek.inspection.committed_offsets`, because
a folder's groups are also read without a broker.

Source in Kafka: `org.apache.kafka.coordinator.group`.
"""
