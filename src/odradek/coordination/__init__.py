"""The rules of groups, offsets, transactions and ACLs, once for the broker and for the tools that read a folder.

    placement         which partition of an internal topic holds a key's state
    internal_topics   the topics of the coordinators, as Kafka creates them
    state_log         their records, as batches
    authorization     what access control lists allow
    groups            what records say about groups and offsets
    shares            what share groups deliver, and what they keep of it
    transactions      the states of a transactional id

Nothing here opens a file, knows a client, or waits.
"""
