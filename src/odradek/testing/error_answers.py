"""The answer of any API with an error where its clients look for it.

    error at the top     FindCoordinator, JoinGroup, InitProducerId, ...    the error there, and nothing else
    error of each item   Produce, ListOffsets, OffsetCommit, CreateTopics   the request's items, each with the error

Fetch has both: errors of fetch sessions are at the top, all others at the partitions.

Source in Kafka: `AbstractRequest.getErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.errors import ErrorCode

from odradek.broker.protocol import Message, RequestHeader, response_class
from odradek.messages.uuids import ZERO_UUID

FETCH_KEY = 1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.fetch_session_topic_id_error,
    }
)
"""The errors of a Fetch that are at its top."""

_ALIASES = (
    ("name", "topic", "topic_name"),
    ("partition_index", "partition", "index", "partition_id"),
    ("group_id", "key"),
)
_TEXT_OF_ERROR = "error_message"


def error_answer(header: RequestHeader, request: Any, code: int) -> Message:
    """Return the answer to a request that has an error.

    Args:
        header: The request's header.
        request: Its body, an object of kio's class.
        code: Kafka's code of the error.
    """
    kind = response_class(header.api_key, header.version)
    at_top = header.api_key != FETCH_KEY or code in SESSION_ERRORS
    return _filled(kind, (request,), code, own_error=at_top)


def _filled(kind: Any, sources: Sequence[Any], code: int | None, *, own_error: bool = True) -> Message:
    """Return a structure of the answer.

    Args:
        kind: kio's class of it.
        sources: What it answers: an item of the request, and those around it.
        code: The error, if it belongs here or to items in it.
        own_error: Whether the structure's own error may have it.
    """
    is_here = code is not None and own_error and _error_field(kind) is not None
    message: dict[str, Any] = {}
    for field in fields(kind):
        if field.metadata.get("tag") is not None:
            continue
        if field.name == _error_field(kind):
            message[field.name] = code if is_here else 0
        elif field.name == _TEXT_OF_ERROR:
            message[field.name] = None if code is None or not is_here else ErrorCode(code).__doc__
        elif _is_array(field):
            item = _kind(field)
            holds_error = code is not None and not is_here and _has_error(item)
            message[field.name] = [_item(item, one, sources, code) for one in _items(sources)] if holds_error else []
        elif field.metadata.get("kafka_type") is None:
            message[field.name] = None if _is_optional(field) else _filled(_kind(field), sources, None)
        else:
            name, default = _default(field)
            message[name] = _found(field, sources, default)
    return message


def _item(kind: Any, one: Any, sources: Sequence[Any], code: int | None) -> Message:
    if is_dataclass(one):
        return _filled(kind, (one, *sources), code)
    # Partitions are numbers, groups and topics are names.
    message = dict(_filled(kind, sources, code))
    for field in fields(kind):
        if isinstance(one, _kind(field)) and field.name not in (_error_field(kind), _TEXT_OF_ERROR):
            message[field.name] = one
            break
    return message


def _items(sources: Sequence[Any]) -> Iterable[Any]:
    """Return the items that a request, or an item of it, consists of: its first array."""
    for field in fields(sources[0]):
        value = getattr(sources[0], field.name)
        if isinstance(value, tuple):
            return value
    return ()


def _found(field: Field[Any], sources: Sequence[Any], default: Any) -> Any:
    names = next((names for names in _ALIASES if field.name in names), (field.name,))
    for source in sources:
        for name in (field.name, *names):
            value = getattr(source, name, None)
            if isinstance(value, _kind(field)):
                return value
    return default


def _default(field: Field[Any]) -> tuple[str, Any]:
    kafka_type = field.metadata["kafka_type"]
    if kafka_type.startswith(("timedelta", "datetime")):
        return f"{field.name}_ms", -1 if _is_optional(field) else 0
    if field.default is not MISSING:
        return field.name, field.default
    match kafka_type:
        case "records":
            return field.name, b""
        case _ if _is_optional(field):
            return field.name, None
        case "string":
            return field.name, ""
        case "bytes":
            return field.name, b""
        case "bool":
            return field.name, False
        case "uuid":
            return field.name, ZERO_UUID
        case "error_code":
            return field.name, 0
        case _:
            return field.name, -1


def _is_array(field: Field[Any]) -> bool:
    return get_origin(_without_none(field.type)) is tuple


def _is_optional(field: Field[Any]) -> bool:
    return get_origin(field.type) in (UnionType, Union) and NoneType in get_args(field.type)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (UnionType, Union):
        return next(one for one in get_args(kind) if one is not NoneType)
    return kind


def _kind(field: Field[Any]) -> Any:
    """Return the type of a field, or of the items of an array."""
    kind = _without_none(field.type)
    return _without_none(get_args(kind)[0]) if get_origin(kind) is tuple else kind


@cache
def _error_field(kind: Any) -> str | None:
    """Return the name of a structure's own error."""
    return next((field.name for field in fields(kind) if field.metadata.get("kafka_type") == "error_code"), None)


@cache
def _has_error(kind: Any) -> bool:
    """Return whether a structure has an error, or items that have one."""
    if not hasattr(kind, "__flexible__"):
        return False
    return _error_field(kind) is not None or any(_has_error(_kind(field)) for field in fields(kind) if _is_array(field))
