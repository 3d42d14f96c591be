"""What Kafka's coordinators keep in the internal topics `__consumer_offsets` and `__transaction_state`.

`records` is how keys and values are framed, `group_records` and `transaction_records` are the records, and
`committed_offsets` is what a compacted topic of them adds up to.
"""
