"""The fields of Kafka's own records, read and written from one table of them: a `Schema`.

The records of the metadata log and of the coordinators' topics follow Kafka's message schemas (KIP-482): fields back to
back, and from some version on *flexible*: lengths as `unsigned varint + 1`, and behind the plain fields those that have
a tag.

    plain      int16 length | UTF-8            int32 length | bytes             int32 count | element * count
    flexible   uvarint length + 1 | UTF-8      uvarint length + 1 | bytes       uvarint count + 1 | element * count
               ... | uvarint tags | (uvarint tag | uvarint size | field) * tags

Null is length -1, or 0 in the flexible form. A tag that the table does not have is passed over.

Source in Kafka: `MessageDataGenerator`, `ByteBufferAccessor`; the tables are `*.json` beside each message.
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from odradek.errors import FormatError
from odradek.storage.files import Buffer
from odradek.storage.uuids import format_uuid

T = TypeVar("T")
LATEST = 0x7FFF
"""A version beyond all: the field is still there."""

_MAX_UNSIGNED_VARINT = 0xFFFF_FFFF


class FieldReader:
    """Takes fields from bytes, one after the other; no length is believed before it is checked.

    Attributes:
        position: The next byte.
        version: The version that the bytes are in.
        flexible: Whether lengths are in the compact form.
    """

    __slots__ = ("_data", "end", "flexible", "position", "version")

    def __init__(self, data: Buffer, *, version: int = 0, flexible: bool = False) -> None:
        self._data = bytes(data)
        self.position = 0
        self.end = len(self._data)
        self.version = version
        self.flexible = flexible

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.position

    def take(self, size: int) -> bytes:
        """Take `size` bytes.

        Raises:
            FormatError: There are fewer.
        """
        if not 0 <= size <= self.left:
            raise FormatError(f"a field claims {size} bytes, {self.left} are left", position=self.position)
        start, self.position = self.position, self.position + size
        return self._data[start : self.position]

    def unsigned_varint(self) -> int:
        """Take an unsigned varint of at most 5 bytes."""
        start, value, shift = self.position, 0, 0
        while shift < 35:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _MAX_UNSIGNED_VARINT:
                    break
                return value
            shift += 7
        raise FormatError("a varint is longer than 32 bits", position=start)

    def length(self, layout: struct.Struct) -> int:
        """Take a length or a count, -1 for null: compact where the version is flexible, else as `layout` has it."""
        start = self.position
        value: int = self.unsigned_varint() - 1 if self.flexible else layout.unpack(self.take(layout.size))[0]
        if not -1 <= value <= self.left:
            raise FormatError(f"a length of {value}, {self.left} bytes are left", position=start)
        return value


class FieldWriter:
    """Collects fields; what `FieldReader` takes."""

    __slots__ = ("data", "flexible", "version")

    def __init__(self, *, version: int = 0, flexible: bool = False) -> None:
        self.data = bytearray()
        self.version = version
        self.flexible = flexible

    def unsigned_varint(self, value: int) -> None:
        """Add an unsigned varint."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def length(self, layout: struct.Struct, value: int) -> None:
        """Add a length or a count, -1 for null."""
        if self.flexible:
            self.unsigned_varint(value + 1)
        else:
            self.data += layout.pack(value)


class FieldType(Protocol):
    """How one kind of field is written."""

    def read(self, reader: FieldReader) -> Any:
        """Take a value."""

    def write(self, writer: FieldWriter, value: Any) -> None:
        """Add a value."""

    def to_json(self, value: Any, version: int) -> Any:
        """Return a value as Kafka's tools print it in JSON."""


class _Number:
    def __init__(self, layout: str) -> None:
        self._layout = struct.Struct(f">{layout}")

    def read(self, reader: FieldReader) -> Any:
        return self._layout.unpack(reader.take(self._layout.size))[0]

    def write(self, writer: FieldWriter, value: Any) -> None:
        try:
            writer.data += self._layout.pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from error

    def to_json(self, value: Any, version: int) -> Any:
        return value


class _Uuid:
    def read(self, reader: FieldReader) -> UUID:
        return UUID(bytes=reader.take(16))

    def write(self, writer: FieldWriter, value: UUID) -> None:
        writer.data += value.bytes

    def to_json(self, value: UUID, version: int) -> str:
        return format_uuid(value)


