# cython: language_level=3
# What the kernels share: big-endian loads, varints, and the header of a batch.
# Kafka: DefaultRecordBatch, LegacyRecord, ByteUtils.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define odradek_bswap16 __builtin_bswap16
    #define odradek_bswap32 __builtin_bswap32
    #define odradek_bswap64 __builtin_bswap64
    #define odradek_clz64 __builtin_clzll
    #define odradek_likely(x) __builtin_expect(!!(x), 1)
    #define odradek_prefetch_l2(p) __builtin_prefetch((p), 0, 2)
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the kernels write Arrow's little-endian layout: a big-endian machine needs another port"
    #endif
    """
    uint16_t odradek_bswap16(uint16_t) noexcept nogil
    uint32_t odradek_bswap32(uint32_t) noexcept nogil
    uint64_t odradek_bswap64(uint64_t) noexcept nogil
    int odradek_clz64(uint64_t) noexcept nogil
    bint odradek_likely(bint) noexcept nogil
    void odradek_prefetch_l2(const uint8_t*) noexcept nogil

# A function of `checksums`.
ctypedef uint32_t (*checksum_function)(uint32_t, const uint8_t*, size_t) noexcept nogil

cdef enum Status:
    OK = 0
    END = 1                 # no byte is left
    TRUNCATED = 2           # the batch goes on past the last byte
    BAD_SIZE = 3            # the size field is below the smallest batch
    BAD_MAGIC = 4
    BAD_CRC = 5
    BAD_HEADER = 6          # header fields that contradict each other
    BAD_RECORD = 7          # a record that contradicts its batch
    COMPRESSED = 8          # the caller has to decompress the records first
    FULL = 9                # as many rows as were asked for
    NO_MEMORY = 10
    BAD_ORDER = 11          # offsets that do not follow those of the batch before
    GAP = 12                # offsets are left out

cdef enum:
    # Where the fields of a v2 batch are, after its base offset. `odradek.records.header` has those that Python needs.
    SIZE_AT = 8             # v0 and v1 too
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16           # v0 and v1 too
    CRC_AT = 17
    ATTRIBUTES_AT = 21      # the checksum is of what begins here
    FLAGS_AT = 22           # the second byte of the attributes, with all that are defined
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORDS_COUNT_AT = 57
    LOG_OVERHEAD = 12       # offset and size: what stands before every batch
    V0_MIN = 14             # smallest size field of a v0 message
    V1_MIN = 22
    V2_HEADER = 61
    V2_MIN = 49
    PREFETCH_BYTES = 4096   # what is asked for while as much before it is summed
    CACHE_LINE = 64
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_FLAG = 0x08
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20
    DELETE_HORIZON_FLAG = 0x40

cdef struct BatchInfo:
    int64_t position
    int64_t size_bytes
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    uint32_t crc
    int32_t partition_leader_epoch
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t records_count
    int16_t attributes
    int16_t producer_epoch
    int8_t magic


cdef inline int16_t load_i16(const uint8_t* p) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, p, 2)
    return <int16_t>odradek_bswap16(raw)


cdef inline int32_t load_i32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return <int32_t>odradek_bswap32(raw)


cdef inline uint32_t load_u32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return odradek_bswap32(raw)


cdef inline int64_t load_i64(const uint8_t* p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return <int64_t>odradek_bswap64(raw)


cdef inline void store_i16(uint8_t* p, int16_t value) noexcept nogil:
    cdef uint16_t raw = odradek_bswap16(<uint16_t>value)
    memcpy(p, &raw, 2)


cdef inline void store_i32(uint8_t* p, int32_t value) noexcept nogil:
    cdef uint32_t raw = odradek_bswap32(<uint32_t>value)
    memcpy(p, &raw, 4)


cdef inline void store_i64(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t raw = odradek_bswap64(<uint64_t>value)
    memcpy(p, &raw, 8)


cdef inline const uint8_t* read_varint(const uint8_t* p, const uint8_t* end, int32_t* value) noexcept nogil:
    """Read a zig-zag varint of at most 5 bytes; NULL where it does not end in time."""
    cdef uint32_t raw
    cdef uint32_t byte
    cdef int shift = 7
    if p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 128:
        raw &= 127
        while True:
            if p >= end or shift > 28:
                return NULL
            byte = p[0]
            p += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline const uint8_t* read_varlong(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
    """Read a zig-zag varlong of at most 10 bytes; NULL where it does not end in time."""
    cdef uint64_t raw
    cdef uint64_t byte
    cdef int shift = 7
    if p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 128:
        raw &= 127
        while True:
            if p >= end or shift > 63:
                return NULL
            byte = p[0]
            p += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline void prefetch(const uint8_t* p, int64_t size_bytes) noexcept nogil:
    """Ask for bytes to be brought into the second cache."""
    cdef int64_t position = 0
    while position < size_bytes:
        odradek_prefetch_l2(p + position)
        position += CACHE_LINE


cdef inline uint32_t sum_bytes(checksum_function crc32c, const uint8_t* p, int64_t size_bytes) noexcept nogil:
    """Return the CRC-32C of bytes that are read again soon, and leave them in the cache.

    This halves the time that the sum waits for memory.
    """
    cdef uint32_t crc = 0
    cdef int64_t part
    prefetch(p, min(size_bytes, PREFETCH_BYTES))
    while size_bytes > 0:
        part = min(size_bytes, PREFETCH_BYTES)
        prefetch(p + part, min(size_bytes - part, PREFETCH_BYTES))
        crc = crc32c(crc, p, <size_t>part)
        p += part
        size_bytes -= part
    return crc


cdef inline Status read_header(
    const uint8_t* p, int64_t available, BatchInfo* info, checksum_function crc32c, checksum_function crc32
) noexcept nogil:
    """Read the batch (v2) or message (v0, v1) at `p`; a checksum is verified where its function is given.

    For a wrapper message, whose first offset only its content tells, base_offset is the last offset and
    records_count is -1.
    """
    cdef int64_t size
    cdef int64_t total
    if available <= 0:
        return END
    if available < LOG_OVERHEAD + 5:
        return TRUNCATED
    size = load_i32(p + SIZE_AT)
    if size < V0_MIN:
        return BAD_SIZE
    total = size + LOG_OVERHEAD
    info.magic = <int8_t>p[MAGIC_AT]
    if info.magic < 0 or info.magic > 2:
        return BAD_MAGIC
    if (info.magic == 2 and size < V2_MIN) or (info.magic == 1 and size < V1_MIN):
        return BAD_SIZE
    if total > available:
        return TRUNCATED
    info.size_bytes = total
    info.base_offset = load_i64(p)
    if info.magic == 2:
        info.partition_leader_epoch = load_i32(p + LEADER_EPOCH_AT)
        info.crc = load_u32(p + CRC_AT)
        if crc32c != NULL and sum_bytes(crc32c, p + ATTRIBUTES_AT, total - ATTRIBUTES_AT) != info.crc:
            return BAD_CRC
        info.attributes = load_i16(p + ATTRIBUTES_AT)
        info.last_offset_delta = load_i32(p + LAST_OFFSET_DELTA_AT)
        info.last_offset = info.base_offset + info.last_offset_delta
        info.base_timestamp = load_i64(p + BASE_TIMESTAMP_AT)
        info.max_timestamp = load_i64(p + MAX_TIMESTAMP_AT)
        info.producer_id = load_i64(p + PRODUCER_ID_AT)
        info.producer_epoch = load_i16(p + PRODUCER_EPOCH_AT)
        info.base_sequence = load_i32(p + BASE_SEQUENCE_AT)
        info.records_count = load_i32(p + RECORDS_COUNT_AT)
        if info.last_offset_delta < 0 or info.records_count < 0 or info.base_offset < 0:
            return BAD_HEADER
        if info.last_offset < 0:
            return BAD_HEADER
        # A record takes seven bytes at least.
        if info.attributes & CODEC_MASK == 0 and <int64_t>info.records_count * 7 > total - V2_HEADER:
            return BAD_HEADER
        if info.attributes & CODEC_MASK > 4:
            return BAD_HEADER
        return OK
    info.crc = load_u32(p + 12)
    if crc32 != NULL and crc32(0, p + MAGIC_AT, <size_t>(total - MAGIC_AT)) != info.crc:
        return BAD_CRC
    info.attributes = p[17]
    info.partition_leader_epoch = -1
    info.last_offset_delta = 0
    info.last_offset = info.base_offset
    info.base_timestamp = load_i64(p + 18) if info.magic == 1 else -1
    info.max_timestamp = info.base_timestamp
    info.producer_id = -1
    info.producer_epoch = -1
    info.base_sequence = -1
    info.records_count = 1 if info.attributes & CODEC_MASK == 0 else -1
    if info.attributes & CODEC_MASK > 3 or info.base_offset < 0:
        return BAD_HEADER
    return OK


cdef inline bint is_one_v2_batch(const uint8_t* p, int64_t size_bytes, int refused) noexcept nogil:
    """Whether bytes are one v2 batch with a record and with none of these flags, as far as its first fields say."""
    return (
        size_bytes > V2_HEADER
        and load_i32(p + SIZE_AT) == size_bytes - LOG_OVERHEAD
        and p[MAGIC_AT] == 2
        and not p[FLAGS_AT] & refused
    )


cdef inline void write_header(uint8_t* p, BatchInfo* info) noexcept nogil:
    """Write the header of a v2 batch, without its checksum."""
    store_i64(p, info.base_offset)
    store_i32(p + SIZE_AT, <int32_t>(info.size_bytes - LOG_OVERHEAD))
    store_i32(p + LEADER_EPOCH_AT, info.partition_leader_epoch)
    p[MAGIC_AT] = 2
    store_i16(p + ATTRIBUTES_AT, info.attributes)
    store_i32(p + LAST_OFFSET_DELTA_AT, info.last_offset_delta)
    store_i64(p + BASE_TIMESTAMP_AT, info.base_timestamp)
    store_i64(p + MAX_TIMESTAMP_AT, info.max_timestamp)
    store_i64(p + PRODUCER_ID_AT, info.producer_id)
    store_i16(p + PRODUCER_EPOCH_AT, info.producer_epoch)
    store_i32(p + BASE_SEQUENCE_AT, info.base_sequence)
    store_i32(p + RECORDS_COUNT_AT, info.records_count)


cdef inline void write_checksum(uint8_t* p, int64_t size_bytes, checksum_function crc32c) noexcept nogil:
    """Write the checksum of a v2 batch that is complete."""
    store_i32(p + CRC_AT, <int32_t>crc32c(0, p + ATTRIBUTES_AT, <size_t>(size_bytes - ATTRIBUTES_AT)))


cdef inline int varint_size(int64_t value) noexcept nogil:
    """Return how many bytes a zig-zag varint or varlong takes."""
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    return ((63 - odradek_clz64(raw | 1)) * 9 + 73) >> 6


cdef inline uint8_t* write_varint(uint8_t* p, int64_t value) noexcept nogil:
    """Write a zig-zag varint or varlong; the room was made before."""
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw >= 128:
        p[0] = <uint8_t>(raw | 128)
        p += 1
        raw >>= 7
    p[0] = <uint8_t>raw
    return p + 1


cdef inline tuple header_fields(BatchInfo* info):
    """Return the fields of a `BatchHeader`, in its order."""
    return (
        info.position,
        info.size_bytes,
        info.base_offset,
        info.partition_leader_epoch,
        info.magic,
        info.crc,
        info.attributes,
        info.last_offset_delta,
        info.base_timestamp,
        info.max_timestamp,
        info.producer_id,
        info.producer_epoch,
        info.base_sequence,
        info.records_count,
    )
