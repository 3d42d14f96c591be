"""The bytes of a batch, cut into its fields, each with its name and what it says.

    00 00 00 00 00 00 00 07    base_offset                7
    00 00 00 65                batch_length               101
    ...
    14                         record 0 length            10

Every byte of the batch is in one field. What cannot be read is one field, too, with the reason in its note. This is for
people who look at single batches; whatever reads many of them uses the kernels.

Source in Kafka: `DefaultRecordBatch`, `DefaultRecord`, `LegacyRecord`.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.records import BatchHeader, scan_batches
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Codec, Decompressor
from odradek.records.header import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    V2_HEADER_BYTES,
)
from odradek.records.kernels.checksums import crc32c
from odradek.records.large_section import LargeSection, open_section
from odradek.records.timestamps import iso_text


class Field(NamedTuple):
    """Some bytes of a batch, and what they say.

    Attributes:
        position: Where they start: in the file, or in the decompressed records.
        data: The bytes.
        name: The field, by Kafka's name. The fields of records begin with `record N`, those of messages of v0 and v1
            that a wrapper holds with `message N`.
        value: What they say: a number, the bytes of a key or a value, or None for null and for what cannot be read.
        note: What follows from it, in words; empty if nothing does.
        record: The number of the record in its batch; None for the fields of the batch's header.
        is_decompressed: Whether the position counts in the decompressed records.
    """

    position: int
    data: bytes
    name: str
    value: int | bytes | None
    note: str = ""
    record: int | None = None
    is_decompressed: bool = False


class _UnreadableError(Exception):
    """A field that is not there as it should be."""


class _Cursor:
    """Goes over bytes, field by field.

    Args:
        data: The bytes.
        position: Where to start in them.
        end: Where to end.
        origin: The position of their start, if they are decompressed; otherwise None.
        beyond: How many bytes follow after them.
    """

    def __init__(self, data: Buffer, position: int, end: int, *, origin: int | None = None, beyond: int = 0) -> None:
        self.view = memoryview(data).cast("B")
        self.position = position
        self.end = end
        self.limit = end
        self._origin = origin
        self._beyond = beyond
        self.prefix = ""
        self.record: int | None = None

    def _take(self, size: int, name: str, value: int | bytes | None, note: str = "") -> Field:
        start, self.position = self.position, self.position + size
        data = bytes(self.view[start : self.position])
        is_decompressed = self._origin is not None
        return Field(start + (self._origin or 0), data, self.prefix + name, value, note, self.record, is_decompressed)

    @property
    def left(self) -> int:
        """How many bytes are left up to the limit; at the end of this part, also those of the parts after it."""
        return self.limit - self.position + (self._beyond if self.limit == self.end else 0)

    def peek(self, size: int, *, signed: bool = True) -> int:
        """Return the number that comes next."""
        if size > self.limit - self.position:
            raise _UnreadableError(f"{size} bytes are needed, {self.left} are left")
        return int.from_bytes(self.view[self.position : self.position + size], "big", signed=signed)

    def number(self, size: int, name: str, note: str = "", *, signed: bool = True) -> Field:
        """Take a number of a fixed size."""
        return self._take(size, name, self.peek(size, signed=signed), note)

    def varint(self, name: str) -> Field:
        """Take a zig-zag varint or varlong."""
        raw = 0
        for size in range(1, 11):
            if self.position + size > self.limit:
                raise _UnreadableError("a number that does not end")
            byte = self.view[self.position + size - 1]
            raw |= (byte & 0x7F) << 7 * (size - 1)
            if not byte & 0x80:
                return self._take(size, name, raw >> 1 ^ -(raw & 1))
        raise _UnreadableError("a number of more than 10 bytes")

    def content(self, size: int, name: str) -> Field:
        """Take a byte string."""
        if size > self.limit - self.position:
            raise _UnreadableError(f"{size} bytes are claimed, {self.left} are left")
        taken = self._take(size, name, None)
        return taken._replace(value=taken.data)

    def rest(self, name: str, note: str, end: int | None = None) -> Field:
        """Take the remaining bytes of this part."""
        if end is None and self._beyond:
            note = f"{note}; {self._beyond} bytes more follow"
        return self._take((self.end if end is None else end) - self.position, name, None, note)


def fields_of_batch(data: Buffer, header: BatchHeader, record: int | None = None) -> Iterator[Field]:
    """Yield the fields of a batch (v2) or of a message (v0, v1), in the order of their bytes.

    The records of a compressed batch are one field, and their own fields follow, with positions in the decompressed
    bytes.

    Args:
        data: The bytes of the file, from its start.
        header: The header of the batch; its checksum need not be right.
        record: The number of the only record whose fields are yielded, -1 for none; all if None.
    """
    if header.magic == 2:
        yield from _v2_header(data, header)
        yield from _v2_records(data, header, record)
    else:
        yield from _message(_Cursor(data, header.position, header.end_position), header)
        if header.codec:
            yield from _inner_messages(data, header, record)


def _time_note(timestamp: int) -> str:
    return "none" if timestamp == -1 else iso_text(timestamp)


def _crc_note(stored: int, computed: int) -> str:
    return f"{stored:#010x}, " + ("as its bytes give" if stored == computed else f"but its bytes give {computed:#010x}")


def _attributes_note(header: BatchHeader) -> str:
    codec = header.attributes & CODEC_MASK
    known = codec in list(Codec)
    parts = ["not compressed" if codec == Codec.NONE else Codec(codec).name.lower() if known else f"codec {codec}"]
    if header.magic > 0:
        parts.append("LogAppendTime" if header.attributes & LOG_APPEND_TIME_FLAG else "CreateTime")
    if header.magic == 2:
        flags = (
            (TRANSACTIONAL_FLAG, "transactional"),
            (CONTROL_FLAG, "control"),
            (DELETE_HORIZON_FLAG, "delete horizon"),
        )
        parts += [text for flag, text in flags if header.attributes & flag]
    return ", ".join(parts)


def _v2_header(data: Buffer, header: BatchHeader) -> Iterator[Field]:
    view = memoryview(data).cast("B")
    cursor = _Cursor(data, header.position, header.end_position)
    yield cursor.number(8, "base_offset")
    yield cursor.number(4, "batch_length", f"{header.size_bytes} bytes with those up to here")
    yield cursor.number(4, "partition_leader_epoch")
    yield cursor.number(1, "magic")
    note = _crc_note(header.crc, crc32c(view[header.position + 21 : header.end_position]))
    yield cursor.number(4, "crc", note, signed=False)
    yield cursor.number(2, "attributes", _attributes_note(header))
    yield cursor.number(4, "last_offset_delta", f"last offset {header.last_offset}")
    horizon = header.attributes & DELETE_HORIZON_FLAG
    base_note = _time_note(header.base_timestamp)
    yield cursor.number(8, "base_timestamp", f"{base_note}, the delete horizon" if horizon else base_note)
    yield cursor.number(8, "max_timestamp", _time_note(header.max_timestamp))
    yield cursor.number(8, "producer_id", "" if header.has_producer_id else "none")
    yield cursor.number(2, "producer_epoch", "none" if header.producer_epoch < 0 else "")
    yield cursor.number(4, "base_sequence", "none" if header.base_sequence < 0 else "")
    yield cursor.number(4, "records_count")


def _v2_records(data: Buffer, header: BatchHeader, wanted: int | None) -> Iterator[Field]:
    start = header.position + V2_HEADER_BYTES
    if not header.codec:
        yield from _records(iter([(_Cursor(data, start, header.end_position), 0)]), header, wanted)
        return
    if start == header.end_position:
        return
    whole = _Cursor(data, start, header.end_position)
    try:
        section = _Section(data, header)
    except FormatError as error:
        yield whole.rest("records", f"cannot be decompressed: {error.reason}")
        return
    yield whole.rest("records", f"compressed: {header.end_position - start} bytes for {section.size}")
    yield from _records(section.cursors(wanted), header, wanted)


class _Section:
    """The decompressed records of a batch; a large section is read window by window, and never held as a whole.

    Raises:
        FormatError: It cannot be decompressed.
    """

    def __init__(self, data: Buffer, header: BatchHeader) -> None:
        self._section = section = open_section(data, header, Decompressor(MAX_DECOMPRESSED_BYTES))
        self.size = section.measure() if isinstance(section, LargeSection) else memoryview(section).nbytes

    def cursors(self, wanted: int | None) -> Iterator[tuple[_Cursor, int]]:
        """Yield the parts that may hold the wanted record, each with the number of its first record."""
        if not isinstance(self._section, LargeSection):
            yield _Cursor(self._section, 0, self.size, origin=0), 0
            return
        for window in self._section.unchecked_windows():
            if wanted is None or not window.is_whole or window.first <= wanted < window.first + window.records:
                size, beyond = len(window.data), self.size - window.end
                yield _Cursor(window.data, 0, size, origin=window.end - size, beyond=beyond), window.first


def _records(parts: Iterator[tuple[_Cursor, int]], header: BatchHeader, wanted: int | None) -> Iterator[Field]:
    for cursor, first in parts:
        for number in itertools.count(first):
            if cursor.position == cursor.end or number >= header.records_count:
                break
            cursor.record, cursor.prefix, cursor.limit = number, f"record {number} ", cursor.end
            try:
                if wanted in (None, number):
                    yield from _record(cursor, header)
                else:
                    cursor.position = _end_of_record(cursor, cursor.varint("length"))
            except _UnreadableError as error:
                yield cursor.rest("unreadable", str(error))
                return
        cursor.record, cursor.prefix = None, ""
        if cursor.position < cursor.end:
            yield cursor.rest("unreadable", f"bytes after the last of {header.records_count} records")


def _end_of_record(cursor: _Cursor, length: Field) -> int:
    assert isinstance(length.value, int)
    end = cursor.position + length.value
    if not cursor.position < end <= cursor.end:
        raise _UnreadableError(f"the record claims {length.value} bytes, {cursor.left} are left")
    return end


def _record(cursor: _Cursor, header: BatchHeader) -> Iterator[Field]:
    length = cursor.varint("length")
    yield length
    end = cursor.limit = _end_of_record(cursor, length)
    yield cursor.number(1, "attributes")
    delta = cursor.varint("timestamp_delta")
    assert isinstance(delta.value, int)
    if header.attributes & LOG_APPEND_TIME_FLAG:
        note = f"unused: its time is that of the append, {_time_note(header.max_timestamp)}"
    else:
        timestamp = header.base_timestamp + delta.value
        note = f"timestamp {timestamp}, {_time_note(timestamp)}"
    yield delta._replace(note=note)
    delta = cursor.varint("offset_delta")
    assert isinstance(delta.value, int)
    yield delta._replace(note=f"offset {header.base_offset + delta.value}")
    yield from _sized(cursor, "key")
    yield from _sized(cursor, "value")
    count = cursor.varint("headers_count")
    yield count
    assert isinstance(count.value, int)
    for number in range(max(0, min(count.value, end - cursor.position))):
        yield from _sized(cursor, f"header {number} key")
        yield from _sized(cursor, f"header {number} value")
    if cursor.position != end:
        raise _UnreadableError(f"its fields end at byte {cursor.position}, its length says {end}")


def _sized(cursor: _Cursor, name: str) -> Iterator[Field]:
    length = cursor.varint(f"{name}_length")
    assert isinstance(length.value, int)
    yield length if length.value >= 0 else length._replace(note="null")
    if length.value > 0:
        yield cursor.content(length.value, name)


def _message(cursor: _Cursor, header: BatchHeader) -> Iterator[Field]:
    start = cursor.position
    cursor.limit = start + header.size_bytes
    try:
        yield cursor.number(8, "offset")
        yield cursor.number(4, "message_size", f"{header.size_bytes} bytes with those up to here")
        covered = memoryview(cursor.view)[start + 16 : cursor.limit]
        yield cursor.number(4, "crc", _crc_note(header.crc, zlib.crc32(covered)), signed=False)
        yield cursor.number(1, "magic")
        yield cursor.number(1, "attributes", _attributes_note(header))
        if header.magic == 1:
            yield cursor.number(8, "timestamp", _time_note(header.base_timestamp))
        for name in ("key", "value"):
            length = cursor.number(4, f"{name}_length")
            assert isinstance(length.value, int)
            yield length if length.value >= 0 else length._replace(note="null")
            if length.value > 0 and name == "value" and header.codec:
                yield cursor.content(length.value, name)._replace(note="compressed messages")
            elif length.value > 0:
                yield cursor.content(length.value, name)
        if cursor.position != cursor.limit:
            raise _UnreadableError("bytes after the value")
    except _UnreadableError as error:
        yield cursor.rest("unreadable", str(error), cursor.limit)


def _inner_messages(data: Buffer, wrapper: BatchHeader, wanted: int | None) -> Iterator[Field]:
    try:
        section = _Section(data, wrapper)
    except FormatError:
        return
    for cursor, first in section.cursors(wanted):
        for number, header in enumerate(scan_batches(cursor.view, check_crc=False), first):
            if wanted in (None, number):
                cursor.record, cursor.prefix = number, f"message {number} "
                yield from _message(cursor, header)
            else:
                cursor.position = header.end_position
        cursor.record, cursor.prefix = None, ""
        if cursor.position < cursor.end:
            yield cursor.rest("unreadable", "these bytes are not a message")
            return
