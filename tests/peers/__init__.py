"""What tests share, and the real programs that they ask: Apache Kafka and its tools, Redis, Apache ZooKeeper.

`jars` resolves Kafka and ZooKeeper with Maven, once a machine; `process` starts and ends programs; `kafka`, `redis` and
`zookeeper` are the servers; `kafka_tools` runs Kafka's command-line tools inside one kept JVM; `fixtures` gives all of
them to pytest.
"""
