"""Kafka's own messages in the log: metadata, groups, transactions. No input, no output."""
