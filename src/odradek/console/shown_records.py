"""Records as pages show them: decoded, with what is to be left out left out, and cut to what a page may hold.

What a record holds is text for a template, which escapes it; nothing here makes markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from odradek.console.options import ConsoleOptions
from odradek.inspection.decoding import decode_of
from odradek.printable import printable
from odradek.records import Record

IN_LISTS = 2_000
"""How many bytes of a key, a value or a header a list of records shows."""

ALONE = 65_536
"""How many bytes of each a page of one record shows."""

_MOST_HEADERS = 50
_HEX_LINE = 16
_INDENT = "  "
_MOST_SPACES = 1_000


class ShownContent(NamedTuple):
    """A key, a value or a header's value.

    Attributes:
        text: What is shown.
        kind: `null`, `redacted`, `json`, `text` or `hex`.
        size_bytes: How large it is.
        is_cut: Whether there is more than is shown.
    """

    text: str
    kind: str
    size_bytes: int = 0
    is_cut: bool = False


class ShownRecord(NamedTuple):
    """A record on a page; `note` says what could not be decoded, and is empty otherwise."""

    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: str | None
    key: ShownContent
    value: ShownContent
    headers: Sequence[tuple[str, ShownContent]]
    note: str


class RecordView:
    """Shows the records of one topic; one thread at a time.

    Args:
        topic: The topic, which says how records of Kafka's own are decoded.
        options: What is decoded, and left out.
        most_bytes: How many bytes of each key, value and header are shown.
        as_hex: Whether bytes are shown as such, where nothing of them is left out.
    """

    def __init__(
        self, topic: str, options: ConsoleOptions, most_bytes: int = IN_LISTS, *, as_hex: bool = False
    ) -> None:
        self._redaction = options.redaction()
        self._most = most_bytes
        self._as_hex = as_hex
        self._note = ""
        self._decode = decode_of(topic, options.values, self._redaction.paths, self._undecoded)

    def _undecoded(self, record: Record, error: ValueError) -> None:
        self._note = f"the value cannot be decoded: {error}"

    def show(self, partition: int, record: Record) -> ShownRecord:
        """Return what is shown of a record."""
        self._note = ""
        key: bytes | str | None = record.key
        value: bytes | str | None = record.value
        if self._decode is not None:
            decoded = self._decode(record)
            key = decoded[0] if self._is_decoded("key") else key
            value = decoded[1] if self._is_decoded("value") else value
        headers = [(name, self._content("headers", data)) for name, data in record.headers[:_MOST_HEADERS]]
        if len(record.headers) > _MOST_HEADERS:
            self._note += f" {len(record.headers) - _MOST_HEADERS} more headers are not shown"
        return ShownRecord(
            partition,
            record.offset or 0,
            record.timestamp,
            record.timestamp_type,
            self._content("key", key),
            self._content("value", value),
            headers,
            self._note.strip(),
        )

    def _is_decoded(self, part: str) -> bool:
        return not self._as_hex or self._redaction.hides(part)

    def _content(self, part: str, content: bytes | str | None) -> ShownContent:
        if content is None:
            return ShownContent("null", "null")
        if part in self._redaction.whole:
            return ShownContent("[redacted]", "redacted")
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        size, cut = len(data), data[: self._most]
        is_cut = size > len(cut)
        as_hex = self._as_hex and isinstance(content, bytes) and not self._redaction.hides(part)
        text = None if as_hex else _text_of(cut, is_cut=is_cut)
        if text is None:
            return ShownContent(hex_lines(cut), "hex", size, is_cut)
        if not is_cut and text.lstrip()[:1] in ("{", "["):
            pretty = indented(text)
            if pretty is not None:
                return ShownContent(printable(pretty, kept="\n"), "json", size)
        return ShownContent(printable(text, kept="\n\t"), "text", size, is_cut)


def _text_of(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 as text, up to a character that was cut; None for other bytes."""
    for end in range(len(data), max(0, len(data) - (4 if is_cut else 1)), -1):
        try:
            return data[:end].decode()
        except UnicodeDecodeError as error:
            if not is_cut or error.start < end - 4:
                return None
    return None if data else ""


def hex_lines(data: bytes) -> str:
    """Return bytes as lines of hexadecimal and ASCII, as `hexdump -C` prints them."""
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        part = data[start : start + _HEX_LINE]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _HEX_LINE - 1}}  |{text}|")
    return "\n".join(lines)


def indented(text: str) -> str | None:
    """Return JSON with a line for each member, each token as it was written.

    Return None if it is not JSON, or nested so deeply that it would grow to a multiple of its size.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    found: list[str] = []
    depth, position, spaces, most_spaces = 0, 0, 0, _MOST_SPACES + 4 * len(text)
    while position < len(text):
        char = text[position]
        if char == '"':
            end = position + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            found.append(text[position : end + 1])
            position = end
        elif char in "{[":
            depth += 1
            found.append(f"{char}\n{_INDENT * depth}")
        elif char in "}]":
            depth -= 1
            is_empty = found[-1].isspace() or found[-1][0] in "{["
            found[-1] = found[-1][0] if is_empty else found[-1]
            found.append(char if is_empty else f"\n{_INDENT * depth}{char}")
        elif char == ",":
            found.append(f",\n{_INDENT * depth}")
        elif char == ":":
            found.append(": ")
        elif not char.isspace():
            found.append(char)
        spaces += depth * len(_INDENT) if char in "{[,]}" else 0
        if spaces > most_spaces:
            return None
        position += 1
    return "".join(found)
