"""The client of Apache Kafka's brokers: connections, groups, fetches and transactions."""
