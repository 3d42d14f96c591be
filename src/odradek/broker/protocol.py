"""Kafka's requests and responses as bytes, by kio's schemas.

    frame      size: int32 | api key: int16 | version: int16 | correlation id: int32 | client id | tags | body
    response   size: int32 | correlation id: int32 | tags | body

kio has a class for each version of each message. A field that a later version added is missing from an object of that
class, so read one with `given`. `encode_response` takes dicts that have the fields of all versions, by Kafka's names
(`throttle_time_ms`), and writes those that the version has. For a field that a dict does not have it writes the default
of Kafka's schema, or else nothing: -1, false, null, or what is empty. Records may be parts of files, which are
sent without being read.

Source in Kafka: `RequestHeader`, `ResponseHeader`, `AbstractRequest`, `AbstractResponse`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import cache
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from kio._kio_native import entity_reader
from kio.schema.index import PayloadEntityType, api_key_map, schema_name_map
from kio.static.constants import EntityType

from odradek.broker.times_in_ms import with_times_in_ms
from odradek.buffers import Buffer
from odradek.errors import ProtocolError
from odradek.messages.uuids import ZERO_UUID
from odradek.records.kernels.frames import WireReader
from odradek.storage.segment.file_records import FileRecords

PRODUCE_KEY, FETCH_KEY, API_VERSIONS_KEY = 0, 1, 18

Message: TypeAlias = Mapping[str, Any]
"""A request or a response to be written: the fields by name, structures as mappings, arrays as sequences."""


class Encoded(bytearray):
    """A message as bytes, with the parts of files that are sent between them.

    Attributes:
        regions: The parts of files, each with the position in the bytes before which it is sent.
    """

    regions: Sequence[tuple[int, FileRecords]] = ()

    def add_region(self, region: FileRecords) -> None:
        """Send a part of a file after the bytes that were written so far."""
        if isinstance(self.regions, list):
            self.regions.append((len(self), region))
        else:
            self.regions = [(len(self), region)]

    @property
    def size_bytes(self) -> int:
        """How many bytes are sent."""
        if not self.regions:
            return len(self)
        return len(self) + sum(region.size_bytes for _, region in self.regions)


class RequestHeader(NamedTuple):
    """The header of a request: what comes before its body.

    Attributes:
        api_key: Which API.
        version: Which version of it.
        correlation_id: A number that the response repeats.
        client_id: What the client calls itself.
        body_position: Where the body begins.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


_HEADER = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")


def unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a variable-length integer; return it and the position after it.

    Raises:
        ProtocolError: It has more than five bytes.
        IndexError: It is cut short.
    """
    view, value, shift = memoryview(data), 0, 0
    while shift < 35:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolError("a variable-length integer has more than five bytes")


def client_id_of(frame: bytearray) -> str:
    """Return what the client of a request calls itself, of which nothing else is looked at."""
    end = _HEADER.size + max(0, int.from_bytes(frame[_HEADER.size - 2 : _HEADER.size], "big", signed=True))
    return frame[_HEADER.size : end].decode(errors="replace")


def decode_header(frame: bytearray) -> RequestHeader:
    """Read the header of a request.

    Args:
        frame: The request, without its size.

    Raises:
        ProtocolError: It is cut short, or its client id is no text.
    """
    try:
        api_key, version, correlation_id, id_size = _HEADER.unpack_from(frame)
        position = _HEADER.size
        client_id = None
        if id_size >= 0:
            end = position + id_size
            if end > len(frame):
                raise ProtocolError("the client id goes beyond the end of the request")
            client_id = frame[position:end].decode()
            position = end
        if is_flexible(api_key, version):
            if frame[position] == 0:
                # Usually there are no tags.
                position += 1
            else:
                reader = WireReader(frame, position, is_flexible=True)
                reader.tags()
                position = reader.position
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the header of a request of {len(frame)} bytes cannot be read: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, position)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether requests and answers of a version have tagged fields and compact lengths (KIP-482)."""
    try:
        return bool(request_class(api_key, version).__flexible__)
    except KeyError:
        # Whatever the version, the header of an ApiVersions request is of a form that every broker can read.
        return False


