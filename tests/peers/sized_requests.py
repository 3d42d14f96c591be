"""Requests of every API, one of whose arrays has as many items as is asked for; made from kio's schemas.

An API that the broker gets later is covered without new code, but for values that it needs to come far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin
from uuid import UUID

from odradek.broker.api import ADVERTISED, APIS
from odradek.broker.protocol import encode_request, request_class, without_none
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record

Path: TypeAlias = tuple[str, ...]
"""The names of the fields that lead to an array."""

TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
"""Types of fields whose names end with `_ms` in a message."""
_PARTITIONS = ("partition", "partition_index", "partition_indexes", "partitions")
JOIN_GROUP, CREATE_TOPICS, DELETE_TOPICS = 11, 19, 20
CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, SHARE_FETCH = 68, 76, 78
_numbers = itertools.count()
_JOINING: Mapping[str, Any] = {
    "group_id": "",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "server_assignor": "uniform",
    # What a pattern matches is found later.
    "subscribed_topic_regex": "",
}
_SHARE_SESSION: Mapping[str, Any] = {"member_id": "m", "share_session_epoch": 0}
_BATCH = build_batch([Record(key=b"key", value=b"value", timestamp=1)])

_USUAL: Mapping[str, Any] = {
    "acks": 1,
    "allow_auto_topic_creation": False,
    "batch_size": 500,
    "broker_ids": 1,
    "replicas": 1,
    "config_operation": 2,  # APPEND
    "count": 4096,
    "feature": "metadata.version",
    "iterations": 4096,
    "max_bytes": 1 << 20,
    "max_records": 500,
    "max_version_level": 30,
    "mechanism": "PLAIN",
    "member_id": "",
    "num_partitions": -1,
    "operation": 3,  # READ
    "pattern_type_filter": 3,  # LITERAL
    "permission_type": 3,  # ALLOW
    "principal": "User:alice",
    "partition_max_bytes": 1 << 20,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 60_000,
    "replica_id": -1,
    "replication_factor": -1,
    "resource_pattern_type": 3,  # LITERAL
    "resource_type": 2,  # topics
    "resource_type_filter": 2,
    "resource_types": 2,
    "response_partition_limit": 2000,
    "salted_password": b"salted",
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "upgrade_type": 1,
    "validate_only": True,
}
"""Values by the name of the field, with which a request comes far."""


class Variety(Enum):
    """What the items of an array name: things that there are, that there are not, or the same one again and again."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    REPEATED = "repeated"


class Growing(NamedTuple):
    """An array of a version of an API."""

    key: int
    name: str
    version: int
    path: Path

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}-{'.'.join(self.path)}"

    def frame(self, count: int, variety: Variety, topic_ids: Sequence[UUID], longer_by: int = 0) -> bytearray:
        """Returns a request, without its size, whose array has so many items.

        Args:
            topic_ids: The ids of the topics t0, t1, ...; t0 has partitions enough.
            longer_by: By how many characters the texts are longer that are not in the array; all if the path is empty.
        """
        maker = _Maker(self, count, variety, topic_ids, longer_by)
        message = maker.structure(request_class(self.key, self.version), (), 0)
        return bytearray(encode_request(self.key, self.version, 1, "tests", message)[4:])


def newest(versions: range) -> list[int]:
    """Returns the newest version."""
    return [versions[-1]]


def oldest_and_newest(versions: range) -> list[int]:
    """Returns the oldest and the newest version, once if they are the same."""
    return sorted({versions[0], versions[-1]})


def arrays_of(key: int, choose: Callable[[range], list[int]]) -> list[Growing]:
    """Returns the arrays of an API, and long texts of settings, in some of its versions."""
    api = APIS[key]
    assert api is not None
    return [
        Growing(key, api.name, version, path)
        for version in choose(api.versions)
        for path in _arrays(request_class(key, version), ())
    ]


def all_keys() -> list[int]:
    """Returns the numbers of the APIs."""
    return list(ADVERTISED)


def _arrays(kind: Any, path: Path) -> Iterator[Path]:
    for field in fields(kind):
        item, is_array = item_of(field)
        here = (*path, field.name)
        if is_array or (field.name == "value" and "configs" in path):
            yield here
        if field.metadata.get("kafka_type") is None:
            yield from _arrays(item, here)


def item_of(field: Field[Any]) -> tuple[Any, bool]:
    """Returns the type of a field, or of its items, and whether it is an array."""
    kind, _ = without_none(field.type)
    if get_origin(kind) is not tuple:
        return kind, False
    item, _ = without_none(get_args(kind)[0])
    return item, True


