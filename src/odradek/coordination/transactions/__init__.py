"""The states of a transactional id, and which requests are allowed in which.

    metadata           the table of states, the state of an id as its record has it, and what may follow
    rules              which requests are allowed, and with which error others are refused
    lowest_sequences   which batches must be sent again before later ones

Source in Kafka: `TransactionMetadata`, `TransactionCoordinator`.
"""
