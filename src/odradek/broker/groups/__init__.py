"""The group coordinator: who is in a group, and which offsets it has committed.

    coordinator        which partition of `__consumer_offsets` a group belongs to, loading, offsets of all sorts
    shard              the groups of one partition, kept in its log
    membership         classic groups: join, sync, heartbeat, leave: the rebalances of a group
    consumers          consumer groups (KIP-848): heartbeats, and what is due about members
    classic_consumers  classic members of consumer groups
    changes            what changes in consumer groups is written, and groups move from one protocol to the other
    shares             share groups (KIP-932): heartbeats, sessions, and the share state that partitions begin with
    share_offsets      where share groups begin, which administrators see and change
    image_topics       the topics, as consumer groups and share groups see them
    deadlines          when members of such groups are due
    turnstiles         the changes of such a group, one after another
    clients            the clients of a group that wait, and what is due if members are silent
    answers            the answers of APIs that commit or delete offsets

The rules are in `odradek.coordination.groups`: the states of groups, committed offsets, groups of newer protocols, and
what the records of the log mean. A folder's groups are also read without a broker.

Source in Kafka: `org.apache.kafka.coordinator.group`.
"""
