"""What Kafka's coordinators keep in the internal topics `__consumer_offsets` and `__transaction_state`.

`coordinator_records` frames keys and values; `group_records` and `transaction_records` define the records.
"""
