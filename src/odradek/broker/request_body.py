"""Reads the body of a request by kio, after its arrays were checked.

kio allocates as many items as a request announces, even if there is not so much memory; it lets any array be null; and
it refuses unknown tagged fields, which clients may add to any flexible version (KIP-482). So the request is checked
first, and passed to kio without such fields.

Large requests are read in another thread. kio's compiled code holds Python's lock, so that a whole array would keep the
event loop waiting there, too: each structure in an array of such a request is read by a call of its own.

Source in Kafka: `AbstractRequest`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin

from kio._kio_native import entity_reader, get_field_reader

from odradek.broker.protocol import (
    FIXED_TYPES,
    RequestHeader,
    decode,
    request_class,
    request_reader,
    unsigned_varint,
    without_none,
)
from odradek.buffers import Buffer
from odradek.records.kernels.frames import WireReader

_Check: TypeAlias = Callable[[WireReader], None]
_Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]

LARGE_BYTES = 1 << 13
"""A larger request may take some ten milliseconds to read and to answer, if its items have a byte or two."""


def decode_request(frame: bytearray, header: RequestHeader) -> Any:
    """Read the body of a request, as an object of kio's class.

    Raises:
        ProtocolError: It does not follow its schema, or its arrays have too many items.
    """
    kind: Any = request_class(header.api_key, header.version)
    reader = WireReader(frame, header.body_position, is_flexible=bool(kind.__flexible__))
    _check(kind)(reader)
    what = f"a request of API key {header.api_key}, version {header.version}"
    is_large = len(frame) > LARGE_BYTES
    read = reader_in_parts(kind) if is_large else request_reader(header.api_key, header.version)
    return decode(read, reader.without_unknown_tags(), header.body_position, what)[0]


@cache
def _check(kind: Any) -> _Check:
    """Return a function that checks a structure; it raises a ProtocolError at an array that does not fit."""
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


# -- reading


@cache
def reader_in_parts(kind: Any) -> _Reader:
    """Return a function that reads a structure that was checked, the structures in its arrays one by one."""
    all_fields = fields(kind)
    if not any(_is_array_of_structures(field) for field in all_fields) or any("tag" in f.metadata for f in all_fields):
        return entity_reader(kind)
    readers = [(field.name, _field_reader(kind, field)) for field in all_fields]
    # The tagged fields were removed.
    tags_size = 1 if kind.__flexible__ else 0

    def read(data: Buffer, start: int) -> tuple[Any, int]:
        position, values = start, {}
        for name, read_field in readers:
            values[name], size = read_field(data, position)
            position += size
        return kind(**values), position + tags_size - start

    return read


def _is_array_of_structures(field: Field[Any]) -> bool:
    kind, _ = without_none(field.type)
    return get_origin(kind) is tuple and field.metadata.get("kafka_type") is None


def _field_reader(kind: Any, field: Field[Any]) -> _Reader:
    if not _is_array_of_structures(field):
        read: _Reader = get_field_reader(kind, field, is_request_header=False, is_tagged_field=False)
        return read
    array, _ = without_none(field.type)
    item = reader_in_parts(without_none(get_args(array)[0])[0])
    read_count = _compact_count if kind.__flexible__ else _count

    def read_array(data: Buffer, start: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_count(data, start)
        items = []
        for _ in range(count):
            one, size = item(data, position)
            items.append(one)
            position += size
        return None if count < 0 else tuple(items), position - start

    return read_array


def _count(data: Buffer, start: int) -> tuple[int, int]:
    return int.from_bytes(memoryview(data)[start : start + 4], "big", signed=True), start + 4


def _compact_count(data: Buffer, start: int) -> tuple[int, int]:
    count, position = unsigned_varint(data, start)
    return count - 1, position
