"""A request of any API and version, with something in each field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_origin
from uuid import UUID

TOPIC_ID = UUID("0b8e7f52-6a1c-4c59-a2a8-7d1c0f4f3c11")


def example(kind: Any) -> Any:
    """Returns the fields of a class of kio's, with one item in each array."""
    found = {}
    for field in fields(kind):
        is_time = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
        found[f"{field.name}_ms" if is_time else field.name] = example_of(field.type, field.metadata.get("kafka_type"))
    return found


def example_of(kind: Any, kafka_type: str | None) -> Any:
    kinds = [one for one in get_args(kind) if one is not type(None)] if get_origin(kind) is not tuple else []
    kind = kinds[0] if kinds else kind
    if get_origin(kind) is tuple:
        return [example_of(get_args(kind)[0], kafka_type)]
    match kafka_type:
        case None:
            return example(kind)
        case "string":
            return "name"
        case "uuid":
            return TOPIC_ID
        case "bytes" | "records":
            return b"bytes"
        case "bool":
            return True
        case _:
            return 7
