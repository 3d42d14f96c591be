"""Kafka's own records, read and written from a table of their fields: a `Schema`.

The records of the metadata log and of the coordinators' topics follow Kafka's message schemas (KIP-482): their fields
follow each other. From some version on a record is *flexible*: its fields have another form (see `field_types`), and
fields with a tag come after the plain ones.

    plain      field | field | ...
    flexible   field | field | ... | uvarint tags | (uvarint tag | uvarint size | field) * tags

An unknown tag is skipped.

Source in Kafka: `MessageDataGenerator`; the tables are `*.json` beside each message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.messages.field_types import FieldReader, FieldType, FieldWriter

T = TypeVar("T")
LATEST = 0x7FFF
"""A version above all others: the field has not been removed."""

_NO_DEFAULT = object()


class Field(NamedTuple):
    """A row of the table.

    Attributes:
        name: The name of the attribute; in JSON, the same in camel case.
        type: How it is written.
        since: The first version that has it.
        until: The last version that has it.
        tag: Its tag, if it has one: then it is written only if it differs from the default.
        needed: Whether a version without this field must refuse any value but the default.
        json_name: The name in JSON, if it is not the camel case of `name`.
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
    """The fields of one record: how the fields of a named tuple follow each other on the disk.

    It is a `FieldType` itself, for records inside records.

    Args:
        record: The named tuple, which Python makes quicker than a dataclass. Its defaults are used for fields that a
            version does not have.
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
        defaults: Mapping[str, Any] = record._field_defaults  # type: ignore[attr-defined]
        self._defaults = {field.name: defaults.get(field.name, _NO_DEFAULT) for field in fields}
        self._at = cache(self._fields_at)

    def _fields_at(self, version: int) -> tuple[tuple[Field, ...], Mapping[int, Field], tuple[Field, ...]]:
        """Return the plain and the tagged fields of a version, and those that it lacks although they are needed."""
        present = [field for field in self.fields if field.since <= version <= field.until]
        tagged = {field.tag: field for field in present if field.tag is not None}
        lacking = tuple(field for field in self.fields if field.needed and field not in present)
        return tuple(field for field in present if field.tag is None), dict(sorted(tagged.items())), lacking

    def read(self, reader: FieldReader) -> T:
        """Take a record in the reader's version."""
        plain, tagged, _ = self._at(reader.version)
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
        plain, tagged, lacking = self._at(writer.version)
        for field in lacking:
            if getattr(value, field.name) != self._defaults[field.name]:
                raise ValueError(f"version {writer.version} has no {field.name}")
        for field in plain:
            field.type.write(writer, getattr(value, field.name))
        if not writer.flexible:
            return
        if not tagged:
            writer.unsigned_varint(0)
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
        """Return a record as Kafka's tools print it: the fields of this version, tagged ones if they are set."""
        found = {}
        for field in self.fields:
            content = getattr(value, field.name)
            if not field.since <= version <= field.until:
                continue
            if field.tag is None or content != self._defaults[field.name]:
                found[field.key()] = field.type.to_json(content, version)
        return found

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has compact lengths and tags."""
        return version >= self.flexible_since

    def decode(self, data: Buffer, version: int, *, position: int = 0) -> tuple[T, int]:
        """Read a record that starts at `position` of `data`.

        Returns:
            The record, and the position of the byte after it.

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


def flexible(record: Callable[..., T], *fields: Field, latest: int = 0) -> Schema[T]:
    """Return the schema of a record that is flexible from its first version on."""
    return Schema(record, fields, latest=latest, flexible_since=0)
