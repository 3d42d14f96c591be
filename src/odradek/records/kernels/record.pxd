# cython: language_level=3
# One record of a v2 batch, one message of v0 or v1, and a wrapper's messages, for every kernel that reads them.
#
#   length varint | attributes 1 | timestamp delta | offset delta | key length, key | value length, value |
#   header count | headers: name length, name, value length, value
#
# Each reader returns NULL where the bytes are good, else what is wrong with them, as C text.
# Kafka: DefaultRecord, LegacyRecord.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from odradek.records.kernels.wire cimport (
    CODEC_MASK, OK, BatchInfo, checksum_function, load_i32, read_header, read_varint, read_varlong
)

cdef struct RawRecord:
    const uint8_t* start
    const uint8_t* body         # behind its length
    const uint8_t* end
    const uint8_t* rest         # behind the deltas: key, value and headers
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers      # behind their count
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size            # negative for null
    int32_t value_size
    int32_t header_count
    bint is_plain               # written as Kafka writes it: the attributes are 0

cdef struct RawHeader:
    const uint8_t* name
    const uint8_t* value
    int32_t name_size
    int32_t value_size          # negative for null


cdef inline const char* read_deltas(const uint8_t* p, const uint8_t* stop, RawRecord* record) noexcept nogil:
    """Read the record at `p` up to its key."""
    cdef int32_t length = 0
    record.start = p
    p = read_varint(p, stop, &length)
    if p == NULL or length < 6 or length > stop - p:
        return b"a record longer than what is left of its batch"
    record.body = p
    record.end = p + length
    record.is_plain = p[0] == 0
    p = read_varlong(p + 1, record.end, &record.timestamp_delta)
    if p != NULL:
        p = read_varint(p, record.end, &record.offset_delta)
    if p == NULL:
        return b"a timestamp or offset delta that does not end"
    record.rest = p
    return NULL


cdef inline const char* read_key_and_value(RawRecord* record) noexcept nogil:
    """Read on, up to the header count."""
    cdef const uint8_t* p = read_varint(record.rest, record.end, &record.key_size)
    if p == NULL or record.key_size > record.end - p:
        return b"a key past the end of its record"
    record.key = p
    if record.key_size > 0:
        p += record.key_size
    p = read_varint(p, record.end, &record.value_size)
    if p == NULL or record.value_size > record.end - p:
        return b"a value past the end of its record"
    record.value = p
    return NULL


cdef inline const char* read_header_count(RawRecord* record) noexcept nogil:
    """Read on, up to the headers."""
    cdef const uint8_t* p = record.value
    if record.value_size > 0:
        p += record.value_size
    p = read_varint(p, record.end, &record.header_count)
    # A header takes two bytes at least.
    if p == NULL or record.header_count < 0 or record.header_count > (record.end - p) // 2:
        return b"more headers than its bytes can hold"
    record.headers = p
    return NULL


cdef inline const char* read_header_pair(
    const uint8_t** position, const uint8_t* end, RawHeader* header
) noexcept nogil:
    """Read one header and move the position behind it."""
    cdef const uint8_t* p = read_varint(position[0], end, &header.name_size)
    if p == NULL or header.name_size < 0 or header.name_size > end - p:
        return b"a header name past the end of its record"
    header.name = p
    p = read_varint(p + header.name_size, end, &header.value_size)
    if p == NULL or header.value_size > end - p:
        return b"a header value past the end of its record"
    header.value = p
    position[0] = p + header.value_size if header.value_size > 0 else p
    return NULL


cdef inline const char* read_message(const uint8_t* p, BatchInfo* info, RawRecord* record) noexcept nogil:
    """Read key and value of an uncompressed v0 or v1 message whose header stands in `info`.

    Where it is refused, `rest` is where.
    """
    record.start = p
    record.end = p + info.size_bytes
    record.rest = p + (18 if info.magic == 0 else 26)
    record.key_size = load_i32(record.rest)
    record.key = record.rest + 4
    if record.key_size > record.end - record.key - 4:
        return b"a key past the end of its message"
    record.rest = record.key + (record.key_size if record.key_size > 0 else 0)
    record.value_size = load_i32(record.rest)
    record.value = record.rest + 4
    if record.value_size > record.end - record.value:
        return b"a value past the end of its message"
    if record.value + (record.value_size if record.value_size > 0 else 0) != record.end:
        record.rest = record.value
        return b"bytes left over at the end of a message"
    return NULL


cdef inline const char* check_message_set(
    const uint8_t* start,
    const uint8_t* stop,
    BatchInfo* wrapper,
    checksum_function crc32,
    int64_t* base,
    const uint8_t** at,
    int64_t* count,
) noexcept nogil:
    """Walk over the messages of a v0 or v1 wrapper.

    Args:
        start: The first byte of its decompressed content.
        stop: The byte after the last.
        wrapper: Its header.
        crc32: What verifies the inner checksums, or NULL.
        base: Gets what is to be added to the inner offsets.
        at: Where it is refused: what stands there.
        count: How many messages were good.
    """
    cdef BatchInfo inner
    cdef const uint8_t* p = start
    cdef int64_t last = -1
    cdef int64_t greatest = -1
    base[0] = 0
    count[0] = 0
    while p < stop:
        at[0] = p
        if read_header(p, stop - p, &inner, NULL, crc32) != OK:
            return b"an inner message that is cut short or fails its checksum"
        if inner.magic != wrapper.magic or inner.attributes & CODEC_MASK:
            return b"an inner message of another format than its wrapper"
        last = inner.base_offset
        if last > greatest:
            greatest = last
        count[0] += 1
        p += inner.size_bytes
    at[0] = start
    if count[0] == 0:
        return b"a wrapper message with nothing in it"
    if wrapper.magic == 1:
        # Old clients wrote 0 into wrappers whose inner offsets start at 0.
        if wrapper.last_offset != 0:
            base[0] = wrapper.last_offset - last
        if base[0] < 0:
            return b"inner offsets past the offset of their wrapper"
        if greatest > INT64_MAX - base[0]:
            return b"inner offsets past the greatest there is"
    return NULL
