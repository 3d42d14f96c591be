"""Decodes the records of one batch into `Record` objects, for those who read records one by one.

Source in Kafka: `DefaultRecord` (v2), `LegacyRecord` (v0, v1).
"""

import operator

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.batches import BatchTable

from odradek.arguments import given_text
from odradek.errors import OptionError
from odradek.html_table import html_table
from odradek.records.timestamps import timestamp_ms

MOST_OBJECTS = 4096
"""How many records of one batch are made objects at once, where records are read one by one."""

_most_objects = cython.declare(int32_t, MOST_OBJECTS)


# The fields of a record are bytes, numbers and text, so no record is part of a reference cycle: the garbage collector,
# which would visit millions of records again and again, need not know of them.
@cython.final
@cython.no_gc
@cython.cclass
class Record:
    """One record of a log, or one to be appended.

    What it is made of is checked when it is made, never when it is decoded. A timestamp may be given as a datetime that
    has a time zone, too (`odradek.Time`); bytes of any kind are kept as `bytes`.

    Attributes:
        key: Bytes, or None for null.
        value: Bytes, or None for null (on a compacted topic: a tombstone).
        headers: Pairs of a name and bytes or None, in order; names may repeat.
        timestamp: Milliseconds since the epoch, or None where there is none.
        offset: The offset in its partition; None for a record that is not yet appended.
        timestamp_type: `CreateTime`, `LogAppendTime`, or None where the format has no timestamps (v0).

    Raises:
        TypeError: Something is of another type; the text says what was expected, and what was given.
        OptionError: A timestamp without a time zone, or that is no time; or a header's name that is no text that UTF-8
            can write: it has half a surrogate pair.
    """

    def __init__(self, key=None, value=None, headers=(), timestamp=None, offset=None, timestamp_type=None):
        self.key = key if key is None or type(key) is bytes else _checked_bytes("key", key)
        self.value = value if value is None or type(value) is bytes else _checked_bytes("value", value)
        self.headers = headers if type(headers) is tuple and not headers else _checked_headers(headers)
        # What may be seconds is for `timestamp_ms` to look at.
        if timestamp is not None and (type(timestamp) is not int or 0 < timestamp < 10_000_000_000):
            timestamp = timestamp_ms(timestamp)
        self.timestamp = timestamp
        if offset is not None and type(offset) is not int:
            offset = _checked_offset(offset)
        self.offset = offset
        if timestamp_type is not None and timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise TypeError(
                f"a record's timestamp_type is CreateTime, LogAppendTime or None, not {given_text(timestamp_type)}"
            )
        self.timestamp_type = timestamp_type if timestamp_type is None else str.__str__(timestamp_type)

    def _fields(self):
        return (self.key, self.value, self.headers, self.timestamp, self.offset, self.timestamp_type)

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return self._fields() == cython.cast(Record, other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return (unchecked_record, self._fields())

    def __repr__(self):
        shown = [f"{name}={value!r}" for name, value in self._places() if value is not None]
        shown += [f"key={_short(self.key)}", f"value={_short(self.value)}"]
        if self.headers:
            more = "" if len(self.headers) <= 3 else f", and {len(self.headers) - 3} more"
            shown.append("headers=[" + ", ".join([f"({n!r}, {_short(v)})" for n, v in self.headers[:3]]) + f"{more}]")
        return f"Record({', '.join(shown)})"

    def _places(self):
        return (("offset", self.offset), ("timestamp", self.timestamp), ("timestamp_type", self.timestamp_type))

    def _repr_html_(self):
        rows = [(name, value) for name, value in self._places() if value is not None]
        rows += [("key", self.key), ("value", self.value)]
        return html_table("Record", ("", ""), rows + [(f"header {name}", value) for name, value in self.headers])


def unchecked_record(key, value, headers, timestamp, offset=None, timestamp_type=None):
    """Make a record of what is known to be right: what a decoder read, or what was in a record before."""
    record: Record = Record.__new__(Record)
    record.key = key
    record.value = value
    record.headers = headers
    record.timestamp = timestamp
    record.offset = offset
    record.timestamp_type = timestamp_type
    return record


def are_records(items: list):
    """Return whether a list holds records only."""
    for item in items:
        if type(item) is not Record:
            return False
    return True


_SHOWN_BYTES = 60


def _short(value):
    if value is None or len(value) <= _SHOWN_BYTES:
        return repr(value)
    return f"{value[:_SHOWN_BYTES]!r}... ({len(value)} bytes)"


def _checked_bytes(what, value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(memoryview(value))
    advice = ": encode it, as text.encode() does" if isinstance(value, str) else ""
    raise TypeError(f"a record's {what} is bytes or None, not {given_text(value)}{advice}")


def _checked_headers(headers):
    is_iterable = hasattr(headers, "__iter__") and not isinstance(headers, (str, bytes, bytearray))
    if not is_iterable or hasattr(headers, "keys"):
        advice = ": names may repeat, so give its items()" if hasattr(headers, "keys") else ""
        raise TypeError(f"a record's headers are pairs, [('name', b'value')], not {given_text(headers)}{advice}")
    checked = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a record's header is a pair, ('name', b'value'), not {given_text(pair)}")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a record's header is a str, not {given_text(name)}")
        if type(name) is not str:
            name = str.__str__(name)
        if not name.isascii():
            _check_name(name)
        if value is not None and type(value) is not bytes:
            value = _checked_bytes(f"header {name!r}", value)
        checked.append((name, value))
    return tuple(checked)


def _check_name(name):
    try:
        # Bytes that are no UTF-8 are read as surrogates, and written as they were.
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise OptionError(f"the name of a record's header has half a surrogate pair: {given_text(name)}") from error


def _checked_offset(offset):
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise TypeError(f"a record's offset is an int or None, not {given_text(offset)}")
    return operator.index(offset)


@cython.cfunc
def _bytes_at(p: cython.pointer(cython.const[uint8_t]), size: int32_t):
    return PyBytes_FromStringAndSize(cython.cast(cython.pointer(cython.const[cython.char]), p), size)


@cython.cfunc
def _start(data: cython.const[cython.uchar][::1]) -> cython.pointer(cython.const[uint8_t]):
    if data.shape[0] == 0:
        return cython.NULL
    return cython.cast(cython.pointer(cython.const[uint8_t]), cython.address(data[0]))


@cython.cfunc
def _decode(
    records: list,
    start: cython.pointer(cython.const[uint8_t]),
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first: int32_t,
    stop_index: int32_t,
    records_count: int32_t,
    base_offset: int64_t,
    base_timestamp: int64_t,
    append_timestamp,
    timestamp_type,
    beyond: int64_t,
    resumes: cython.bint,
    reached: cython.pointer(cython.Py_ssize_t),
):
    """Add some records of a batch to a list; return None, or the position and the reason if they are refused.

    Args:
        records: The list.
        start: The first byte of what holds the batch.
        position: Where the first of the records starts.
        end: Where the batch ends.
        first: The number of that record.
        stop_index: The number after that of the last one.
        records_count: How many records the batch has.
        base_offset: As the header says, like what follows.
        base_timestamp: The timestamp that the deltas count from.
        append_timestamp: The timestamp of every record, or None.
        timestamp_type: The text that every record gets.
        beyond: How many bytes of the batch are not there yet; the records up to `stop_index` are.
        resumes: Whether the count was compared with the bytes at a record before.
        reached: Gets the position after the last record.
    """
    if position == end and beyond == 0 and not resumes:
        return None if records_count == first else (position, f"{records_count - first} records in no bytes")
    if (cython.cast(int64_t, records_count) - first) * 7 > end - position + beyond and not resumes:
        return (position, f"{records_count - first} records in {end - position + beyond} bytes")
    p: cython.pointer(cython.const[uint8_t]) = start + position
    stop: cython.pointer(cython.const[uint8_t]) = start + end
    record_end: cython.pointer(cython.const[uint8_t])
    here: cython.Py_ssize_t
    index: int32_t
    header_index: int32_t
    length: int32_t = 0
    size: int32_t = 0
    header_count: int32_t = 0
    offset_delta: int32_t = 0
    timestamp_delta: int64_t = 0
    timestamp: int64_t
    record: Record
    for index in range(first, stop_index):
        here = p - start
        p = wire.read_varint(p, stop, cython.address(length))
        if p == cython.NULL:
            return (here, f"the length of record {index} does not end within 5 bytes, or not within the batch")
        if length < 6 or length > stop - p:
            return (here, f"record {index} claims {length} bytes, {stop - p + beyond} are left of the batch")
        record_end = p + length
        p = wire.read_varlong(p + 1, record_end, cython.address(timestamp_delta))
        if p == cython.NULL:
            return (here, f"the timestamp delta of record {index} does not end within 10 bytes, or not within it")
        p = wire.read_varint(p, record_end, cython.address(offset_delta))
        if p == cython.NULL:
            return (here, f"the offset delta of record {index} does not end within 5 bytes, or not within it")
        p = wire.read_varint(p, record_end, cython.address(size))
        if p == cython.NULL:
            return (here, f"the key length of record {index} does not end within 5 bytes, or not within it")
        if size > record_end - p:
            return (here, f"the key of record {index} claims {size} bytes, {record_end - p} are left of the record")
        record = Record.__new__(Record)
        record.key = None
        if size >= 0:
            record.key = _bytes_at(p, size)
            p += size
        p = wire.read_varint(p, record_end, cython.address(size))
        if p == cython.NULL:
            return (here, f"the value length of record {index} does not end within 5 bytes, or not within it")
        if size > record_end - p:
            return (here, f"the value of record {index} claims {size} bytes, {record_end - p} are left of the record")
        record.value = None
        if size >= 0:
            record.value = _bytes_at(p, size)
            p += size
        p = wire.read_varint(p, record_end, cython.address(header_count))
        if p == cython.NULL:
            return (here, f"the header count of record {index} does not end within 5 bytes, or not within it")
        # A header takes two bytes at least.
        if header_count < 0 or header_count > (record_end - p) // 2:
            return (here, f"record {index} claims {header_count} headers, {record_end - p} bytes are left of it")
        record.headers = ()
        if header_count:
            headers: list = []
            for header_index in range(header_count):
                p = wire.read_varint(p, record_end, cython.address(size))
                if p == cython.NULL or size < 0 or size > record_end - p:
                    return (here, f"the name of header {header_index} of record {index} goes past the record's end")
                name = PyUnicode_DecodeUTF8(
                    cython.cast(cython.pointer(cython.const[cython.char]), p), size, b"surrogateescape"
                )
                p += size
                p = wire.read_varint(p, record_end, cython.address(size))
                if p == cython.NULL or size > record_end - p:
                    return (here, f"the value of header {header_index} of record {index} goes past the record's end")
                if size < 0:
                    headers.append((name, None))
                else:
                    headers.append((name, _bytes_at(p, size)))
                    p += size
            record.headers = tuple(headers)
        if p != record_end:
            return (here, f"record {index} has {record_end - p} bytes too many")
        record.offset = base_offset + offset_delta
        timestamp = base_timestamp + timestamp_delta
        if append_timestamp is not None:
            timestamp = append_timestamp
        record.timestamp = None if timestamp == -1 else timestamp
        record.timestamp_type = timestamp_type
        records.append(record)
    if stop - p + beyond != 0 and stop_index == records_count:
        return (p - start, f"{stop - p + beyond} bytes after the last of {records_count} records")
    reached[0] = p - start
    return None


def decode_records(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    records_count: int32_t,
    base_offset: int64_t,
    base_timestamp: int64_t,
    append_timestamp,
    timestamp_type,
    first: int32_t = 0,
    most: int32_t = INT32_MAX,
    beyond: int64_t = 0,
    resumes: cython.bint = False,
):
    """Decode records from the uncompressed records section of a v2 batch.

    Args:
        data: The bytes that hold the section.
        position: Where the first of the records starts.
        end: Where the section ends.
        records_count: As the header says.
        base_offset: As the header says.
        base_timestamp: As the header says.
        append_timestamp: The header's max_timestamp where the batch is LogAppendTime, else None.
        timestamp_type: The text that every record gets.
        first: The number of the first of the records in the batch.
        most: The most records to decode.
        beyond: How many bytes the section has after `end`, where only a part of it is there: whole records.
        resumes: Whether the count was compared with the bytes by the call for the records before.

    Returns:
        The records, the position after the last one, and None; or, where they contradict the header, those before the
        refused record, its position and the reason.
    """
    if end > data.shape[0] or position < 0 or position > end or first < 0:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
    records: list = []
    reached: cython.Py_ssize_t = end
    refused = _decode(
        records,
        _start(data),
        position,
        end,
        first,
        records_count if records_count - first <= most else first + most,
        records_count,
        base_offset,
        base_timestamp,
        append_timestamp,
        timestamp_type,
        beyond,
        resumes,
        cython.address(reached),
    )
    return (records, reached, None) if refused is None else (records, *refused)


def decode_one(
    batch: cython.pointer(cython.const[uint8_t]),
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    info: cython.pointer(wire.BatchInfo),
):
    """Return the record between two positions of an uncompressed v2 batch; None where it is refused."""
    records: list = []
    reached: cython.Py_ssize_t = 0
    refused = _decode(
        records,
        batch,
        position,
        end,
        0,
        1,
        1,
        info.base_offset,
        info.base_timestamp,
        info.max_timestamp if info.attributes & wire.LOG_APPEND_TIME_FLAG else None,
        "LogAppendTime" if info.attributes & wire.LOG_APPEND_TIME_FLAG else "CreateTime",
        0,
        False,
        cython.address(reached),
    )
    return records[0] if refused is None else None


def decode_run(
    table: BatchTable,
    number: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    origin: int64_t,
    next_offset: int64_t,
    takes_transactions: cython.bint,
    most: cython.Py_ssize_t,
):
    """Decode consecutive batches that need nothing else: v2, not compressed, no control records, no offset missing.

    Nor has any of them more records than may be objects at once (`MOST_OBJECTS`).

    Args:
        table: The headers of consecutive batches, as `walk_batches` read them from the same bytes.
        number: The first of them.
        data: The bytes.
        origin: The position that `data` starts at: that of the positions in the table.
        next_offset: The offset that the first batch must begin with.
        takes_transactions: Whether transactional batches may be decoded: none of them was aborted.
        most: The number of records after which no further batch is begun.

    Returns:
        The records, the number of the first batch that was not decoded, and the offset after the last one that was.
        A batch whose records contradict its header is not decoded.
    """
    records: list = []
    info: cython.pointer(wire.BatchInfo)
    good: cython.Py_ssize_t
    reached: cython.Py_ssize_t = 0
    if number < 0:
        raise IndexError(number)
    while number < table._count and len(records) < most:
        info = cython.address(table._rows[number])
        if (
            info.magic != 2
            or info.attributes & (wire.CODEC_MASK | wire.CONTROL_FLAG)
            or info.base_offset != next_offset
        ):
            break
        if info.attributes & wire.TRANSACTIONAL_FLAG and not takes_transactions:
            break
        if info.records_count > _most_objects:
            break
        if info.position < origin or info.position + info.size_bytes - origin > data.shape[0]:
            raise ValueError(
                f"the batch at position {info.position} is not within {data.shape[0]} bytes from {origin} on"
            )
        good = len(records)
        refused = _decode(
            records,
            _start(data),
            info.position - origin + wire.V2_HEADER,
            info.position - origin + info.size_bytes,
            0,
            info.records_count,
            info.records_count,
            info.base_offset,
            info.base_timestamp,
            info.max_timestamp if info.attributes & wire.LOG_APPEND_TIME_FLAG else None,
            "LogAppendTime" if info.attributes & wire.LOG_APPEND_TIME_FLAG else "CreateTime",
            0,
            False,
            cython.address(reached),
        )
        if refused is not None:
            del records[good:]
            break
        next_offset = info.last_offset + 1
        number += 1
    return (records, number, next_offset)