class _Sized:
    """What has a length, and may be null."""

    layout = struct.Struct(">i")

    def __init__(self, *, nullable: bool = False) -> None:
        self._nullable = nullable

    def read(self, reader: FieldReader) -> Any:
        start = reader.position
        length = reader.length(self.layout)
        if length < 0:
            if not self._nullable:
                raise FormatError("null where there must be a value", position=start)
            return None
        return self.read_content(reader, length)

    def write(self, writer: FieldWriter, value: Any) -> None:
        if value is None:
            if not self._nullable:
                raise ValueError("null where there must be a value")
            writer.length(self.layout, -1)
        else:
            self.write_content(writer, value)

    def read_content(self, reader: FieldReader, length: int) -> Any:
        raise NotImplementedError

    def write_content(self, writer: FieldWriter, value: Any) -> None:
        raise NotImplementedError


class _Bytes(_Sized):
    def read_content(self, reader: FieldReader, length: int) -> bytes:
        return reader.take(length)

    def write_content(self, writer: FieldWriter, value: bytes) -> None:
        writer.length(self.layout, len(value))
        writer.data += value

    def to_json(self, value: bytes | None, version: int) -> str | None:
        return None if value is None else base64.b64encode(value).decode("ascii")


class _String(_Sized):
    layout = struct.Struct(">h")

    def read_content(self, reader: FieldReader, length: int) -> str:
        start = reader.position
        try:
            return reader.take(length).decode()
        except UnicodeDecodeError as error:
            raise FormatError("a string is not UTF-8", position=start) from error

    def write_content(self, writer: FieldWriter, value: str) -> None:
        data = value.encode()
        if len(data) > 0x7FFF:
            raise ValueError(f"a string of {len(data)} bytes is longer than {0x7FFF}")
        writer.length(self.layout, len(data))
        writer.data += data

    def to_json(self, value: str | None, version: int) -> str | None:
        return value


