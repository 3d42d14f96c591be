"""What Kafka's coordinators keep in the internal topics `__consumer_offsets` and `__transaction_state`.

`coordinator_records` is how keys and values are framed; `group_records` and `transaction_records` are the records.
"""
