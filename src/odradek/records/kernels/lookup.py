"""Finds one thing among many without reading the others: an entry of an index, a batch by offset, a record of a batch.

    | entry | entry | entry |            the last one at or below a key, by bisection
    | batch | batch | batch |            the first one that ends at or after an offset, from header to header
    | record | record | record |         the one with an offset, from length to length

Source in Kafka: `AbstractIndex`, `FileRecords.searchForOffsetFromPosition`.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.libc.string import memcmp
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of
from cython.cimports.odradek.records.kernels.objects import decode_one

from odradek.records.header import BatchHeader

_LAST_OFFSET_DELTA_END = cython.declare(cython.int, wire.LAST_OFFSET_DELTA_AT + 4)
"""Where in a v2 header ends what tells its last offset."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _floor(
    base: cython.pointer(cython.const[cython.char]),
    count: cython.Py_ssize_t,
    entry_size: cython.Py_ssize_t,
    wanted: cython.pointer(cython.const[cython.char]),
    width: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    low: cython.Py_ssize_t = -1
    high: cython.Py_ssize_t = count - 1
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high + 1) // 2
        if memcmp(base + middle * entry_size, wanted, width) <= 0:
            low = middle
        else:
            high = middle - 1
    return low


def floor_entry(data, count: cython.Py_ssize_t, entry_size: cython.Py_ssize_t, column: cython.Py_ssize_t, key: bytes):
    """Return the number of the last entry whose column is at most `key`; -1 where there is none.

    Args:
        data: The entries, in order. Another thread may append to them: they are held only while this one runs.
        count: How many there are, at most.
        entry_size: How many bytes each has.
        column: Where in an entry the bytes are that are compared with the key.
        key: These bytes; big-endian integers that are not negative sort as their bytes do.
    """
    width: cython.Py_ssize_t = len(key)
    wanted: cython.pointer(cython.const[cython.char]) = key
    buffer: cython.Py_buffer
    PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
    # No Python code runs from here on to the release: who else appends to a bytearray finds it free.
    base: cython.pointer(cython.const[cython.char]) = cython.cast(cython.pointer(cython.const[cython.char]), buffer.buf)
    found: cython.Py_ssize_t = _floor(base + column, min(count, buffer.len // entry_size), entry_size, wanted, width)
    PyBuffer_Release(cython.address(buffer))
    return found


def surrounding_positions(data, count: cython.Py_ssize_t, relative_offset: int64_t):
    """Return the positions between which the batch of an offset lies, by the entries of an offset index.

    Args:
        data: The entries; as in `floor_entry`.
        count: How many there are, at most.
        relative_offset: The offset, relative to that of the segment.

    Returns:
        The position of the last entry at or below the offset, 0 where there is none; that of the first entry after it,
        and that of the second one, -1 where there is none.
    """
    buffer: cython.Py_buffer
    PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
    # As in `floor_entry`: no Python code runs up to the release.
    base: cython.pointer(cython.const[uint8_t]) = cython.cast(cython.pointer(cython.const[uint8_t]), buffer.buf)
    count = min(count, buffer.len // 8)
    found: cython.Py_ssize_t = -1
    high: cython.Py_ssize_t = count - 1
    middle: cython.Py_ssize_t
    while found < high:
        middle = (found + high + 1) // 2
        if wire.load_u32(base + middle * 8) <= relative_offset:
            found = middle
        else:
            high = middle - 1
    position: int32_t = 0
    following: int32_t = -1
    end: int32_t = -1
    if found >= 0:
        position = wire.load_i32(base + found * 8 + 4)
    if found + 1 < count:
        following = wire.load_i32(base + (found + 1) * 8 + 4)
    if found + 2 < count:
        end = wire.load_i32(base + (found + 2) * 8 + 4)
    PyBuffer_Release(cython.address(buffer))
    return position, following, end


def find_batch(
    data: cython.const[cython.uchar][::1],
    origin: int64_t,
    position: int64_t,
    end: int64_t,
    lowest_offset: int64_t,
    offset: int64_t,
    decodes: cython.bint,
    takes_transactions: cython.bint,
    verifies: cython.bint = True,
):
    """Return the first batch whose last offset is at or above an offset, or the record in it that has the offset.

    The checksum of this batch is verified, no other one is.

    Args:
        data: Bytes of a file.
        origin: The position that they start at.
        position: Where a batch begins, among them.
        end: Where the batches end, in the file.
        lowest_offset: No batch of the file begins below it.
        offset: The offset.
        decodes: Whether the record is wanted.
        takes_transactions: Whether that of a transactional batch is.
        verifies: Whether the checksum is verified; otherwise the header of the batch is enough, and no record wanted.

    Returns:
        The record, if it is wanted and nothing but the bytes of the batch is needed for it: a batch of v2, not
        compressed, no control batch. Otherwise the header; or the position of a batch, where more bytes are needed to
        tell; or None, where that is `end`, or the batch does not hold the offset, or the bytes there are no batch.
    """
    if position < origin or position > end:
        raise ValueError(f"position {position} is not between {origin} and {end}")
    info: wire.BatchInfo
    size: int64_t
    last_offset: int64_t
    left: int64_t
    needed: int64_t
    crc32c: wire.checksum_function = cython.NULL
    crc32: wire.checksum_function = cython.NULL
    if verifies:
        crc32c = crc32c_of
        crc32 = crc32_of
    stop: int64_t = min(end, origin + data.shape[0])
    p: cython.pointer(cython.const[uint8_t])
    while position < stop:
        left = stop - position
        if left < _LAST_OFFSET_DELTA_END:
            return position if stop < end else None
        p = cython.cast(cython.pointer(cython.const[uint8_t]), cython.address(data[0])) + (position - origin)
        size = wire.load_i32(p + wire.SIZE_AT)
        if size < wire.V0_MIN:
            return None
        size += wire.LOG_OVERHEAD
        if size > end - position:
            return None
        last_offset = wire.load_i64(p)
        if p[wire.MAGIC_AT] >= 2:
            last_offset += wire.load_i32(p + wire.LAST_OFFSET_DELTA_AT)
        if last_offset < offset:
            position += size
            continue
        if not lowest_offset <= wire.load_i64(p) <= offset:
            return None
        needed = size if verifies else min(size, wire.V2_HEADER)
        if needed > left:
            return position
        if wire.read_header(p, end - position, cython.address(info), crc32c, crc32) != wire.OK:
            return None
        info.position = position
        if (
            decodes
            and verifies
            and info.magic == 2
            and not info.attributes & (wire.CODEC_MASK | wire.CONTROL_FLAG)
            and (takes_transactions or not info.attributes & wire.TRANSACTIONAL_FLAG)
        ):
            record = _record_of(p, cython.address(info), offset - info.base_offset)
            if record is not None:
                return record
        return tuple.__new__(BatchHeader, wire.header_fields(cython.address(info)))
    return position if position < end else None


@cython.cfunc
def _record_of(
    batch: cython.pointer(cython.const[uint8_t]), info: cython.pointer(wire.BatchInfo), offset_delta: int64_t
):
    """Return the record of an uncompressed v2 batch that has an offset; None where something is wrong."""
    place: _Place = _place_of(batch, wire.V2_HEADER, info.size_bytes, info.records_count, offset_delta)
    if place.end < 0:
        return None
    return decode_one(batch, place.start, place.end, info)


_Place = cython.struct(start=cython.Py_ssize_t, end=cython.Py_ssize_t)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _place_of(
    start: cython.pointer(cython.const[uint8_t]),
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    records_count: int32_t,
    offset_delta: int64_t,
) -> _Place:
    """Return between which positions a record stands; a negative end where it does not, as `find_record` says."""
    p: cython.pointer(cython.const[uint8_t]) = start + position
    stop: cython.pointer(cython.const[uint8_t]) = start + end
    rest: cython.pointer(cython.const[uint8_t])
    record_end: cython.pointer(cython.const[uint8_t])
    length: int32_t = 0
    timestamp_delta: int64_t = 0
    found: int32_t = 0
    left: int64_t = records_count
    place: _Place
    place.start = place.end = -1
    while p < stop:
        rest = wire.read_varint(p, stop, cython.address(length))
        if rest == cython.NULL or length < 6 or length > stop - rest:
            return place
        record_end = rest + length
        rest = wire.read_varlong(rest + 1, record_end, cython.address(timestamp_delta))
        if rest == cython.NULL:
            return place
        rest = wire.read_varint(rest, record_end, cython.address(found))
        if rest == cython.NULL:
            return place
        left -= 1
        if found == offset_delta:
            if left >= 0 and (left > 0) == (record_end < stop):
                place.start = p - start
                place.end = record_end - start
            return place
        p = record_end
    return place


def find_record(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    records_count: int32_t,
    offset_delta: int32_t,
):
    """Return where a record of a v2 batch stands.

    Args:
        data: The bytes that hold its uncompressed records section.
        position: Where the section starts.
        end: Where it ends.
        records_count: How many records it has, as the header says.
        offset_delta: The record's.

    Returns:
        Its first position and the one after its last; None where there is no such record, or a damaged one before it,
        or it is the last one and the header says otherwise.
    """
    if end > data.shape[0] or position < 0 or position > end:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
    if position == end:
        return None
    start: cython.pointer(cython.const[uint8_t]) = cython.cast(
        cython.pointer(cython.const[uint8_t]), cython.address(data[0])
    )
    place: _Place = _place_of(start, position, end, records_count, offset_delta)
    return None if place.end < 0 else (place.start, place.end)


def whole_records(
    data: cython.const[cython.uchar][::1], end: cython.Py_ssize_t, is_v2: cython.bint, most: cython.Py_ssize_t
):
    """Return how many records stand whole at the beginning of some bytes, by their lengths alone.

    Args:
        data: Records of a v2 batch, or messages of a v0 or v1 wrapper.
        end: Where the bytes end.
        is_v2: Whether they are records.
        most: The most records there may be.

    Returns:
        The position after the last of them, their number, and what comes then: how many bytes the next record has; 0
        if that is not known yet; -1 if none can follow.
    """
    if end > data.shape[0] or end < 0:
        raise ValueError(f"end {end} is not within {data.shape[0]} bytes")
    if end == 0:
        return (0, 0, 0)
    start: cython.pointer(cython.const[uint8_t]) = cython.cast(
        cython.pointer(cython.const[uint8_t]), cython.address(data[0])
    )
    p: cython.pointer(cython.const[uint8_t]) = start
    stop: cython.pointer(cython.const[uint8_t]) = start + end
    content: cython.pointer(cython.const[uint8_t])
    length: int32_t = 0
    count: cython.Py_ssize_t = 0
    following: int64_t = 0
    least: int32_t = 0 if is_v2 else wire.V0_MIN
    while p < stop:
        if count == most:
            following = -1
            break
        if is_v2:
            content = wire.read_varint(p, stop, cython.address(length))
            if content == cython.NULL:
                following = -1 if stop - p >= 5 else 0
                break
        else:
            # Up to the magic, which says which sizes there may be.
            if stop - p < wire.LOG_OVERHEAD + 5:
                break
            content = p + wire.LOG_OVERHEAD
            length = wire.load_i32(p + 8)
        if length < least or length > stop - content:
            following = -1 if length < least else length + (content - p)
            break
        p = content + length
        count += 1
    return (p - start, count, following)
