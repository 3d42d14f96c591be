"""Groups and their committed offsets.

    classic            a group of the classic protocol: its members, its states
    modern             what consumer groups and share groups have in common
    consumer           a group of the consumer protocol (KIP-848)
    heartbeat          what a heartbeat of the consumer protocol changes
    departures         what changes when members leave
    reconciliation     how a member gets from what it has to what it is to get
    assignors          who gets which partitions
    topics             the topics as a group sees them, patterns among them
    migration          a group moves from one of the two protocols to the other
    migration_policy   whether it may
    classic_members    what classic members do in a consumer group
    share              a share group (KIP-932)
    share_heartbeat    what a heartbeat of its member changes
    share_topics       the partitions of which it has a share state
    streams            a group of another protocol: a Streams group
    replay             what each record of `__consumer_offsets` changes
    offsets            committed offsets, and those of transactions that have not ended

Source in Kafka: `GroupCoordinatorShard`.
"""
