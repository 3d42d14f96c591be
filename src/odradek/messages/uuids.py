"""Kafka's text form of a UUID: base64url of its 16 bytes without padding, 22 characters.

Topic ids, directory ids and cluster ids are written so. Source in Kafka: `org.apache.kafka.common.Uuid`.
"""

from __future__ import annotations

import base64
import re
import uuid
from uuid import UUID

ZERO_UUID = UUID(int=0)
METADATA_TOPIC_ID = UUID(int=1)

RESERVED_BELOW = 100
"""Kafka reserves the ids below this one."""

_FORM = re.compile(r"[A-Za-z0-9_-]{22}={0,2}", re.ASCII)


def format_uuid(value: UUID) -> str:
    """Return the text form that Kafka writes."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Read Kafka's text form.

    Raises:
        ValueError: The text is not one.
    """
    if _FORM.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a UUID in 22 characters of base64url")
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def random_uuid() -> UUID:
    """Return a new id that Kafka accepts: it is not reserved, and its text does not start with a dash."""
    while True:
        value = uuid.uuid4()
        if value.int >= RESERVED_BELOW and not format_uuid(value).startswith("-"):
            return value
