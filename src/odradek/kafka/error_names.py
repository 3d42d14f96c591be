"""Kafka's names of the errors in answers of a broker.

    40    kafka-python: InvalidConfigurationError    Kafka: INVALID_CONFIG

Source in Kafka: `Errors`.
"""

from __future__ import annotations

from kafka import errors

_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
"""Where kafka-python has another name, or none."""


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code."""
    return _NAMES.get(error_code) or str(errors.for_code(error_code).message)