class Array(_Sized):
    """Elements of one type; a tuple in Python."""

    def __init__(self, element: FieldType, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self._element = element

    def read_content(self, reader: FieldReader, length: int) -> tuple[Any, ...]:
        """Take the elements."""
        return tuple([self._element.read(reader) for _ in range(length)])

    def write_content(self, writer: FieldWriter, value: tuple[Any, ...]) -> None:
        """Add the elements."""
        writer.length(self.layout, len(value))
        for element in value:
            self._element.write(writer, element)

    def to_json(self, value: tuple[Any, ...] | None, version: int) -> list[Any] | None:
        """Return the elements as JSON has them."""
        return None if value is None else [self._element.to_json(element, version) for element in value]


BOOL = _Number("?")
INT8 = _Number("b")
INT16 = _Number("h")
UINT16 = _Number("H")
INT32 = _Number("i")
INT64 = _Number("q")
UUID_FIELD = _Uuid()
STRING = _String()
NULLABLE_STRING = _String(nullable=True)
BYTES = _Bytes()
NULLABLE_BYTES = _Bytes(nullable=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A row of the table.

    Attributes:
        name: The attribute; in JSON the same in camel case.
        type: How it is written.
        since: The first version that has it.
        until: The last version that has it.
        tag: Its tag, where it has one: then it is written only where it differs from the default.
        needed: Whether a version without this field must refuse any value but the default.
        json_name: The name in JSON, where camel case does not give it.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int = LATEST
    tag: int | None = None
    needed: bool = False
    json_name: str = ""

    def key(self) -> str:
        """Return the name in JSON."""
        first, *others = self.name.split("_")
        return self.json_name or first + "".join(word.capitalize() for word in others)


class Schema(Generic[T]):
    """The table of one record: how a dataclass's attributes follow each other on the disk.

    It is a `FieldType` itself, for records inside records.

    Args:
        record: The dataclass. Its defaults stand for the fields that a version has not.
        fields: The fields, in the order of Kafka's schema.
        latest: The last version that is known.
        flexible_since: The first flexible version.
    """

    def __init__(
        self, record: Callable[..., T], fields: tuple[Field, ...], *, latest: int = 0, flexible_since: int = LATEST
    ) -> None:
        self.record = record
        self.fields = fields
        self.latest = latest
        self.flexible_since = flexible_since
        attributes = {field.name: field for field in dataclasses.fields(record)}  # type: ignore[arg-type]
        self._defaults = {field.name: attributes[field.name].default for field in fields}
        self._at = cache(self._fields_at)

    def _fields_at(self, version: int) -> tuple[tuple[Field, ...], Mapping[int, Field]]:
        present = [field for field in self.fields if field.since <= version <= field.until]
        tagged = {field.tag: field for field in present if field.tag is not None}
        return tuple(field for field in present if field.tag is None), dict(sorted(tagged.items()))

    def read(self, reader: FieldReader) -> T:
        """Take a record in the reader's version."""
        plain, tagged = self._at(reader.version)
        values = {field.name: field.type.read(reader) for field in plain}
        if reader.flexible:
            for _ in range(reader.unsigned_varint()):
                tag, size, start = reader.unsigned_varint(), reader.unsigned_varint(), reader.position
                if size > reader.left:
                    raise FormatError(f"tag {tag} claims {size} bytes, {reader.left} are left", position=start)
                field, end = tagged.get(tag), reader.end
                reader.end = start + size
                if field is None:
                    reader.position = reader.end
                else:
                    values[field.name] = field.type.read(reader)
                if reader.position != reader.end:
                    raise FormatError(f"tag {tag} has {reader.left} bytes too many", position=reader.position)
                reader.end = end
        return self.record(**values)

    def write(self, writer: FieldWriter, value: T) -> None:
        """Add a record in the writer's version.

        Raises:
            ValueError: The version has no place for a value that must not be lost, or a value does not fit its field.
        """
        plain, tagged = self._at(writer.version)
        for field in self.fields:
            present = field.since <= writer.version <= field.until
            if field.needed and not present and getattr(value, field.name) != self._defaults[field.name]:
                raise ValueError(f"version {writer.version} has no {field.name}")
        for field in plain:
            field.type.write(writer, getattr(value, field.name))
        if not writer.flexible:
            return
        given = [(tag, field, getattr(value, field.name)) for tag, field in tagged.items()]
        given = [entry for entry in given if entry[2] != self._defaults[entry[1].name]]
        writer.unsigned_varint(len(given))
        for tag, field, content in given:
            body = FieldWriter(version=writer.version, flexible=True)
            field.type.write(body, content)
            writer.unsigned_varint(tag)
            writer.unsigned_varint(len(body.data))
            writer.data += body.data

    def to_json(self, value: T, version: int) -> dict[str, Any]:
        """Return a record as Kafka's tools print it: the fields of this version, tagged ones where they are set."""
        found = {}
        for field in self.fields:
            content = getattr(value, field.name)
            if not field.since <= version <= field.until:
                continue
            if field.tag is None or content != self._defaults[field.name]:
                found[field.key()] = field.type.to_json(content, version)
        return found

    def is_flexible(self, version: int) -> bool:
        """Say whether a version has compact lengths and tags."""
        return version >= self.flexible_since

    def decode(self, data: Buffer, version: int, *, position: int = 0) -> tuple[T, int]:
        """Read a record that starts at `position` of `data`.

        Returns:
            The record, and the position of the byte behind it.

        Raises:
            FormatError: The version is unknown, or the bytes are not such a record.
        """
        if not 0 <= version <= self.latest:
            raise FormatError(f"version {version} is unknown", position=position)
        reader = FieldReader(data, version=version, flexible=self.is_flexible(version))
        reader.position = position
        return self.read(reader), reader.position

    def encode(self, value: T, version: int) -> bytes:
        """Return a record's bytes.

        Raises:
            ValueError: The version has no place for a value that must not be lost, or a value does not fit its field.
        """
        writer = FieldWriter(version=version, flexible=self.is_flexible(version))
        self.write(writer, value)
        return bytes(writer.data)


class Nullable:
    """A record inside a record that may be null: a byte before it, -1 for null."""

    def __init__(self, schema: Schema[Any]) -> None:
        self._schema = schema

    def read(self, reader: FieldReader) -> Any:
        """Take the record, or None."""
        return self._schema.read(reader) if INT8.read(reader) >= 0 else None

    def write(self, writer: FieldWriter, value: Any) -> None:
        """Add the record, or that there is none."""
        INT8.write(writer, -1 if value is None else 1)
        if value is not None:
            self._schema.write(writer, value)

    def to_json(self, value: Any, version: int) -> Any:
        """Return the record as JSON has it."""
        return None if value is None else self._schema.to_json(value, version)
