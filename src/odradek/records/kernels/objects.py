"""Decodes the records of one batch into `Record` objects, for those who read records one by one.

Kafka: DefaultRecord (v2), LegacyRecord (v0, v1).
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels.wire import read_varint, read_varlong


@cython.final
@cython.cclass
class Record:
    """One record of a log, or one to be appended.

    Attributes:
        key: Bytes, or None for null.
        value: Bytes, or None for null (on a compacted topic: a tombstone).
        headers: Pairs of a name and bytes or None, in order; names may repeat.
        timestamp: Milliseconds since the epoch, or None where there is none.
        offset: The offset in its partition; None for a record that is not yet appended.
        timestamp_type: `CreateTime`, `LogAppendTime`, or None where the format has no timestamps (v0).
    """

    def __init__(self, key=None, value=None, headers=(), timestamp=None, offset=None, timestamp_type=None):
        self.key = key
        self.value = value
        self.headers = headers if type(headers) is tuple else tuple(headers)
        self.timestamp = timestamp
        self.offset = offset
        self.timestamp_type = timestamp_type

    def _fields(self):
        return (self.key, self.value, self.headers, self.timestamp, self.offset, self.timestamp_type)

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return self._fields() == cython.cast(Record, other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return (Record, self._fields())

    def __repr__(self):
        return (
            f"Record(offset={self.offset!r}, timestamp={self.timestamp!r}, timestamp_type={self.timestamp_type!r}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


@cython.cfunc
def _bytes_at(p: cython.pointer(cython.const[uint8_t]), size: int32_t):
    return PyBytes_FromStringAndSize(cython.cast(cython.pointer(cython.const[cython.char]), p), size)


def decode_records(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    records_count: int32_t,
    base_offset: int64_t,
    base_timestamp: int64_t,
    append_timestamp,
    timestamp_type,
):
    """Decode the uncompressed records section of a v2 batch.

    Args:
        data: The bytes that hold the section.
        position: Where it starts.
        end: Where it ends.
        records_count: As the header says.
        base_offset: As the header says.
        base_timestamp: As the header says.
        append_timestamp: The header's max_timestamp where the batch is LogAppendTime, else None.
        timestamp_type: The text that every record gets.

    Returns:
        The records; or, where they contradict the header, the position and the reason.
    """
    if end > data.shape[0] or position < 0 or position > end:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
    records: list = []
    if position == end:
        return records if records_count == 0 else (position, f"{records_count} records in no bytes")
    if cython.cast(int64_t, records_count) * 7 > end - position:
        return (position, f"{records_count} records in {end - position} bytes")
    start: cython.pointer(cython.const[uint8_t]) = cython.cast(
        cython.pointer(cython.const[uint8_t]), cython.address(data[0])
    )
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
    for index in range(records_count):
        here = p - start
        p = read_varint(p, stop, cython.address(length))
        if p == cython.NULL:
            return (here, f"the length of record {index} does not end within 5 bytes, or not within the batch")
        if length < 6 or length > stop - p:
            return (here, f"record {index} claims {length} bytes, {stop - p} are left of the batch")
        record_end = p + length
        p = read_varlong(p + 1, record_end, cython.address(timestamp_delta))
        if p == cython.NULL:
            return (here, f"the timestamp delta of record {index} does not end within 10 bytes, or not within it")
        p = read_varint(p, record_end, cython.address(offset_delta))
        if p == cython.NULL:
            return (here, f"the offset delta of record {index} does not end within 5 bytes, or not within it")
        p = read_varint(p, record_end, cython.address(size))
        if p == cython.NULL:
            return (here, f"the key length of record {index} does not end within 5 bytes, or not within it")
        if size > record_end - p:
            return (here, f"the key of record {index} claims {size} bytes, {record_end - p} are left of the record")
        record = Record.__new__(Record)
        record.key = None
        if size >= 0:
            record.key = _bytes_at(p, size)
            p += size
        p = read_varint(p, record_end, cython.address(size))
        if p == cython.NULL:
            return (here, f"the value length of record {index} does not end within 5 bytes, or not within it")
        if size > record_end - p:
            return (here, f"the value of record {index} claims {size} bytes, {record_end - p} are left of the record")
        record.value = None
        if size >= 0:
            record.value = _bytes_at(p, size)
            p += size
        p = read_varint(p, record_end, cython.address(header_count))
        if p == cython.NULL:
            return (here, f"the header count of record {index} does not end within 5 bytes, or not within it")
        # A header takes two bytes at least.
        if header_count < 0 or header_count > (record_end - p) // 2:
            return (here, f"record {index} claims {header_count} headers, {record_end - p} bytes are left of it")
        record.headers = ()
        if header_count:
            headers: list = []
            for header_index in range(header_count):
                p = read_varint(p, record_end, cython.address(size))
                if p == cython.NULL or size < 0 or size > record_end - p:
                    return (here, f"the name of header {header_index} of record {index} goes past the record's end")
                name = PyUnicode_DecodeUTF8(
                    cython.cast(cython.pointer(cython.const[cython.char]), p), size, b"surrogateescape"
                )
                p += size
                p = read_varint(p, record_end, cython.address(size))
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
    if p != stop:
        return (p - start, f"{stop - p} bytes after the last of {records_count} records")
    return records