class _Member(NamedTuple):
    """A field of a message, as a request is made from it."""

    field_name: str
    item: Any
    is_array: bool
    kafka_type: str | None
    name: str
    """As the message has it: times end with `_ms`."""


@cache
def _members(kind: Any) -> tuple[_Member, ...]:
    """Returns the fields of a message; kept, because a request has a hundred thousand of a kind."""
    found = []
    for field in fields(kind):
        kafka_type = field.metadata.get("kafka_type")
        name = f"{field.name}_ms" if kafka_type in TIMES else field.name
        found.append(_Member(field.name, *item_of(field), kafka_type, name))
    return tuple(found)


class _Maker:
    def __init__(self, array: Growing, count: int, variety: Variety, topic_ids: Sequence[UUID], longer_by: int) -> None:
        self._growing = array.path
        self._key = array.key
        self._count = count
        self._variety = variety
        self._topic_ids = topic_ids
        self._longer_by = longer_by

    def structure(self, kind: Any, path: Path, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for member in _members(kind):
            name, here = member.name, (*path, member.field_name)
            if self._key == DELETE_TOPICS and member.field_name == ("topic_id" if number % 2 else "name"):
                # Half of the topics are deleted by their names, the others by their ids.
                found[name] = None
            elif not member.is_array:
                found[name] = self._one(member, here, number)
            elif self._key == CONSUMER_HEARTBEAT and name == "topic_partitions" and name not in self._growing:
                # A member that joins has none.
                found[name] = []
            elif self._key == SHARE_FETCH and name == "acknowledgement_batches" and name not in self._growing:
                # A session that begins acknowledges nothing.
                found[name] = []
            elif here == self._growing:
                found[name] = self._many(member, here)
            else:
                found[name] = [self._one(member, here, number)]
        return found

    def _many(self, member: _Member, path: Path) -> list[Any]:
        """Returns the items of the array that grows."""
        if self._variety is not Variety.REPEATED:
            return [self._one(member, path, at) for at in range(self._count)]
        # Made twice, not a hundred thousand times: one of even and one of odd number.
        both = [self._one(member, path, at) for at in range(2)]
        return (both * self._count)[: self._count]

    def _one(self, member: _Member, path: Path, number: int) -> Any:
        """Returns the value of a field, or one item of it."""
        if member.kafka_type is None:
            return self.structure(member.item, path, number)
        return self._value(member.name, path, member.kafka_type, number)

    def _value(self, name: str, path: Path, kafka_type: str, number: int) -> Any:
        number = 0 if self._variety is Variety.REPEATED else number
        is_unknown = self._variety is Variety.UNKNOWN
        if path == self._growing and "configs" in path and name == "value":
            return ",".join(f"word{0 if self._variety is Variety.REPEATED else at}" for at in range(self._count))
        if self._key == CREATE_TOPICS and path == ("topics", "name"):
            return f"new-{number}"
        if self._key == JOIN_GROUP and name == "group_id":
            # Nobody else is in it, so that nobody is waited for.
            return f"group-{next(_numbers)}"
        if self._key in (CONSUMER_HEARTBEAT, SHARE_HEARTBEAT) and name in _JOINING:
            return next(_numbers).to_bytes(4, "big").hex() if name == "group_id" else _JOINING[name]
        if self._key == SHARE_FETCH and name in _SHARE_SESSION:
            return _SHARE_SESSION[name]
        if "configs" in path and name == "value":
            return "delete"
        if "configs" in path and name == "name":
            return f"none.{number}" if number or is_unknown else "cleanup.policy"
        if name == "principal_type":
            return "User"
        if name == "mechanism" and kafka_type == "int8":
            return 1  # SCRAM-SHA-256
        if name in _USUAL:
            return _USUAL[name]
        match kafka_type:
            case "string":
                is_in_array = bool(self._growing) and path[: len(self._growing)] == self._growing
                added = "" if is_in_array else "x" * self._longer_by
                return f"none-{number}{added}" if is_unknown else f"t{number}{added}"
            case "uuid":
                return UUID(int=number + 1) if is_unknown else self._topic_ids[number % len(self._topic_ids)]
            case "records":
                return bytes(_BATCH)
            case "bytes":
                return b""
            case "bool" | "float64":
                return 0
        if name in _PARTITIONS:
            return number + (1 << 20) * is_unknown
        if name == "producer_id_filters":
            return number
        # Times, offsets, epochs: none of them is known.
        return 0 if kafka_type in ("error_code", *TIMES, "int8") else -1
