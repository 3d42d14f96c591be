"""Kafka's own messages in the log: metadata, groups, transactions. It does no input or output."""
