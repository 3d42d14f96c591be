"""The fields of a request or a response as dicts, lists and plain values, by Kafka's names: `max_wait_ms`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from odradek.broker.protocol import milliseconds


def plain_fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message of kio's, in the form that `encode_request` and `encode_response` take."""
    found: dict[str, Any] = {}
    for field in fields(message):
        kafka_type = field.metadata.get("kafka_type", "")
        is_time = kafka_type.startswith(("timedelta", "datetime"))
        found[f"{field.name}_ms" if is_time else field.name] = _plain(getattr(message, field.name), is_time=is_time)
    return found


def _plain(value: Any, *, is_time: bool) -> Any:
    if isinstance(value, tuple):
        return [_plain(one, is_time=is_time) for one in value]
    if is_dataclass(value):
        return plain_fields(value)
    if isinstance(value, timedelta):
        return milliseconds(value)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, IntEnum):
        return int(value)
    if is_time and value is None:
        return -1
    return value
