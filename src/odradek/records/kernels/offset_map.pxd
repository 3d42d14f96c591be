# cython: language_level=3
# The offset map, for the kernel that filters batches by it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from odradek.records.kernels.record cimport RawRecord, read_deltas, read_key_and_value
from odradek.records.kernels.wire cimport BatchInfo, Status

# A record whose key is about to be looked up.
cdef struct HashedRecord:
    RawRecord raw
    int64_t offset
    uint64_t first_hash
    uint64_t second_hash


cdef inline const uint8_t* parse_record(
    const uint8_t* p, const uint8_t* stop, int64_t base_offset, HashedRecord* record
) noexcept nogil:
    """Read one record of a v2 batch up to its value; the byte after it, or NULL where it contradicts itself."""
    if read_deltas(p, stop, &record.raw) != NULL or record.raw.offset_delta < 0:
        return NULL
    if read_key_and_value(&record.raw) != NULL:
        return NULL
    record.offset = base_offset + record.raw.offset_delta
    return record.raw.end


cdef class OffsetMap:
    cdef unsigned char[::1] _memory
    cdef uint64_t* _slots
    cdef uint64_t _capacity
    cdef uint64_t _k0
    cdef uint64_t _k1
    cdef BatchInfo _info
    cdef int64_t _next
    cdef readonly int64_t size
    cdef readonly int64_t limit
    cdef public int64_t latest_offset

    cdef void _hash(self, const uint8_t* key, int32_t size, uint64_t* first, uint64_t* second) noexcept nogil
    cdef uint64_t* _find(self, uint64_t first, uint64_t second) noexcept nogil
    cdef Status _put(self, uint64_t first, uint64_t second, int64_t offset) noexcept nogil
    cdef Status _add_records(
        self, const uint8_t* start, const uint8_t* stop, int64_t count, int64_t base_offset, int64_t start_offset
    ) noexcept nogil
    cdef Status _walk(
        self, const uint8_t* base, int64_t position, int64_t end, int64_t start_offset
    ) noexcept nogil
