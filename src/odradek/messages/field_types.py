"""The types of the fields of Kafka's own records: numbers, strings, bytes, arrays, each in two forms.

    plain      int16 length | UTF-8            int32 length | bytes             int32 count | element * count
    flexible   uvarint length + 1 | UTF-8      uvarint length + 1 | bytes       uvarint count + 1 | element * count

Null is length -1, or 0 in the flexible form. Big-endian.

Source in Kafka: `ByteBufferAccessor`, `MessageDataGenerator` (KIP-482).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.messages.uuids import format_uuid

_MAX_UNSIGNED_VARINT = 0xFFFF_FFFF


class FieldReader:
    """Takes fields from bytes, one by one; every length is checked before it is used.

    Attributes:
        position: Where the next field starts, in bytes.
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
        """Take a length or a count, -1 for null: compact if the version is flexible, else in the form of `layout`."""
        start = self.position
        value: int = self.unsigned_varint() - 1 if self.flexible else layout.unpack(self.take(layout.size))[0]
        if not -1 <= value <= self.left:
            raise FormatError(f"a length of {value}, {self.left} bytes are left", position=start)
        return value


class FieldWriter:
    """Collects fields in the form that `FieldReader` takes."""

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
    """How a kind of field is read and written."""

    def read(self, reader: FieldReader) -> Any:
        """Take a value."""

    def write(self, writer: FieldWriter, value: Any) -> None:
        """Add a value."""

    def to_json(self, value: Any, version: int) -> Any:
        """Return a value as Kafka's tools print it in JSON."""


class _Number:
    def __init__(self, layout: str) -> None:
        self._code = layout
        self._layout = struct.Struct(f">{layout}")

    def read(self, reader: FieldReader) -> Any:
        return self._layout.unpack(reader.take(self._layout.size))[0]

    def write(self, writer: FieldWriter, value: Any) -> None:
        try:
            writer.data += self._layout.pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from error

    def write_all(self, writer: FieldWriter, values: Sequence[Any]) -> None:
        """Add values one after another."""
        try:
            writer.data += struct.pack(f">{len(values)}{self._code}", *values)
        except struct.error as error:
            raise ValueError(f"{values!r}: {error}") from error

    def to_json(self, value: Any, version: int) -> Any:
        return value


class _Float(_Number):
    """A float; JSON has no number for what is not finite, so Kafka's tools print its name."""

    def to_json(self, value: float, version: int) -> float | str:
        """Return the float, or `NaN`, `Infinity`, `-Infinity`."""
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Uuid:
    def read(self, reader: FieldReader) -> UUID:
        return UUID(bytes=reader.take(16))

    def write(self, writer: FieldWriter, value: UUID) -> None:
        writer.data += value.bytes

    def to_json(self, value: UUID, version: int) -> str:
        return format_uuid(value)


class _Sized:
    """A field with a length, which may be null."""

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
        if isinstance(self._element, _Number):
            # A group may have 10,000 partitions.
            self._element.write_all(writer, value)
            return
        for element in value:
            self._element.write(writer, element)

    def to_json(self, value: tuple[Any, ...] | None, version: int) -> list[Any] | None:
        """Return the elements in their JSON form."""
        return None if value is None else [self._element.to_json(element, version) for element in value]


class Nullable:
    """A nested record that may be null: 1 before it, and for null as a tagged field 0, beside the other fields -1."""

    def __init__(self, record: FieldType, *, tagged: bool) -> None:
        self._record = record
        self._null = 0 if tagged else -1

    def read(self, reader: FieldReader) -> Any:
        """Take the record, or None."""
        return self._record.read(reader) if INT8.read(reader) > self._null else None

    def write(self, writer: FieldWriter, value: Any) -> None:
        """Add the record, or null."""
        INT8.write(writer, self._null if value is None else 1)
        if value is not None:
            self._record.write(writer, value)

    def to_json(self, value: Any, version: int) -> Any:
        """Return the record in its JSON form."""
        return None if value is None else self._record.to_json(value, version)


BOOL = _Number("?")
INT8 = _Number("b")
INT16 = _Number("h")
UINT16 = _Number("H")
INT32 = _Number("i")
INT64 = _Number("q")
FLOAT64 = _Float("d")
UUID_FIELD = _Uuid()
STRING = _String()
NULLABLE_STRING = _String(nullable=True)
BYTES = _Bytes()
NULLABLE_BYTES = _Bytes(nullable=True)
