"""A suite of checks that a broker answers as Apache Kafka does, over the wire, at any address.

    odradek conformance localhost:9092

Each check passes on both versions of Apache Kafka in `odradek.kafka_version`: that is what makes it true. A check uses
topics, groups and transactional ids of its own, with random names, so that it disturbs nobody; what it makes it leaves,
except topics. One that needs an API or a version which the broker does not advertise is skipped.

    suite       finds the checks and runs them
    target      the broker as a check uses it
    a module for each area: each public function that takes the target alone is a check, and its docstring says of what
"""
