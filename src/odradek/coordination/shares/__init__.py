"""What share groups (KIP-932) deliver, and what they keep of it.

    record_states   the states of records that are being delivered, as a table
    in_flight       the records of a partition that are being delivered: ranges and their states
    acquisition     a member gets records
    changes         records are acknowledged or released, or their time is over
    partition       a partition as one group sees it: all of the above
    state_batches   the states as they are written down
    states          the written states of many partitions, and their records
    sessions        share sessions: the partitions that members fetch from

Source in Kafka: `SharePartition`, `ShareCoordinatorShard`, `ShareSessionCache`.
"""
