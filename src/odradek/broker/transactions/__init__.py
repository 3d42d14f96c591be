"""The coordinator of transactions: who may write under a transactional id, and how its transaction ends.

    metadata      the state of a transactional id, and what may follow it       no input or output
    rules         which requests are allowed in which state                     no input or output
    states        the states in memory, as __transaction_state has them
    markers       the ends of transactions in the partitions
    producer_ids  producer ids from blocks
    coordinator   what clients ask for, time-outs, recovery
    verification  whether a produced batch belongs to a transaction

It belongs to the event loop's thread.
"""
