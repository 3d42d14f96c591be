r"""A record as a template says, with the letters of kcat's `-f`: `%k %s\n`.

    %s or %v    the value        %S    its length, -1 for null        %R    the same in four bytes, big-endian
    %k          the key          %K    its length, -1 for null        %h    the headers: name=value,name=value
    %t  %p  %o  topic, partition, offset                              %T    the timestamp in ms, -1 for none
    %%          a percent sign   \n  \r  \t  \\  \xNN                 single bytes

Keys, values and headers are written as they are, byte for byte; null is nothing.
"""

from __future__ import annotations

import binascii
import os
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from odradek.errors import OptionError
from odradek.inspection.record_json import LineWriter, RecordWriter
from odradek.records import Record
from odradek.storage.names import TopicPartition

_TOKEN = re.compile(rb"%(?P<letter>.?)|\\x(?P<byte>[0-9A-Fa-f]{2})|\\(?P<escaped>.?)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}
_REDACTED = b"[redacted]"


class _Shown(NamedTuple):
    owner: TopicPartition | None
    record: Record
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


_Field = Callable[[_Shown], bytes]


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


_FIELDS: dict[bytes, _Field] = {
    b"s": lambda one: one.value or b"",
    b"v": lambda one: one.value or b"",
    b"S": lambda one: b"%d" % _length(one.value),
    b"R": lambda one: struct.pack(">i", _length(one.value)),
    b"k": lambda one: one.key or b"",
    b"K": lambda one: b"%d" % _length(one.key),
    b"h": lambda one: b",".join(name + b"=" + (value or b"") for name, value in one.headers),
    b"t": lambda one: one.owner.topic.encode() if one.owner else b"",
    b"p": lambda one: b"%d" % (one.owner.partition if one.owner else -1),
    b"o": lambda one: b"%d" % (-1 if one.record.offset is None else one.record.offset),
    b"T": lambda one: b"%d" % (-1 if one.record.timestamp is None else one.record.timestamp),
}


def is_template(form: str) -> bool:
    """Whether a format is a template, and not the name of a format."""
    return "%" in form


@cache
def parse_template(text: str) -> tuple[bytes | _Field, ...]:
    """Return the parts of a template.

    Raises:
        OptionError: It has an unknown letter or escape.
    """
    given, position = os.fsencode(text), 0
    parts: list[bytes | _Field] = []
    for token in _TOKEN.finditer(given):
        parts.append(given[position : token.start()])
        position = token.end()
        letter, byte, escaped = token.group("letter", "byte", "escaped")
        if byte is not None:
            parts.append(bytes.fromhex(byte.decode()))
        elif letter == b"%":
            parts.append(letter)
        elif (found := _FIELDS.get(letter) if letter is not None else _ESCAPED.get(escaped)) is not None:
            parts.append(found)
        else:
            raise OptionError(
                f"{os.fsdecode(token[0])!r} is not known: expected %s, %k, %h, %t, %p, %o, %T, \\n, \\t ..."
            )
    return (*parts, given[position:])


class TemplateWriter(RecordWriter):
    """Writes records as a template says, which is the format."""

    def __post_init__(self) -> None:
        self._parts = parse_template(self.form)

    def _written(self, record: Record, key: bytes | str | None, value: bytes | str | None, *, control: bool) -> bytes:
        headers = [
            (name.encode("utf-8", "surrogateescape"), self._content("headers", content))
            for name, content in record.headers
        ]
        shown = _Shown(self.owner, record, self._content("key", key), self._content("value", value), headers)
        return b"".join([part if isinstance(part, bytes) else part(shown) for part in self._parts])

    def _content(self, name: str, content: bytes | str | None) -> bytes | None:
        if content is None:
            return None
        if name in self.redact:
            return _REDACTED
        if isinstance(content, str):
            return content.encode("utf-8", "surrogatepass")
        return binascii.b2a_base64(content, newline=False) if self.base64 else content


def writer_of(form: str) -> type[RecordWriter]:
    """Return what writes records in a format, or as a template."""
    return TemplateWriter if is_template(form) else LineWriter
