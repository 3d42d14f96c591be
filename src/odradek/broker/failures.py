"""The answer of any API to a request that failed as a whole, with the error where clients look for it.

    error at the top     FindCoordinator, JoinGroup, InitProducerId, ...    the error there, and nothing else
    error of each item   Produce, ListOffsets, DeleteGroups, CreateTopics   the request's items, each with the error

The items of an answer have the order and the nesting of those of the request. If the request does not name them, as the
folders of DescribeLogDirs, one without a name has the error.

Source in Kafka: `AbstractRequest.getErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args, get_origin

from odradek.broker.protocol import Message, RequestHeader, response_class, without_none

_SAME = (
    ("name", "topic", "topic_name"),
    ("partition_index", "partition", "index", "partition_id"),
    ("group_id", "key"),
    ("topic_id",),
    ("producer_id",),
    ("resource_type",),
    ("resource_name",),
    ("transactional_id",),
)
"""The fields that identify an item, under the names that requests and answers have for them."""

_NAMES = {name: names for names in _SAME for name in names}


def failure(header: RequestHeader, body: Any, code: int, text: str | None, *, at_top: bool = True) -> Message:
    """Return the answer to a request that failed.

    Args:
        header: The request's header.
        body: Its body, an object of kio's class.
        code: Kafka's code of the error.
        text: The message for the client, if the answer has a place for one.
        at_top: Whether the error may be at the top, if the answer has one there.
    """
    return _answer(response_class(header.api_key, header.version), body, code, text, at_top=at_top)


def _answer(kind: Any, source: Any, code: int, text: str | None, *, at_top: bool) -> dict[str, Any]:
    own = _error_field(kind)
    if own is not None and at_top:
        return {own: code, "error_message": text}
    found = {}
    for field in fields(kind):
        item = _item_kind(field)
        if item is not None and _has_error(item):
            names = [one.name for one in fields(item) if one.name in _NAMES]
            ones = _items(source) if names else [source]
            found[field.name] = [_item(item, names, one, code, text) for one in ones]
    return found


def _item(kind: Any, names: Sequence[str], one: Any, code: int, text: str | None) -> Message:
    # Partitions are numbers, groups and topics are names.
    source = one if is_dataclass(one) else SimpleNamespace(**{names[0]: one})
    told = {name: found for name in names if (found := _found(name, source)) is not None}
    return told | _answer(kind, source, code, text, at_top=True)


def _found(name: str, source: Any) -> Any:
    return next((getattr(source, same) for same in _NAMES[name] if hasattr(source, same)), None)


def _items(source: Any) -> Iterable[Any]:
    """Return the items that a request, or an item of it, consists of: its first array."""
    arrays = (getattr(source, field.name) for field in fields(source))
    return next((array for array in arrays if isinstance(array, tuple)), ())


def _item_kind(field: Field[Any]) -> Any:
    """Return the type of the structures of an array; None for any other field."""
    kind, _ = without_none(field.type)
    item = without_none(get_args(kind)[0])[0] if get_origin(kind) is tuple else None
    return item if hasattr(item, "__flexible__") else None


@cache
def _error_field(kind: Any) -> str | None:
    """Return the name of a structure's own error; one that may be newer than kio's errors is a number."""
    return next(
        (each.name for each in fields(kind) if "error_code" in (each.name, each.metadata.get("kafka_type"))), None
    )


@cache
def _has_error(kind: Any) -> bool:
    """Return whether a structure has an error, or items that have one."""
    items = [item for item in map(_item_kind, fields(kind)) if item is not None]
    return _error_field(kind) is not None or any(map(_has_error, items))
