"""Which names topics can have, in Kafka's words.

Source in Kafka: `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.storage.names import MAX_TOPIC_NAME_LENGTH, invalid_topic_name_reason


def shown_topic(name: str) -> str:
    """Return the name of a topic for the error of a partition; there may be many, so a longer name is cut short."""
    return name if len(name) <= MAX_TOPIC_NAME_LENGTH else f"{name[:MAX_TOPIC_NAME_LENGTH]}..."


def check_topic_name(name: str) -> None:
    """Check the name of a topic.

    Raises:
        ApiError: No topic can have it.
    """
    if invalid_topic_name_reason(name) is None:
        return
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    else:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise ApiError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")
