"""Reads the body of a request by kio, after its arrays were checked.

kio allocates as many items as a request announces, even if there is not so much memory; it lets any array be null; and
it refuses unknown tagged fields, which clients may add to any flexible version (KIP-482). So the request is checked
first, and given to kio without such fields.

Source in Kafka: `AbstractRequest`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin

from odradek.broker.protocol import FIXED_TYPES, RequestHeader, decode, request_class, request_reader, without_none
from odradek.records.kernels.frames import WireReader

_Check: TypeAlias = Callable[[WireReader], None]


def decode_request(frame: bytearray, header: RequestHeader) -> Any:
    """Read the body of a request, as an object of kio's class.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    kind: Any = request_class(header.api_key, header.version)
    reader = WireReader(frame, header.body_position, is_flexible=bool(kind.__flexible__))
    _check(kind)(reader)
    what = f"a request of API key {header.api_key}, version {header.version}"
    return decode(
        request_reader(header.api_key, header.version), reader.without_unknown_tags(), header.body_position, what
    )[0]


@cache
def _check(kind: Any) -> _Check:
    """Return what goes through a structure, and raises a ProtocolError at an array that does not fit."""
    checks = [_check_field(field) for field in fields(kind) if field.metadata.get("tag") is None]
    tagged = {
        field.metadata["tag"]: _check_field(field) for field in fields(kind) if field.metadata.get("tag") is not None
    }

    def check(reader: WireReader) -> None:
        for one in checks:
            one(reader)
        reader.tags(tagged)

    return check


def _check_field(field: Field[Any]) -> _Check:
    kind, is_optional = without_none(field.type)
    kafka_type = field.metadata.get("kafka_type")
    is_array = get_origin(kind) is tuple
    if is_array:
        kind, _ = without_none(get_args(kind)[0])
    check = _check(kind) if kafka_type is None else _skip(kafka_type)
    if is_array:
        return _check_array(check, is_optional=is_optional)
    return _check_nullable(check) if kafka_type is None and is_optional else check


def _skip(kafka_type: str) -> _Check:
    if kafka_type == "string":
        return WireReader.skip_text
    if kafka_type in ("bytes", "records"):
        return WireReader.skip_bytes
    size = 16 if kafka_type == "uuid" else struct.calcsize(FIXED_TYPES[kafka_type])
    return lambda reader: reader.skip(size)


def _check_array(item: _Check, *, is_optional: bool) -> _Check:
    read_count = WireReader.nullable_count if is_optional else WireReader.count

    def check(reader: WireReader) -> None:
        for _ in range(read_count(reader)):
            item(reader)

    return check


def _check_nullable(item: _Check) -> _Check:
    def check(reader: WireReader) -> None:
        if reader.is_present():
            item(reader)

    return check
