"""The Apache Kafka that is followed: what it writes, answers and prints is what Odradek does.

Everything else that names a version of Kafka's in words takes it from here.
"""

KAFKA_VERSION = "4.4.0"
OLDER_KAFKA_VERSION = "4.3.1"
"""The one before, to which every folder can still go back: new ones are formatted as it formats them."""