@cache
def request_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class of a request.

    Raises:
        KeyError: It has none.
    """
    return _class(api_key, version, EntityType.request)


@cache
def response_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class of a response.

    Raises:
        KeyError: It has none.
    """
    return _class(api_key, version, EntityType.response)


def _class(api_key: int, version: int, kind: PayloadEntityType) -> type[Any]:
    versions = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else {}
    if version not in versions:
        # Imported where it is needed: making its classes takes a tenth of a broker's start.
        from odradek.broker.newer_messages import NEWER

        return NEWER[api_key, version, kind]
    # As kio.index does, which imports much that only clients need.
    module, _, name = versions[version][kind].partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


@cache
def request_reader(api_key: int, version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
    """Return kio's function that reads a request."""
    return entity_reader(request_class(api_key, version))


@cache
def _response_reader(api_key: int, version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
    return entity_reader(with_times_in_ms(response_class(api_key, version)))


def decode(read: Callable[[Buffer, int], tuple[Any, int]], data: Buffer, position: int, what: str) -> tuple[Any, int]:
    """Read a message by a function of kio's; return it and its size.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    try:
        return read(data, position)
    except Exception as error:
        # kio raises errors of its own, and of Python: of too few bytes, bad text, sizes that make no sense.
        raise ProtocolError(f"{what} cannot be read: {error}") from error


def given(message: Any, field: str, default: Any = None) -> Any:
    """Return a field of a message of kio's, or a default if its version does not have the field."""
    return getattr(message, field, default)


def milliseconds(duration: timedelta) -> int:
    """Return a duration of a message of kio's in ms."""
    return round(duration.total_seconds() * 1000)


# -- writing

Writer: TypeAlias = Callable[[Encoded, Any], None]
"""Adds a value to a message."""


def _packed(code: str) -> Writer:
    pack = struct.Struct(">" + code).pack

    def write(out: Encoded, value: Any) -> None:
        out += pack(value)

    return write


_write_int16 = _packed("h")
_write_int32 = _packed("i")


def _write_varint(out: Encoded, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_uuid(out: Encoded, value: UUID | None) -> None:
    out += (value or ZERO_UUID).bytes


def _write_compact_size(out: Encoded, size: int) -> None:
    if size < 0x7F:
        out.append(size + 1)
    else:
        _write_varint(out, size + 1)


def _sized(write_size: Writer, *, is_text: bool) -> Writer:
    """Return a writer of texts or bytes; None is written as a size of -1."""

    def write(out: Encoded, value: Any) -> None:
        if value is None:
            write_size(out, -1)
            return
        data = value.encode() if is_text else value
        write_size(out, len(data))
        out += data

    return write


def _records(write_size: Writer) -> Writer:
    def write(out: Encoded, value: Any) -> None:
        if value is None:
            write_size(out, -1)
        elif isinstance(value, bytes | bytearray | memoryview):
            write_size(out, len(value))
            out += value
        else:
            write_size(out, value.size_bytes)
            if value.size_bytes:
                out.add_region(value)

    return write


@cache
def size_writer(is_flexible: bool) -> Writer:
    """Return what writes the size of an array; -1 for None."""
    return _write_compact_size if is_flexible else _write_int32


@cache
def text_writer(is_flexible: bool) -> Writer:
    """Return what writes a text, or None."""
    return _sized(_write_compact_size if is_flexible else _write_int16, is_text=True)


@cache
def records_writer(is_flexible: bool) -> Writer:
    """Return what writes records: bytes, a part of a file, or None."""
    return _records(size_writer(is_flexible))


FIXED_TYPES = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Maps a type of fixed size to its code for `struct`."""

_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


def _primitive(kafka_type: str, *, is_flexible: bool) -> Writer:
    if kafka_type in FIXED_TYPES:
        return _packed(FIXED_TYPES[kafka_type])
    if kafka_type == "uuid":
        return _write_uuid
    if kafka_type == "string":
        return text_writer(is_flexible)
    return records_writer(is_flexible) if kafka_type == "records" else _sized(size_writer(is_flexible), is_text=False)


class Constant(tuple[Message, ...]):
    """Structures that are the same in all answers: they are written once for each version."""

    def __init__(self, _: Iterable[Message]) -> None:
        self.written: dict[Writer, Encoded] = {}


def _array(item: Writer, *, is_flexible: bool) -> Writer:
    write_size = size_writer(is_flexible)

    def write(out: Encoded, values: Sequence[Any] | None) -> None:
        if values is None:
            write_size(out, -1)
            return
        if type(values) is Constant:
            if write not in values.written:
                write(values.written.setdefault(write, Encoded()), list(values))
            out += values.written[write]
            return
        write_size(out, len(values))
        for value in values:
            item(out, value)

    return write


def _nullable(write_struct: Writer) -> Writer:
    def write(out: Encoded, value: Any) -> None:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        write_struct(out, value)

    return write


class _FieldWriter(NamedTuple):
    name: str
    write: Writer
    default: Any
    tag: int | None
    code: str | None


def without_none(kind: Any) -> tuple[Any, bool]:
    """Return the type of a field without None, and whether it may be None."""
    if get_origin(kind) in (UnionType, Union):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return kinds[0], len(kinds) < len(get_args(kind))
    return kind, False


def _field_writer(field: Field[Any], *, is_flexible: bool) -> _FieldWriter:
    kind, is_optional = without_none(field.type)
    tag = field.metadata.get("tag")
    kafka_type = field.metadata.get("kafka_type")
    name = f"{field.name}_ms" if kafka_type in _TIMES else field.name
    is_array = get_origin(kind) is tuple
    if is_array:
        kind, _ = without_none(get_args(kind)[0])
    if kafka_type is not None:
        write = _primitive(kafka_type, is_flexible=is_flexible)
    else:
        write = _struct(kind)
        if is_optional and not is_array:
            write = _nullable(write)
    if is_array:
        write = _array(write, is_flexible=is_flexible)
    code = None if is_array or kafka_type is None else FIXED_TYPES.get(kafka_type)
    default: Any = 0
    if name != "throttle_time_ms" and kafka_type != "error_code":
        nothing = () if is_array else _nothing(kafka_type, is_optional=is_optional)
        default = nothing if field.default is MISSING else _plain(field.default, kafka_type)
    return _FieldWriter(name, write, default, tag, code)


def _nothing(kafka_type: str | None, *, is_optional: bool) -> Any:
    """Return what is written for a field that is not given, and has no default in Kafka's schema."""
    if kafka_type in FIXED_TYPES:
        is_zero = kafka_type == "bool" or (kafka_type in _TIMES and not is_optional)
        return 0 if is_zero else -1
    if kafka_type == "uuid" or (is_optional and kafka_type != "records"):
        return None
    if kafka_type is None:
        return {}
    return "" if kafka_type == "string" else b""


def _plain(default: Any, kafka_type: str | None) -> Any:
    if kafka_type in _TIMES:
        return -1 if default is None else milliseconds(default)
    if hasattr(default, "__api_key__") or hasattr(default, "__flexible__"):
        # A structure: its own fields have the defaults.
        return {}
    return default


def _struct(kind: Any) -> Writer:
    write: Writer = _writer_of(kind)
    return write


def _single(writer: _FieldWriter) -> Writer:
    name, write_field, default = writer.name, writer.write, writer.default

    def write(out: Encoded, value: Message) -> None:
        write_field(out, value.get(name, default))

    return write


def _together(writers: Sequence[_FieldWriter]) -> Writer:
    """Return a writer of fields of fixed sizes that follow each other."""
    pack = struct.Struct(">" + "".join(writer.code or "" for writer in writers)).pack
    take = itemgetter(*[writer.name for writer in writers])

    def write(out: Encoded, value: Message) -> None:
        try:
            values = take(value)
        except KeyError:
            values = [value.get(writer.name, writer.default) for writer in writers]
        out += pack(*values)

    return write


def _tags(writers: Sequence[_FieldWriter]) -> Writer:
    """Return a writer of the tagged fields; one that has its default is not written."""

    def write_none(out: Encoded, _: Message) -> None:
        out.append(0)

    def write(out: Encoded, value: Message) -> None:
        present = [one for one in writers if one.name in value and value[one.name] != one.default]
        _write_varint(out, len(present))
        for writer in present:
            content = Encoded()
            writer.write(content, value[writer.name])
            _write_varint(out, writer.tag or 0)
            _write_varint(out, len(content))
            out += content

    return write if writers else write_none


@cache
def _writer_of(kind: Any) -> Writer:
    fields_of = [_field_writer(field, is_flexible=bool(kind.__flexible__)) for field in fields(kind)]
    steps: list[Writer] = []
    for is_fixed, group in groupby((one for one in fields_of if one.tag is None), key=lambda one: one.code is not None):
        writers = list(group)
        steps += [_together(writers)] if is_fixed and len(writers) > 1 else [_single(one) for one in writers]
    if kind.__flexible__:
        steps.append(_tags(sorted((one for one in fields_of if one.tag is not None), key=lambda one: one.tag or 0)))

    def write(out: Encoded, value: Message) -> None:
        for step in steps:
            step(out, value)

    return write


_SIZE_AND_CORRELATION_ID = struct.Struct(">4xi")


def begin_response(header: RequestHeader, tags: bytes) -> Encoded:
    """Return a response up to its body; its size is not known yet.

    Args:
        header: The header of the request.
        tags: The tagged fields of the header, in flexible versions.
    """
    return Encoded(_SIZE_AND_CORRELATION_ID.pack(header.correlation_id) + tags)


def end_response(out: Encoded) -> Encoded:
    """Write the size of a response, which is complete, into its first bytes."""
    _INT32.pack_into(out, 0, (out.size_bytes if out.regions else len(out)) - 4)
    return out


def encode_response(header: RequestHeader, message: Message) -> Encoded:
    """Return a response as bytes, from its size on."""
    kind = response_class(header.api_key, header.version)
    out = begin_response(header, b"\0" if kind.__flexible__ and header.api_key != API_VERSIONS_KEY else b"")
    _struct(kind)(out, message)
    return end_response(out)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> bytes:
    """Return a request as bytes, from its size on; for what tests a broker."""
    kind = request_class(api_key, version)
    out = Encoded()
    out += b"\0\0\0\0" + struct.pack(">hhi", api_key, version, correlation_id)
    _sized(_write_int16, is_text=True)(out, client_id)
    if kind.__flexible__:
        out.append(0)
    _struct(kind)(out, message)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """Read a response without its size; for what tests a broker.

    Returns:
        The correlation id, and the body as an object of kio's class, or of one like it (`times_in_ms`).

    Raises:
        ProtocolError: It does not follow its schema.
    """
    data = bytes(frame)
    position = 4
    what = f"a response of API key {api_key}, version {version}"
    try:
        (correlation_id,) = _INT32.unpack_from(data)
        if response_class(api_key, version).__flexible__ and api_key != API_VERSIONS_KEY:
            count, position = unsigned_varint(data, position)
            for _ in range(count):
                _, position = unsigned_varint(data, position)
                size, position = unsigned_varint(data, position)
                position += size
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"the header of {what} cannot be read: {error}") from error
    body, size = decode(_response_reader(api_key, version), data, position, what)
    if position + size < len(data):
        raise ProtocolError(f"{what} has {len(data) - position - size} bytes too many")
    return correlation_id, body
