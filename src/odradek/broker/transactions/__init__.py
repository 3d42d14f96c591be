"""The coordinator of transactions: who may write under a transactional id, and how its transaction ends.

    states        the states in memory, as __transaction_state has them
    markers       the ends of transactions in the partitions
    producer_ids  producer ids from blocks
    coordinator   what clients ask for, time-outs, recovery
    verification  whether a produced batch belongs to a transaction

The states of a transactional id, and which requests are allowed in which, are in `odradek.coordination.transactions`.
All of this belongs to the event loop's thread.
"""
